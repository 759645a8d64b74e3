"""Layers and losses: what the table has, and what is made of it."""
import copy
import pickle
import unittest
import xml.etree.ElementTree

import numpy as np

import weft
from weft import nn, optim

rng = np.random.default_rng(5)


class Losses(unittest.TestCase):
    def test_every_loss_of_the_table_is_there(self):
        for name, _, aliases, family, _ in weft._weft._ops():
            if family == "loss":
                self.assertIs(getattr(nn, name), getattr(weft, name))

    def test_ctc(self):
        # One label in two steps: label then blank, blank then label, or the label twice.
        p = np.array([[[0.6, 0.4]], [[0.3, 0.7]]], "f4")
        loss = nn.ctc(weft.tensor(np.log(p)), weft.tensor([[1]]), weft.tensor([2]), weft.tensor([1]), reduction="sum")
        self.assertAlmostEqual(loss.item(), -np.log(0.4 * 0.3 + 0.6 * 0.7 + 0.4 * 0.7), places=5)

    def test_margins(self):
        a, b = (weft.tensor(rng.normal(size=(3, 4)).astype("f4")) for _ in range(2))
        expected = np.maximum(0, np.linalg.norm(a.numpy() - b.numpy() + 1e-6, axis=1) - np.linalg.norm(a.numpy() + 1e-6, axis=1) + 1).mean()
        self.assertAlmostEqual(nn.triplet_margin(a, b, weft.zeros(3, 4)).item(), expected, places=5)
        with self.assertRaises(ValueError):
            nn.hinge_embedding(a, weft.ones(2, 2))


class Layers(unittest.TestCase):
    def test_mixture(self):
        weft.manual_seed(1)
        mixture = nn.Mixture(4, 8, experts=3, top_k=2)
        x = weft.tensor(rng.normal(size=(2, 5, 4)).astype("f4"))
        result = mixture.run(x)
        self.assertEqual(result.output.shape, (2, 5, 4))
        scores = x.numpy().reshape(-1, 4) @ mixture.router.weight.numpy().T
        gates, ups, downs = (np.asarray(w) for w in (mixture.gates, mixture.ups, mixture.downs))
        for row, (scored, given) in enumerate(zip(scores, x.numpy().reshape(-1, 4))):
            best = np.argsort(-scored)[:2]
            weights = np.exp(scored[best] - scored[best].max())
            expected = 0
            for weight, e in zip(weights / weights.sum(), best):
                gate = gates[e] @ given
                expected = expected + weight * (downs[e] @ (gate / (1 + np.exp(-gate)) * (ups[e] @ given)))
            np.testing.assert_allclose(result.output.numpy().reshape(-1, 4)[row], expected, rtol=1e-4, atol=1e-5)
        loss = (mixture(x) ** 2).sum() + nn.balance_loss(result.routing) * 0.01
        gradients = weft.grad(loss, mixture)
        self.assertEqual([g.shape for g in gradients], [p.shape for p in mixture.parameters()])
        self.assertTrue(all(np.abs(g.numpy()).sum() > 0 for g in gradients))
        self.assertGreaterEqual(result.balance_loss.item(), 0.99)
        for wrong in (lambda: nn.Mixture(4, 8, 3, 4), lambda: nn.Mixture(0, 8, 3), lambda: mixture(weft.ones(2, 3)),
                      lambda: nn.route(weft.ones(2, 3), 0)):
            with self.assertRaises(ValueError):
                wrong()

    def test_choices(self):
        weft.manual_seed(2)
        drawn = nn.gumbel_softmax(weft.tensor([[0.0, 10.0, 0.0]]), hard=True)
        self.assertEqual(drawn.sum().item(), 1)
        centres = nn.KMeans(2, 3)
        self.assertEqual(centres(weft.ones(5, 2)).shape, (5, 3))
        np.testing.assert_allclose(centres(weft.ones(5, 2)).sum(1).numpy(), np.ones(5), rtol=1e-5)
        self.assertEqual(nn.KMeans(2, 3, features=True)(weft.ones(5, 2)).shape, (5, 2))

    def test_bilinear_and_alpha_dropout(self):
        layer = nn.Bilinear(2, 3, 4)
        x, y = weft.randn(5, 2), weft.randn(5, 3)
        wanted = np.einsum("ni,oij,nj->no", x.numpy(), layer.weight.numpy(), y.numpy()) + layer.bias.numpy()
        np.testing.assert_allclose(layer(x, y).numpy(), wanted, rtol=1e-5, atol=1e-6)
        self.assertRaises(weft.ShapeError, layer, x, x)
        drop = nn.AlphaDropout(0.5)
        self.assertEqual(len(np.unique(drop(weft.ones(200)).numpy())), 2)
        self.assertEqual(drop.eval()(weft.ones(3)).tolist(), [1, 1, 1])
        z = nn.FeatureAlphaDropout(0.5)(weft.ones(8, 16, 3)).numpy()
        self.assertTrue((z.std(axis=2) < 1e-6).all())

    def test_images(self):
        x = weft.arange(4.0).reshape(1, 1, 2, 2)
        self.assertEqual(nn.Upsample(scale_factor=2)(x).tolist(), np.repeat(np.repeat(x.numpy(), 2, 2), 2, 3).tolist())
        drop = nn.ChannelDropout(0.5)
        y = drop(weft.ones(8, 16, 3)).numpy()
        self.assertTrue(set(np.unique(y)) <= {0, 2})
        self.assertTrue((y.std(axis=2) == 0).all())
        self.assertEqual(drop.eval()(weft.ones(2, 2, 2)).tolist(), weft.ones(2, 2, 2).tolist())
        with self.assertRaises(ValueError):
            nn.Upsample(scale_factor=0)
        with self.assertRaises(ValueError):
            nn.Upsample(scale_factor=2)(weft.ones(2, 2))


