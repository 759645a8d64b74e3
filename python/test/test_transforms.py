"""Transforms of functions, hooks, and what finds the first NaN."""
import gc
import unittest
import weakref

import numpy as np

import weft
from weft import nn

X = weft.tensor([1.0, 2.0])


def cubes(x):
    return x * x * x


class Transforms(unittest.TestCase):
    def test_vjp(self):
        y, pull = weft.vjp(lambda x: x * x.sum(), X)
        self.assertEqual(y.tolist(), [3, 6])
        self.assertEqual(pull(weft.tensor([1.0, 0.0])).tolist(), [4, 1])
        (a, b), pull = weft.vjp(lambda x, y: (x * y, x + y), X, weft.tensor([3.0, 4.0]))
        self.assertEqual((a.tolist(), b.tolist()), ([3, 8], [4, 6]))
        gx, gy = pull(weft.ones(2), None)
        self.assertEqual((gx.tolist(), gy.tolist()), ([3, 4], [1, 2]))
        with self.assertRaisesRegex(ValueError, "seed"):
            pull(weft.ones(2))
        with self.assertRaises(weft.ShapeError):
            pull(weft.ones(3), None)
        with self.assertRaisesRegex(TypeError, "not a function"):
            weft.vjp(3, X)
        with self.assertRaisesRegex(TypeError, "float, not a Tensor"):
            weft.vjp(lambda x: 1.0, X)
        with self.assertRaises(ZeroDivisionError):
            weft.vjp(lambda x: x / (1 // 0), X)

    def test_jvp(self):
        y, change = weft.jvp(cubes, X, weft.tensor([1.0, 0.0]))
        self.assertEqual((y.tolist(), change.tolist()), ([1, 8], [3, 0]))
        y, change = weft.jvp(lambda x, y: x * y, (X, weft.tensor([3.0, 4.0])), (None, weft.ones(2)))
        self.assertEqual(change.tolist(), [1, 2])
        with self.assertRaises(ValueError):
            weft.jvp(cubes, X, (weft.ones(2), weft.ones(2)))

    def test_jacobian_and_hessian(self):
        f = lambda x: x * x.sum()
        self.assertEqual(weft.jacobian(f, X).tolist(), [[4, 1], [2, 5]])
        self.assertEqual(weft.jacobian(f, X, forward=True).tolist(), [[4, 1], [2, 5]])
        self.assertEqual(weft.hessian(lambda x: cubes(x).sum(), X).tolist(), [[6, 0], [0, 12]])
        with self.assertRaises(TypeError):
            weft.jacobian(f, weft.tensor([1, 2]))

    def test_vmap(self):
        weight, batch = weft.ones(3, 2), weft.arange(12.0).reshape(4, 3)
        loss = lambda w, row: weft.square(weft.matmul(row, w)).sum()
        each = weft.vmap(weft.grad(loss), (None, 0))(weight, batch)
        self.assertEqual(each.shape, (4, 3, 2))
        for i in range(4):
            np.testing.assert_allclose(each[i].numpy(), weft.grad(loss)(weight, batch[i]).numpy(), rtol=1e-6)
        a, b = weft.vmap(lambda x: (x.sum(), x * 2), out_axis=0)(batch)
        self.assertEqual((a.tolist(), b.shape), ([3, 12, 21, 30], (4, 3)))
        self.assertEqual(weft.vmap(lambda x: x, 1, 1)(batch).shape, (4, 3))
        with self.assertRaisesRegex(ValueError, "3 in_axes for 1"):
            weft.vmap(lambda x: x, (0, 0, 0))(batch)
        with self.assertRaises(ValueError):
            weft.vmap(lambda x: x * x.sum().item())(batch)
        with self.assertRaises(ValueError):
            weft.vmap(lambda x: x, None)(batch)

    def test_custom_gradient(self):
        through = weft.custom_gradient(lambda x: weft.round(x), lambda inputs, results, gradients: gradients[0])
        x = weft.tensor([0.4, 1.6])
        y = through(x)
        self.assertEqual(y.tolist(), [0, 2])
        self.assertEqual(weft.grad((y * y).sum(), x).tolist(), [0, 4])
        self.assertEqual(weft.hessian(lambda v: (through(v) ** 2).sum(), x).tolist(), [[2, 0], [0, 2]])
        both = weft.custom_gradient(lambda x, y: (x + y, x - y), lambda inputs, results, gradients: [gradients[0], None])
        a, b = both(x, x * 2)
        self.assertEqual(weft.grad(a.sum() + b.sum(), x).tolist(), [1, 1])
        wrong = weft.custom_gradient(lambda x: x, lambda inputs, results, gradients: [])
        with self.assertRaisesRegex(ValueError, "custom_gradient"):
            weft.grad(wrong(x).sum(), x)

        def fails(inputs, results, gradients):
            raise KeyError("own error")

        with self.assertRaisesRegex(KeyError, "own error"):
            weft.grad(weft.custom_gradient(lambda x: x * 1, fails)(x).sum(), x)

    def test_they_compose_and_compile(self):
        f = lambda x: weft.jvp(weft.grad(lambda v: cubes(v).sum()), x, weft.ones(2))[1]
        self.assertEqual(f(X).tolist(), [6, 12])
        self.assertEqual(weft.compile(f)(X).tolist(), [6, 12])

    def test_gradcheck(self):
        a, b = weft.tensor([0.3, -1.0], dtype="f64"), weft.tensor([2.0, 0.5], dtype="f64")
        report = weft.gradcheck(lambda x, y: x * weft.tanh(y), a, b, second_order=True)
        self.assertTrue(report, report.message)
        wrong = weft.custom_gradient(lambda x: x * x, lambda inputs, results, gradients: gradients[0])
        report = weft.gradcheck(wrong, a, forward=False)
        self.assertFalse(report)
        self.assertIn("differ", report.message)
        with self.assertRaises(ValueError):
            weft.gradcheck(cubes, X)  # f32


class Hooks(unittest.TestCase):
    def test_of_variables_and_tensors(self):
        w = weft.Variable(weft.tensor([1.0, 2.0]))
        seen = []
        handle = weft.register_hook(w, lambda g: weft.clamp(g, -3, 3))
        other = weft.register_hook(w, lambda g: seen.append(g.tolist()))
        (w * w).sum().backward()
        self.assertEqual((w.grad.tolist(), seen), ([2, 3], [[2, 3]]))
        handle.remove()
        other.remove()
        w.zero_grad()
        (w * w).sum().backward()
        self.assertEqual(w.grad.tolist(), [2, 4])
        y = weft.with_gradient_hook(X, lambda g: g * 10)
        self.assertEqual(weft.grad((y * y).sum(), X).tolist(), [20, 40])
        for wrong in (lambda: weft.register_hook(X, lambda g: g), lambda: weft.register_hook(w, 3),
                      lambda: weft.with_gradient_hook(weft.tensor([1]), lambda g: g)):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaises(TypeError):
            weft.grad(weft.with_gradient_hook(X, lambda g: "x").sum(), X)

    def test_that_refer_to_their_variable_are_collected(self):
        def hooked():
            w = weft.Variable(weft.tensor([1.0, 2.0]))
            weft.register_hook(w, lambda g: g + w)
            (w * w).sum().backward()
            self.assertEqual(w.grad.tolist(), [3, 6])
            return w
        w = hooked()
        gone = weakref.ref(w)
        gc.collect()
        w.zero_grad()
        (w * w).sum().backward()
        self.assertEqual(w.grad.tolist(), [3, 6])  # a Variable in use keeps its hooks
        kept = [w * 1]
        del w
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(kept[0].tolist(), [1, 2])

    def test_of_modules(self):
        layer = nn.Linear(2, 2, bias=False, weight_init=nn.Init.ones())
        at = weft.tensor([[1.0, 2.0]])
        before = layer.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
        layer.register_forward_hook(lambda module, inputs, y: y * 10)
        self.assertEqual(layer(at).tolist(), [[50, 50]])
        before.remove()
        before.remove()
        seen = []
        after = layer.register_forward_hook(lambda module, inputs, y: seen.append((module is layer, y.tolist())))
        self.assertEqual(layer(at).tolist(), [[30, 30]])
        self.assertEqual(seen, [(True, [[30, 30]])])
        after.remove()
        layer.register_output_gradient_hook(lambda module, g: weft.clamp(g, -1, 1))
        layer.register_input_gradient_hook(lambda module, g: g * 100)
        self.assertEqual(weft.grad((layer(at) * 5).sum(), at).tolist(), [[2000, 2000]])
        compiled = weft.compile(lambda x: layer(x))
        self.assertEqual(compiled(at).tolist(), [[30, 30]])
        with self.assertRaises(TypeError):
            layer.register_forward_hook(None)
        with self.assertRaises(ValueError):
            layer(x=at)
        kept = weakref.ref(layer)
        del layer, compiled
        gc.collect()
        self.assertIsNone(kept())

    def test_a_hook_may_remove_itself(self):
        layer = nn.Linear(2, 2)
        calls = []

        def once(module, x):
            calls.append(1)
            handle.remove()

        handle = layer.register_forward_pre_hook(once)
        layer(weft.ones(1, 2))
        layer(weft.ones(1, 2))
        self.assertEqual(len(calls), 1)


class Anomaly(unittest.TestCase):
    def test_the_first_op(self):
        with self.assertRaisesRegex(weft.AnomalyError, "log: made the first NaN"), weft.detect_anomaly():
            weft.log(weft.tensor([1.0, 0.0]) - 0.5).sum().item()
        self.assertTrue(np.isnan(weft.log(weft.tensor(-1.0)).item()))


if __name__ == "__main__":
    unittest.main()
