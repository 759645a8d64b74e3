#!/usr/bin/python3
"""weft tokenize: tokenize_test.py WEFT [unittest arguments]. What it prints, and what it refuses."""
import json
import os
import pathlib
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE = 0, 2, 3

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 6, "content": "<s>", "special": True, "normalized": False}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "<": 5, "<s>": 6, "s": 7, ">": 8}, "merges": ["a b", "Ġ ab"]},
}


def gguf(tokens, merges, pre):
    """A file of version 3 with a vocabulary and no tensors."""
    def string(text):
        return struct.pack("<Q", len(text.encode())) + text.encode()
    def strings(values):
        return struct.pack("<IQ", 8, len(values)) + b"".join(map(string, values))
    entries = [("general.architecture", 8, string("llama")), ("tokenizer.ggml.model", 8, string("gpt2")), ("tokenizer.ggml.pre", 8, string(pre)),
               ("tokenizer.ggml.tokens", 9, strings(tokens)), ("tokenizer.ggml.merges", 9, strings(merges)), ("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens), *[3 if "<" in t else 1 for t in tokens]))]
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(string(key) + struct.pack("<I", kind) + value for key, kind, value in entries)
    return out + b"\0" * (-len(out) % 32)


def on_terminal(command, typed=b""):
    """What a command writes to a terminal."""
    parent, child = pty.openpty()
    with subprocess.Popen(list(map(str, command)), stdin=child, stdout=child, stderr=child) as process:
        os.close(child)
        os.write(parent, typed)
        shown = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        process.wait(60)
    os.close(parent)
    return shown


class Tokenize(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-tokenize-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.folder / "tokenizer.json"
        self.model.write_text(json.dumps(TOKENIZER))

    def weft(self, *arguments, text="", model=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        return subprocess.run([WEFT, "tokenize", "--model", model or self.model, *map(str, arguments)], input=text.encode(), capture_output=True, timeout=60, env=environment)

    def prints(self, expected, *arguments, **more):
        done = self.weft(*arguments, **more)
        self.assertEqual((done.returncode, done.stdout.decode()), (OK, expected), done.stderr)

    def refused(self, code, said, *arguments, **more):
        done = self.weft(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(said, done.stderr.decode())
        self.assertEqual(done.stdout, b"")

    def test_forms(self):
        self.prints("6 3 4\n", "ab ab", "--ids")
        self.prints("3\n", "ab ab", "--count")
        self.prints('"<s>"\n"ab"\n"Ġab"\n', "ab ab", "--pieces")
        self.prints('       6  "<s>"\n       3  "ab"\n', "ab")
        self.prints('{"count":2,"ids":[6,3],"pieces":["<s>","ab"]}\n', "ab", "--json")
        self.prints("6 3\n", "--ids", model=self.folder, text="ab")

    def test_sources(self):
        (self.folder / "text").write_text("ab")
        self.prints("6 3\n", "--file", self.folder / "text", "--ids")
        self.prints("6 3\n", "--file", "-", "--ids", text="ab")

    def test_special_tokens(self):
        self.prints("6 6 0\n", "<s>a", "--ids")
        self.prints("6 5 7 8 0\n", "<s>a", "--ids", "--plain")
        self.prints("0\n", "a", "--ids", "--no-special")

    def test_decoding(self):
        self.prints("<s>ab ab\n", "--decode", "6,3 4")
        self.prints("ab ab\n", "--decode", "6,3 4", "--skip-special")
        self.prints('{"text":"ab"}\n', "--decode", "3", "--json")

    def test_batches(self):
        text = "ab ab\n\nab\r\na"
        self.prints("6 3 4\n6\n6 3\n6 0\n", "--batch", text=text)
        self.prints("3\n1\n2\n2\n", "--batch", "--count", text=text)
        self.prints('"<s>" "ab" "Ġab"\n', "--batch", "--pieces", text="ab ab\n")
        done = self.weft("--batch", "--json", "--no-special", text='"ab\\na"\nab\n')
        self.assertEqual([json.loads(line)["ids"] for line in done.stdout.splitlines()], [[3, 0], [3]], done.stderr)
        (self.folder / "ids").write_text("6 3 4\n3,0\n")
        self.prints("<s>ab ab\naba\n", "--batch", "--decode", "", "--file", self.folder / "ids")
        done = self.weft("--batch", "--decode", "", text="3\n99\n")
        self.assertEqual((done.returncode, done.stdout), (USAGE, b"ab\n"))
        self.assertIn(b"line 2", done.stderr)

    def test_a_terminal_gets_no_commands(self):
        document = json.loads(self.model.read_text())
        document["model"]["vocab"]["\u001b]0;x\u0007\u009b2J"] = 9
        self.model.write_text(json.dumps(document))
        for arguments in (["--decode", "9"], ["--decode", "9", "--json"], ["--batch", "--decode", ""]):
            shown = on_terminal([WEFT, "tokenize", "--model", self.model, *arguments], b"9\n\x04")
            self.assertNotIn(b"\x1b]", shown)
            self.assertNotIn(b"\xc2\x9b", shown)
        self.assertIn(b"\x1b]0;x", self.weft("--decode", "9").stdout)  # a pipe gets every byte

    def test_gguf(self):
        path = self.folder / "model.gguf"
        path.write_bytes(gguf(["a", "b", "Ġ", "ab", "Ġab", "<s>"], ["a b", "Ġ ab"], "smollm"))
        self.prints("5 3 4\n", "<s>ab ab", "--ids", model=path)
        path.write_bytes(gguf(["a"], [], "smoltalk"))
        self.refused(FILE, "tokenizer.ggml.pre: \"smoltalk\" is unknown", "a", model=path)

    def test_refusals(self):
        self.refused(USAGE, "one of --ids, --pieces and --count", "a", "--ids", "--count")
        self.refused(USAGE, "not both", "a", "--file", "x")
        self.refused(USAGE, "not both", "a", "--decode", "1")
        self.refused(USAGE, "expected an id at character 3", "--decode", "1,x")
        self.refused(FILE, "no tokenizer.json", "a", model=self.folder / "..")
        self.refused(FILE, "missing", "a", model=self.folder / "missing.json")
        self.model.write_text('{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}')
        self.refused(FILE, "model.merges[0]: needs the piece \"a\"", "a")


if __name__ == "__main__":
    unittest.main()