class Net(nn.Module):
    def __init__(self):
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Identity()})

    def forward(self, x):
        return self.heads["a"](self.body(x))


class Tied(nn.Module):
    def __init__(self):
        self.embedding = nn.Embedding(5, 4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, i):
        return self.output(self.embedding(i))


class Modules(unittest.TestCase):
    def test_copies(self):
        net, x = Net(), weft.rand(6, 3)
        for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            self.assertEqual(again(x).tolist(), net(x).tolist())
            self.assertEqual([n for n, _ in again.named_parameters()], [n for n, _ in net.named_parameters()])
            optimizer = optim.SGD(again, 0.1)
            optimizer.step(weft.grad(again(x).square().sum(), again))
            self.assertNotEqual(again.heads.a.weight.tolist(), net.heads.a.weight.tolist())
            net.eval()
            self.assertTrue(again.training)
            net.train()
        part = copy.deepcopy(net.heads)
        self.assertEqual((part.path, part.a.path, part.a.weight.tolist()), ("", "a", net.heads.a.weight.tolist()))
        self.assertEqual(net.heads.a.path, "heads.a")

    def test_sequential_has_places(self):
        net = nn.Sequential(nn.Linear(3, 4), weft.tanh, nn.Linear(4, 2))
        self.assertEqual((net[0].describe(), net[-1].describe(), net[1]), ("Linear 3 -> 4", "Linear 4 -> 2", weft.tanh))
        self.assertEqual([step is weft.tanh for step in net], [False, True, False])
        self.assertRaises(IndexError, lambda: net[3])

    def test_module_dict(self):
        heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        heads["b"] = nn.Identity()
        self.assertEqual((list(heads), len(heads), "b" in heads, "c" in heads), (["a", "b"], 2, True, False))
        self.assertEqual([n for n, _ in heads.named_parameters()], ["a.weight", "a.bias"])
        del heads["a"]
        self.assertEqual(heads["b"](3), 3)
        self.assertRaisesRegex(weft.UsageError, "'keys' is an attribute", heads.__setitem__, "keys", nn.Identity())
        self.assertRaises(TypeError, heads.__setitem__, "c", 3)

    def test_a_parameter_with_two_names_is_trained_once(self):
        tied, i = Tied(), weft.tensor([1, 2])
        self.assertEqual([n for n, _ in tied.named_parameters()], ["embedding.weight"])
        before = tied.embedding.weight.numpy().copy()
        (gradient,) = weft.grad(tied(i).square().sum(), tied)
        optimizer = optim.SGD(tied, 0.5)
        optimizer.step([gradient])
        np.testing.assert_allclose(tied.output.weight.numpy(), before - 0.5 * gradient.numpy(), rtol=1e-5)
        np.testing.assert_array_equal(tied.output.weight.numpy(), tied.embedding.weight.numpy())
        tied.load_state_dict({"embedding.weight": np.ones((5, 4)), "output.weight": np.ones((5, 4))})   # as PyTorch saves it
        tied.load_state_dict({"output.weight": np.zeros((5, 4))})
        self.assertEqual(tied.embedding.weight.sum().item(), 0)
        self.assertRaises(weft.UsageError, tied.load_state_dict, {})
        self.assertEqual(len(copy.deepcopy(tied).parameters()), 1)

    def test_batch_norm(self):
        norm = nn.BatchNorm1d(3)
        self.assertRaisesRegex(weft.UsageError, "1 values a channel have no variance", norm, weft.ones(1, 3))
        self.assertEqual(norm.running_var.tolist(), [1, 1, 1])
        state = {**norm.state_dict(), "num_batches_tracked": np.array(7)}
        norm.load_state_dict(state)
        self.assertRaises(weft.UsageError, norm.load_state_dict, {**norm.state_dict(), "other.num_batches_tracked": np.array(7)})
        self.assertEqual(repr(nn.Parameter((2, 3), nn.Init.zeros())), "Parameter [2, 3], for an attribute of a module")


