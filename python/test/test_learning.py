"""Gradients, compiled functions, modules, optimisers."""
import os
import tempfile
import unittest

import numpy as np

import weft
from weft import nn, optim


class Gradients(unittest.TestCase):
    def test_grad(self):
        x = weft.tensor([0.5, 1.0, 2.0])
        np.testing.assert_allclose(weft.grad((x * x).sum(), x).numpy(), [1, 2, 4])
        dx, dy = weft.grad((x * 3).sum(), [x, weft.tensor([1.0])])
        self.assertEqual((dx.tolist(), dy.tolist()), ([3, 3, 3], [0]))
        f = lambda v: (weft.sin(v) * v).sum()
        second = weft.grad(lambda v: weft.grad(f)(v).sum())(x)
        np.testing.assert_allclose(second.numpy(), 2 * np.cos(x.numpy()) - x.numpy() * np.sin(x.numpy()), rtol=1e-5)
        value, slope = weft.value_and_grad(f)(x)
        self.assertAlmostEqual(value.item(), f(x).item(), places=5)
        np.testing.assert_allclose(weft.grad(x * 2, x, weft.tensor([1.0, 0.0, 0.0])).numpy(), [2, 0, 0])
        with self.assertRaises(ValueError):
            weft.grad(x, x)

    def test_eval_lets_go_of_history(self):
        x = weft.tensor([0.5, 1.0])
        t, u = x * 2, x * 3
        self.assertEqual(t.tolist(), [1.0, 2.0])
        self.assertEqual(weft.grad(t.sum(), x).tolist(), [2, 2])  # looking at elements lets go of nothing
        weft.evaluate(t, u)
        for value in (t, u, (x * 4).eval()):
            with self.assertRaisesRegex(ValueError, "let go"):
                weft.grad(value.sum(), x)
        with weft.keep_history():
            kept = (x * 5).eval()
        self.assertEqual(weft.grad(kept.sum(), x).tolist(), [5, 5])
        self.assertEqual(weft.grad(lambda v: (v * v).eval().sum())(x).tolist(), [1, 2])
        with self.assertRaises(TypeError):
            weft.grad(3, x)

    def test_backward(self):
        x = weft.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        self.assertIsInstance(x, weft.Variable)
        x.matmul(x).relu().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [[7, 11], [9, 13]])
        x.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), [[8, 12], [10, 14]])
        x.zero_grad()
        self.assertIsNone(x.grad)
        with weft.no_grad():
            y = x * 2
        self.assertFalse(y.requires_grad)
        y.sum().backward()
        self.assertIsNone(x.grad)
        x.requires_grad = False
        (x * 2).sum().backward()
        self.assertIsNone(x.grad)
        x.grad = weft.ones(2, 2)
        x.grad = None
        y = weft.tensor(3.0)
        y.requires_grad = True  # a Variable from now on
        (y * y).backward()
        self.assertEqual(y.grad.item(), 6)

    def test_scopes(self):
        @weft.no_grad()
        def inside():
            return weft.is_grad_enabled()

        self.assertFalse(inside())
        self.assertTrue(weft.is_grad_enabled())
        with weft.autocast("bf16"):
            self.assertEqual(weft.matmul(weft.ones(2, 2), weft.ones(2, 2)).dtype, "bf16")
        self.assertEqual(weft.matmul(weft.ones(2, 2), weft.ones(2, 2)).dtype, "f32")
        x = weft.tensor([2.0])
        np.testing.assert_allclose(weft.grad(weft.checkpoint(lambda v: weft.exp(v), x).sum(), x).numpy(), np.exp([2.0]), rtol=1e-6)
        with weft.Session(threads=1) as session:
            self.assertEqual((weft.ones(2) + 1).tolist(), [2, 2])
            self.assertEqual(session.threads, 1)
            with self.assertRaises(ValueError):
                (x + 1).eval()
            self.assertEqual(session.copy(x).tolist(), [2])


