#!/usr/bin/python3
"""What users get wrong with the commands around language models: hostile_test.py WEFT [unittest arguments].

Every refusal is one message of a few lines that names the thing, and a documented exit code.
"""
import json
import math
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from tiny_model import put_model

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE, DEVICE, INTERRUPTED = 0, 2, 3, 4, 130
NOBODY = 65534


def weft(*arguments, text=b"", **options):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, *arguments], input=text, capture_output=True, timeout=60, env={**environment, "WEFT_THREADS": "1"}, **options)


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-hostile-"))
        os.chmod(cls.folder, 0o755)
        cls.model = put_model(cls.folder / "model")
        cls.gguf = cls.folder / "m.gguf"
        assert weft("convert", cls.model, cls.gguf).returncode == OK
        (cls.folder / "text.txt").write_text("w1 w2 " * 100)
        (cls.folder / "latin.txt").write_bytes(b"w1 \xff w2 " * 100)
        (cls.folder / "empty").write_bytes(b"")
        (cls.folder / "cut.gguf").write_bytes(b"GGUF")
        (cls.folder / "dir").mkdir()
        os.mkfifo(cls.folder / "pipe")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def refused(self, code, said, *arguments, **options):
        done = weft(*arguments, **options)
        shown = f"{arguments}\n{done.stdout}\n{done.stderr.decode(errors='replace')}"
        self.assertEqual(done.returncode, code, shown)
        self.assertIn(str(said), done.stderr.decode(errors="replace"), shown)
        self.assertRegex(done.stderr, rb"(?m)^error: ", shown)
        self.assertNotIn(b"InternalError", done.stderr, shown)
        self.assertLess(len(done.stderr.splitlines()), 12, shown)

    def commands(self, model):
        """Each command that reads a model, on this one."""
        out = self.folder / "out.gguf"
        return {"chat": ["chat", model, "--device", "cpu"], "generate": ["generate", model, "--device", "cpu", "--prompt", "w1"],
                "perplexity": ["perplexity", model, "--device", "cpu", "--file", self.folder / "text.txt"],
                "tokenize": ["tokenize", "--model", model, "x"], "inspect": ["inspect", model],
                "template": ["template", "render", "--model", model], "quantize": ["quantize", model, out, "--type", "Q8_0"],
                "convert": ["convert", model, out]}

    def test_models_that_are_none(self):
        for name in ("none", "dir", "empty", "cut.gguf", "text.txt", "pipe"):
            for command in self.commands(self.folder / name).values():
                with self.subTest(name=name, command=command[0]):
                    self.refused(FILE, name, *command, text=b"[]")
        for name, command in self.commands("").items():
            self.refused(USAGE if name == "template" else FILE, "", *command, text=b"[]")

    @unittest.skipUnless(os.geteuid() == 0, "takes root to become nobody")
    def test_models_that_may_not_be_read(self):
        locked = self.folder / "locked.gguf"
        locked.write_bytes(self.gguf.read_bytes())
        locked.chmod(0)
        try:
            if weft("--version", user=NOBODY, group=NOBODY, extra_groups=[]).returncode != OK:
                self.skipTest("nobody may not run the command here")
        except PermissionError:
            self.skipTest("nobody may not run the command here")
        for command in self.commands(locked).values():
            with self.subTest(command=command[0]):
                self.refused(FILE, "locked.gguf", *command, text=b"[]", user=NOBODY, group=NOBODY, extra_groups=[])

    def test_numbers_out_of_range(self):
        for option, values in {"--context": ("-1", "99999999999", "9223372036854775807"), "--max-tokens": ("-1",), "--temperature": ("-1", "nan", "inf"),
                               "--top-k": ("-1",), "--top-p": ("-1", "0", "1.5", "nan"), "--min-p": ("-1", "2", "nan"), "--typical": ("0", "2"),
                               "--repetition-penalty": ("0", "-1", "nan", "inf"), "--frequency-penalty": ("nan",), "--presence-penalty": ("inf",),
                               "--penalty-window": ("-1", "257"), "--draft": ("-1", "16"), "--seed": ("-2",)}.items():
            for value in values:
                for command in ("generate", "chat"):
                    with self.subTest(command=command, option=option, value=value):
                        prompt = ["--prompt", "w1"] if command == "generate" else []
                        name = option[2:].replace("-", "_")
                        self.refused(USAGE, {"context": "context ", "seed": "--seed -2"}.get(name, name), command, self.model, "--device", "cpu",
                                     *prompt, option, value, text=b"w1\n")
        perplexity = ["perplexity", self.model, "--device", "cpu", "--file", self.folder / "text.txt"]
        for value in ("-1", "3", "97", "999999999999"):
            self.refused(USAGE, f"a window of {value} tokens", *perplexity, "--window", value)
        self.refused(USAGE, "-1 windows", *perplexity, "--windows", "-1")

    def test_numbers_that_are_none(self):
        for option in ("--context", "--max-tokens", "--top-k", "--seed", "--draft"):
            for value in ("x", "1e9", "3.5", "99999999999999999999", "-99999999999999999999", "0x10", " 1"):
                self.refused(USAGE, f'{option}: expected a whole number', "generate", self.model, option, value)
        for option in ("--temperature", "--top-p"):
            for value in ("x", "1e999", "1,5", "--"):
                self.refused(USAGE, option, "generate", self.model, option, value)

    def test_numbers_out_of_the_range_of_an_option(self):
        self.refused(USAGE, "--timeout: -1 is not at least 0\n", "operations", "call", "tensor.exp", "--timeout", "-1")
        self.refused(USAGE, '--timeout: expected a number, got "nan"\n', "workflow", "run", "w.json", "--timeout", "nan")
        self.refused(USAGE, '--time-limit: expected a number, got "nan"\n', "run", "a.js", "--time-limit", "nan")
        self.refused(USAGE, "--memory-limit: 0 is not from 1 to 1048576\n", "run", "a.js", "--memory-limit", "0")
        self.refused(USAGE, "--time-limit: -1 is not from 0 to 10000000\n", "run", "a.js", "--time-limit", "-1")
        self.refused(USAGE, '--time-limit: expected a number, got "abc"\n', "run", "a.js", "--time-limit", "abc")

    def test_counts_are_not_negative(self):
        for command in (["serve", "m", "--queue"], ["train", "text", "--data", "x", "--out", "y", "--seed"], ["tune", "m", "--data", "x", "--out", "y", "--seed"]):
            for value in ("-1", "x", "1.5", "99999999999999999999"):
                self.refused(USAGE, "expected a whole number that is not negative", *command, value)

    def test_an_endless_time_limit_is_none(self):
        self.assertEqual(weft("operations", "call", "tensor.exp", "--input", '{"x": 1}', "--device", "cpu", "--timeout", "1e300").returncode, OK)

    def test_names_that_are_none(self):
        self.refused(USAGE, "--cache \"f64\": give f32, f16 or q8", "generate", self.model, "--prompt", "w1", "--cache", "f64")
        for device in ("", "gpu", "webgpu:-1", "webgpu:x", "cpu:1", "webgpu:99999999999"):
            self.refused(USAGE, f'device "{device}"', "generate", self.model, "--prompt", "w1", "--device", device)
        self.refused(DEVICE, "webgpu:99", "generate", self.model, "--prompt", "w1", "--device", "webgpu:99")
        self.refused(USAGE, 'there is no such type to quantize to; choose one of F32', "quantize", self.gguf, self.folder / "o.gguf", "--type", "Q4")
        self.refused(USAGE, "Did you mean --temperature?", "chat", self.model, "--temprature", "1")

    def test_a_wrong_device_of_the_environment(self):
        for command in (["generate", self.model, "--prompt", "w1"], ["tune", self.model, "--data", "x", "--out", "y"], ["doctor"]):
            for name in (b"gpu", b"\xff"):
                done = subprocess.run([WEFT, *command], input=b"", capture_output=True, timeout=60, env={**os.environb, b"WEFT_DEVICE": name})
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(b"error: device \"" + name.replace(b"\xff", b"\\xff"), done.stderr)
        done = subprocess.run([WEFT, "--help"], capture_output=True, timeout=60, env={**os.environb, b"WEFT_DEVICE": b"gpu"})
        self.assertEqual((done.returncode, done.stderr), (OK, b""))

    def test_an_unknown_architecture_names_the_nearest(self):
        for wrong, nearest in (("lama", "llama"), ("qwen4", "qwen"), ("gemma7", "gemma")):
            broken = self.folder / wrong
            shutil.copytree(self.model, broken)
            config = (broken / "config.json").read_text()
            (broken / "config.json").write_text(config.replace('"llama"', f'"{wrong}"'))
            for command in ("chat", "generate"):
                self.refused(FILE, f"(nearest: {nearest}", command, broken, "--device", "cpu", *(["--prompt", "w1"] if command == "generate" else []))
                self.refused(FILE, "it knows mixtral, llama", command, broken, "--device", "cpu")

    def test_the_graph_is_printed_where_it_fits(self):
        for model in (self.model, self.gguf):
            shown = weft("inspect", model, "--graph").stdout.decode()
            self.assertRegex(shown, r"(?m)layer1_attn\b.*attention")
            self.assertIn("lm_head", shown)
        self.refused(USAGE, "--graph cannot be combined", "inspect", self.gguf, "--graph", "--json")
        wrong = self.folder / "wrong"
        shutil.copytree(self.model, wrong)
        config = json.loads((wrong / "config.json").read_text())
        (wrong / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        self.refused(FILE, "missing: model.layers.2.input_layernorm.weight", "inspect", wrong, "--graph")

    def test_prompts(self):
        generate = ["generate", self.model, "--device", "cpu"]
        self.refused(USAGE, "the prompt has no tokens", *generate, "--prompt", "")
        self.refused(USAGE, "the prompt has 200 tokens, and the context 96 positions", *generate, "--prompt", "w1 " * 200)
        self.refused(USAGE, "--prompt: byte 3 is not UTF-8", *generate, "--prompt", b"w1 \xff\xfe")
        self.refused(USAGE, "a stop text is empty", *generate, "--prompt", "w1", "--stop", "")
        self.refused(USAGE, "--system: byte 0 is not UTF-8", "chat", self.model, "--device", "cpu", "--system", b"\xff", text=b"w1\n")

    def test_lines_of_a_chat(self):
        done = weft("chat", self.model, "--device", "cpu", "--max-tokens", "2", "--temperature", "0",
                    text=b"\xff\n/set top-k 1e300\n/set top-k nan\n/set top-k -5\n/set max-tokens -1e300\n/save /nowhere/x\n/save\nw1\n")
        self.assertEqual(done.returncode, USAGE, done.stderr)  # lines before the last failed
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)  # the last line is answered, whatever went before
        for said in (b"the line was not taken: byte 0 is not UTF-8", b'expected a number, got "nan"', b"top_k is -5", b"max_tokens is -1",
                     b"'/nowhere' does not exist", b"give the file's name"):
            self.assertIn(said, done.stderr)

    def test_texts(self):
        perplexity = ["perplexity", self.model, "--device", "cpu", "--file"]
        self.refused(FILE, "none", *perplexity, self.folder / "none")
        self.refused(FILE, "it is a folder", *perplexity, self.folder / "dir")
        self.refused(FILE, "not a regular file", *perplexity, self.folder / "pipe")
        self.refused(FILE, "byte 3 (0xff, line 1) is not UTF-8", *perplexity, self.folder / "latin.txt")
        self.refused(USAGE, "the text has 0 tokens", *perplexity, self.folder / "empty")
        tokenize = ["tokenize", "--model", self.model]
        for name, said in (("none", "no such file"), ("dir", "it is a folder"), ("pipe", "not a regular file")):
            self.refused(FILE, said, *tokenize, "--file", self.folder / name)
        for ids in ("99999999999", "-1", "x", "1;2"):
            self.refused(USAGE, "expected an id", *tokenize, "--decode", ids)
        self.refused(USAGE, "no token has the id 48; ids of this vocabulary are below 48", *tokenize, "--decode", "1,48")
        self.assertEqual(weft(*tokenize, "--decode", "", text=b"w1").stdout, b"\n")

    def test_files_whose_size_is_not_told(self):
        self.refused(FILE, "the system does not tell its size", "chat", self.model, "--device", "cpu", "-f", "/proc/cpuinfo", "w1")
        self.refused(FILE, "the system does not tell its size", "generate", self.model, "--device", "cpu", "--file", "/proc/self/status")

    def test_keys_that_are_none(self):
        keys = self.folder / "keys"
        keys.write_bytes(b"# ours\ngood-key\nbad\x00key\n")
        self.refused(FILE, "line 3 is no key", "serve", self.model, "--port", "0", "--device", "cpu", "--api-key-file", keys)
        keys.write_bytes(b"# ours\n\n")
        self.refused(USAGE, "the name of the model is empty", "serve", "", "--port", "0", "--device", "cpu")
        self.refused(USAGE, "the file has no key", "serve", self.model, "--port", "0", "--device", "cpu", "--api-key-file", keys)

    def test_places_to_write(self):
        for command in (["quantize", self.gguf, "--type", "Q8_0"], ["convert", self.gguf]):
            for place, said in ((self.folder / "no" / "x.gguf", "does not exist; create it first"), ("/proc/x.gguf", "cannot write '/proc/x.gguf'")):
                self.refused(FILE, said, *command[:2], place, *command[2:])
        self.refused(FILE, "is a folder", "quantize", self.gguf, self.folder / "dir", "--type", "Q8_0")
        self.assertEqual(sorted(p.name for p in self.folder.glob("*.tmp-*")), [])

    def printing(self):
        """Commands that print."""
        messages = self.folder / "messages.json"
        messages.write_text('[{"role": "user", "content": "w1"}]')
        run = ["--device", "cpu", "--max-tokens", "2"]
        return {"chat": ["chat", self.model, *run], "generate": ["generate", self.model, "--prompt", "w1", *run],
                "perplexity": ["perplexity", self.model, "--device", "cpu", "--file", self.folder / "text.txt", "--window", "32"],
                "tokenize": ["tokenize", "--model", self.model, "w1"], "inspect": ["inspect", self.model], "help": ["chat", "--help"],
                "template": ["template", "render", "--model", self.model, "--messages", messages]}

    def test_output_that_is_lost_is_an_error(self):
        for name, command in self.printing().items():
            with self.subTest(command=name), open("/dev/full", "wb") as full:
                done = subprocess.run([WEFT, *command], input=b"w1\n", stdout=full, stderr=subprocess.PIPE, timeout=60)
                self.assertEqual((done.returncode, done.stderr.count(b"\n")), (FILE, 1), done.stderr)
                self.assertIn(b"error: standard output: not all of the text could be written", done.stderr)

    def test_a_reader_that_goes_is_no_error(self):
        for name, command in self.printing().items():
            with self.subTest(command=name):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([WEFT, *command], input=b"w1\n", stdout=writer, stderr=subprocess.PIPE, timeout=60)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (OK, b""))

    def test_closed_streams_harm_no_file(self):
        wanted, out = self.folder / "wanted.gguf", self.folder / "closed.gguf"
        self.assertEqual(weft("quantize", self.gguf, wanted, "--type", "Q8_0").returncode, OK)
        for closed in ((1,), (2,), (0, 1), (0, 1, 2)):
            with self.subTest(closed=closed):
                redirections = " ".join(f"{stream}>&-" for stream in closed)
                done = subprocess.run(["bash", "-c", f'"$@" {redirections}', "bash", WEFT, "quantize", self.gguf, out, "--type", "Q8_0"],
                                      capture_output=True, timeout=60)
                self.assertEqual(done.returncode, FILE if 1 in closed else OK, done.stderr)
                self.assertEqual(out.read_bytes(), wanted.read_bytes())

    def interrupt(self, command, ready, signal_number=signal.SIGINT, text=b""):
        """Runs it until it would hear the signal, sends that, and gives what came."""
        environment = {**os.environ, "WEFT_THREADS": "1"}
        with subprocess.Popen([WEFT, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            if text:
                process.stdin.write(text)
                process.stdin.flush()
            deadline = time.monotonic() + 60
            while not ready(process.pid) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            process.send_signal(signal_number)
            process.wait(60)  # with its input still open
            return process.returncode, process.stdout.read(), process.stderr.read()

    @staticmethod
    def catches(number):
        def ready(pid):
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("SigCgt:"):
                    return int(line.split()[1], 16) >> (number - 1) & 1
        return ready

    def test_an_interrupt_is_heard_while_the_prompt_is_read(self):
        long = self.folder / "long"
        shutil.copytree(self.model, long)
        config = json.loads((long / "config.json").read_text())
        (long / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16384}))
        prompt = self.folder / "prompt.txt"
        prompt.write_text("w1 " * 16000)
        options = [long, "--device", "cpu", "--context", "16384", "--max-tokens", "300"]
        for number in (signal.SIGINT, signal.SIGTERM):
            code, out, _ = self.interrupt(["generate", *options, "--file", prompt], self.catches(number), number)
            self.assertEqual((code, out), (INTERRUPTED, prompt.read_bytes() + b"\n"))
            code, out, _ = self.interrupt(["chat", *options], self.catches(number), number, prompt.read_bytes() + b"\nw2\n")
            self.assertEqual((code, out), (INTERRUPTED, b"\n"))

    def test_an_interrupt_leaves_no_half_files(self):
        rows, columns, count = 512, 1024, 24
        values = struct.pack("<4096f", *(math.sin(i * i) for i in range(4096))) * (rows * columns // 4096)
        head = b"GGUF" + struct.pack("<IQQ", 3, count, 0)
        for i in range(count):
            name = b"blk.%d.ffn_up.weight" % i
            head += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, columns, rows, 0, i * len(values))
        folder = self.folder / "interrupted"
        folder.mkdir()
        big = self.folder / "big.gguf"
        big.write_bytes(head + bytes(-len(head) % 32) + values * count)
        out = folder / "out.gguf"
        for command in (["quantize", big, out, "--type", "Q2_K"], ["convert", big, out, "--type", "F16"]):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(command=command[0], number=number):
                    code, _, _ = self.interrupt(command, lambda pid: list(folder.iterdir()), number)
                    self.assertEqual((code, list(folder.iterdir())), (INTERRUPTED, []))


if __name__ == "__main__":
    unittest.main()
