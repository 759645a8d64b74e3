"""weft memory, with a tiny model of random weights."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tiny_encoder
import tiny_model

WEFT = sys.argv.pop(1)


class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.model = tiny_model.put_model(cls.root / "model")

    def weft(self, *arguments, code=0, stdin=""):
        done = subprocess.run([WEFT, "memory", *map(str, arguments)], input=stdin, capture_output=True, text=True, cwd=self.root, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_add_search_recall_remove(self):
        ids = self.weft("add", "m.metatensor", self.model, "--text", "w1 w2 w3", "--text", "w7 w8 w9 w10", "--namespace", "notes",
                        "--metadata", '{"page": 3}').split()
        self.assertEqual(len(ids), 2)
        self.weft("add", "m.metatensor", self.model, "--lines", "-", stdin="w20 w21\n\nw30 w31 w32\n")
        entries = [json.loads(line) for line in self.weft("list", "m.metatensor", "--json").splitlines()]
        self.assertEqual([each["text"] for each in entries], ["w1 w2 w3", "w7 w8 w9 w10", "w20 w21", "w30 w31 w32"])
        self.assertEqual(entries[0]["metadata"], {"page": 3})

        # A text is most alike itself.
        found = [json.loads(line) for line in self.weft("search", "m.metatensor", "w20 w21", self.model, "--json").splitlines()]
        self.assertEqual(found[0]["text"], "w20 w21")
        self.assertAlmostEqual(found[0]["similarity"], 1, places=4)
        self.assertEqual(sorted(found, key=lambda each: -each["similarity"]), found)
        self.assertEqual(len(self.weft("search", "m.metatensor", "w1", self.model, "--namespace", "notes", "--top-k", 5).splitlines()), 2)
        self.assertEqual(self.weft("search", "m.metatensor", "w1", self.model, "--where", '{"page": 4}'), "")

        # The budget counts tokens of the model; the number and the words of a line are one each.
        self.assertEqual(self.weft("recall", "m.metatensor", "w20 w21", self.model, "--tokens", 3), "[1] w20 w21\n")
        self.assertEqual(self.weft("recall", "m.metatensor", "w20 w21", self.model, "--tokens", 2), "")
        self.assertEqual(len(self.weft("recall", "m.metatensor", "w20 w21", self.model, "--tokens", 100).splitlines()), 4)

        # Both commands have appended: the file is as the first one made it, and the journal has the rest.
        self.assertGreater((self.root / "m.metatensor.journal").stat().st_size, 500)
        size = (self.root / "m.metatensor").stat().st_size
        self.weft("remove", "m.metatensor", ids[0])
        self.assertEqual((self.root / "m.metatensor").stat().st_size, size)
        self.assertEqual(len(self.weft("list", "m.metatensor").splitlines()), 3)
        self.assertIn("there is no entry", self.weft("remove", "m.metatensor", ids[0], code=2))

    def test_encoders_embed_too(self):
        tiny_encoder.put_encoder(self.root / "bert", "bert")
        self.weft("add", "e.metatensor", "bert", "--text", "w9 w8", "--text", "w30 w31 w32", "--text", "w40")
        found = [json.loads(line) for line in self.weft("search", "e.metatensor", "w30 w31 w32", "bert", "--json").splitlines()]
        self.assertEqual(len(found), 3)
        # The prompt for queries stands before the query only.
        self.assertLess(found[0]["similarity"], 0.9999)
        self.assertEqual(len(self.weft("recall", "e.metatensor", "w9", "bert", "--tokens", 100).splitlines()), 3)
        self.assertIn("has 62 tokens", self.weft("add", "e.metatensor", "bert", "--text", " ".join(["w9"] * 60), code=2))

    def test_wrong_uses(self):
        self.weft("search", "none.metatensor", "w1", self.model, code=3)
        self.assertIn("--text", self.weft("add", "n.metatensor", self.model, code=2))
        self.weft("add", "n.metatensor", self.model, "--text", "w1", "--metadata", "[1", code=2)
        self.weft("add", "n.metatensor", self.model, "--text", "w1", "--metadata", "3", code=2)
        self.assertFalse((self.root / "n.metatensor").exists())
        self.assertIn("not a memory", self.weft("list", self.model / "model.safetensors", code=3))
        # A file of another kind gets no journal.
        for name, content in (("text.txt", b"a text that is not a memory\n"), ("copy.safetensors", (self.model / "model.safetensors").read_bytes())):
            (self.root / name).write_bytes(content)
            self.weft("add", name, self.model, "--text", "w1", code=3)
            self.assertEqual((self.root / name).read_bytes(), content)
            self.assertFalse((self.root / (name + ".journal")).exists())


if __name__ == "__main__":
    unittest.main()
