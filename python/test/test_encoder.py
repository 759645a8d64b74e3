"""Text encoders, judged by what transformers and sentence-transformers make of the same tiny models."""
import json
import math
import pathlib
import tempfile
import unittest

import numpy as np

import tiny_media
import weft
from weft import encoder


def put_encoder(folder, name):
    """The folder of test/encoder/make.py; returns what the libraries say."""
    case = tiny_media.cases(f"encoder/models/{name}.json")
    for path, contents in case["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(contents))

    def scale_of(key, shape):
        if key.endswith(".bias"):
            return 0.3, 0.0
        return (1.7 / math.sqrt(shape[1]), 0.0) if len(shape) > 1 else (0.3, 1.0)

    tiny_media.put_weights(folder, case["tensors"], scale_of)
    return case


class Encoders(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def load(self, name):
        return put_encoder(self.folder, name), encoder.load(self.folder, device="cpu")

    def test_embeddings(self):
        case, model = self.load("bert")
        np.testing.assert_allclose(model.embed(case["texts"]).numpy(), case["embeddings"], atol=2e-5)
        np.testing.assert_allclose(model.embed(case["texts"], prompt="query").numpy(), case["queries"], atol=2e-5)
        np.testing.assert_allclose(model.states(case["texts"][0]).numpy(), case["states"], atol=2e-5)
        self.assertEqual((model.width, model.length, model.task, model.mask), (32, 50, "embed texts", "[MASK]"))
        self.assertEqual(model.prompts, {"document": "", "query": "w20 w21 "})
        self.assertEqual(model.encode(case["texts"][0]), case["ids"][0])
        self.assertEqual(model.embed(case["texts"], width=8).shape, (5, 8))
        halves = encoder.load(self.folder, device="cpu", precision="f16")
        np.testing.assert_allclose(halves.embed(case["texts"]).numpy(), case["embeddings"], atol=5e-3)
        long = " ".join(["w9"] * 60)
        with self.assertRaisesRegex(weft.UsageError, "has 62 tokens"):
            model.embed([long])
        self.assertEqual(model.embed([long], cut=True).shape, (1, 32))

    def test_classes_and_orders(self):
        case, model = self.load("bert-classes")
        np.testing.assert_allclose(model.logits(case["texts"]).numpy(), case["logits"], atol=2e-5)
        firsts, seconds = zip(*case["pairs"])
        np.testing.assert_allclose(model.logits(firsts, seconds).numpy(), case["pair_logits"], atol=2e-5)
        shares = np.exp(case["logits"][0]) / np.exp(case["logits"][0]).sum()
        labels = model.classify(case["texts"][0])
        self.assertEqual([label.index for label in labels], list(np.argsort(-shares)))
        self.assertEqual(labels[0].name, model.classes[labels[0].index])
        self.assertAlmostEqual(labels[0].probability, shares.max(), 5)
        order = model.rerank(case["texts"][1], case["texts"], 3)
        self.assertEqual(len(order), 3)
        self.assertEqual(sorted(order, key=lambda hit: -hit.score), order)

    def test_tuning(self):
        _, model = self.load("bert")
        data, out, events = self.folder / "pairs.jsonl", self.folder / "run", []
        pairs = [(f"w{10 + i} w30", f"w{30 + i} w8") for i in range(8)]
        data.write_text("".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in pairs))
        options = {"validation": data, "batch": 8, "learning_rate": 2e-3, "schedule": "constant", "model_dropout": False, "device": "cpu"}
        self.assertEqual(weft.tune.need(self.folder, data, steps=30, **options).steps, 30)
        run = weft.tune.run(self.folder, data, out, steps=30, observer=events.append, **options)
        self.assertLess(run.last_validation, run.first_validation / 4)
        self.assertEqual((run.last_accuracy, run.last_f1, events[-1]["validation_accuracy"]), (1.0, None, 1.0))
        tuned = encoder.load(out / "best", device="cpu")
        anchors, positives = (tuned.embed([pair[i] for pair in pairs]).numpy() for i in (0, 1))
        self.assertEqual(list(np.argmax(anchors @ positives.T, axis=1)), list(range(8)))
        self.assertFalse(np.array_equal(model.embed(["w9"]).numpy(), tuned.embed(["w9"]).numpy()))
        with self.assertRaisesRegex(weft.UsageError, "an objective of"):
            weft.tune.run(self.folder, data, self.folder / "no", objective="best")

    def test_tokens_and_masks(self):
        case, model = self.load("bert-tokens")
        labels = model.label_tokens(case["texts"][0])
        self.assertEqual([label.label.index for label in labels], [int(np.argmax(row)) for row in case["logits"]])
        self.assertEqual(sum(entity.tokens for entity in model.entities(case["texts"][0])), sum(label.label.name != "O" for label in labels))
        case, model = self.load("bert-masks")
        fills = model.fill_masks(case["masked"], 3)
        self.assertEqual([[fill.token for fill in row] for row in fills], [list(np.argsort(-np.array(row))[:3]) for row in case["logits"]])
        case, model = self.load("bert-answers")
        wanted = case["answers"]
        answers = model.answer(wanted["question"], wanted["text"], 5, longest=wanted["longest"], window=wanted["window"], stride=wanted["stride"])
        self.assertEqual([(a.text, a.begin, a.end) for a in answers], [(b["text"], b["begin"], b["end"]) for b in wanted["best"]])
        np.testing.assert_allclose([a.probability for a in answers], [b["probability"] for b in wanted["best"]], atol=2e-5)
        self.assertEqual(sum(a.text == "" for a in model.answer("w9", "w30 w31", 50, may_be_none=True)), 1)
        with self.assertRaisesRegex(weft.UsageError, "no head"):
            model.classify("w9")
        with self.assertRaises(weft.FileError):
            encoder.load(self.folder / "nothing")


if __name__ == "__main__":
    unittest.main()
