"""Ops of the table, against NumPy."""
import inspect
import unittest

import numpy as np

import weft

rng = np.random.default_rng(3)
A = rng.normal(size=(3, 4)).astype("f4")
B = rng.normal(size=(3, 4)).astype("f4")
P = abs(A) + 0.1
S = rng.normal(size=(4, 4)).astype("f4")
I = np.array([[3, 1, 2], [0, 2, 1]], "i4")

UNARY = {"abs": A, "neg": A, "exp": A, "log": P, "sqrt": P, "sin": A, "cos": A, "tan": A, "tanh": A, "arcsin": A / 9, "arctan": A,
         "sinh": A, "cosh": A, "log1p": P, "expm1": A, "floor": A, "ceil": A, "trunc": A, "sign": A, "square": A, "log2": P,
         "log10": P, "reciprocal": P, "isnan": A, "isinf": A, "isfinite": A, "exp2": A, "cbrt": A, "deg2rad": A, "rad2deg": A}
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "arctan2", "hypot", "copysign", "logaddexp",
          "logaddexp2", "fmod", "remainder", "floor_divide", "heaviside", "equal", "not_equal", "less", "less_equal", "greater",
          "greater_equal", "logical_and", "logical_or", "logical_xor"]
REDUCTIONS = ["sum", "mean", "prod", "all", "any", "amax", "amin", "count_nonzero"]


class Table(unittest.TestCase):
    def test_every_op_is_a_documented_function(self):
        names = weft.op_names()
        self.assertGreater(len(names), 300)
        for name in names:
            function = getattr(weft, name)
            self.assertTrue(callable(function), name)
            self.assertTrue(function.__doc__, name)
        for name in names:
            op = weft.op(name)
            self.assertIsNotNone(inspect.signature(op), name)
            self.assertEqual(op.__name__, name)
        self.assertEqual(str(inspect.signature(weft.softmax)), "(x, axis=-1)")
        self.assertIn("axis (also dim)", weft.softmax.__doc__)

    def test_methods(self):
        x = weft.tensor(A)
        for name in ["sum", "softmax", "relu", "matmul", "reshape", "transpose", "cumsum", "sort", "exp"]:
            self.assertTrue(callable(getattr(x, name)))
        self.assertEqual(x.reshape(4, 3).shape, (4, 3))
        self.assertEqual(x.reshape((2, -1)).shape, (2, 6))
        self.assertEqual(x.view(12).shape, (12,))
        self.assertEqual(x.permute(1, 0).shape, (4, 3))
        method = x.softmax
        np.testing.assert_array_equal(method(dim=0).numpy(), x.softmax(0).numpy())
        self.assertEqual(weft.zeros(2, 3).shape, (2, 3))
        self.assertEqual(weft.full((2, 2), 7.0, dtype="i32").tolist(), [[7, 7], [7, 7]])

    def test_wrong_arguments(self):
        x = weft.tensor(A)
        for wrong, kind in [(lambda: weft.softmax(), TypeError), (lambda: weft.softmax(x, 0, 0), TypeError),
                            (lambda: weft.softmax(x, nonsense=1), TypeError), (lambda: weft.softmax(x, axis="a"), TypeError),
                            (lambda: weft.softmax(x, 0, axis=0), TypeError), (lambda: weft.softmax(x, axis=7), ValueError),
                            (lambda: weft.softmax(x, dim=0, axis=0), TypeError), (lambda: weft.matmul(x, x), weft.ShapeError),
                            (lambda: weft.op("sotfmax"), ValueError), (lambda: weft.softmax("x"), TypeError),
                            (lambda: weft.softmax(None), TypeError), (lambda: weft.reshape(x, 5, 5), ValueError),
                            (lambda: weft.zeros(-1), ValueError), (lambda: weft.one_hot(x, 3), TypeError),
                            (lambda: weft.mse_loss(x, x, reduction="no"), ValueError), (lambda: weft.cast(x, "f99"), TypeError),
                            (lambda: weft.bitwise_and(x, x), TypeError), (lambda: weft.cat([]), (ValueError, TypeError))]:
            with self.assertRaises(kind):
                wrong()
        try:
            weft.matmul(x, x)
        except weft.ShapeError as error:
            self.assertIn("matmul", str(error))
            self.assertNotIn(".cpp", str(error))


