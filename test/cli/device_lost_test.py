#!/usr/bin/python3
"""A device that is lost on the way: device_lost_test.py WEFT LIBRARY [unittest arguments].

LIBRARY is losing_webgpu.c. Training ends with a clear error and goes on from its last checkpoint as if nothing had been.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiny_model import put_model

WEFT, LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
OK, DEVICE = 0, 4
WORDS = "the quick brown fox jumps over a lazy dog while seven wizards vex them\n"


class DeviceLostTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-lost-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "text.txt").write_text(WORDS * 60)

    def weft(self, code, *arguments, lose_at=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        environment |= {"WEFT_THREADS": "1", "WEFT_WEBGPU_LIBRARY": str(LIBRARY)}
        if driver := os.environ.get("WEFT_TEST_ICD_SWIFTSHADER"):  # compiles the shaders of a training step in a second
            environment["VK_ICD_FILENAMES"] = driver
        if lose_at:
            environment["WEFT_TEST_LOSE_AT"] = str(lose_at)
        done = subprocess.run([WEFT, *map(str, arguments), "--device", "webgpu:0"], capture_output=True, text=True, timeout=300, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code == DEVICE:
            self.assertRegex(done.stderr, r"(?m)^error: .*: the device was lost: it was destroyed\nopen the device again")
        return done

    def train(self, out, code=OK, resume=False, **options):
        begin = ["--data", self.folder / "text.txt", "--preset", "tiny", "--layers", "1", "--width", "16", "--heads", "1", "--context", "8", "--batch",
                 "2", "--steps", "12"]
        return self.weft(code, "train", "text", "--out", out, *(["--resume"] if resume else begin), "--checkpoint-every", "3", "--eval-every", "0",
                         "--sample-tokens", "0", "--log-every", "1", **options)

    def test_training_goes_on_from_the_last_checkpoint(self):
        whole, out = self.folder / "whole", self.folder / "run"
        count = int(re.search(r"submissions: (\d+)", self.train(whole).stderr)[1])
        wanted = (whole / "last.safetensors").read_bytes()
        for lose_at in (1, count * 3 // 4):
            shutil.rmtree(out, ignore_errors=True)
            self.train(out, DEVICE, lose_at=lose_at)
            last = out / "last.safetensors"
            kept = last.read_bytes() if last.exists() else None
            if lose_at > 1:
                self.assertIsNotNone(kept)  # so that there was something to lose
            self.assertEqual([p.name for p in out.glob("*.tmp-*")], [])
            self.train(out, resume=True)
            self.assertEqual(self.data_of(last.read_bytes()), self.data_of(wanted), f"lost at submission {lose_at}")

    @staticmethod
    def data_of(checkpoint):
        """What follows the head, which holds times."""
        return checkpoint[8 + int.from_bytes(checkpoint[:8], "little"):]

    def test_generating_ends_with_the_same_error(self):
        model = put_model(self.folder / "model")
        self.weft(DEVICE, "generate", model, "--prompt", "w1 w2", "--max-tokens", "20", lose_at=4)


if __name__ == "__main__":
    unittest.main()
