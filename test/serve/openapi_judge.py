#!/usr/bin/python3
"""The OpenAPI description of weft operations serve, by openapi-spec-validator: openapi_judge.py WEFT."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: E402


def main():
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens.json"
        tokens.write_text(json.dumps({"tokens": [{"token": "a-token-for-the-judge", "id": "judge"}]}))
        server = subprocess.Popen([sys.argv[1], "operations", "serve", "--http", "127.0.0.1:0", "--token-file", tokens, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
        try:
            port = re.search(r":(\d+)$", server.stderr.readline().strip())[1]
            request = urllib.request.Request(f"http://127.0.0.1:{port}/openapi.json", headers={"Authorization": "Bearer a-token-for-the-judge"})
            description = json.loads(urllib.request.urlopen(request, timeout=60).read())
        finally:
            server.terminate()
            server.wait(30)
    start = time.monotonic()
    errors = list(OpenAPIV31SpecValidator(description).iter_errors())
    for error in errors[:10]:
        print(error)
    print(f"{len(description['paths'])} paths, {len(errors)} errors, {time.monotonic() - start:.1f} s")
    return 1 if errors or len(description["paths"]) < 150 else 0


sys.exit(main())
