"""Changes in place, against PyTorch: x[...] = value, methods that end in _, views, .data and .grad."""
import unittest

import numpy as np

import weft

try:
    import torch
except Exception:
    torch = None

X = np.arange(24, dtype="f4").reshape(2, 3, 4)


def assign(key, value):
    def change(m, x):
        x[key] = value if not isinstance(value, (list, np.ndarray)) else m.tensor(value)
        return x
    return change


def through(view, change):
    """Changes what view(x) shows, and gives x."""
    def both(m, x):
        change(m, view(x))
        return x
    return both


def rows(m, x):
    for row in x:
        row.mul_(2).add_(1)
    return x


def older_values(m, x):
    kept, also = x.clone(), x
    x.add_(1)
    return m.stack([kept, also, x])


CHANGES = {
    "element": assign((0, 1, 2), 7.0), "row": assign(1, 5.0), "rows": assign((slice(None), 1), [[1.0, 2.0, 3.0, 4.0]]),
    "ellipsis": assign((..., -1), [1.5]), "slice with a step": assign((slice(None), slice(0, 3, 2)), 3.0), "None": assign((None, 0), 4.0),
    "integers of a value of i64": assign(0, np.array([1, 2, 3, 4])), "list": assign((slice(None), [2, 0]), 1.0), "range": assign((0, range(2), [3, 1]), [8.0, 9.0]),
    "mask": lambda m, x: assign(x > 10, -1.0)(m, x), "mask of rows": lambda m, x: assign(x[:, :, 0] > 5, [9.0, 8.0, 7.0, 6.0])(m, x),
    "mask and values": lambda m, x: assign(x > 20, [1.0, 2.0, 3.0])(m, x), "mask of the first axis": lambda m, x: assign(x[:, 0, 0] > 5, 2.0)(m, x),
    "tensor of places": lambda m, x: assign((0, m.tensor([2, 0])), [[1.0], [2.0]])(m, x), "itself": lambda m, x: assign_from(m, x),
    "in place by brackets": lambda m, x: plus(m, x), "row by row": rows, "clone and alias": older_values,
    "view": through(lambda x: x.view(6, 4)[2:4], lambda m, v: v.fill_(3.0)), "transposed": through(lambda x: x.transpose(0, 2)[1], lambda m, v: v.zero_()),
    "view of a view": through(lambda x: x[1].reshape(-1)[3:9][::2], lambda m, v: v.add_(100)), "permuted": through(lambda x: x.permute(2, 0, 1), lambda m, v: v[0].mul_(-1)),
    "diagonal": through(lambda x: x[0, :, :3].diagonal(), lambda m, v: v.fill_(-5.0)), "unbind": through(lambda x: x.unbind(1)[2], lambda m, v: v.clamp_(max=12)),
    "chunk": through(lambda x: x.chunk(2, 2)[1], lambda m, v: v.zero_()), "squeeze": through(lambda x: x[:, :1].squeeze(1), lambda m, v: v.sub_(1)),
    "unsqueeze": through(lambda x: x.unsqueeze(0), lambda m, v: v[0, 0].fill_(2.0)), "data": through(lambda x: x.data, lambda m, v: v.mul_(3)),
    "detach": through(lambda x: x.detach()[0], lambda m, v: v.copy_(m.ones(3, 4))), "flatten": through(lambda x: x.flatten(1), lambda m, v: assign((1, 0), 77.0)(m, v)),
    "fill_diagonal_": lambda m, x: x[0].clone()[:, :3].clone().fill_diagonal_(9.0), "masked_fill_": lambda m, x: x.masked_fill_(x % 2 == 0, 0.5),
    "index_add_": lambda m, x: x.index_add_(1, m.tensor([2, 0]), m.ones(2, 2, 4)), "scatter_": lambda m, x: x[0].scatter_(1, m.tensor([[0], [3], [1]]), 50.0),
    "integers": lambda m, x: x.long().mul_(3).sub_(1),
}


def assign_from(m, x):
    x[0] = x[1] * 2
    return x


def plus(m, x):
    x[1] += 1
    x[0, 0] *= 3
    x[:, 2, ::2] -= x[:, 1, ::2]
    return x


