"""Functions and methods that PyTorch has under names of its own, against PyTorch."""
import math
import unittest

import numpy as np

import weft

try:
    import torch
except Exception:
    torch = None

X = np.array([[1.5, -2.0, 0.0], [math.inf, -math.inf, 3.0]], "f4")
Y = np.array([[0.5, 4.0, -1.0], [2.0, 1.0, 0.25]], "f4")
INDICES = np.array([[2, 0], [1, 1]], "i8")

# name -> a function of a module (torch or weft), and its tensors of X, Y and INDICES.
FUNCTIONS = {
    "isposinf": lambda m, x, y, i: m.isposinf(x), "isneginf": lambda m, x, y, i: m.isneginf(x), "isreal": lambda m, x, y, i: m.isreal(x),
    "real": lambda m, x, y, i: m.real(y), "sgn": lambda m, x, y, i: m.sgn(y), "adjoint": lambda m, x, y, i: m.adjoint(y),
    "swapdims": lambda m, x, y, i: m.swapdims(y, 0, 1), "pinverse": lambda m, x, y, i: m.pinverse(y), "rsub": lambda m, x, y, i: m.rsub(y, y * y, alpha=2),
    "clamp_min": lambda m, x, y, i: m.clamp_min(y, 0.4), "clamp_max": lambda m, x, y, i: m.clamp_max(y, 0.4), "clone": lambda m, x, y, i: m.clone(y),
    "take_along_dim": lambda m, x, y, i: m.take_along_dim(y, i, 1), "take_along_dim of all": lambda m, x, y, i: m.take_along_dim(y, i),
    "row_stack": lambda m, x, y, i: m.row_stack([y, x]), "split_with_sizes": lambda m, x, y, i: m.split_with_sizes(y, [1, 2], 1)[1],
    "as_tensor": lambda m, x, y, i: m.as_tensor([1.0, 2.0]), "scalar_tensor": lambda m, x, y, i: m.scalar_tensor(2.5),
    "nelement": lambda m, x, y, i: y.nelement() + y.numel() + y.ndimension() + y.element_size() + m.numel(y),
    "flags": lambda m, x, y, i: [m.is_tensor(x), m.is_tensor(3), m.is_floating_point(y), i.is_floating_point(), m.is_same_size(x, y), y.is_contiguous(),
                                 m.is_nonzero(y[0, 0]), y.is_leaf],
    "broadcast_shapes": lambda m, x, y, i: tuple(m.broadcast_shapes((3, 1), (2,), (4, 1, 1))),
    "byte": lambda m, x, y, i: (y + 2).byte(), "char": lambda m, x, y, i: y.char(), "short": lambda m, x, y, i: y.short(), "type_as": lambda m, x, y, i: i.type_as(y),
    "where": lambda m, x, y, i: y.where(y > 0, y * 0 - 1), "expand_as": lambda m, x, y, i: y[0].expand_as(y), "view_as": lambda m, x, y, i: y.view_as(y.reshape(3, 2)),
    "reshape_as": lambda m, x, y, i: y.reshape_as(y.reshape(6)), "sum_to_size": lambda m, x, y, i: y.sum_to_size(1, 3), "sum_to_size of fewer axes": lambda m, x, y, i: y.sum_to_size((3,)),
    "sum_to_size itself": lambda m, x, y, i: y.sum_to_size(2, 3), "new_zeros": lambda m, x, y, i: y.new_zeros(2, 3), "new_ones": lambda m, x, y, i: i.new_ones((2,)),
    "new_full": lambda m, x, y, i: y.new_full((2, 1), 3.5), "new_tensor": lambda m, x, y, i: y.new_tensor([1, 2]), "H": lambda m, x, y, i: y.H, "mH": lambda m, x, y, i: y.mH,
    "data": lambda m, x, y, i: y.data,
}
# Calls that change a Variable, which are the same in both.
CHANGES = [
    lambda w, y: w.add_(y, alpha=2), lambda w, y: w.sub_(y, alpha=0.5), lambda w, y: w.mul_(y).div_(3.0), lambda w, y: w.copy_(y[0]), lambda w, y: w.fill_(7.0),
    lambda w, y: w.zero_(), lambda w, y: w.clamp_(-0.5, 0.75), lambda w, y: w.clamp_(min=0.1), lambda w, y: w.pow_(2).sqrt_(), lambda w, y: w.relu_(),
    lambda w, y: w.lerp_(y, 0.25), lambda w, y: w.masked_fill_(y > 0, 5.0), lambda w, y: w.addcmul_(y, y, value=0.5), lambda w, y: w.addcdiv_(y, y + 9, value=-2.0),
    lambda w, y: w.tril_(), lambda w, y: w.triu_(1), lambda w, y: w.neg_().exp_().log1p_(), lambda w, y: w.tanh_().abs_(), lambda w, y: w.clamp_min_(0.2).clamp_max_(0.5),
    lambda w, y: w.remainder_(0.4), lambda w, y: w.index_fill_(0, INDEX[type(y)], 3.0),
]
INDEX = {weft.Tensor: weft.tensor([1])}
if torch is not None:
    INDEX[torch.Tensor] = torch.tensor([1])


def plain(value):
    if isinstance(value, weft.Tensor) or (torch is not None and isinstance(value, torch.Tensor)):
        return np.asarray(value.detach())
    return value


@unittest.skipIf(torch is None, "no PyTorch")
class Names(unittest.TestCase):
    def test_functions(self):
        for name, function in FUNCTIONS.items():
            with self.subTest(name=name):
                theirs = plain(function(torch, *(torch.tensor(a) for a in (X, Y, INDICES))))
                mine = plain(function(weft, *(weft.tensor(a) for a in (X, Y, INDICES))))
                if name == "flags":
                    self.assertEqual(mine[:-1], theirs[:-1])  # a Tensor of Weft is a value, and only Variables are leaves
                    self.assertEqual((mine[-1], weft.Variable(Y).is_leaf), (False, True))
                    continue
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
                if isinstance(theirs, np.ndarray):
                    self.assertEqual((mine.shape, mine.dtype), (theirs.shape, theirs.dtype))

    def test_variables_change(self):
        for number, change in enumerate(CHANGES):
            theirs, mine = torch.tensor(Y), weft.Variable(Y * 1)
            change(theirs, torch.tensor(Y * 0.5 - 0.2))
            self.assertIs(change(mine, weft.tensor(Y * np.float32(0.5) - np.float32(0.2))), mine)
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=str(number))

    def test_draws(self):
        weft.manual_seed(5)
        w = weft.Variable(np.zeros(4000, "f4"))
        self.assertTrue(2 <= w.uniform_(2, 3).numpy().min() and 2.9 < w.numpy().max() < 3)
        self.assertAlmostEqual(w.normal_(1, 2).numpy().std(), 2, delta=0.1)
        drawn = weft.randint_like(w, 3, 6)
        self.assertEqual((sorted(set(drawn.tolist())), drawn.dtype.name), ([3, 4, 5], "f32"))

    def test_mistakes_are_errors(self):
        x = weft.tensor(Y)
        for message, make in (("larger than x", lambda: x[0].add_(x)), ("has 6 elements", lambda: weft.is_nonzero(x)),
                              ("do not fit", lambda: weft.broadcast_shapes((2,), (3,))), ("do not fit|does not broadcast", lambda: x.sum_to_size(2, 2))):
            with self.assertRaisesRegex(weft.Error, message):
                make()


if __name__ == "__main__":
    unittest.main()
