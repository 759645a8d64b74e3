"""Volumetric networks and their evolution, judged by NumPy."""
import os
import tempfile
import unittest

import numpy as np

import weft
from weft import grid, nn, optim


def forward(description, parameters, x):
    """Dense layers one after another, in NumPy."""
    activations = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0), "linear": lambda v: v}
    for layer, weight in zip(description["layers"], parameters):
        x = activations[layer.get("activation", "relu")](x @ weight.T)
    return x


class Networks(unittest.TestCase):
    def setUp(self):
        weft.manual_seed(1)
        self.x = np.random.default_rng(1).uniform(-1, 1, (64, 2)).astype("f4")

    def test_forward_is_that_of_numpy(self):
        net = grid.Network(grid.mlp([2, 8, 3], "tanh"))
        self.assertEqual([name for name, _ in net.named_parameters()], ["z0y0x0l0.weight", "z0y0x0l1.weight"])
        wanted = forward(net.description, [p.numpy() for p in net.parameters()], self.x)
        np.testing.assert_allclose(net(self.x).numpy(), wanted, rtol=1e-5, atol=1e-6)
        run = net.run(weft.tensor(self.x))
        self.assertEqual([layer.path for layer in run.layers], ["0,0,0,0", "0,0,0,1"])
        np.testing.assert_allclose(np.tanh(run.layers[0].before.numpy()), run.layers[0].after.numpy(), rtol=1e-5, atol=1e-6)
        self.assertEqual(net.parameter_count, 40)
        self.assertEqual(net.memory.parameters, 40)

    def test_training_and_reset(self):
        net = grid.Network({"layers": [{"type": "dense", "inputs": 2, "outputs": 16},
                                       {"type": "parallel", "combine": "add", "children": [
                                           {"type": "dense", "inputs": 16, "outputs": 1, "activation": "linear"},
                                           {"type": "sequential", "children": [
                                               {"type": "dense", "inputs": 16, "outputs": 4},
                                               {"type": "dense", "inputs": 4, "outputs": 1, "activation": "linear"}]}]}]})
        self.assertIn("z0y0x0l1.1.0.weight", dict(net.named_parameters()))
        optimizer = optim.Adam(net, 0.02)

        @weft.compile
        def step(x, y):
            loss = nn.mse(net(x), y)
            optimizer.step(weft.grad(loss, net))
            return loss

        y = self.x.max(1, keepdims=True)
        first = step(self.x, y).item()
        for _ in range(150):
            step(self.x, y)
        self.assertLess(step(self.x, y).item(), first / 10)
        before = {name: p.numpy().copy() for name, p in net.named_parameters()}
        optimizer.reset()
        self.assertEqual(optimizer.step_count, 0)
        for name, p in net.named_parameters():
            np.testing.assert_array_equal(p.numpy(), before[name])
        # The first update of Adam moves every parameter with a gradient by the learning rate.
        step(self.x, y)
        moved = np.abs(net.parameters()[0].numpy() - before["z0y0x0l0.weight"])
        np.testing.assert_allclose(np.median(moved), 0.02, rtol=1e-2)

    def test_state_and_types(self):
        net = grid.Network(grid.mlp([4, 8, 2]))
        x = np.random.default_rng(2).normal(size=(3, 4)).astype("f4")
        copy = net.clone()
        net.initialize(9)
        self.assertNotEqual(copy(x).tolist(), net(x).tolist())
        copy.load_state_dict(net.state_dict())
        self.assertEqual(copy(x).tolist(), net(x).tolist())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            for dtype in ("f32", "int8", "binary"):
                net.morph(dtype)
                net.save_checkpoint(path)
                self.assertEqual(grid.load(path)(x).tolist(), net(x).tolist())
            # binary: plus or minus the mean magnitude
            weight = net.parameters()[0].numpy()
            scale = np.float32(np.abs(weight).mean())
            run = net.run(x)
            np.testing.assert_allclose(run.layers[0].before.numpy(), x @ np.where(weight > 0, scale, -scale).T, rtol=1e-2)
            with open(path, "r+b") as file:
                file.truncate(100)
            self.assertRaises(weft.FileError, grid.load, path)
        net.morph("f32")
        net.morph("int4", at=(0, 0, 0, 1))
        self.assertEqual([layer.get("dtype", "f32") for layer in net.description["layers"]], ["f32", "int4"])

    def test_modes(self):
        net = grid.Network(grid.mlp([2, 8, 1], "tanh"))
        mesh = grid.Systolic(net, keeps_gradients=True)
        self.assertIsNone(mesh.output())
        mesh.set_input(self.x)
        mesh.ticks(2)
        self.assertEqual(mesh.output().tolist(), net(self.x).tolist())
        self.assertEqual(len(weft.grad(mesh.output().sum(), net.parameters())), 2)
        writer = grid.Network(grid.build("transformer", vocabulary=11, width=16, hidden=32, heads=4, key_heads=2))
        stream = grid.Stream(writer)
        ids = np.array([[1, 2, 3, 4, 5]], "i4")
        parts = [stream.next(ids[:, :3]).numpy(), stream.next(ids[:, 3:]).numpy()]
        np.testing.assert_allclose(np.concatenate(parts, 1), writer(ids).numpy(), atol=1e-4)
        propagation = grid.TargetPropagation(grid.Network(grid.mlp([2, 1])), "gap", learning_rate=0.3)
        gaps = [propagation.step(self.x, self.x[:, :1])[0].gap.item() for _ in range(50)]
        self.assertLess(gaps[-1], gaps[0] / 2)
        self.assertEqual([time[:2] for time in net.time_layers(self.x, 2)], [("0,0,0,0", "dense"), ("0,0,0,1", "dense")])

    def test_evolution(self):
        a = grid.Network(grid.mlp([2, 8, 1], "tanh"))
        b = a.clone()
        b.initialize(2)
        weight_a, weight_b = (net.parameters()[0].numpy().ravel() for net in (a, b))
        genes = grid.dna(a)
        np.testing.assert_allclose(genes[0]["direction"].numpy(), weight_a / np.linalg.norm(weight_a), rtol=1e-5)
        cosine = weight_a @ weight_b / np.linalg.norm(weight_a) / np.linalg.norm(weight_b)
        alike = {each["at"]: each["similarity"] for each in grid.compare(a, b)["layers"]}
        self.assertAlmostEqual(alike["0,0,0,0"], float(cosine), places=5)
        child, report = grid.splice_with_report(a, b, mode="point", split_ratio=0.25)
        np.testing.assert_array_equal(child.parameters()[0].numpy().ravel(), np.concatenate([weight_a[:4], weight_b[4:]]))
        self.assertEqual(report["spliced"], 2)
        self.assertEqual(grid.mutate(a, seed=3)(self.x).tolist(), grid.mutate(a, seed=3)(self.x).tolist())

        population = grid.Population(a, 8, seed=2, mutation={"amount": 0.3, "node": 0})
        fitness = lambda net: -nn.mse(net(self.x), self.x[:, :1] - self.x[:, 1:]).item()
        generations = [population.evolve(fitness) for _ in range(6)]
        self.assertGreater(generations[-1].best, generations[0].best)
        self.assertEqual(fitness(population.best), generations[-1].best)
        self.assertEqual(len(population.members), 8)
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            population.evolve(lambda net: 1 / 0)

    def test_wrong_uses(self):
        for wrong in (lambda: grid.Network({"layers": [{"type": "dense", "inputs": 2}]}), lambda: grid.Network({"layer": []}),
                      lambda: grid.build("mlp", width=[1, 2]), lambda: grid.build("net"), lambda: grid.mlp([3]),
                      lambda: grid.Network(grid.mlp([2, 1])).morph("int3"), lambda: grid.Network(grid.mlp([2, 1])).morph("int8", at=(0, 0)),
                      lambda: grid.splice(grid.Network(grid.mlp([2, 1])), grid.Network(grid.mlp([2, 1])), ratio=1),
                      lambda: grid.Population(grid.Network(grid.mlp([2, 1])), 0)):
            self.assertRaises(weft.UsageError, wrong)
        with self.assertRaisesRegex(weft.UsageError, "/layers/0/outputs"):
            grid.Network({"layers": [{"type": "dense", "inputs": 2}]})
        self.assertRaises(weft.ShapeError, lambda: grid.Network(grid.mlp([2, 1]))(weft.zeros(3, 4)))


if __name__ == "__main__":
    unittest.main()