@unittest.skipIf(torch is None, "no PyTorch")
class Changes(unittest.TestCase):
    def test_like_pytorch(self):
        for name, change in CHANGES.items():
            with self.subTest(name=name):
                theirs = change(torch, torch.tensor(X)).numpy()
                mine = change(weft, weft.tensor(X)).numpy()
                np.testing.assert_array_equal(mine, theirs)

    def test_of_variables(self):
        for name, change in CHANGES.items():
            if name in ("clone and alias", "fill_diagonal_", "integers"):
                continue
            with self.subTest(name=name):
                theirs, mine = torch.tensor(X, requires_grad=True), weft.tensor(X, requires_grad=True)
                with torch.no_grad(), weft.no_grad():
                    change(torch, theirs), change(weft, mine)
                np.testing.assert_array_equal(mine.numpy(), theirs.detach().numpy())
                self.assertTrue(mine.requires_grad)

    def test_gradients_flow_through_assignments(self):
        for key in ((0, 1), (slice(None), [2, 0]), (..., slice(0, 2))):
            found = []
            for m in (torch, weft):
                x, v = m.tensor(X, requires_grad=True), m.tensor(2.5, requires_grad=True)
                y = x * 2
                y[key] = v
                y[y > 30] = 0
                (y * m.tensor(X)).sum().backward()
                found.append([x.grad.numpy(), v.grad.numpy()])
            for theirs, mine in zip(*found):
                np.testing.assert_allclose(mine, theirs)

    def test_gradients_are_changed(self):
        for m in (torch, weft):
            w = m.ones(3, requires_grad=True)
            (w * m.tensor([1.0, 2.0, 3.0])).sum().backward()
            w.grad.mul_(2)
            w.grad[0] = -1
            self.assertEqual(w.grad.tolist(), [-1, 4, 6])
            w.grad.zero_()
            self.assertEqual(w.grad.tolist(), [0, 0, 0])
            w.data -= 0.5
            w.data[1] = 9
            self.assertEqual(w.tolist(), [0.5, 9, 0.5])
            self.assertTrue(w.requires_grad)


class Own(unittest.TestCase):
    def test_a_view_stays_as_it_was_when_another_is_changed(self):
        """PyTorch shows the change in all views; here a view that was made before keeps its elements."""
        x = weft.zeros(2, 2)
        before = x[0]
        x[0, 0] = 1
        self.assertEqual((before.tolist(), x[0].tolist()), ([0, 0], [1, 0]))

    def test_a_view_alone_does_not_keep_what_it_is_of(self):
        import gc
        import weakref
        x = weft.zeros(4, 2)
        gone, view = weakref.ref(x), x[1]
        del x
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(view.add_(1).tolist(), [1, 1])

    def test_functions_that_are_differentiated_may_change_their_argument(self):
        def f(v):
            v[0] = v[1] * 3
            v.mul_(2)
            return (v * v).sum()

        x = weft.tensor([5.0, 2.0])
        self.assertEqual(weft.grad(f)(x).tolist(), [0, 2 * 4 * 10 * 2])
        self.assertEqual(x.tolist(), [5, 2])
        self.assertEqual(weft.compile(lambda v: (f(v), v)[1])(x).tolist(), [12, 4])

    def test_an_index_outside_changes_nothing(self):
        x = weft.zeros(3)
        x[weft.tensor([5, 1, -7])] = 1.0
        self.assertEqual(x.tolist(), [0, 1, 0])

    def test_mistakes_are_errors(self):
        x, w = weft.zeros(2, 3), weft.ones(2, requires_grad=True)
        with self.assertRaisesRegex(weft.UsageError, "no_grad"):
            w[0] = 1
        with self.assertRaisesRegex(weft.UsageError, "no_grad"):
            w[:1].fill_(2)
        for key, value, message in ((0, [1.0, 2.0], "does not fit"), ((0, 0), [1.0, 2.0], "does not fit")):
            with self.assertRaisesRegex(weft.ShapeError, message):
                x[key] = value
        with self.assertRaises(IndexError):
            x[2] = 1
        with self.assertRaisesRegex(IndexError, "mask"):
            x[weft.tensor([True])] = 1
        with self.assertRaisesRegex(weft.DTypeError, "cast x"):
            weft.tensor([1, 2]).exp_()
        self.assertEqual((x.tolist(), w.tolist()), ([[0] * 3] * 2, [1, 1]))


if __name__ == "__main__":
    unittest.main()
