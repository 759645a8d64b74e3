#!/usr/bin/python3
"""Commands on damaged files: damaged_files_test.py WEFT [--each N] [--seed N] [unittest arguments].

Every kind of file that a command reads is cut, has bits flipped and words replaced. The command takes it or refuses it by an error of one of the
documented codes, in time; no signal ends it, and it reports no bug of its own. --each is the number of damages of a file.
"""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiny_encoder import put_encoder
from tiny_model import put_byte_model, put_model


def option(name, default):
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    return value


WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
EACH, SEED = option("--each", 12), option("--seed", 1)
SECONDS = 60  # sanitizers are slow, and so is a machine that is shared
CODES = (0, 1, 2, 3)
WORDS = [b"null", b"{}", b"[]", b"-1", b"0", b"1e308", b'""', b"18446744073709551616", b"[[[[[[[[", b'"\\ud800"', b"true", b"3.5", b'"../x"', b"[1,2]", b'"F32"', b"4294967295", b"\xff"]


def damaged(random_, data):
    kind = random_.randrange(4)
    if kind == 0:
        return data[:random_.randrange(len(data))]
    if kind == 1:  # in the place of a value
        spots = [m.start() + 1 for m in re.finditer(rb"[:,\[]", data[:20000])]
        if spots:
            at = random_.choice(spots)
            end = re.search(rb"[,}\]]", data[at:at + 200])
            return data[:at] + random_.choice(WORDS) + data[at + (end.start() if end else 0):]
    result = bytearray(data)
    near = min(len(data), 400) if kind == 2 else len(data)  # headers are at the beginning
    for _ in range(random_.choice((1, 1, 3))):
        result[random_.randrange(near)] ^= 1 << random_.randrange(8)
    return bytes(result)