class LikeNumPy(unittest.TestCase):
    def close(self, got, expected, **named):
        named.setdefault("rtol", 2e-5)
        named.setdefault("atol", 1e-6)
        self.assertEqual(got.shape, np.shape(expected))
        np.testing.assert_allclose(got.numpy(), expected, **named)

    def test_unary(self):
        names = {name for op in weft._weft._ops() for name in (op[0], *op[2])}
        tested = 0
        for name, x in UNARY.items():
            if name in names:
                tested += 1
                self.close(getattr(weft, name)(weft.tensor(x)), getattr(np, name if name != "neg" else "negative")(x))
        self.assertGreaterEqual(tested, 20)

    def test_binary(self):
        for name in BINARY:
            self.close(getattr(weft, name)(weft.tensor(A), weft.tensor(B)), getattr(np, name)(A, B))
            self.close(getattr(weft, name)(weft.tensor(A), 0.5), getattr(np, name)(A, np.float32(0.5)))

    def test_reductions(self):
        for name in REDUCTIONS:
            own, theirs = getattr(weft, name), getattr(np, name)
            for axis in [None, 0, 1, -1, (0, 1)]:
                keywords = {} if axis is None else {"axis": axis}
                self.close(own(weft.tensor(A), **keywords), theirs(A, **keywords))
            self.close(own(weft.tensor(A), axis=1, keepdims=True), theirs(A, 1, keepdims=True))
            for kept in (own(weft.tensor(A), 1, True), own(weft.tensor(A), dim=1, keepdim=True)):
                self.close(kept.values if name in ("max", "min") else kept, theirs(A, 1, keepdims=True))
        x = weft.tensor(A)
        self.close(x.var(1), A.var(1, ddof=1))
        self.close(x.std(0, correction=0), A.std(0))
        self.close(x.max(axis=1), A.max(1))
        values, indices = x.max(1)
        self.close(values, A.max(1))
        self.close(indices, A.argmax(1))
        self.close(x.min(dim=0, keepdim=True).values, A.min(0, keepdims=True))
        self.close(weft.max(x, weft.tensor(B)), np.maximum(A, B))
        self.close(x.min(), A.min())
        self.close(x.argmax(1), A.argmax(1))
        self.close(x.norm(), np.linalg.norm(A))
        self.close(weft.logsumexp(x, 1), np.log(np.exp(A).sum(1)))

    def test_layout(self):
        x = weft.tensor(A)
        self.close(weft.cat([x, x], 1), np.concatenate([A, A], 1))
        self.close(weft.concat(x, x, axis=0), np.concatenate([A, A], 0))
        self.close(weft.stack([x, weft.tensor(B)], dim=1), np.stack([A, B], 1))
        self.close(x.flip(0), A[::-1])
        self.close(x.flip((0, 1)), A[::-1, ::-1])
        self.close(weft.roll(x, 1, 1), np.roll(A, 1, 1))
        self.close(weft.pad(x, [(1, 0), (0, 2)]), np.pad(A, [(1, 0), (0, 2)]))
        counts, *edges = weft.histogramdd(weft.tensor([[0.25, 0.5], [0.75, 2.5]]), bins=[2, 1], low=[0, 0.5], high=(1, 3.0))
        self.close(counts, [[1], [1]])
        self.close(edges[1], [0.5, 3])
        self.close(weft.histogramdd(weft.tensor([[0.25, 0.5]]), bins=1, low=0, high=4)[2], [0, 4])
        with self.assertRaisesRegex(TypeError, "low is .* not a list of numbers"):
            weft.histogramdd(x, low=[0, "a"])
        with self.assertRaisesRegex(TypeError, "ratio is .* not a list of numbers"):
            weft.fractional_max_pool2d(weft.ones(1, 1, 6, 6), kernel=2, ratio="half")
        values, _ = weft.fractional_max_pool2d(weft.ones(1, 1, 6, 8), kernel=2, ratio=[0.5, 0.25])
        self.assertEqual(tuple(values.shape), (1, 1, 3, 2))
        self.close(weft.tile(x, 2, 3), np.tile(A, (2, 3)))
        self.close(x.tril(), np.tril(A))
        self.close(x.unsqueeze(0).expand(2, 3, 4), np.broadcast_to(A, (2, 3, 4)))
        self.close(weft.where(x > 0, x, 0.0), np.where(A > 0, A, 0))
        for own, theirs in zip(x.split(2, 1), np.split(A, 2, 1)):
            self.close(own, theirs)
        self.assertEqual([part.shape for part in x.split(3, dim=1)], [(3, 3), (3, 1)])
        for own, theirs in zip(weft.meshgrid([weft.arange(2), weft.arange(3)]), np.meshgrid(np.arange(2), np.arange(3), indexing="ij")):
            self.close(own, theirs)

    def test_joins_and_cuts(self):
        x, row = weft.tensor(A), weft.tensor(A[0])
        for name in ("hstack", "vstack", "dstack", "column_stack"):
            self.close(getattr(weft, name)([x, x]), getattr(np, name)([A, A]))
            self.close(getattr(weft, name)(row, row), getattr(np, name)([A[0], A[0]]))
        self.close(weft.block_diag(x, row)[3], np.concatenate([np.zeros(4), A[0]]))
        for where in (2, 3, [1, 3], (2,)):
            for own, theirs in zip(weft.tensor_split(x, where, 1), np.array_split(A, where, 1), strict=True):
                self.close(own, theirs)
        for own, theirs in zip(x.tensor_split(2, dim=0), np.array_split(A, 2), strict=True):
            self.close(own, theirs)
        for own, theirs in zip(weft.hsplit(x, 2), np.hsplit(A, 2), strict=True):
            self.close(own, theirs)
        for own, theirs in zip(x.vsplit([1]), np.vsplit(A, [1]), strict=True):
            self.close(own, theirs)
        self.close(weft.dsplit(x.unsqueeze(0), [1, 2])[1], A[None, :, 1:2])
        self.assertRaises(weft.ShapeError, weft.vsplit, x, 2)

    def test_distances_and_samples(self):
        x, y = weft.tensor(A), weft.tensor(B)
        self.close(weft.cdist(x, y, 1), np.abs(A[:, None] - B[None]).sum(-1))
        self.close(weft.trapezoid(x, dx=0.5), np.trapz(A, dx=0.5))
        for own, theirs in zip(weft.gradient(x, 0.5, weft.tensor([0.0, 1, 3, 4])), np.gradient(A, 0.5, [0, 1, 3, 4]), strict=True):
            self.close(own, theirs)
        self.close(weft.gradient(x, axis=1, edge_order=2)[0], np.gradient(A, axis=1, edge_order=2))
        self.close(weft.around(x, 1), np.around(A, 1))
        self.assertEqual(weft.isin(weft.arange(5), weft.tensor([1, 3])).tolist(), [False, True, False, True, False])
        values, inverse, counts = weft.unique(weft.tensor([[1, 2], [0, 5], [1, 2]]), return_inverse=True, return_counts=True, axis=0)
        self.assertEqual([values.tolist(), inverse.tolist(), counts.tolist()], [[[0, 5], [1, 2]], [1, 0, 1], [1, 2]])

    def test_order_and_index(self):
        x = weft.tensor(A)
        values, places = x.sort(1, descending=True)
        self.close(values, -np.sort(-A, 1))
        self.close(weft.tensor(A).gather(1, places), -np.sort(-A, 1))
        self.close(x.gather(places, 1), -np.sort(-A, 1))
        self.close(x.cumsum(1), A.cumsum(1))
        self.close(weft.take_along_axis(weft.tensor(I), weft.tensor(I.argsort(1).astype("i4")), 1), np.sort(I, 1))
        self.close(x.index_select(1, weft.tensor([2, 0])), A[:, [2, 0]])
        self.close(weft.unique(weft.tensor(I)), np.unique(I))
        self.close(weft.nonzero(weft.tensor(I)), np.argwhere(I))
        self.close(weft.searchsorted(weft.tensor([1.0, 2.0, 3.0]), weft.tensor([2.5])), [2])
        self.close(weft.one_hot(weft.tensor(I[0]), 4), np.eye(4)[I[0]])
        self.close(weft.quantile(x, 0.3, 1), np.quantile(A, 0.3, axis=1), rtol=1e-4)

    def test_products(self):
        a = rng.normal(size=(2, 3, 4)).astype("f4")
        b = rng.normal(size=(2, 4, 5)).astype("f4")
        self.close(weft.matmul(weft.tensor(a), weft.tensor(b)), a @ b, rtol=1e-4)
        self.close(weft.einsum("bij,bjk->bik", weft.tensor(a), b), a @ b, rtol=1e-4)
        spd = S @ S.T + 4 * np.eye(4, dtype="f4")
        self.close(weft.inverse(weft.tensor(spd)), np.linalg.inv(spd), rtol=1e-3, atol=1e-4)
        self.close(weft.det(weft.tensor(spd)), np.linalg.det(spd), rtol=1e-3)
        u, s, v = weft.svd(weft.tensor(S))
        self.close(s, np.linalg.svd(S)[1], rtol=1e-3)
        self.close(weft.outer(weft.tensor(A[0]), weft.tensor(B[0])), np.outer(A[0], B[0]))
        self.close(weft.softmax(weft.tensor(A)), np.exp(A) / np.exp(A).sum(-1, keepdims=True))

    def test_making(self):
        self.close(weft.arange(5), np.arange(5))
        self.close(weft.arange(1, 2, 0.25), np.arange(1, 2, 0.25))
        self.assertEqual(weft.arange(3).dtype, "i32")
        self.close(weft.linspace(0, 1, 5), np.linspace(0, 1, 5))
        self.close(weft.eye(3), np.eye(3))
        weft.manual_seed(1)
        x = weft.rand(1000)
        self.assertTrue(0 <= x.min().item() < 0.1 and 0.9 < x.max().item() < 1)
        self.assertAlmostEqual(weft.randn(10000).std().item(), 1, delta=0.1)
        self.assertEqual(weft.randint(0, 5, (3, 3)).shape, (3, 3))
        self.assertEqual(sorted(weft.randperm(6).tolist()), list(range(6)))
        self.assertEqual(weft.zeros(2, 2, device="cpu").device, "cpu")

    def test_own_ops(self):
        mish = weft.register_op("py_mish", ["x"], "x * tanh(log(1 + exp(x)))")
        self.close(mish(weft.tensor(A)), A * np.tanh(np.log1p(np.exp(A))))
        scaled = weft.register_op("py_scaled", ["x"], "x * beta", attributes=[("beta", 2.0)])
        self.close(scaled(weft.tensor(A), beta=3), A * 3)
        self.close(weft.grad(scaled(weft.tensor(A)).sum(), weft.tensor(A)), np.zeros_like(A))
        x = weft.tensor(A)
        self.close(weft.grad(scaled(x).sum(), x), np.full_like(A, 2))
        with self.assertRaisesRegex(ValueError, "py_wrong"):
            weft.register_op("py_wrong", ["x"], "x +")
        self.close(weft.op("py_scaled")(x), A * 2)

    def test_own_kernels(self):
        def running(inputs, outputs, values):
            outputs[0][:] = np.maximum.accumulate(inputs[0], axis=1) * values["scale"]

        f = weft.register_kernel("py_running", ["x"], lambda inputs, values: inputs, cpu=running, attributes=[("scale", 1.0)],
                                 gradient=lambda inputs, outputs, gradients, values: [gradients[0] * (inputs[0] == outputs[0])])
        x = weft.tensor(A)
        self.close(f(x), np.maximum.accumulate(A, 1))
        self.close(f(x, scale=2), 2 * np.maximum.accumulate(A, 1))
        self.close(f(x * 2) + 1, 2 * np.maximum.accumulate(A, 1) + 1)
        self.close(weft.grad(f(x).sum(), x), (A == np.maximum.accumulate(A, 1)).astype("f4"))

        def fails(inputs, outputs, values):
            raise RuntimeError("not today")

        g = weft.register_kernel("py_fails", ["x"], lambda inputs, values: inputs, cpu=fails)
        with self.assertRaisesRegex(RuntimeError, "not today"):
            g(x).eval()
        h = weft.register_kernel("py_bad_shape", ["x"], lambda inputs, values: [("f32", (-1,))], cpu=fails)
        with self.assertRaises(ValueError):
            h(x).eval()


if __name__ == "__main__":
    unittest.main()