class Training(unittest.TestCase):
    def test_loss_scale(self):
        net = nn.Linear(2, 1)
        optimizer, scale = optim.SGD(net, 0.1), optim.LossScale(1024, growth_interval=2)
        x = weft.tensor([[1.0, 2.0]])
        before = net.weight.numpy().copy()

        @weft.compile
        def step(x):
            loss = (net(x) ** 2).sum()
            optimizer.step(weft.grad(scale.apply(loss), net), 0.1, scale=scale)
            return loss

        first = step(x).item()
        self.assertLess(step(x).item(), first)
        self.assertEqual((scale.value, scale.skipped_steps), (2048, 0))
        after = net.weight.numpy().copy()
        self.assertFalse(np.array_equal(before, after))
        step(weft.tensor([[np.inf, 0.0]]))
        np.testing.assert_array_equal(net.weight.numpy(), after)
        self.assertEqual((scale.value, scale.skipped_steps), (1024, 1))
        other = optim.LossScale()
        other.load_state_dict(scale.state_dict())
        self.assertEqual(other.value, 1024)
        with self.assertRaises(ValueError):
            optim.LossScale(0)

    def test_gradient_sum(self):
        net = nn.Linear(2, 1)
        total = optim.GradientSum(net)
        parts = [[weft.full(p.shape, value) for p in net.parameters()] for value in (1.0, 3.0)]
        for part in parts:
            total.add(part)
        self.assertEqual([g.tolist() for g in total.take_mean()], [[[2, 2]], [2]])
        with self.assertRaises(ValueError):
            total.add(parts[0][:1])

    def test_memory_limit(self):
        with weft.Session():
            used = weft.device_memory_used("cpu")
            weft.set_device_memory_limit(used + (8 << 20))
            with self.assertRaises(weft.DeviceMemoryError):
                weft.rand(4 << 20).eval()
            weft.set_device_memory_limit(0)
            self.assertEqual(weft.rand(4 << 20).eval().size, 4 << 20)


class Notebooks(unittest.TestCase):
    def test_html_is_well_formed(self):
        curve = weft.train.Curve("<b>")
        for step, value in enumerate((1.0, float("nan"), 0.5)):
            curve.add("a<b", step, value)
        shown = [weft.ones(2, 3), weft.ones(30, 30), weft.ones(2, 2, 2), weft.tensor(1.0), weft.zeros(0, 3), weft.ones(2).astype("bf16"),
                 weft.tensor([float("nan"), float("inf")]), weft.Variable(weft.ones(2), "<name>"), nn.Mixture(4, 8, 3),
                 nn.Sequential(nn.Linear(2, 2), weft.tanh), curve, weft.train.Curve()]
        for each in shown:
            text = each._repr_html_()
            self.assertNotIn("<b>", text)
            xml.etree.ElementTree.fromstring(f"<x>{text.replace('&hellip;', '...')}</x>")


if __name__ == "__main__":
    unittest.main()