class Damaged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="weft-damaged-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.model, cls.bytes = put_model(cls.root / "model"), put_byte_model(cls.root / "bytes")
        (cls.root / "data.jsonl").write_text("".join(json.dumps({"prompt": f"w{i % 9}", "completion": "w1 w2"}) + "\n" for i in range(20)))
        (cls.root / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 100)

    @staticmethod
    def run_weft(*arguments):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        return subprocess.run([WEFT, *map(str, arguments)], input=b"", capture_output=True, timeout=SECONDS, env={**kept, "WEFT_THREADS": "1"})

    @classmethod
    def weft(cls, *arguments):
        done = cls.run_weft(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)

    def survives(self, file, *command, before=lambda: None, is_seen=True):
        """Damages one file, which the command reads. Some damages are refused (`is_seen`), and the file as it was is taken."""
        good, random_, refused = file.read_bytes(), random.Random(f"{SEED} {file.name}"), 0
        for i in range(EACH):
            bad = damaged(random_, good)
            file.write_bytes(bad)
            before()
            with self.subTest(file=file.name, command=command[0], round=i):
                try:
                    done = self.run_weft(*command)
                    said = done.stderr.decode(errors="replace")
                    self.assertIn(done.returncode, CODES, said[-3000:])
                    self.assertNotIn("InternalError", said)
                    if done.returncode != 0:
                        self.assertRegex(said, "(?m)^error: ")
                        self.assertLess(len(said), 20_000)
                        refused += 1
                except (AssertionError, subprocess.TimeoutExpired):
                    if kept := os.environ.get("WEFT_TEST_KEEP"):
                        pathlib.Path(kept, f"{i}-{file.name}").write_bytes(bad)
                    raise
        file.write_bytes(good)
        before()
        self.weft(*command)
        self.assertTrue(refused or not is_seen, "no damage was seen")

    def test_adapters(self):
        adapter = self.root / "run"
        self.weft("tune", self.model, "--data", self.root / "data.jsonl", "--context", 32, "--steps", 2, "--device", "cpu", "--out", adapter)
        said = ["--prompt", "w1", "--max-tokens", 1, "--device", "cpu"]
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            self.survives(adapter / name, "generate", self.model, "--adapter", adapter, *said)
        self.survives(adapter / "adapter_model.safetensors", "convert", self.model, self.root / "merged.gguf", "--adapter", adapter)

    def test_checkpoints_of_tuning(self):
        tune = ("tune", self.model, "--data", self.root / "data.jsonl", "--context", 32, "--device", "cpu", "--out", self.root / "work")
        self.weft(*tune[:-1], self.root / "made", "--steps", 3)

        def again():  # the run of before, with the damaged file
            shutil.rmtree(self.root / "work", ignore_errors=True)
            shutil.copytree(self.root / "made", self.root / "work")
        for name in ("checkpoint.safetensors", "run.json"):
            # The settings of a run are written anew.
            self.survives(self.root / "made" / name, *tune, "--resume", "--steps", 3, before=again, is_seen=name != "run.json")

    def test_runs(self):
        self.weft("train", "text", "--data", self.root / "text.txt", "--preset", "tiny", "--device", "cpu", "--out", self.root / "boats", "--steps", 2)
        for name in sorted(each.name for each in (self.root / "boats").iterdir() if each.suffix in (".json", ".safetensors")):
            if name == "last.safetensors":
                self.survives(self.root / "boats" / name, "generate", self.root / "boats", "--prompt", "row", "--max-tokens", 1, "--device", "cpu", is_seen=False)  # the one before is taken
            elif name == "run.json":
                self.survives(self.root / "boats" / name, "train", "text", "--out", self.root / "boats", "--resume", "--steps", 2, "--device", "cpu")

    def test_arrays(self):
        program = self.root / "program.json"
        program.write_text(json.dumps({"steps": [{"op": "rand", "attributes": {"shape": [4, 3], "low": -1, "high": 1, "seed": 1}, "output": "x"},
                                                 {"op": "softmax", "inputs": ["x"], "attributes": {"axis": -1}, "output": "y"}], "outputs": ["x", "y"]}))
        self.survives(program, "eval", program, "--out", self.root / "x.npz", "--device", "cpu")
        self.survives(program, "kernels", program, "--out", self.root / "kernels", before=lambda: shutil.rmtree(self.root / "kernels", ignore_errors=True))
        use = self.root / "use.json"
        use.write_text(json.dumps({"steps": [{"op": "exp", "inputs": ["x"], "output": "z"}]}))
        for name in ("x.npz", "x.safetensors"):
            self.weft("eval", program, "--out", self.root / name, "--device", "cpu")
            self.survives(self.root / name, "eval", use, "--inputs", self.root / name, "--out", self.root / "z.npz", "--device", "cpu")
        self.weft("operations", "call", "tensor.rand", "--input", '{"shape": [9]}', "--out", self.root / "x.npy", "--device", "cpu")
        self.survives(self.root / "x.npy", "operations", "call", "tensor.exp", "--tensor", f"x={self.root}/x.npy", "--out", self.root / "y.npy", "--device", "cpu")

    def test_networks_and_memories(self):
        net = self.root / "net.json"
        self.weft("grid", "new", "mlp", "--widths", "2,6,1", "--out", net)
        self.survives(net, "grid", "describe", net)
        memory = self.root / "m.metatensor"
        self.weft("memory", "add", memory, self.model, "--text", "w1 w2", "--text", "w3", "--metadata", '{"page": 3}')
        self.survives(memory, "memory", "list", memory)
        self.survives(memory, "inspect", memory)

    def test_texts_for_models(self):
        said = ["--max-tokens", 2, "--device", "cpu"]
        for name, option_, text in (("schema.json", "--schema", '{"type": "object", "properties": {"a": {"enum": ["w1", 2]}, "b": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}}'),
                                    ("grammar.gbnf", "--grammar", 'root ::= "w" [0-9]+ (" " root)? | list{1,3}\nlist ::= "a" | "b"\n'),
                                    ("template.jinja", "--chat-template", "{% for m in messages %}{{ m.role | upper }}: {{ m['content'] | trim }}{% if loop.last %}!{% endif %}{% endfor %}")):
            file = self.root / name
            file.write_text(text)
            self.survives(file, "chat", self.bytes, "w1", option_, file, *said)
        messages = self.root / "messages.json"
        messages.write_text('[{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}]')
        self.survives(messages, "template", "render", "--model", self.model, "--messages", messages)
        flow = self.root / "flow.json"
        flow.write_text(json.dumps({"type": "sequence", "steps": [{"type": "operation", "operation": "tensor.exp", "input": {"x": 1}}]}))
        if self.run_weft("workflow", "check", flow).returncode == 0:
            self.survives(flow, "workflow", "check", flow)

    def test_text_encoders(self):
        for name, command in (("bert", ("embed", "--text", "w9 w8")), ("modernbert-tokens", ("classify", "w9 w8")), ("deberta-v3-classes", ("rerank", "w9", "--document", "w8"))):
            folder = self.root / f"encoder-{name}"
            put_encoder(folder, name)
            self.weft(command[0], folder, *command[1:], "--device", "cpu")
            for file in ("config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer.json", "model.safetensors"):
                if (folder / file).exists():
                    self.survives(folder / file, command[0], folder, *command[1:], "--device", "cpu", is_seen=file in ("model.safetensors", "modules.json"))

    def test_models(self):
        for name in ("model.gguf", "model.safetensors", "model.metatensor"):
            file = self.root / name
            self.weft("convert", self.model, file)
            self.survives(file, "inspect", file)
            self.survives(file, "convert", file, self.root / ("again.gguf" if name != "model.gguf" else "again.safetensors"))


if __name__ == "__main__":
    unittest.main()