class Compiling(unittest.TestCase):
    def test_structures(self):
        calls = []

        @weft.compile
        def f(x, pair, *, scale=1.0, flag=True):
            """Doc."""
            calls.append(1)
            return {"sum": x + pair[0] * scale, "flag": flag, "both": (x, pair[1])}

        x = weft.tensor([1.0, 2.0])
        for scale in (1.0, 2.0, 3.0):
            result = f(x, (x, x), scale=scale)
            np.testing.assert_allclose(result["sum"].numpy(), x.numpy() * (1 + scale))
            self.assertTrue(result["flag"])
        self.assertEqual(len(calls), 1)
        self.assertFalse(f(x, (x, x), flag=False)["flag"])
        f(weft.ones(3), [weft.ones(3), weft.ones(3)])
        self.assertEqual((len(calls), f.__doc__, f.__name__), (3, "Doc.", "f"))
        self.assertEqual(f.trace_count, 3)
        self.assertIn("kernel", f.explain())
        with self.assertRaises(TypeError):
            f(x, (x, x), flag=[object()] and {1: {}}.keys())

    def test_errors_inside(self):
        class Mine(Exception):
            pass

        @weft.compile
        def f(x):
            raise Mine("inside")

        with self.assertRaisesRegex(Mine, "inside"):
            f(weft.ones(2))

        @weft.compile
        def g(x):
            return x.item()

        with self.assertRaisesRegex(ValueError, "compiled"):
            g(weft.ones(1))

        @weft.compile
        def h(x):
            return repr(x)

        self.assertIn("compiled", h(weft.ones(2)))

    def test_methods_and_modes(self):
        class Net(nn.Module):
            def __init__(self):
                self.layer = nn.Linear(3, 2)
                self.dropout = nn.Dropout(0.5)

            @weft.compile
            def run(self, x):
                return self.dropout(self.layer(x))

        net = Net()
        x = weft.ones(4, 3)
        net.run(x)
        net.eval()
        np.testing.assert_allclose(net.run(x).numpy(), net.layer(x).numpy(), rtol=1e-5)


