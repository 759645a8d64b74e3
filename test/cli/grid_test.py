#!/usr/bin/python3
"""weft grid: grid_test.py WEFT [unittest arguments]. What it writes, and what it refuses."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE, DEVICE, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Grid(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-grid-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("data.json", {"steps": [
            {"op": "rand", "attributes": {"shape": [128, 2], "low": -1, "high": 1, "seed": 1}, "output": "x"},
            {"op": "amax", "inputs": ["x"], "attributes": {"axes": [1], "keepdims": True}, "output": "y"}]})
        self.weft("eval", "data.json", "--out", "data.npz", "--device", "cpu")
        self.weft("grid", "new", "mlp", "--widths", "2,16,1", "--out", "net.json")

    def write(self, name, content):
        (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def weft(self, *arguments, code=OK):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=300,
                              env=environment, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr[:2000])
        return done.stdout if code == OK else done.stderr

    def test_an_interrupt_keeps_what_was_learnt(self):
        for command, count in (("train", "--epochs"), ("evolve", "--generations")):
            process = subprocess.Popen([WEFT, "grid", command, "net.json", "--data", "data.npz", count, "1000000", "--out",
                                        f"{command}.safetensors", "--device", "cpu"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
            self.assertRegex(process.stdout.readline(), r"(epoch|generation) 1\b")
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED)
            self.assertIn(f"interrupted; {command}.safetensors has what was learnt so far", message)
            self.assertIn("dense", self.weft("grid", "describe", f"{command}.safetensors"))

    def mean_error(self, network, *options):
        """The mean of (y - wanted)^2, computed by `weft eval` from what the network gives."""
        self.weft("grid", "run", network, "--inputs", "data.npz", "--out", "got.npz", "--device", "cpu", *options)
        # Both files have an array y: the wanted one is made again.
        self.write("error.json", {"steps": [
            {"op": "rand", "attributes": {"shape": [128, 2], "low": -1, "high": 1, "seed": 1}, "output": "x"},
            {"op": "amax", "inputs": ["x"], "attributes": {"axes": [1], "keepdims": True}, "output": "wanted"},
            {"op": "mse_loss", "inputs": ["y", "wanted"], "output": "error"}], "outputs": ["error"]})
        self.weft("eval", "error.json", "--inputs", "got.npz", "--out", "error.npz", "--device", "cpu")
        import struct
        import zipfile
        with zipfile.ZipFile(self.folder / "error.npz") as archive:
            return struct.unpack("<f", archive.read("error.npy")[-4:])[0]

    def test_a_network_is_described_trained_and_run(self):
        self.assertIn("inputs 16 outputs 1, linear", self.weft("grid", "describe", "net.json"))
        self.assertEqual(json.loads(self.weft("grid", "describe", "net.json", "--json")), json.loads((self.folder / "net.json").read_text()))
        first = self.mean_error("net.json")
        lines = self.weft("grid", "train", "net.json", "--data", "data.npz", "--epochs", 40, "--learning-rate", 0.02, "--dtype", "int8",
                          "--out", "trained", "--device", "cpu")
        self.assertRegex(lines, r"epoch 40  loss [0-9.e-]+")
        self.assertLess(self.mean_error("trained"), 0.2 * first)
        self.assertIn("i8", self.weft("grid", "describe", "trained"))
        # Through the clock: two layers, two ticks.
        self.assertEqual(self.mean_error("trained", "--ticks", 2), self.mean_error("trained"))
        self.assertIn("nothing has reached the last layer",
                      self.weft("grid", "run", "trained", "--inputs", "data.npz", "--out", "o.npz", "--ticks", 1, code=USAGE))

    def test_the_same_seed_evolves_the_same_network(self):
        for name in ("a", "b"):
            self.weft("grid", "evolve", "net.json", "--data", "data.npz", "--generations", 3, "--population", 8, "--out", name,
                      "--device", "cpu", "--seed", 5)
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_every_kind_is_a_description(self):
        for kind in ("cnn", "transformer", "random"):
            self.write("made.json", self.weft("grid", "new", kind))
            self.assertIn("parameters:", self.weft("grid", "describe", "made.json"))

    def test_mistakes_are_told(self):
        self.write("bad.json", {"layers": [{"type": "dense", "inputs": 0, "outputs": 2}, {"type": "gru"}]})
        self.assertIn("/layers/1/type", self.weft("grid", "describe", "bad.json", code=USAGE))
        self.write("broken.json", "{")
        self.weft("grid", "describe", "broken.json", code=FILE)
        self.write("noise", "neither of the two")
        self.weft("grid", "describe", "noise", code=FILE)
        self.weft("grid", "describe", "none.json", code=FILE)
        self.assertIn("it has x, y", re.sub('"', "", self.weft("grid", "train", "net.json", "--data", "data.npz", "--target", "z",
                                                             "--out", "o", code=USAGE)))
        self.assertIn("choose one of", self.weft("grid", "run", "net.json", "--inputs", "data.npz", "--out", "o", "--dtype", "int3", code=USAGE))
        self.weft("grid", "train", "net.json", "--data", "data.npz", "--out", "o", "--epochs", 0, code=USAGE)
        self.weft("grid", code=USAGE)


if __name__ == "__main__":
    unittest.main()
