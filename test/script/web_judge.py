#!/usr/bin/python3
"""Globals of the web in scripts, compared with those of Node.js: web_judge.py WEFT."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).with_name("web.js")
NODE = shutil.which("node") or shutil.which("nodejs")
if not NODE:
    print("skipped: there is no Node.js")
    sys.exit(0)
with tempfile.TemporaryDirectory() as folder:
    module = shutil.copy(PROGRAM, pathlib.Path(folder) / "web.mjs")
    expected, got = (subprocess.run(command, capture_output=True, text=True, timeout=120) for command in ([NODE, module], [sys.argv[1], "run", PROGRAM]))
assert expected.returncode == 0 and got.returncode == 0, expected.stderr + got.stderr
wanted, lines = expected.stdout.splitlines(), got.stdout.splitlines()
differ = [f"Node.js {a}\nweft    {b}" for a, b in zip(wanted, lines) if a != b]
assert len(wanted) == len(lines) > 300 and not differ, "\n".join(differ)
print(f"{len(lines)} equal lines")
