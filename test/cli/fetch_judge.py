#!/usr/bin/python3
"""The cache of fetched models, beside the hub's official client: fetch_judge.py WEFT [unittest arguments].

Both fetch from a hub on this machine (fake_hub.py). What one has fetched the other finds.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
if JUDGES.is_dir():
    sys.path.insert(0, str(JUDGES))
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weft-fetch-judge-"))
CACHE = FOLDER / "hub"
# The client reads its environment when it is imported.
for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
    del os.environ[name]
os.environ |= {"HF_HOME": str(FOLDER), "HF_HUB_CACHE": str(CACHE), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
               "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}

import huggingface_hub as judge

from fake_hub import COMMIT, Repository, Server
from tiny_model import put_byte_model

OTHER = "a" * 40
NAMES = ["*.json", "*.jinja", "*.safetensors"]


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = put_byte_model(FOLDER / "model")
        cls.files = {f.name: f.read_bytes() for f in cls.model.iterdir()}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)

    def setUp(self):
        self.hub, self.cdn = Server(), Server()
        self.hub.cdn = self.cdn
        self.hub.repositories["acme/tiny"] = Repository({**self.files, "README.md": b"# tiny"})
        self.hub.repositories["acme/blocks"] = Repository({"Q4/tiny-Q4_0.gguf": b"GGUF" + bytes(5000), "README.md": b"#"}, commit=OTHER)
        self.addCleanup(shutil.rmtree, CACHE, ignore_errors=True)
        self.addCleanup(self.hub.stop)
        self.addCleanup(self.cdn.stop)

    def weft(self, *arguments, endpoint=None):
        done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "HOME": str(FOLDER), "HF_ENDPOINT": endpoint or self.hub.url, "WEFT_CACHE_DIR": str(FOLDER / "weft")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def judge_fetch(self, **options):
        return judge.snapshot_download("acme/tiny", endpoint=self.hub.url, allow_patterns=NAMES, **options)

    def test_what_the_client_fetched_weft_finds(self):
        path = self.judge_fetch()
        self.hub.requests.clear()
        self.cdn.requests.clear()
        found = json.loads(self.weft("models", "fetch", "acme/tiny", "--json"))
        self.assertEqual((found["path"], found["fetched_bytes"]), (path, 0))
        self.assertEqual(self.hub.seen("/resolve/") + self.cdn.requests, [])
        self.assertIn("llama", self.weft("inspect", "hf:acme/tiny", endpoint="http://127.0.0.1:9"))

    def test_what_weft_fetched_the_client_finds(self):
        path = self.weft("models", "fetch", "acme/tiny").strip()
        self.hub.requests.clear()
        self.assertEqual(self.judge_fetch(local_files_only=True), path)
        self.assertEqual(self.hub.requests, [])
        self.assertEqual(self.judge_fetch(), path)
        self.assertEqual(self.hub.seen("/resolve/", "GET"), [])
        file = self.weft("models", "fetch", "hf:acme/blocks:Q4_0").strip()
        self.assertEqual(judge.hf_hub_download("acme/blocks", "Q4/tiny-Q4_0.gguf", local_files_only=True), file)
        self.assertEqual(judge.try_to_load_from_cache("acme/blocks", "Q4/tiny-Q4_0.gguf"), file)

    def test_the_client_reads_the_whole_cache(self):
        self.weft("models", "fetch", "acme/tiny")
        self.weft("models", "fetch", "acme/blocks")
        info = judge.scan_cache_dir(CACHE)
        self.assertEqual(info.warnings, [])
        self.assertEqual({r.repo_id: {v.commit_hash: v.refs for v in r.revisions} for r in info.repos},
                         {"acme/tiny": {COMMIT: {"main"}}, "acme/blocks": {OTHER: {"main"}}})
        sizes = {r.repo_id: r.size_on_disk for r in info.repos}
        self.assertEqual(sizes["acme/tiny"], sum(map(len, self.files.values())))
        # And removes from it.
        info.delete_revisions(COMMIT, OTHER).execute()
        self.weft("models", "list")
        self.assertEqual(list(CACHE.glob("models--*")), [])

    def test_what_the_client_fetched_weft_removes(self):
        self.judge_fetch()
        self.weft("models", "remove", "hf:acme/tiny", "--yes")
        self.assertEqual(list(CACHE.glob("models--*")), [])
        self.assertEqual(judge.scan_cache_dir(CACHE).size_on_disk, 0)


if __name__ == "__main__":
    unittest.main()
