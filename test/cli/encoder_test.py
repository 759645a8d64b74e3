#!/usr/bin/python3
"""weft embed, rerank and classify with text encoders from end to end: encoder_test.py WEFT [unittest arguments]."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_encoder import put_encoder

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE = 0, 2, 3


def weft(*arguments, text=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, *map(str, arguments), "--device", "cpu"], input=text, capture_output=True, text=True, timeout=120, env={**environment, "WEFT_THREADS": "1"})


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        for name in ("bert", "roberta-classes", "bert-classes", "bert-tokens", "bert-masks", "bert-answers"):
            put_encoder(cls.folder / name, name)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def json_of(self, *arguments, **how):
        done = weft(*arguments, "--json", **how)
        self.assertEqual(done.returncode, OK, done.stderr)
        return json.loads(done.stdout)

    def refused(self, code, message, *arguments, **how):
        done = weft(*arguments, **how)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)

    def test_embeddings_are_compared(self):
        texts = self.json_of("embed", self.folder / "bert", "--text", "w9 w8", "--lines", "-", text="w7\n\nw9 w8 w30\n")["texts"]
        self.assertEqual([t["text"] for t in texts], ["w9 w8", "w7", "w9 w8 w30"])
        rows = [t["embedding"] for t in texts]
        self.assertEqual({len(row) for row in rows}, {32})
        for row in rows:
            self.assertAlmostEqual(sum(x * x for x in row), 1, places=5)
        shown = weft("embed", self.folder / "bert", "--text", "w9 w8", "--text", "w7").stdout.splitlines()
        self.assertEqual([line.split()[2:] for line in shown], [["w9", "w8"], ["w7"]])
        cosine = sum(a * b for a, b in zip(rows[0], rows[1]))
        self.assertAlmostEqual(float(shown[0].split()[1]), cosine, delta=6e-4)
        narrow = self.json_of("embed", self.folder / "bert", "--text", "w9 w8", "--width", "8")["texts"][0]["embedding"]
        length = math.sqrt(sum(x * x for x in rows[0][:8]))
        for a, b in zip(narrow, rows[0]):
            self.assertAlmostEqual(a, b / length, places=5)
        halves = self.json_of("embed", self.folder / "bert", "--text", "w9 w8", "--precision", "f16")["texts"][0]["embedding"]
        self.assertLess(max(abs(a - b) for a, b in zip(halves, rows[0])), 5e-3)
        query = self.json_of("embed", self.folder / "bert", "--text", "w9 w8", "--prompt", "query")["texts"][0]["embedding"]
        self.assertNotEqual(query, rows[0])

    def test_documents_are_ordered(self):
        order = self.json_of("rerank", self.folder / "roberta-classes", "w9", "--document", "w8 w7", "--document", "w30", "--document", "w40 w41")
        self.assertEqual(sorted(each["index"] for each in order), [0, 1, 2])
        scores = [each["score"] for each in order]
        self.assertEqual(scores, sorted(scores, reverse=True))
        best = weft("rerank", self.folder / "roberta-classes", "w9", "--lines", "-", "--count", "1", text="w8 w7\nw30\nw40 w41\n").stdout
        self.assertEqual(best.split(maxsplit=1)[1].strip(), order[0]["text"])

    def test_heads_say_what_they_are_for(self):
        labels = self.json_of("classify", self.folder / "bert-classes", "w9 w10", "--pair", "w11")
        self.assertAlmostEqual(sum(label["probability"] for label in labels), 1, places=5)
        for entity in self.json_of("classify", self.folder / "bert-tokens", "w9 w10 w30 w31 w32 w33"):
            self.assertEqual(entity["name"], "PER")
            self.assertEqual(len(entity["text"].split()), entity["tokens"])
        masks = self.json_of("classify", self.folder / "bert-masks", "w9 [MASK] w10 [MASK]", "--count", "3")
        self.assertEqual([len(fills) for fills in masks], [3, 3])
        shown = weft("classify", self.folder / "bert-masks", "w9 [MASK]", "--count", "2").stdout.splitlines()
        self.assertEqual(len(shown), 2)
        self.assertIn("%", shown[0])

    def test_answers_are_parts_of_the_text(self):
        text = "w30 w31 w32 w33 w40 w41"
        answers = self.json_of("answer", self.folder / "bert-answers", "w9 w8", "--text", text, "--count", 3, "--longest", 2)
        self.assertEqual([text[a["begin"]:a["end"]] for a in answers], [a["text"] for a in answers])
        self.assertEqual(sorted((-a["probability"] for a in answers)), [-a["probability"] for a in answers])
        shown = weft("answer", self.folder / "bert-answers", "w9 w8", "--file", "-", "--count", 200, "--none", text=text).stdout
        self.assertIn(f"%  {answers[0]['text']}\n", shown)
        self.assertEqual(shown.count("(none)"), 1)
        self.refused(USAGE, "not both", "answer", self.folder / "bert-answers", "w9")
        self.refused(USAGE, "no head to find answers", "answer", self.folder / "bert", "w9", "--text", text)
        self.refused(USAGE, "see weft answer", "classify", self.folder / "bert-answers", "w9")

    def test_a_class_is_tuned(self):
        data, out = self.folder / "data.jsonl", self.folder / "tuned"
        data.write_text("".join(json.dumps({"text": f"w{10 + i % 7} {word} w{20 + i % 5}", "label": label}) + "\n" for i in range(40)
                                for word, label in [("w30", "calm") if i % 2 else ("w40", "storm")]))
        options = ("--data", data, "--steps", 60, "--learning-rate", "3e-3", "--batch", 8, "--schedule", "linear")
        dry = weft("tune", self.folder / "bert", *options, "--dry-run")
        self.assertIn("60 steps over 38 examples", dry.stdout)
        done = weft("tune", self.folder / "bert", *options, "--out", out)
        self.assertEqual(done.returncode, OK, done.stderr)
        for text in ("learns single-label of 2 classes, with a new head", "F1          1.0000", f"weft classify {out / 'model'}"):
            self.assertIn(text, done.stdout)
        labels = self.json_of("classify", out / "best", "w12 w40 w22")
        self.assertEqual(labels[0]["name"], "storm")
        self.refused(USAGE, "the folder has a run", "tune", self.folder / "bert", *options, "--out", out)
        self.refused(USAGE, "--rank is for language models", "tune", self.folder / "bert", *options, "--rank", 4, "--out", self.folder / "no")
        self.refused(USAGE, "choose single-label, multi-label", "tune", self.folder / "bert", *options, "--objective", "best", "--out", self.folder / "no")

    def test_bad_calls(self):
        long = " ".join(["w9"] * 60)
        self.refused(USAGE, "has 62 tokens, and the model reads 50", "embed", self.folder / "bert", "--text", long)
        self.assertEqual(weft("embed", self.folder / "bert", "--text", long, "--cut").returncode, OK)
        self.refused(USAGE, "no prompt", "embed", self.folder / "bert", "--text", "w9", "--prompt", "question")
        self.refused(USAGE, "--precision", "embed", self.folder / "bert", "--text", "w9", "--precision", "f64")
        self.refused(USAGE, "there are no texts", "embed", self.folder / "bert")
        self.refused(USAGE, "images want a model such as CLIP", "embed", self.folder / "bert", "--text", "w9", "--image", "x.png")
        self.refused(USAGE, "has no head to classify", "rerank", self.folder / "bert", "w9", "--document", "w8")
        self.refused(USAGE, "there are no texts", "rerank", self.folder / "roberta-classes", "w9")
        self.refused(USAGE, "embeds texts", "classify", self.folder / "bert", "w9")
        self.refused(USAGE, "[MASK]", "classify", self.folder / "bert-masks", "w9")
        self.refused(USAGE, "--pair is for", "classify", self.folder / "bert-masks", "w9 [MASK]", "--pair", "w8")
        (self.folder / "bert-tokens" / "model.safetensors").rename(self.folder / "bert-tokens" / "away")
        try:
            self.refused(FILE, "bert-tokens", "classify", self.folder / "bert-tokens", "w9")
        finally:
            (self.folder / "bert-tokens" / "away").rename(self.folder / "bert-tokens" / "model.safetensors")


if __name__ == "__main__":
    unittest.main()
