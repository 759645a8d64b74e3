#!/usr/bin/python3
"""weft tune as a program: tune_test.py WEFT."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tiny_model import put_byte_model

WEFT = str(pathlib.Path(sys.argv.pop(1)).resolve())
OK, FAILURE, USAGE = 0, 1, 2


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        put_byte_model(self.path / "model")
        self.put("data.jsonl", [{"prompt": f"{i}?", "completion": " yes"} for i in range(40)])
        self.put("pairs.jsonl", [{"prompt": [{"role": "user", "content": f"{i}?"}], "chosen": [{"role": "assistant", "content": "yes"}],
                                  "rejected": [{"role": "assistant", "content": "no"}]} for i in range(40)])

    def put(self, name, lines):
        (self.path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def tune(self, *options, data="data.jsonl", code=OK):
        result = subprocess.run([WEFT, "tune", self.path / "model", "--data", self.path / data, "--device", "cpu", "--context", "64",
                                 *map(str, options)], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def test_examples(self):
        out = self.path / "run"
        text = self.tune("--out", out, "--steps", 4, "--log-every", 1, "--dora", "--rank", 2).stdout
        self.assertIn("40 examples", text)
        self.assertRegex(text, r"step +4 of 4 +loss")
        self.assertTrue(json.loads((out / "adapter_config.json").read_text())["use_dora"])
        self.assertIn("the folder has a run", self.tune("--out", out, code=USAGE).stderr)
        self.assertIn("--out is missing", self.tune(code=USAGE).stderr)

    def test_preferences(self):
        out = self.path / "run"
        text = self.tune("--out", out, "--steps", 8, "--learning-rate", 1e-2, "--log-every", 1, "--beta", 0.2, data="pairs.jsonl").stdout
        self.assertIn("40 preferences", text)
        self.assertRegex(text, r"step +8 of 8 +loss .* validation .*% right\) +right \d+% +margin ")
        self.assertRegex(text, r"right +100.0% of them")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertGreater(lines[-1]["margin"], lines[0]["margin"])
        self.assertEqual(lines[-1]["val_accuracy"], 1)
        wrong = self.tune("--out", self.path / "no", "--preference-loss", "best", data="pairs.jsonl", code=USAGE).stderr
        self.assertIn("there are sigmoid and ipo", wrong)
        self.assertIn("even number", self.tune("--out", self.path / "no", "--batch", 3, data="pairs.jsonl", code=USAGE).stderr)

    def test_a_dry_run_tells_the_memory_and_writes_nothing(self):
        before = sorted(self.path.iterdir())
        text = self.tune("--dry-run", "--epochs", 2).stdout
        for part in ("weights", "trained", "step", "validation", "the run fits"):
            self.assertIn(part, text)
        steps = int(re.search(r"(\d+) steps over 40 examples", text)[1])
        largest = int(re.search(r"the largest batch that fits: (\d+)", self.tune("--dry-run", "--device-memory", "4M").stdout)[1])
        more = self.tune("--dry-run", "--device-memory", "4M", "--batch", 2 * largest, code=FAILURE).stdout
        self.assertIn("the run does not fit", more)
        self.assertIn("no batch fits", self.tune("--dry-run", "--device-memory", "20k", code=FAILURE).stdout)
        self.tune("--dry-run", "--device-memory", "much", code=USAGE)
        self.assertEqual(sorted(self.path.iterdir()), before)
        refused = self.tune("--out", self.path / "run", "--device-memory", "4M", "--batch", 2 * largest, code=USAGE)
        self.assertIn("--dry-run", refused.stderr)
        self.assertIn(f"step {steps:>6} of {steps}", self.tune("--out", self.path / "run", "--epochs", 2).stdout)


if __name__ == "__main__":
    unittest.main()
