#!/usr/bin/python3
"""weft serve with clients of Node.js (npm openai, @anthropic-ai/sdk, ollama, and the AI SDK): npm_clients_judge.py WEFT."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_model  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_suffix(".mjs")
NODE = shutil.which("node") or shutil.which("nodejs")
if not NODE:
    print("skipped: there is no Node.js")
    sys.exit(0)
with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    model = tiny_model.put_byte_model(place / "noise")
    (place / "node_modules").symlink_to(JUDGES.resolve() / "npm/node_modules")
    shutil.copy(PROGRAM, place)
    server = subprocess.Popen([sys.argv[1], "serve", model, "--port", "0", "--device", "cpu", "--quiet"], stderr=subprocess.PIPE, text=True)
    try:
        while not (found := re.search(r"serving noise on (\S+)/v1", server.stderr.readline())):
            assert server.poll() is None
        done = subprocess.run([NODE, place / PROGRAM.name, found[1]], capture_output=True, text=True, timeout=240,
                              env=os.environ | {"AI_SDK_LOG_WARNINGS": "false"})
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout, end="")
    finally:
        server.terminate()
        assert server.wait(60) == 0
