"""Tensors: memory shared with other libraries, indexing, operators, printing."""
import copy
import gc
import pickle
import unittest
import weakref

import numpy as np

import weft
from weft import nn

DTYPES = ["f4", "f8", "f2", "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


class Conversion(unittest.TestCase):
    def test_numbers_and_lists(self):
        for data, dtype in [(1, "i32"), (1.5, "f32"), (True, "bool"), (2**40, "i64"), ([1, 2], "i32"), ([1, 2.5], "f32"),
                            ([[True, False]], "bool"), ([], "f32"), ([[], []], "f32")]:
            x = weft.tensor(data)
            self.assertEqual(x.dtype, dtype, data)
            self.assertEqual(x.tolist(), data)
        self.assertEqual(weft.tensor([1, 2], dtype="f64").tolist(), [1.0, 2.0])
        self.assertEqual(weft.tensor([2**53 + 1], dtype=weft.i64).item(), 2**53 + 1)
        self.assertEqual(weft.tensor([weft.tensor([1, 2]), [3, 4]]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(weft.tensor(np.float64(2)).dtype, "f64")
        self.assertEqual(weft.tensor(np.arange(3, dtype="i2")[::2]).tolist(), [0, 2])
        self.assertEqual(weft.tensor(np.asfortranarray(np.arange(6.0).reshape(2, 3))).tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_every_numpy_type_both_ways(self):
        for code in DTYPES:
            a = np.array([[0, 1, 2], [3, 4, 5]]).astype(code)
            for x in (weft.tensor(a), weft.asarray(a), weft.asarray(a.T).T, weft.from_dlpack(a) if code != "?" else weft.asarray(a)):
                back = x.numpy()
                self.assertEqual(back.dtype, a.dtype)
                np.testing.assert_array_equal(back, a)
        for code in [">f4", "c8", "U3", "O", "M8[s]"]:
            with self.assertRaises((TypeError, ValueError)):
                weft.tensor(np.zeros(2, code))

    def test_numpy_shares_memory_both_ways(self):
        a = np.arange(1000, dtype="f4").reshape(10, 100)
        x = weft.from_numpy(a)
        self.assertTrue(np.shares_memory(x.numpy(), a))
        self.assertFalse(np.shares_memory(weft.tensor(a).numpy(), a))
        y = (x * 2).numpy()
        np.testing.assert_array_equal(y, a * 2)
        self.assertFalse(y.flags.writeable)  # tensors never change
        z = x * 3
        z.eval()
        self.assertEqual(z.numpy().__array_interface__["data"][0], z.numpy().__array_interface__["data"][0])
        self.assertTrue(np.shares_memory(np.from_dlpack(z), z.numpy()))
        self.assertTrue(np.shares_memory(weft.from_dlpack(z.numpy()).numpy(), z.numpy()))
        np.testing.assert_array_equal(np.asarray(z, dtype="f8"), a * 3.0)
        self.assertIs(np.array(z).flags.writeable, True)  # a copy

    def test_shared_memory_lives_as_long_as_it_is_used(self):
        class Array(np.ndarray):
            pass

        a = np.arange(64.0).view(Array)
        gone = weakref.ref(a)
        x = weft.asarray(a)
        del a
        gc.collect()
        self.assertIsNotNone(gone())
        y = x + 1
        y.eval()
        self.assertEqual(x.tolist()[5], 5)
        del x, y
        gc.collect()
        self.assertIsNone(gone())
        values = (weft.arange(1000) * 2).numpy()  # the tensor is gone, its memory is not
        gc.collect()
        self.assertEqual(values[-1], 1998)

    def test_a_variable_does_not_write_into_an_array(self):
        a = np.ones(100, "f4")
        a.flags.writeable = False
        v = weft.Variable(weft.from_numpy(a))
        w = weft.Variable(weft.ones((100,)))
        w.assign(weft.from_numpy(a))

        @weft.compile
        def step(x):
            v.assign(v + x)
            w.assign(w - x)
            return (v + w).sum()

        for i in range(3):
            self.assertEqual(step(weft.ones((100,))).item(), 200)
        self.assertEqual(a.sum(), 100)
        self.assertEqual(v.numpy()[0], 4)
        held = v.numpy()
        step(weft.ones((100,)))
        self.assertEqual(held[0], 4)  # a view of the old value stays as it is

    def test_misaligned_arrays(self):
        raw = np.zeros(2000, "u1")
        for shift in (0, 1, 4, 12):
            a = raw[shift:shift + 1024].view("f4")
            a[:] = np.arange(256)
            x = weft.asarray(a)
            np.testing.assert_allclose((x.exp().log() if shift else x * 1).numpy()[:20], a[:20], rtol=1e-5)
            np.testing.assert_allclose(weft.matmul(x.reshape(16, 16), x.reshape(16, 16)).numpy(), a.reshape(16, 16) @ a.reshape(16, 16), rtol=1e-5)
            self.assertEqual(x.sum().item(), a.sum())

    def test_dlpack_capsules(self):
        x = weft.arange(6, dtype="f32").reshape(2, 3) * 1
        y = weft.from_dlpack(x.__dlpack__())
        np.testing.assert_array_equal(x.numpy(), y.numpy())
        capsule = x.__dlpack__(max_version=(1, 0))
        weft.from_dlpack(capsule)
        with self.assertRaisesRegex(ValueError, "once"):
            weft.from_dlpack(capsule)
        del capsule
        x.__dlpack__()  # a capsule that nobody uses
        gc.collect()
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        self.assertEqual(weft.from_dlpack(x.astype("bf16").__dlpack__()).dtype, "bf16")
        with self.assertRaises(BufferError):
            x.__dlpack__(stream=1)
        with self.assertRaises(BufferError):
            x.__dlpack__(dl_device=(2, 0))

    def test_scalars(self):
        x = weft.tensor([3.5])
        self.assertEqual((float(x), int(x), bool(x), f"{x:.2f}"), (3.5, 3, True, "3.50"))
        self.assertEqual([10, 20, 30][weft.tensor(1)], 20)
        for wrong in (lambda: bool(weft.zeros(2)), lambda: weft.zeros(2).item(), lambda: float(weft.zeros(2))):
            self.assertRaises(ValueError, wrong)
        self.assertRaises(TypeError, lambda: [1, 2][x])
        self.assertEqual(weft.tensor(-5, dtype="i8").item(), -5)
        self.assertEqual(weft.tensor(1.5, dtype="bf16").item(), 1.5)

    def test_pickle_copy_hash(self):
        x = weft.tensor([[1.0, 2.0]])
        for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
            self.assertEqual(y.tolist(), x.tolist())
        v = weft.Variable([1.0], "v")
        w = copy.deepcopy(v)
        w.assign([2.0])
        self.assertEqual((v.item(), w.item()), (1, 2))
        self.assertEqual(pickle.loads(pickle.dumps(v)).name, "v")
        self.assertEqual(pickle.loads(pickle.dumps(weft.f16)), weft.f16)
        self.assertEqual(str(pickle.loads(pickle.dumps(x.device))), "cpu")
        self.assertEqual(len({x, x, v}), 2)
        self.assertIs(pickle.loads(pickle.dumps(weft.softmax)).__class__, weft.Op)

    def test_text(self):
        x = weft.tensor([[1.0, 2.0]])
        self.assertIn("f32", repr(x))
        self.assertIn("1", str(x))
        self.assertIn("<table>", x._repr_html_())
        self.assertIn("&hellip;", weft.zeros(100, 100)._repr_html_())
        for shape in [(), (0,), (3,), (2, 0), (2, 3, 4)]:
            self.assertIn("f32", weft.zeros(shape)._repr_html_())
        self.assertIn("weft.f32", repr(weft.f32))
        self.assertEqual(str(x.device), "cpu")
        self.assertEqual(x.device, "cpu")
        self.assertNotEqual(x.dtype, "nothing")

    def test_attributes(self):
        x = weft.zeros(2, 3, dtype="f16")
        self.assertEqual((x.shape, x.ndim, x.size, x.numel(), x.nbytes, len(x)), ((2, 3), 2, 6, 6, 12, 2))
        self.assertEqual(x.T.shape, (3, 2))
        self.assertEqual(weft.zeros(2, 3, 4).mT.shape, (2, 4, 3))
        self.assertEqual(x.to("f32").dtype, weft.float32)
        self.assertEqual(x.to("cpu", dtype=float).dtype, "f32")
        self.assertEqual(x.float().dtype, "f32")
        self.assertEqual([row.shape for row in x], [(3,), (3,)])
        self.assertIn(0, x)
        with self.assertRaises(AttributeError):
            x.nonsense
        self.assertEqual((x.size(), x.size(1), x.size() + (1,)), ((2, 3), 3, (2, 3, 1)))

    def test_array_interface_of_numpy_functions(self):
        x = weft.tensor([1.0, 4.0])
        np.testing.assert_allclose(np.sqrt(x), [1, 2])
        self.assertIsInstance(np.ones(2, "f4") + x, weft.Tensor)
        self.assertIsInstance(x + np.ones(2, "f4"), weft.Tensor)
        np.testing.assert_allclose((np.ones(2, "f4") * x).numpy(), [1, 4])

    def test_functions_of_numpy_take_tensors(self):
        x, a = weft.tensor([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]], "f4")
        for call in (np.sum, np.mean, np.std, np.max, np.any, np.argsort, np.nonzero, np.ravel, np.linalg.norm, np.cumsum,
                     lambda v: np.mean(v, axis=0, keepdims=True), lambda v: np.concatenate([v, v], axis=1), lambda v: np.stack((v, v)),
                     lambda v: np.repeat(v, 2), lambda v: np.where(v > 1, v, 0), lambda v: np.einsum("ij->j", v), lambda v: np.round(v, 1),
                     lambda v: np.clip(v, 2, 3), lambda v: np.dot(v, v), lambda v: np.split(v, 2)):
            given, wanted = call(x), call(a)
            self.assertIs(type(given), type(wanted))
            np.testing.assert_allclose(given, wanted, rtol=1e-6)
        self.assertEqual((np.shape(x), np.ndim(x), np.size(x)), ((2, 2), 2, 4))
        weft.compile(lambda v: self.assertEqual(np.shape(v), (2, 2)) or v * 2)(x)

    def test_arrays_may_change_after_a_call(self):
        """Values are computed later, so what is made of an array holds its elements of now."""
        layer = nn.Linear(3, 2, bias=False)
        weight = layer.weight.numpy().copy()
        state = weft.Variable(np.zeros((2, 3), "f4"))
        for call, wanted in ((lambda a: weft.exp(a), np.exp), (lambda a: a + weft.ones(2, 3), lambda a: a + 1),
                             (lambda a: weft.ones(2, 3) * a, lambda a: a), (lambda a: layer(a), lambda a: a @ weight.T),
                             (lambda a: weft.concat([a, a]), lambda a: np.concatenate([a, a])), (weft.sum, np.sum),
                             (lambda a: weft.tensor([a, a]), lambda a: np.stack([a, a])), (weft.squeeze, lambda a: a),
                             (lambda a: weft.einsum("ij->j", a), lambda a: a.sum(0)), (lambda a: state.assign(a) or state, lambda a: a)):
            a = np.arange(6, dtype="f4").reshape(2, 3)
            expected = np.array(wanted(a))
            made = call(a)
            a[:] = 100
            np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)
        a = np.ones((2, 3), "f4")
        layer.load_state_dict({"weight": a})
        a[:] = 100
        self.assertEqual(layer.weight.sum().item(), 6)
        x = weft.asarray(a)  # this is how to share
        self.assertTrue(np.shares_memory(x.numpy(), a))

    def test_forms_of_pytorch(self):
        x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual(weft.ones(1, 2, 1).squeeze().shape, (2,))
        self.assertEqual(weft.ones(1, 2, 1).squeeze((0, -1)).shape, (2,))
        self.assertEqual(weft.squeeze(weft.ones(1, 2, 1), dim=0).shape, (2, 1))
        for wrong in (lambda: weft.ones(2, 3).squeeze(1), lambda: x.squeeze((0, 5)), lambda: x.expand(-1, 2, 2), lambda: weft.ones(1, 2, 3).t()):
            self.assertRaises(weft.ShapeError, wrong)
        self.assertEqual(x.t().tolist(), [[1, 3], [2, 4]])
        self.assertEqual(x.ravel().tolist(), [1, 2, 3, 4])
        self.assertIs(x.contiguous(), x)
        self.assertEqual((x[:1].expand(3, -1).shape, x.expand((5, -1, -1)).shape), ((3, 2), (5, 2, 2)))
        self.assertEqual([each.tolist() for each in divmod(weft.tensor([7, -7]), 3)], [[2, -3], [1, 2]])
        self.assertEqual([each.tolist() for each in divmod(7, weft.tensor([2, 3]))], [[3, 2], [1, 1]])
        self.assertEqual([f(x).dtype.name for f in (weft.zeros_like, lambda v: weft.zeros_like(v, dtype="i32"), lambda v: weft.ones_like(v, "f64"),
                                                    lambda v: weft.full_like(v, 2, dtype="i64"))], ["f32", "i32", "f64", "i64"])
        self.assertEqual(weft.clamp(x, weft.tensor([2.0, 3.0]), 3.5).tolist(), [[2, 3], [3, 3.5]])
        self.assertEqual((x.clamp(min=2).tolist(), x.clip(max=2).tolist()), ([[2, 2], [3, 4]], [[1, 2], [2, 2]]))
        indices = weft.tensor([[0], [1]])
        self.assertEqual(x.scatter_add(1, indices, weft.ones(2, 1)).tolist(), [[2, 2], [3, 5]])
        self.assertEqual(x.scatter_add(dim=1, index=indices, src=weft.ones(2, 1)).tolist(), [[2, 2], [3, 5]])
        self.assertEqual(weft.scatter_add(weft.tensor([0, 2]), x, rows=3).tolist(), [[1, 2], [0, 0], [3, 4]])
        self.assertEqual(weft.tensor(range(3)).tolist(), [0, 1, 2])
        self.assertRaisesRegex(TypeError, "got None", weft.tensor, None)
        self.assertEqual((x.itemsize, weft.mean(weft.tensor([])).tolist() != 0), (4, True))
        self.assertEqual(repr(weft.mean(weft.tensor([]))), "f32 [] nan")

    def test_torch(self):
        try:
            import torch
            import torch.utils.dlpack
        except Exception as error:
            self.skipTest(f"no PyTorch: {error}")
        t = torch.arange(12, dtype=torch.float32).reshape(3, 4)
        x = weft.from_dlpack(t)
        self.assertEqual(x.numpy().ctypes.data, t.data_ptr())
        np.testing.assert_array_equal(weft.from_dlpack(t.t()).numpy(), t.t().numpy())
        back = torch.utils.dlpack.from_dlpack((x * 2).__dlpack__())
        np.testing.assert_array_equal(back.numpy(), t.numpy() * 2)
        self.assertEqual(weft.from_dlpack(t.to(torch.bfloat16)).dtype, "bf16")


class Indexing(unittest.TestCase):
    KEYS = [0, -1, slice(None), slice(1, 3), slice(None, None, -1), slice(5, None, -2), slice(-2, None), slice(4, 1), slice(0, 100, 3),
            None, ..., (0, 1), (..., 0), (0, ..., -1), (slice(None), 2), (None, 0, None), (slice(1, 3), slice(None, None, 2), 1),
            [0, 2], [[0, 1], [2, 0]], ([0, 1], [1, 2]), (slice(None), [0, 2, 1]), ([0, 1], slice(None), [1, 2]), ([0, 2], 1),
            (0, [1, 2], slice(None, None, -1)), (..., [0, -1]), ([[0], [2]], [0, 1]), (slice(1, None), [1, 0], [0, 3]),
            np.array([2, 0]), np.int64(1), (np.int32(1), ...), [], (slice(None), []), (None, [1, 0])]

    def test_like_numpy(self):
        a = np.arange(60, dtype="f4").reshape(3, 5, 4)
        x = weft.tensor(a)
        for key in self.KEYS:
            with self.subTest(key=key):
                expected = a[np.array(key, int) if isinstance(key, list) and not key else key] if not (isinstance(key, tuple) and [] in [k for k in key if isinstance(k, list)]) else a[:, np.array([], int)]
                got = x[key]
                self.assertEqual(got.shape, expected.shape)
                np.testing.assert_array_equal(got.numpy(), expected)

    def test_masks(self):
        a = np.arange(24).reshape(2, 3, 4)
        x = weft.tensor(a)
        for key in [a > 5, (a > 5)[:, :, 0], np.array([True, False]), (slice(None), np.array([True, False, True])),
                    (0, a[0] > 3), (..., np.array([True, False, False, True])), np.zeros((2, 3, 4), bool)]:
            np.testing.assert_array_equal(x[key].numpy(), a[key])
        np.testing.assert_array_equal(x[x > 5].numpy(), a[a > 5])
        np.testing.assert_array_equal(x[weft.tensor([1, 0]), weft.tensor([2, 1])].numpy(), a[[1, 0], [2, 1]])

    def test_errors(self):
        x = weft.zeros(3, 4)
        for key in [3, -4, (0, 4), (0, 0, 0), (..., ...), [3], ([0], [4]), 1.5, "a", np.zeros((2, 2), bool), np.zeros(3), {}]:
            with self.subTest(key=key), self.assertRaises((IndexError, TypeError)):
                x[key]
        with self.assertRaises(ValueError):
            x[::0]
        with self.assertRaises(IndexError):
            x[10**30]
        with self.assertRaises(IndexError):
            weft.tensor(1.0)[0]
        self.assertEqual(x[-(10**30):10**30].shape, (3, 4))


class Operators(unittest.TestCase):
    def test_like_numpy(self):
        a, b = np.array([[1.5, -2.0], [3.0, 4.0]], "f4"), np.array([2.0, 0.5], "f4")
        i, j = np.array([7, -5, 3], "i4"), np.array([2, 3, -2], "i4")
        for f in [lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p / q, lambda p, q: p < q,
                  lambda p, q: p <= q, lambda p, q: p == q, lambda p, q: p != q, lambda p, q: p >= q, lambda p, q: p > q,
                  lambda p, q: p // q, lambda p, q: p % q, lambda p, q: -p + abs(q), lambda p, q: +p, lambda p, q: p * 2 + 1 - q / 4,
                  lambda p, q: 2 - p, lambda p, q: 1 / (q + 4)]:
            for p, q in [(a, b), (i, j)]:
                expected = f(p, q)
                got = f(weft.tensor(p), weft.tensor(q))
                np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose((weft.tensor(a) @ weft.tensor(a)).numpy(), a @ a)
        np.testing.assert_allclose((weft.tensor(abs(a)) ** 1.5).numpy(), abs(a) ** 1.5, rtol=1e-6)
        np.testing.assert_array_equal((~(weft.tensor(i) > 0) | (weft.tensor(j) > 0)).numpy(), ~(i > 0) | (j > 0))
        np.testing.assert_array_equal((weft.tensor(i) & 3 ^ 1).numpy(), i & 3 ^ 1)
        np.testing.assert_array_equal((weft.tensor(i) << 2 >> 1).numpy(), i << 2 >> 1)

    def test_numbers_do_not_promote(self):
        for dtype in ["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64"]:
            x = weft.ones((2,), dtype=dtype)
            self.assertEqual((x + 1).dtype, dtype)
            self.assertEqual((True * x).dtype, dtype)
            self.assertEqual((x * 2.5).dtype, dtype if dtype in ("f16", "bf16", "f32", "f64") else "f32")
        self.assertEqual((weft.tensor(2**40) + 2**50).item(), 2**40 + 2**50)
        self.assertEqual((weft.tensor([2**62]) + 1).item(), 2**62 + 1)

    def test_unsupported_operands(self):
        x = weft.zeros(2)
        for other in ["a", object(), {}, 1j, None]:
            for f in [lambda: x + other, lambda: other + x, lambda: x @ other, lambda: x < other]:
                with self.assertRaises(TypeError):
                    f()
        self.assertFalse(x is None)
        with self.assertRaises(OverflowError):
            weft.tensor([1], dtype="i64") + 2**70
        with self.assertRaises(TypeError):
            pow(x, 2, 3)

    def test_in_place(self):
        x = y = weft.ones(2)
        x += 1
        self.assertEqual((x.tolist(), y.tolist()), ([2, 2], [1, 1]))
        v = w = weft.Variable([1.0, 2.0])
        with self.assertRaisesRegex(ValueError, "no_grad"):
            v += 1
        with weft.no_grad():
            v += 1
            v *= weft.tensor([2.0, 3.0])
        self.assertIs(v, w)
        self.assertEqual(v.tolist(), [4, 9])


if __name__ == "__main__":
    unittest.main()
