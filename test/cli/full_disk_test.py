#!/usr/bin/python3
"""What the commands do where a disk is full: full_disk_test.py WEFT [unittest arguments].

The disk is a small tmpfs, in a namespace of this test's own. Each command runs with little free space, and with a little more, until it
succeeds. Every failure names a file of the disk and what to do, keeps what was there before, and leaves nothing half written.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MARK = "WEFT_TEST_OWN_MOUNTS"
if MARK not in os.environ:
    probe = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True)
    if probe.returncode != 0:
        print("skipped: namespaces of users are not allowed here")
        sys.exit(77)
    os.execvpe("unshare", ["unshare", "--user", "--map-root-user", "--mount", sys.executable, *sys.argv], {**os.environ, MARK: "1"})

from fake_hub import Repository, Server  # noqa: E402
from tiny_model import put_byte_model, put_model  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, FILE = 0, 1, 3
DISK = 12 << 20
STEP = 1.5  # from one free space to the next


def snapshot(folder):
    """What is in a folder: files with their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


class FullDisk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="weft-full-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.model = put_model(cls.root / "model")
        cls.bytes = put_byte_model(cls.root / "bytes")
        cls.gguf = cls.root / "model.gguf"
        cls.weft("convert", cls.model, cls.gguf)
        (cls.root / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
        (cls.root / "lines.txt").write_text("".join(f"w{i % 30} w{i % 7} w{i % 11}\n" for i in range(300)))
        (cls.root / "data.jsonl").write_text("".join(json.dumps({"prompt": f"w{i % 9}", "completion": "w1 w2"}) + "\n" for i in range(40)))
        (cls.root / "eval.json").write_text(json.dumps({"steps": [{"op": "rand", "attributes": {"shape": [200, 100], "seed": 1}, "output": "x"}]}))
        (cls.root / "grid.json").write_text(json.dumps({"steps": [
            {"op": "rand", "attributes": {"shape": [64, 2], "seed": 1}, "output": "x"}, {"op": "amax", "inputs": ["x"], "attributes": {"axes": [1], "keepdims": True}, "output": "y"}]}))
        cls.weft("eval", cls.root / "grid.json", "--out", cls.root / "grid.npz", "--device", "cpu")
        cls.weft("grid", "new", "mlp", "--widths", "2,64,64,1", "--out", cls.root / "net.json")

    @staticmethod
    def run_weft(*arguments, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        return subprocess.run([WEFT, *map(str, arguments)], input="", capture_output=True, text=True, errors="replace", timeout=300,
                              env={**kept, "WEFT_THREADS": "1", **{k: str(v) for k, v in environment.items()}})

    @classmethod
    def weft(cls, *arguments, **environment):
        done = cls.run_weft(*arguments, **environment)
        assert done.returncode == OK, done.stderr
        return done

    def disk(self):
        disk = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        return disk

    def fill(self, disk, free):
        """Leaves `free` bytes, in pages."""
        space = os.statvfs(disk)
        with open(disk / "filler", "wb") as file:
            file.write(bytes(max(0, space.f_bavail * space.f_frsize - free)))

    def withstands(self, command, begin=None, least_failures=1, keeps=lambda name: True, environment=None):
        """`command` and `begin`, which runs before with room, are functions of the disk. `keeps` tells which files a failure leaves as they were."""
        failures, free = 0, 0
        while True:
            disk = self.disk()
            if begin:
                begin(disk)
            self.fill(disk, free)
            before = snapshot(disk)
            done = self.run_weft(*command(disk), **{k: v(disk) for k, v in (environment or {}).items()})
            shown = f"{free} bytes are free\n{done.stdout[-500:]}\n{done.stderr}"
            after = snapshot(disk)
            (disk / "filler").unlink()
            if done.returncode == OK:
                self.assertGreaterEqual(failures, least_failures)
                return disk
            failures += 1
            self.assertEqual(done.returncode, FILE, shown)
            self.assertRegex(done.stderr, "(?m)^error: ", shown)
            self.assertIn(str(disk), done.stderr, shown)
            self.assertRegex(done.stderr, "no space|space|free", shown)
            self.assertEqual({k: v for k, v in before.items() if keeps(k)}, {k: v for k, v in after.items() if keeps(k)}, shown)
            self.assertLess(free, DISK, shown)
            free = int(free * STEP) + 4096

    def old(self, name):
        return lambda disk: (disk / name).write_bytes(b"what was there before")

    def test_models(self):
        for name in ("out.gguf", "out.safetensors", "out.metatensor"):
            with self.subTest(name):
                self.withstands(lambda disk, name=name: ("convert", self.gguf, disk / name), self.old(name))
        with self.subTest("folder"):
            self.withstands(lambda disk: ("convert", self.gguf, disk / "folder"))
        with self.subTest("quantize"):
            self.withstands(lambda disk: ("quantize", self.gguf, disk / "out.gguf", "--type", "Q8_0"), self.old("out.gguf"))

    def test_arrays(self):
        for name in ("out.npz", "out.safetensors"):
            with self.subTest(name):
                self.withstands(lambda disk, name=name: ("eval", self.root / "eval.json", "--out", disk / name, "--device", "cpu"), self.old(name))
        with self.subTest("kernels"):
            self.withstands(lambda disk: ("kernels", self.root / "eval.json", "--out", disk / "kernels"))
        with self.subTest("operations"):
            self.withstands(lambda disk: ("operations", "call", "tensor.rand", "--input", '{"shape": [90, 90]}', "--out", disk / "y.npy", "--device", "cpu"), self.old("y.npy"))

    def test_networks(self):
        with self.subTest("train"):
            self.withstands(lambda disk: ("grid", "train", self.root / "net.json", "--data", self.root / "grid.npz", "--epochs", 1, "--out", disk / "net.safetensors", "--device", "cpu"),
                            self.old("net.safetensors"))
        with self.subTest("new"):
            self.withstands(lambda disk: ("grid", "new", "mlp", "--widths", "2,64,1", "--out", disk / "net.json"), self.old("net.json"))

    def test_a_memory(self):
        def begin(disk):
            self.weft("memory", "add", disk / "m.metatensor", self.model, "--text", "w1 w2")
        disk = self.withstands(lambda disk: ("memory", "add", disk / "m.metatensor", self.model, "--lines", self.root / "lines.txt"), begin)
        self.assertEqual(len(self.weft("memory", "list", disk / "m.metatensor", "--json").stdout.splitlines()), 301)

    def test_runs(self):
        text = ("train", "text", "--data", self.root / "text.txt", "--preset", "tiny", "--device", "cpu")
        # Metrics are appended, and checkpoints come and go; the newest is whole.
        with self.subTest("train"):
            self.withstands(lambda disk: (*text, "--out", disk / "run", "--steps", 4), keeps=lambda name: not name.startswith("run"))
        with self.subTest("resume"):
            disk = self.withstands(lambda disk: ("train", "text", "--out", disk / "run", "--resume", "--steps", 8, "--device", "cpu"), lambda disk: self.weft(*text, "--out", disk / "run", "--steps", 4),
                                   keeps=lambda name: "checkpoint" in name and "tmp" not in name)
            self.weft("generate", disk / "run", "--prompt", "row", "--max-tokens", 3, "--device", "cpu")
        tune = ("tune", self.model, "--data", self.root / "data.jsonl", "--context", 32, "--steps", 2, "--device", "cpu")
        with self.subTest("tune"):
            self.withstands(lambda disk: (*tune, "--out", disk / "run"), keeps=lambda name: not name.startswith("run"))

    def test_a_failed_run_leaves_no_halves(self):
        disk = self.disk()
        self.weft("train", "text", "--data", self.root / "text.txt", "--preset", "tiny", "--device", "cpu", "--out", disk / "run", "--steps", 4)
        self.fill(disk, 50_000)
        done = self.run_weft("train", "text", "--out", disk / "run", "--resume", "--steps", 8, "--device", "cpu")
        self.assertEqual(done.returncode, FILE, done.stderr)
        self.assertEqual([str(each) for each in disk.rglob("*tmp*")], [])
        (disk / "filler").unlink()
        self.weft("train", "text", "--out", disk / "run", "--resume", "--steps", 8, "--device", "cpu")

    def test_a_fetched_model(self):
        server = Server()
        self.addCleanup(server.stop)
        files = {name.name: name.read_bytes() for name in self.bytes.iterdir()}
        server.repositories["someone/tiny"] = Repository(files)
        for free in (0, 8192, 200_000):  # a fetch leaves some room to others
            disk = self.disk()
            self.fill(disk, free)
            done = self.run_weft("models", "fetch", "someone/tiny", HF_ENDPOINT=server.url, HF_HOME=disk / "hub", HOME=self.root)
            self.assertEqual(done.returncode, FILE, done.stderr)
            self.assertIn(str(disk), done.stderr)
            self.assertRegex(done.stderr, "make room|free some space")
            self.assertEqual([p for p in disk.rglob("*") if p.is_file() and p.name != "filler" and p.suffix != ".lock"], [])

    def test_caches_are_left_out(self):
        disk = self.disk()
        self.fill(disk, 0)
        done = self.weft("generate", self.gguf, "--prompt", "w1", "--max-tokens", 2, "--temperature", 0, "--device", "cpu", XDG_CACHE_HOME=disk, HOME=disk)
        self.assertEqual(done.stdout, self.weft("generate", self.gguf, "--prompt", "w1", "--max-tokens", 2, "--temperature", 0, "--device", "cpu").stdout)
        self.assertEqual([p for p in disk.rglob("*") if p.is_file() and p.name != "filler" and p.suffix != ".lock"], [])


if __name__ == "__main__":
    unittest.main()