class Modules(unittest.TestCase):
    def test_training(self):
        weft.manual_seed(1)
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = optim.AdamW(net, 0.02)
        x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], "f4")
        y = np.array([[0], [1], [1], [0]], "f4")

        @weft.compile
        def step(inputs, wanted):
            loss = nn.mse(net(inputs), wanted)
            optimizer.step(weft.grad(loss, optimizer.parameters))
            return loss

        first = step(x, y).item()
        for _ in range(300):
            loss = step(x, y)
        self.assertLess(loss.item(), first / 50)
        self.assertEqual(optimizer.step_count, 301)
        self.assertEqual(np.round(net(weft.tensor(x)).numpy()).tolist(), y.tolist())

    def test_eager_style(self):
        for make in (lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda p: optim.Adam(p, 0.1), lambda p: optim.AdamW(p, 0.1)):
            net = nn.Linear(1, 1)
            optimizer = make(net.parameters())
            losses = []
            for _ in range(40):
                loss = nn.mse(net(weft.tensor([[1.0], [2.0]])), weft.tensor([[3.0], [5.0]]))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            self.assertLess(losses[-1], losses[0])
            state = optimizer.state_dict()
            optimizer.load_state_dict(state)
            optimizer.learning_rate = 0.5
            self.assertEqual(optimizer.learning_rate, 0.5)

    def test_tree(self):
        class Net(nn.Module):
            def __init__(self):
                self.first = nn.Linear(2, 3)
                self.blocks = nn.ModuleList([nn.LayerNorm(3), nn.Linear(3, 3, bias=False)])
                self.scale = nn.Parameter(weft.ones(3))
                self.register_buffer("count", weft.zeros((1,)))

            def forward(self, x):
                x = self.first(x)
                for block in self.blocks:
                    x = block(x)
                return x * self.scale

        net = Net()
        self.assertEqual([name for name, _ in net.named_parameters()],
                         ["scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight"])
        self.assertEqual([name for name, _ in net.named_buffers()], ["count"])
        self.assertEqual(net.parameter_count, 3 + 9 + 6 + 9)
        self.assertEqual(net.blocks[1].path, "blocks.1")
        self.assertEqual(net(weft.ones(4, 2)).shape, (4, 3))
        self.assertIn("Linear 2 -> 3", repr(net))
        self.assertIn("<table>", net._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            net.save(path)
            other = Net()
            other.load(path)
            np.testing.assert_array_equal(other.first.weight.numpy(), net.first.weight.numpy())
        with self.assertRaisesRegex(ValueError, "missing: first.weight"):
            net.load_state_dict({})
        with self.assertRaisesRegex(ValueError, "shape: scale"):
            net.load_state_dict({"scale": weft.ones(4)}, strict=False)
        with self.assertRaisesRegex(ValueError, "itself"):
            net.blocks.append(net)
        net.first = nn.Linear(2, 3)  # replaced
        self.assertEqual(net.first.path, "first")
        del net.scale
        self.assertFalse(hasattr(net, "scale"))
        with self.assertRaises(NotImplementedError):
            nn.Module()(1)

    def test_initial_values_are_those_of_the_names(self):
        weft.manual_seed(7)
        one = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        two = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        np.testing.assert_array_equal(two._children["1"].weight.numpy(), one._children["1"].weight.numpy())
        self.assertFalse(np.array_equal(one._children["0"].weight.numpy(), one._children["1"].weight.numpy()))
        one.initialize(3)
        self.assertFalse(np.array_equal(two._children["1"].weight.numpy(), one._children["1"].weight.numpy()))

    def test_layers(self):
        x = weft.rand(2, 4, 8, 8)
        for layer, shape in [(nn.Conv2d(4, 6, 3, padding=1), (2, 6, 8, 8)), (nn.ConvTranspose2d(4, 2, 2, stride=2), (2, 2, 16, 16)),
                             (nn.MaxPool(2), (2, 4, 4, 4)), (nn.AvgPool(2), (2, 4, 4, 4)), (nn.AdaptiveAvgPool(1), (2, 4, 1, 1)),
                             (nn.BatchNorm(4), (2, 4, 8, 8)), (nn.GroupNorm(2, 4), (2, 4, 8, 8)), (nn.InstanceNorm(4), (2, 4, 8, 8)),
                             (nn.Flatten(), (2, 256)), (nn.PReLU(), (2, 4, 8, 8)), (nn.GELU(), (2, 4, 8, 8)),
                             (nn.LayerNorm(8), (2, 4, 8, 8)), (nn.RMSNorm(8), (2, 4, 8, 8)), (nn.Dropout(0.1), (2, 4, 8, 8))]:
            self.assertEqual(layer(x).shape, shape, layer)
            layer(x).sum().eval()
        norm = nn.BatchNorm(4)
        norm(x).eval()
        np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * x.numpy().mean((0, 2, 3)), rtol=1e-4)
        norm.eval()
        norm(x).eval()
        self.assertEqual(nn.Embedding(10, 3)(weft.tensor([[1, 2]])).shape, (1, 2, 3))
        for cls in (nn.RNN, nn.GRU, nn.LSTM):
            net = cls(3, 5, num_layers=2, bidirectional=True, batch_first=True)
            y, state = net(weft.rand(2, 7, 3))
            self.assertEqual(y.shape, (2, 7, 10))
            self.assertEqual((state[0] if cls is nn.LSTM else state).shape, (4, 2, 5))
            y2, _ = net(weft.rand(2, 7, 3), state)
        for wrong in (lambda: nn.Linear(0, 3), lambda: nn.Linear(3, 3)(weft.zeros(2, 4)), lambda: nn.Dropout(1),
                      lambda: nn.Conv2d(3, 4, 3, groups=2), lambda: nn.MaxPool(2)(weft.zeros(2)), lambda: nn.GPT(width=10, heads=3)):
            self.assertRaises(ValueError, wrong)

    def test_gpt_trains(self):
        weft.manual_seed(1)
        net = nn.GPT(vocabulary=16, context=8, layers=2, heads=2, width=16)
        optimizer = optim.AdamW(net, 0.01, clip_norm=1.0)
        schedule = optim.Schedule.cosine(0.01, 0.001, 30).with_warm_up(3)
        tokens = weft.tensor(np.tile(np.arange(9, dtype="i4"), (4, 1)))

        @weft.compile
        def step(batch, rate):
            loss = nn.cross_entropy(net(batch[:, :-1]), batch[:, 1:])
            optimizer.step(weft.grad(loss, net), rate)
            return loss

        losses = [step(tokens, schedule.at(i)).item() for i in range(30)]
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertEqual(step.trace_count, 1)

    def test_clipping(self):
        clipped, norm = optim.clip_grad_norm([weft.tensor([3.0]), weft.tensor([4.0])], 1.0)
        self.assertAlmostEqual(norm.item(), 5, places=5)
        self.assertAlmostEqual(clipped[1].item(), 0.8, places=5)


if __name__ == "__main__":
    unittest.main()
