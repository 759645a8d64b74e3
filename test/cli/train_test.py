#!/usr/bin/python3
"""The command from end to end: train_test.py WEFT [--kills N] [unittest arguments].

Runs, resumes, kills, fills disks, and gives it what it must refuse. A run is compared by the bytes of its tensors.
"""
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
KILLS = 6
if "--kills" in sys.argv:
    at = sys.argv.index("--kills")
    KILLS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

OK, FAILURE, USAGE, FILE, DEVICE, INTERRUPTED = 0, 1, 2, 3, 4, 130
WORDS = "the quick brown fox jumps over a lazy dog while seven wizards vex them\n"
SMALL = ["--preset", "tiny", "--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "4", "--device", "cpu",
         "--sample-tokens", "20"]


def environment(**more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k == "WEFT_WEBGPU_LIBRARY"}, "WEFT_THREADS": "1", **more}


def weft(*arguments, env=None, **options):
    return subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=300,
                          env=environment(**(env or {})), **options)


def tensors(path):
    """The data of a safetensors file by tensor name, and its metadata."""
    raw = pathlib.Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__")
    data = raw[8 + length:]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}, metadata


def xxh64(data):
    """XXH64 of bytes, with seed 0."""
    p1, p2, p3, p4, p5, mask = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, 2**64 - 1

    def turn(x, bits):
        return (x << bits | x >> (64 - bits)) & mask

    def step(lane, word):
        return turn((lane + word * p2) & mask, 31) * p1 & mask

    whole, result = len(data) // 32 * 32, p5
    if whole:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        for at in range(0, whole, 32):
            lanes = [step(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at))]
        result = sum(turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            result = ((result ^ step(0, lane)) * p1 + p4) & mask
    result = (result + len(data)) & mask
    at = whole
    while at + 8 <= len(data):
        result = (turn(result ^ step(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & mask
        at += 8
    if at + 4 <= len(data):
        result = (turn(result ^ struct.unpack_from("<I", data, at)[0] * p1 & mask, 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        result = turn(result ^ byte * p5 & mask, 11) * p1 & mask
    result = (result ^ result >> 33) * p2 & mask
    result = (result ^ result >> 29) * p3 & mask
    return result ^ result >> 32


def content_hash(header, data):
    """As a checkpoint has it."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    parts = [text(key) + text(value) for key, value in sorted(header["__metadata__"].items()) if key != "content_hash"]
    for name, entry in sorted(header.items()):
        if name != "__metadata__":
            parts += [text(name), text(entry["dtype"]), text(str(entry["shape"])), data[slice(*entry["data_offsets"])]]
    return f"{xxh64(b''.join(parts)):016x}"


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = self.folder / "text.txt"
        self.text.write_text(WORDS * 60)
        self.out = self.folder / "run"

    def train(self, *arguments, out=None, **options):
        return weft("train", "text", "--out", out or self.out, *arguments, **options)

    def begin(self, *arguments, out=None, **options):
        return self.train("--data", self.text, *SMALL, *arguments, out=out, **options)

    def assert_code(self, result, code):
        self.assertEqual(result.returncode, code, f"\nstdout: {result.stdout}\nstderr: {result.stderr}")

    def assert_same_run(self, a, b):
        (one, about_one), (two, about_two) = tensors(a / "last.safetensors"), tensors(b / "last.safetensors")
        self.assertEqual(about_one["step"], about_two["step"])
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertEqual(one[name], two[name], name)


class Surface(CliTest):
    def test_help_and_version(self):
        result = weft("--help")
        self.assert_code(result, OK)
        for text in ("train", "generate", "devices", "Exit codes", "WEFT_LOG_EVERY"):
            self.assertIn(text, result.stdout)
        result = weft("train", "text", "--help")
        self.assert_code(result, OK)
        for flag in "--preset --data --out --device --steps --seconds --seed --resume".split():
            self.assertIn(flag, result.stdout)
        self.assertIn("WEFT_SECONDS", result.stdout)
        self.assertRegex(weft("--version").stdout, r"^weft \d+\.\d+\.\d+( \([0-9a-f]{10}(-dirty)?\))?\ncpu +\S")

    def test_slips_are_named(self):
        for arguments, suggestion in ((["trian"], "train"), (["train", "txt"], "text"), (["train", "text", "--out", "x", "--seeed", "3"], "--seed"),
                                      (["generate", "x", "--promt=y"], "--prompt")):
            result = weft(*arguments)
            self.assert_code(result, USAGE)
            self.assertIn(f"Did you mean {suggestion}?", result.stderr)
        self.assert_code(weft(), USAGE)
        self.assert_code(weft("train"), USAGE)
        self.assert_code(self.train("--steps", "many"), USAGE)

    def test_devices(self):
        result = weft("devices")
        self.assert_code(result, OK)
        self.assertIn("cpu", result.stdout)
        if "webgpu:0" in result.stdout:
            for fact in ("subgroups", "shader-f16", "subgroup matrices", "profile"):
                self.assertIn(fact, result.stdout)

    def test_environment_twins(self):
        result = weft("train", "text", *SMALL, env={"WEFT_OUT": str(self.out), "WEFT_DATA": str(self.text), "WEFT_STEPS": "3", "WEFT_SEED": "7"})
        self.assert_code(result, OK)
        self.assertEqual(json.loads((self.out / "config.json").read_text())["seed"], 7)


class Training(CliTest):
    def test_a_run_leaves_what_it_says(self):
        result = self.begin("--steps", 40, "--log-every", 5, "--eval-every", 20)
        self.assert_code(result, OK)
        for text in ("parameters", "embedding", "loss", "best.safetensors", "weft generate"):
            self.assertIn(text, result.stdout)
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 5, 10, 15, 20, 25, 30, 35, 40])
        for line in lines:
            for key in ("loss", "tokens_per_second", "learning_rate", "grad_norm"):
                self.assertGreater(line[key], 0)
        self.assertEqual([line["step"] for line in lines if "val_loss" in line], [20, 40])
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        self.assertIn("<svg", (self.out / "loss.svg").read_text())
        self.assertIn("step 40", (self.out / "samples.txt").read_text())
        for name in ("best.safetensors", "last.safetensors", "config.json"):
            self.assertTrue((self.out / name).exists(), name)
        self.assertNotIn("\r", result.stdout)

    def test_a_dry_run_tells_the_memory_and_writes_nothing(self):
        result = self.begin("--dry-run")
        self.assert_code(result, OK)
        for text in ("weights", "moments", "step", "validation", "the run fits"):
            self.assertIn(text, result.stdout)
        largest = int(re.search(r"the largest batch that fits: (\d+)", self.begin("--dry-run", "--device-memory", "8M").stdout)[1])
        self.assertGreater(largest, 4)
        more = self.begin("--dry-run", "--device-memory", "8M", "--batch", 2 * largest)
        self.assert_code(more, FAILURE)
        self.assertIn("the run does not fit", more.stdout)
        self.assert_code(self.begin("--dry-run", "--device-memory", "20k"), FAILURE)
        self.assertFalse(self.out.exists())
        refused = self.begin("--steps", 2, "--device-memory", "8M", "--batch", 2 * largest)
        self.assert_code(refused, USAGE)
        self.assertIn("--dry-run", refused.stderr)
        self.assert_code(self.begin("--steps", 2, "--device-memory", "8M"), OK)  # the folder is still free
        self.assert_code(self.begin("--dry-run", "--device-memory", "much"), USAGE)

    def test_time_ends_a_run(self):
        begin = time.monotonic()
        self.assert_code(self.begin("--seconds", 2), OK)
        self.assertLess(time.monotonic() - begin, 20)
        steps = tensors(self.out / "last.safetensors")[1]["step"]
        self.assert_code(self.train("--resume", "--seconds", 1), OK)
        self.assertGreater(int(tensors(self.out / "last.safetensors")[1]["step"]), int(steps))

    def on_terminal(self, columns):
        parent, child = pty.openpty()
        fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen([WEFT, "train", "text", "--out", self.out, "--data", self.text, *SMALL, "--seconds", "2"], stdout=child,
                              env=environment(TERM="xterm")) as process:
            os.close(child)
            shown = b""
            while True:
                try:
                    piece = os.read(parent, 65536)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
            self.assertEqual(process.wait(), OK)
        return shown

    def test_terminal_line_redraws(self):
        shown = self.on_terminal(100)
        self.assertGreater(shown.count(b"\rstep"), 3)
        self.assertLess(shown.count(b"\rstep"), 40)

    def test_lines_fit_a_narrow_terminal(self):
        lines = [line for line in re.split(r"\x1b\[K|[\r\n]+", self.on_terminal(30).decode()) if line.startswith("step")]
        self.assertTrue(lines)
        self.assertTrue(all(len(line) < 30 and "loss" in line for line in lines), lines)

    def test_byte_vocabulary(self):
        self.text.write_text("naïve – 日本\n" * 100)
        self.assert_code(self.begin("--steps", 5, "--vocabulary", "byte"), OK)
        self.assert_code(weft("generate", self.out, "--prompt", "日", "--max-tokens", 20, "--device", "cpu"), OK)

    def test_a_text_without_line_breaks(self):
        self.text.write_text("abc " * 2000)
        self.assert_code(self.begin("--steps", 4, "--eval-every", 2, "--sample-every", 2), OK)
        self.assertTrue((self.out / "samples.txt").read_text().strip())

    def test_a_run_too_short_for_a_step_keeps_its_beginning(self):
        self.assert_code(self.begin("--seconds", "1e-9"), OK)
        self.assertTrue((self.out / "last.safetensors").exists())
        self.assert_code(self.train("--resume", "--steps", 2, "--device", "cpu"), OK)

    def test_what_it_tells_to_type_can_be_typed(self):
        self.text.write_text("row row row your boat\n" * 100)  # no "T"
        out = self.folder / "my first run's"
        result = self.begin("--steps", 3, out=out)
        self.assert_code(result, OK)
        line = next(line for line in result.stdout.splitlines() if line.startswith("Let it write:"))
        command = shlex.split(line.removeprefix("Let it write:"))
        self.assertEqual(command, ["weft", "generate", str(out)])
        self.assert_code(weft(*command[1:], "--max-tokens", 5, "--device", "cpu"), OK)

    def test_files_that_are_no_text(self):
        self.text.write_bytes(bytes(range(256)) * 40)
        result = self.begin("--steps", 2, "--vocabulary", "byte")
        self.assert_code(result, OK)
        self.assert_code(weft("generate", self.out, "--max-tokens", 5, "--device", "cpu"), OK)
        self.text.write_text("wide text\n" * 200, encoding="utf-16")
        result = self.begin("--steps", 2, out=self.folder / "wide")
        self.assert_code(result, FILE)
        self.assertIn("iconv -f utf-16", result.stderr)
        # A run that was refused before it began leaves no folder, and takes none away.
        self.assertFalse((self.folder / "wide").exists())
        (self.folder / "mine").mkdir()
        self.assert_code(self.begin("--steps", 2, out=self.folder / "mine"), FILE)
        self.assertTrue((self.folder / "mine").is_dir())

    def test_quiet_says_nothing(self):
        result = self.begin("--steps", 3, "--quiet")
        self.assert_code(result, OK)
        self.assertEqual(result.stdout + result.stderr, "")


class Dividing(CliTest):
    """Several devices, which are all the CPU here."""

    def run_on(self, out, devices, *more):
        options = [devices if option == "cpu" else option for option in SMALL]
        options[options.index("--layers") + 1] = "2"
        result = weft("train", "text", "--data", self.text, "--out", out, "--quiet", *options, "--eval-every", 100, *more)
        self.assert_code(result, OK)
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["loss"]

    def test_layers_of_one_model(self):
        alone = self.run_on(self.out, "cpu", "--steps", 8, "--accumulate", 3)
        parts = self.out.with_name("parts")
        divided = self.run_on(parts, "cpu,cpu", "--steps", 8, "--accumulate", 3, "--divide")
        self.assertAlmostEqual(divided, alone, places=3)
        self.assertEqual(sorted(tensors(parts / "last.safetensors")[0]), sorted(tensors(self.out / "last.safetensors")[0]))
        # Each goes on with the devices of the other.
        for folder, devices in ((self.out, ["--device", "cpu,cpu", "--divide"]), (parts, ["--device", "cpu"])):
            self.assert_code(self.train("--resume", "--steps", 12, "--quiet", *devices, out=folder), OK)
            self.assertIn("step 12", (folder / "samples.txt").read_text())

    def test_exchange_in_halves(self):
        exact = self.run_on(self.out, "cpu,cpu", "--steps", 8)
        rounded = self.run_on(self.out.with_name("rounded"), "cpu,cpu", "--steps", 8, "--exchange", "bf16")
        self.assertAlmostEqual(rounded, exact, delta=0.05)

    def test_what_cannot_be(self):
        for said, devices, more in (("there is one; name more", "cpu", ["--divide"]),
                                    ("cannot be divided over 3 devices", "cpu,cpu,cpu", ["--divide"]),
                                    ("choose bf16", "cpu,cpu", ["--divide", "--precision", "f16"]),
                                    ("leave out --divide", "cpu,cpu", ["--divide", "--profile"]),
                                    ("--precision f16", "cpu,cpu", ["--exchange", "f16"])):
            options = [devices if option == "cpu" else option for option in SMALL]
            result = weft("train", "text", "--data", self.text, "--out", self.folder / said, "--steps", 2, *options, *more)
            self.assert_code(result, USAGE)
            self.assertIn(said, result.stderr)


class Resuming(CliTest):
    STEPS = ("--steps", 300, "--checkpoint-every", 7, "--eval-every", 50, "--eval-batches", 2, "--dropout", 0.1)

    def whole(self):
        out = self.folder / "whole"
        self.assert_code(self.begin(*self.STEPS, out=out), OK)
        return out

    def resume(self, *more, **options):
        return self.train("--resume", "--checkpoint-every", 7, "--eval-every", 50, "--eval-batches", 2, "--sample-tokens", 20, "--device", "cpu", *more, **options)

    def start(self, arguments):
        return subprocess.Popen([WEFT, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())

    def arguments(self):
        if not self.out.exists():
            return ["train", "text", "--out", self.out, "--data", self.text, *SMALL, *self.STEPS]
        return ["train", "text", "--out", self.out, "--resume", "--checkpoint-every", 7, "--eval-every", 50, "--eval-batches", 2, "--sample-tokens", 20,
                "--device", "cpu"]

    def test_interrupted_runs_go_on_bit_for_bit(self):
        whole = self.whole()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            shutil.rmtree(self.out, ignore_errors=True)
            process = self.start(self.arguments())
            while not (self.out / "metrics.jsonl").exists() or len((self.out / "metrics.jsonl").read_text().splitlines()) < 3:
                time.sleep(0.01)
            process.send_signal(number)
            self.assertEqual(process.wait(60), INTERRUPTED)
            at = int(tensors(self.out / "last.safetensors")[1]["step"])
            self.assertTrue(0 < at < 300, at)
            self.assert_code(self.resume(), OK)
            self.assert_same_run(self.out, whole)

    def test_killed_runs_go_on_bit_for_bit(self):
        whole = self.whole()
        seed = int(os.environ.get("WEFT_TEST_SEED", "1"))
        chance = random.Random(seed)
        began = time.monotonic()
        self.assert_code(self.begin(*self.STEPS, out=self.folder / "timed"), OK)
        usual = time.monotonic() - began
        kills = 0
        while kills < KILLS:
            shutil.rmtree(self.out, ignore_errors=True)
            finished = False
            while not finished and kills < KILLS:
                process = self.start(self.arguments())
                try:
                    self.assertEqual(process.wait(chance.uniform(0.02, 0.6 * usual)), OK, f"seed {seed}")
                    finished = True
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    kills += 1
            if self.out.exists() and (self.out / "config.json").exists():
                self.assert_code(self.resume(), OK)
            else:
                shutil.rmtree(self.out, ignore_errors=True)
                self.assert_code(self.begin(*self.STEPS), OK)
            self.assert_same_run(self.out, whole)
            steps = [json.loads(line)["step"] for line in (self.out / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual(steps, sorted(set(steps)), f"seed {seed}")

    def test_an_ignored_hangup_stays_ignored(self):
        arguments = self.arguments()
        process = subprocess.Popen([WEFT, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        while not (self.out / "metrics.jsonl").exists() or len((self.out / "metrics.jsonl").read_text().splitlines()) < 3:
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.wait(60), OK)

    def test_a_damaged_last_checkpoint_falls_back(self):
        whole = self.whole()
        shutil.copytree(whole, self.out)
        last, previous = self.out / "last.safetensors", self.out / "last.safetensors.previous"
        last.write_bytes(last.read_bytes()[:1000])
        result = self.resume()
        self.assert_code(result, OK)
        self.assertIn("warning:", result.stdout)
        self.assert_same_run(self.out, whole)
        shutil.copy(whole / "last.safetensors", previous)
        last.write_bytes(b"garbage")
        result = self.resume("--quiet")
        self.assert_code(result, OK)
        self.assertEqual(result.stdout, "")
        self.assertIn("warning:", result.stderr)
        last.write_bytes(b"garbage")
        previous.write_bytes(b"garbage")
        result = self.resume()
        self.assert_code(result, FILE)
        self.assertIn("last.safetensors", result.stderr)

    def test_a_full_disk_loses_nothing(self):
        self.assert_code(self.begin("--steps", 10), OK)
        before = (self.out / "last.safetensors").read_bytes()
        limit = len(before) // 2
        result = self.train("--resume", "--steps", 20, "--device", "cpu",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assert_code(result, FILE)
        self.assertIn("safetensors", result.stderr)
        self.assertEqual((self.out / "last.safetensors").read_bytes(), before)
        self.assertEqual(list(self.out.glob("*.tmp-*")), [])
        self.assert_code(self.train("--resume", "--steps", 20, "--device", "cpu"), OK)

    def test_a_disk_that_is_full_at_the_first_save(self):
        result = self.begin("--steps", 10, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
        self.assert_code(result, FILE)
        self.assertIn("there is no checkpoint yet, so what was trained is lost", result.stderr)
        self.assertFalse((self.out / "last.safetensors").exists())

    def test_from_another_folder(self):
        self.assert_code(weft("train", "text", "--out", self.out, "--data", self.text.name, *SMALL, "--steps", 2, cwd=self.folder), OK)
        self.assert_code(self.train("--resume", "--steps", 4, "--device", "cpu", cwd="/"), OK)
        moved = self.folder / "elsewhere.txt"
        self.text.rename(moved)
        result = self.train("--resume", "--steps", 6, "--device", "cpu")
        self.assert_code(result, FILE)
        self.assertIn("--data", result.stderr)
        self.assert_code(self.train("--resume", "--steps", 6, "--device", "cpu", "--data", moved), OK)

    def test_one_process_at_a_time(self):
        command = [WEFT, "train", "text", "--out", self.out, "--data", self.text, *SMALL, "--seconds", "60"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, env=environment()) as first:
            deadline = time.monotonic() + 60
            while not (self.out / "metrics.jsonl").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            for arguments in (["--resume"], ["--data", self.text, *SMALL]):
                result = self.train(*arguments)
                self.assert_code(result, USAGE)
            self.assertIn("another", result.stderr)
            first.terminate()
        self.assert_code(self.train("--resume", "--steps", 1, "--device", "cpu"), OK)

    def test_leftovers_are_reported(self):
        self.assert_code(self.begin("--steps", 3), OK)
        leftover = self.out / "last.safetensors.tmp-0123456789abcdef"
        leftover.write_bytes(b"half")
        result = self.train("--resume", "--steps", 5, "--device", "cpu")
        self.assert_code(result, OK)
        self.assertIn(leftover.name, result.stdout)


class Refusals(CliTest):
    def refused(self, result, code, *texts):
        self.assert_code(result, code)
        for text in texts:
            self.assertIn(str(text), result.stderr)
        self.assertRegex(result.stderr, r"(?m)^error: ")

    def test_texts(self):
        missing = self.folder / "missing.txt"
        self.refused(self.train("--data", missing), FILE, missing)
        self.text.write_bytes(b"")
        self.refused(self.begin(out=self.folder / "a"), FILE, "empty")
        self.text.write_bytes(WORDS.encode() * 60 + b"\xff tail")
        self.refused(self.begin(out=self.folder / "b"), FILE, "text.txt", len(WORDS) * 60)
        self.text.write_text("short")
        self.refused(self.begin(out=self.folder / "c"), FILE, "too short", "--context")
        self.refused(self.train("--data", self.folder, *SMALL, out=self.folder / "d"), FILE, self.folder)

    def test_places(self):
        file = self.folder / "file"
        file.write_text("")
        self.refused(self.begin(out=file), USAGE, "file", "folder")
        self.refused(self.begin(out=file / "below"), FILE, "below")
        self.refused(self.begin(out="/proc/nowhere"), FILE, "/proc/nowhere")
        self.refused(self.train("--resume"), USAGE, "there is no run in")
        self.assert_code(self.begin("--steps", 2), OK)
        self.refused(self.begin("--steps", 2), USAGE, "--resume")
        self.refused(self.train("--resume", "--seed", 5), USAGE, "--seed 5")
        self.text.write_text(WORDS * 70)
        self.refused(self.train("--resume", "--steps", 4), FILE, "differs")

    def test_numbers(self):
        for flag, value in (("--steps", 0), ("--seconds", -1), ("--batch", 0), ("--heads", 3), ("--preset", "smal"), ("--learning-rate", "nan"),
                            ("--log-every", 0), ("--dropout", 1), ("--vocabulary", "word")):
            self.refused(weft("train", "text", "--data", self.text, "--out", self.folder / "n", flag, value), USAGE)

    def test_divergence_is_an_error(self):
        result = self.begin("--steps", 200, "--learning-rate", 100000, "--clip", 0, "--warm-up", 0)
        if result.returncode != OK:
            self.refused(result, FAILURE, "--learning-rate")

    def test_devices(self):
        self.refused(self.begin("--device", "webgpu:99"), DEVICE, "webgpu:99")
        self.refused(self.begin("--device", "quantum"), USAGE, "quantum")

    def test_checkpoints(self):
        self.refused(weft("generate", self.folder / "none", "--device", "cpu"), FILE, "none")
        self.refused(weft("generate", self.folder, "--device", "cpu"), FILE, "no checkpoint")
        self.refused(weft("generate", self.text, "--device", "cpu"), FILE, "text.txt")
        foreign = self.folder / "foreign.safetensors"
        header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        foreign.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
        self.refused(weft("generate", foreign, "--device", "cpu"), FILE, "pt", "`weft train`")

    def test_a_checkpoint_that_asks_for_more_than_it_holds(self):
        """Whoever changes the file can also make its hash fit."""
        self.assert_code(self.begin("--steps", 2), OK)
        path = self.out / "last.safetensors"
        raw = path.read_bytes()
        length, = struct.unpack("<Q", raw[:8])
        header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
        about = header["__metadata__"]
        config = json.loads(about["config"])
        self.assertEqual(content_hash(header, data), about["content_hash"])
        for name, value in (("layers", 2**31 - 1), ("context", 2**30), ("vocabulary", 2**30)):
            model = {**config["model"], name: value}
            about["config"] = json.dumps({**config, "model": model})
            about["content_hash"] = content_hash(header, data)
            text = json.dumps(header).encode()
            hostile = self.folder / f"{name}.safetensors"
            hostile.write_bytes(struct.pack("<Q", len(text)) + text + data)
            self.refused(weft("generate", hostile, "--device", "cpu"), FILE, "are asked for, but the file has")


class Generating(CliTest):
    def test_options_for_language_models_are_refused(self):
        self.assert_code(self.begin("--steps", 2), OK)
        for option in (["--stop", "a"], ["--logit-bias", "2=-1"], ["--stats"], ["--min-p", "0.5"], ["--typical", "0.5"],
                       ["--repetition-penalty", "2"], ["--frequency-penalty", "1"], ["--presence-penalty", "1"], ["--json"],
                       ["--context", "4"], ["--draft", "2"], ["--exact"], ["--cache-type", "q8"]):
            result = weft("generate", self.out, "--device", "cpu", *option)
            self.assert_code(result, USAGE)
            self.assertIn(option[0], result.stderr)
            self.assertIn("language models", result.stderr)

    def test_writes_by_seed(self):
        self.assert_code(self.begin("--steps", 30), OK)

        def write(*arguments):
            result = weft("generate", self.out, "--device", "cpu", "--max-tokens", 60, *arguments)
            self.assert_code(result, OK)
            return result.stdout

        one = write("--prompt", "the ", "--seed", 3, "--temperature", 1)
        self.assertTrue(one.startswith("the "))
        self.assertEqual(len(one), 4 + 60 + 1)
        self.assertEqual(one, write("--prompt", "the ", "--seed", 3, "--temperature", 1))
        self.assertNotEqual(one, write("--prompt", "the ", "--seed", 4, "--temperature", 1))
        self.assertEqual(write("--prompt", "the ", "--temperature", 0), write("--prompt", "the ", "--top-k", 1, "--seed", 9))
        result = weft("generate", self.out, "--prompt", "Ω", "--device", "cpu")
        self.assert_code(result, USAGE)
        self.assertIn("Ω", result.stderr)
        self.assertEqual(result.stdout, "")
        self.assert_code(weft("generate", self.out, "--top-p", 0), USAGE)
        self.assert_code(weft("generate", self.out, "--temperature", -1), USAGE)


if __name__ == "__main__":
    unittest.main()
