"""Vector memory, judged by NumPy, and component trees."""
import os
import tempfile
import unittest

import numpy as np

import weft
from weft import memory, optim, trees
from weft.trees import element


class Memory(unittest.TestCase):
    def test_search_is_that_of_numpy(self):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(1500, 24)).astype("f4")
        store = memory.Store(24)
        for i, row in enumerate(rows):
            self.assertEqual(store.add(f"text {i}", row, id=f"e{i}", namespace="even" if i % 2 == 0 else "", metadata={"n": i % 5}), f"e{i}")
        query = rng.normal(size=24)
        cosines = (rows @ query) / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
        best = store.search(query, 7)
        self.assertEqual([match.entry.id for match in best], [f"e{i}" for i in np.argsort(-cosines)[:7]])
        np.testing.assert_allclose([match.similarity for match in best], np.sort(cosines)[::-1][:7], atol=1e-6)
        chosen = [i for i in np.argsort(-cosines) if i % 2 == 0 and i % 5 == 3][:4]
        found = store.search(query, 4, namespace="even", where={"n": 3})
        self.assertEqual([match.entry.id for match in found], [f"e{i}" for i in chosen])
        self.assertEqual(len(store.search(query, 1500, similarity_min=0.2)), int((cosines >= 0.2).sum()))
        self.assertTrue(store.remove("e0") and not store.remove("e0"))
        self.assertEqual((len(store), "e0" in store, "e1" in store, store.find("e0")), (1499, False, True, None))
        self.assertEqual(store.namespaces, {"even": 749, "": 750})
        self.assertEqual(store.find("e7"), memory.Entry("e7", "", "text 7", {"n": 2}))

    def test_recall(self):
        store = memory.Store(2)
        store.add("north", [0, 1])
        store.add("east", weft.tensor([1.0, 0.0]))
        made = store.recall([0.1, 1.0], 4)
        self.assertEqual((made.text, len(made.matches)), ("[1] north\n", 1))
        words = store.recall([0.1, 1.0], 4, count=lambda text: len(text.split()))
        self.assertEqual((words.text, words.tokens), ("[1] north\n[2] east\n", 4))
        with self.assertRaises(ZeroDivisionError):
            store.recall([0.1, 1.0], 4, count=lambda text: 1 // 0)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.metatensor")
            with self.assertRaisesRegex(weft.FileError, "give the width"):
                memory.open(path)
            with memory.open(path, 2) as notes:
                notes.add("north", [0, 1], id="n")
            size = os.path.getsize(path)
            with memory.open(path) as notes:
                notes.add("east", [1, 0], id="e")
                self.assertTrue(notes.remove("n"))
                with self.assertRaisesRegex(weft.FileError, "another program does"):
                    memory.open(path)
            self.assertEqual([each.id for each in memory.Store.load(path).entries], ["e"])
            with self.assertRaises(KeyError), memory.open(path) as lost:
                lost.add("lost", [1, 1])
                raise KeyError
            self.assertEqual(len(lost), 2)   # the store itself has it
            with self.assertRaisesRegex(weft.UsageError, "no file of its own"):
                notes.commit()
            self.assertEqual(len(memory.Store.load(path)), 1)
            self.assertEqual(os.path.getsize(path), size)
            with memory.open(path, 2) as notes:
                self.assertGreater(notes.journal_bytes, 100)
                notes.compact()
                self.assertLess(notes.journal_bytes, 100)
            store = memory.Store.load(path)
            store.save(path)
            self.assertEqual(sorted(os.listdir(folder)), ["m.metatensor"])
            with self.assertRaises(AttributeError):
                store.commit()

    def test_wrong_uses(self):
        store = memory.Store(2)
        store.add("a", [1, 0], id="a")
        for call in (lambda: store.add("b", [1, 0], id="a"), lambda: store.add("b", [0, 0]), lambda: store.add("b", [1, 2, 3]),
                     lambda: store.search([1]), lambda: memory.Store(0), lambda: store.add("b", [1, 0], metadata={"x": weft.ones(2)})):
            with self.assertRaises(weft.UsageError):
                call()
        with self.assertRaises(weft.FileError):
            memory.Store.load("none.metatensor")


class Trees(unittest.TestCase):
    def tree(self, *middle):
        return element("Sequential", element("Linear", key="in", inputs=2, outputs=8), element("Tanh"), *middle,
                       element("Linear", key="out", inputs=8, outputs=1))

    def test_differences(self):
        before = element("List", [element("Item", key=k) for k in "abc"])
        after = element("List", None, [element("Item", key=k) for k in "cab"], False)
        edits = trees.difference(before, after)
        self.assertEqual(edits, [{"kind": "move", "path": "", "from": 2, "to": 0}])
        self.assertEqual(trees.patched(before, edits), trees.normalised(after))
        self.assertEqual(trees.difference(before, before), [])
        with self.assertRaises(weft.UsageError):
            trees.normalised({"props": {}})

    def test_a_model_keeps_what_did_not_change(self):
        weft.manual_seed(1)
        model = trees.Model(self.tree())
        self.assertEqual([name for name, _ in model.named_parameters()], ["in.weight", "in.bias", "out.weight", "out.bias"])
        x = np.array([[0, 1], [1, 0], [1, 1]], "f4")
        parameters = {name: p.numpy() for name, p in model.named_parameters()}
        hidden = np.tanh(x @ parameters["in.weight"].T + parameters["in.bias"])
        np.testing.assert_allclose(model(x).numpy(), hidden @ parameters["out.weight"].T + parameters["out.bias"], atol=1e-6)
        optimizer = optim.Adam(model, 0.05)

        @weft.compile
        def step(inputs, wanted):
            loss = weft.nn.mse(model(inputs), wanted)
            optimizer.step(weft.grad(loss, optimizer.parameters))
            return loss

        wanted = weft.tensor([[1.0], [1.0], [0.0]])
        first = step(weft.tensor(x), wanted).item()
        for _ in range(60):
            loss = step(weft.tensor(x), wanted).item()
        self.assertLess(loss, first / 5)
        self.assertEqual(model.render(self.tree()), [])
        kept = model.get = dict(model.named_parameters())["in.weight"]
        edits = model.render(self.tree(element("Residual", element("Linear", key="more", inputs=8, outputs=8))))
        self.assertEqual([edit["kind"] for edit in edits], ["insert"])
        self.assertIn("more", "".join(name for name, _ in model.named_parameters()))
        np.testing.assert_array_equal(dict(model.named_parameters())["in.weight"].numpy(), kept.numpy())
        changed = dict(model.named_parameters())["in.weight"].numpy()
        step(weft.tensor(x), wanted)   # traced again; the optimiser goes on with what it had
        self.assertGreater(np.abs(dict(model.named_parameters())["in.weight"].numpy() - changed).max(), 0)
        with self.assertRaisesRegex(weft.UsageError, "Lineal"):
            model.render(element("Sequential", element("Lineal")))
        self.assertEqual(model(x).shape, (3, 1))
        self.assertEqual(model.tree["type"], "Sequential")

    def test_state_and_modes(self):
        model = trees.Model(element("Sequential", element("Linear", inputs=3, outputs=4), element("BatchNorm", channels=4),
                                    element("Dropout", p=0.5)))
        self.assertEqual([name for name, _ in model.named_buffers()], ["1.running_mean", "1.running_var"])
        decays = {name: decay for name, _, decay in model._trained()}
        self.assertEqual((decays["0.weight"], decays["0.bias"]), (True, False))
        x = weft.randn(8, 3)
        model.eval()
        np.testing.assert_array_equal(model(x).numpy(), model(x).numpy())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.safetensors")
            model.save(path)
            other = trees.Model(model.tree)
            other.load(path)
            np.testing.assert_array_equal(other.eval()(x).numpy(), model(x).numpy())


if __name__ == "__main__":
    unittest.main()
