#!/usr/bin/python3
"""weft models fetch, and hf: in the place of a path: fetch_test.py WEFT [unittest arguments].

Against a hub on this machine (fake_hub.py), which cuts connections, is busy, lies and is slow. No test needs the internet.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from fake_hub import COMMIT, Repository, Server, git_hash, sha256
from tiny_model import put_byte_model

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE, INTERRUPTED = 0, 1, 2, 3, 130
NOISE = b"".join(sha256(str(i).encode()).encode() for i in range(40_000))  # 2.5 MB


def gguf(seed, size=300_000):
    """What begins as a GGUF file: enough for a fetch, which does not look further."""
    return b"GGUF" + bytes([seed]) + NOISE[:size]


class FetchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = pathlib.Path(tempfile.mkdtemp(prefix="weft-fetch-model-"))
        cls.model = put_byte_model(cls.kept / "model")
        subprocess.run([WEFT, "convert", cls.model, cls.kept / "tiny.gguf"], check=True, capture_output=True, timeout=120)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.kept, ignore_errors=True)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-fetch-"))
        self.cache = self.folder / "hub"
        self.hub, self.cdn = Server(), Server()
        self.hub.cdn = self.cdn
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.hub.stop)
        self.addCleanup(self.cdn.stop)
        folder = {f.name: f.read_bytes() for f in self.model.iterdir()}
        self.hub.repositories["acme/tiny"] = Repository({**folder, "README.md": b"# tiny", "pytorch_model.bin": b"\x80", "onnx/model.onnx": b"o"})
        self.hub.repositories["acme/blocks"] = Repository({
            "README.md": b"#", "tiny-Q4_K_M.gguf": gguf(1), "tiny-Q8_0.gguf": gguf(2), "tiny-IQ4_XS.gguf": gguf(3), "mmproj-tiny-F16.gguf": gguf(4),
            "BF16/tiny-BF16-00001-of-00002.gguf": gguf(5), "BF16/tiny-BF16-00002-of-00002.gguf": gguf(6)})

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "HF_", "SSL_", "CURL_", "REQUESTS_")) and not k.lower().endswith("_proxy")}
        return {**kept, "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "xdg"), "HF_ENDPOINT": self.hub.url,
                "HF_HUB_CACHE": str(self.cache), "WEFT_CACHE_DIR": str(self.folder / "weft"), "WEFT_THREADS": "1", **more}

    def weft(self, *arguments, code=OK, **environment):
        done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env=self.environment(**environment))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def fetch(self, name, *arguments, **more):
        return self.weft("models", "fetch", name, *arguments, **more)

    def snapshot(self, repository="acme/tiny"):
        return self.cache / ("models--" + repository.replace("/", "--")) / "snapshots" / COMMIT

    def leftovers(self):
        return [str(p) for p in self.folder.rglob("*.incomplete")] + [str(p) for p in self.folder.rglob("*.tmp-*")]


class Fetching(FetchTest):
    def test_a_folder_has_what_a_model_needs_in_the_layout_of_the_hub(self):
        done = self.fetch("acme/tiny")
        self.assertEqual(done.stdout.strip(), str(self.snapshot()))
        names = sorted(p.name for p in self.snapshot().iterdir())
        self.assertEqual(names, sorted(f.name for f in self.model.iterdir()))
        for file in self.model.iterdir():
            link = self.snapshot() / file.name
            content = file.read_bytes()
            blob = sha256(content) if file.suffix == ".safetensors" else git_hash(content)
            self.assertEqual(os.readlink(link), f"../../blobs/{blob}")
            self.assertEqual(link.read_bytes(), content)
        self.assertEqual((self.snapshot().parent.parent / "refs" / "main").read_text(), COMMIT)
        self.assertEqual(self.leftovers(), [])
        self.assertIn("fit into the free memory", done.stderr)

    def test_nothing_is_fetched_twice(self):
        self.fetch("acme/tiny")
        before = len(self.hub.seen("/resolve/"))
        again = json.loads(self.fetch("hf:acme/tiny", "--json").stdout)
        self.assertEqual(len(self.hub.seen("/resolve/")), before)
        self.assertEqual(again["fetched_bytes"], 0)
        self.assertGreater(again["bytes"], 10_000)
        # A new revision with the same weights links them.
        other = "f" * 40
        self.hub.repositories["acme/tiny"].commit = other
        self.hub.repositories["acme/tiny"].files["config.json"] += b"\n"
        self.fetch("acme/tiny")
        fetched = [r.path for r in self.hub.seen("/resolve/")[before:]]
        self.assertEqual(fetched, [f"/acme/tiny/resolve/{other}/config.json"])
        self.assertEqual((self.snapshot().parent / other / "model.safetensors").read_bytes(), (self.model / "model.safetensors").read_bytes())

    def test_types_and_files_and_parts(self):
        for choice, files in (("Q8_0", ["tiny-Q8_0.gguf"]), ("q4_k_m", ["tiny-Q4_K_M.gguf"]), ("", ["tiny-Q4_K_M.gguf"]),
                              ("tiny-IQ4_XS.gguf", ["tiny-IQ4_XS.gguf"]), ("mmproj-tiny-F16.gguf", ["mmproj-tiny-F16.gguf"]),
                              ("BF16", ["BF16/tiny-BF16-00001-of-00002.gguf", "BF16/tiny-BF16-00002-of-00002.gguf"])):
            with self.subTest(choice=choice):
                shutil.rmtree(self.cache, ignore_errors=True)
                done = self.fetch("hf:acme/blocks" + (":" + choice if choice else ""))
                self.assertEqual(done.stdout.strip(), str(self.snapshot("acme/blocks") / files[0]))
                found = sorted(str(p.relative_to(self.snapshot("acme/blocks"))) for p in self.snapshot("acme/blocks").rglob("*.gguf"))
                self.assertEqual(found, files)
                for file in files:
                    self.assertEqual((self.snapshot("acme/blocks") / file).read_bytes(), self.hub.repositories["acme/blocks"].files[file])

    def test_a_choice_that_is_not_there_lists_those_that_are(self):
        error = self.fetch("hf:acme/blocks:Q2_K", code=USAGE).stderr
        self.assertIn('no file or type "Q2_K"', error)
        self.assertIn("0.3 MB  tiny-Q8_0.gguf" if "0.3 MB" in error else "kB  tiny-Q8_0.gguf", error)
        self.assertNotIn("mmproj", error)
        self.assertIn("several files are of type", self.fetch("hf:acme/blocks:tiny", code=USAGE).stderr)
        self.hub.repositories["acme/pickle"] = Repository({"config.json": b"{}", "pytorch_model.bin": b"\x80"})
        self.assertIn("may hold code", self.fetch("acme/pickle", code=FILE).stderr)
        self.hub.repositories["acme/none"] = Repository({"README.md": b"#"})
        self.assertIn('it has "README.md"', self.fetch("acme/none", code=FILE).stderr)
        del self.hub.repositories["acme/blocks"].files["BF16/tiny-BF16-00002-of-00002.gguf"]
        self.assertIn("part 2 of 2 is missing", self.fetch("hf:acme/blocks:BF16", code=FILE).stderr)

    def test_an_index_says_which_weights(self):
        weights = (self.model / "model.safetensors").read_bytes()
        shards = {"model-00001-of-00002.safetensors": weights, "model-00002-of-00002.safetensors": weights + b" "}
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        repository = self.hub.repositories["acme/shards"] = Repository({
            "config.json": b"{}", "consolidated.safetensors": weights + b"other", **shards, "model.safetensors.index.json": json.dumps(index).encode()})
        self.fetch("acme/shards")
        self.assertEqual(sorted(p.name for p in self.snapshot("acme/shards").iterdir()), sorted(["config.json", "model.safetensors.index.json", *shards]))
        index["weight_map"]["c"] = "../../../../evil.safetensors"
        repository.files["model.safetensors.index.json"] = json.dumps(index).encode()
        self.assertIn("which the repository does not have", self.fetch("acme/shards", code=FILE).stderr)
        repository.files["model.safetensors.index.json"] = b'{"weight_map": 3}'
        self.assertIn("no weight_map", self.fetch("acme/shards", code=FILE).stderr)

    def test_a_dry_run_fetches_nothing(self):
        done = self.fetch("hf:acme/blocks:Q8_0", "--dry-run")
        self.assertIn("tiny-Q8_0.gguf", done.stdout)
        self.assertIn("nothing was fetched", done.stdout)
        plan = json.loads(self.fetch("hf:acme/blocks:Q8_0", "--dry-run", "--json").stdout)
        self.assertEqual((plan["missing_bytes"], plan["fits"], plan["commit"]), (300_005, True, COMMIT))
        self.assertEqual(self.hub.seen("/resolve/"), [])
        self.assertFalse(self.snapshot("acme/blocks").exists())
        # What does not fit is told, and not refused.
        self.hub.repositories["acme/blocks"].extra = [{"rfilename": "huge-Q2_K.gguf", "size": 1 << 48, "blobId": "0" * 40,
                                                       "lfs": {"sha256": "0" * 64, "size": 1 << 48, "pointerSize": 100}}]
        self.assertIn("do not fit into the free memory", self.fetch("hf:acme/blocks:Q2_K", "--dry-run").stdout)
        self.assertRegex(self.fetch("hf:acme/blocks:Q2_K", code=FILE).stderr, "are to be fetched, but the disk of .* has .* free")

    def test_a_list_without_hashes(self):
        self.hub.repositories["acme/tiny"].hashes = False
        self.fetch("acme/tiny")
        self.assertEqual((self.snapshot() / "model.safetensors").read_bytes(), (self.model / "model.safetensors").read_bytes())
        self.assertEqual(pathlib.Path(os.readlink(self.snapshot() / "model.safetensors")).name, sha256((self.model / "model.safetensors").read_bytes()))

    def test_a_file_without_bytes(self):
        self.hub.repositories["acme/tiny"].files["empty.json"] = b""
        self.fetch("acme/tiny")
        self.assertEqual((self.snapshot() / "empty.json").read_bytes(), b"")


class Faults(FetchTest):
    NAME = "hf:acme/blocks:Q8_0"

    def content(self):
        return self.hub.repositories["acme/blocks"].files["tiny-Q8_0.gguf"]

    def path(self):
        return self.snapshot("acme/blocks") / "tiny-Q8_0.gguf"

    def blob(self):
        return self.path().parent.parent.parent / "blobs" / sha256(self.content())

    def assert_whole(self):
        self.assertEqual(self.path().read_bytes(), self.content())
        self.assertEqual(self.leftovers(), [])

    def test_a_connection_that_ends_early_goes_on_from_there(self):
        for at in (100_000, 50_000):
            self.cdn.fail("/store/", lambda h, at=at: h.send_content(self.content(), {}, cut=at + int(re.findall(r"\d+", h.headers.get("Range", "0"))[0])))
        done = self.fetch(self.NAME)
        self.assert_whole()
        ranges = [r.headers.get("Range") for r in self.cdn.seen("/store/")]
        self.assertEqual(ranges, [None, "bytes=100000-", "bytes=150000-"])
        self.assertIn("the connection ended early", done.stderr)

    def test_a_busy_server_is_asked_again(self):
        self.hub.fail("/api/", lambda h: h.send_text(503, "busy"))
        self.hub.fail("/api/", lambda h: h.send_text(429, "busy", {"Retry-After": "1"}))
        self.hub.fail("/resolve/", lambda h: h.send_text(500, "oh"))
        self.cdn.fail("/store/", lambda h: h.send_text(502, "oh"))
        start = time.monotonic()
        done = self.fetch(self.NAME)
        self.assertGreater(time.monotonic() - start, 1.9)
        self.assert_whole()
        self.assertIn("503", done.stderr)
        self.assertIn("fewer requests (429); attempt 3 of 6 in 1.0 s", done.stderr)

    def test_a_server_that_stays_busy(self):
        for _ in range(9):
            self.hub.fail("/api/", lambda h: h.send_text(503, "busy"))
        error = self.fetch(self.NAME, "--retries", 1, code=FILE).stderr
        self.assertIn("the server answered 503 (after 2 attempts)", error)
        self.assertEqual(len(self.hub.requests), 2)

    def test_a_wrong_hash(self):
        self.cdn.fail("/store/", lambda h: h.send_content(self.content()[:-1] + b"!", {}))
        error = self.fetch(self.NAME, code=FILE).stderr
        self.assertIn(f"should be {sha256(self.content())}", error)
        self.assertFalse(self.path().exists())
        self.assertFalse(self.blob().exists())
        self.assertEqual(self.leftovers(), [])
        self.fetch(self.NAME)
        self.assert_whole()

    def test_a_part_of_another_file_is_not_trusted(self):
        self.blob().parent.mkdir(parents=True)
        part = self.blob().with_name(self.blob().name + ".incomplete")
        part.write_bytes(b"GGUF of another file" * 100)
        self.fetch(self.NAME)
        self.assert_whole()
        self.assertEqual([r.headers.get("Range") for r in self.cdn.seen("/store/")], ["bytes=2000-", None])
        # Nor one that is too long, or a whole one that is wrong.
        for size in (400_000, len(self.content())):
            shutil.rmtree(self.cache)
            self.blob().parent.mkdir(parents=True)
            part.write_bytes(b"x" * size)
            self.fetch(self.NAME)
            self.assert_whole()

    def test_a_whole_part_needs_no_further_byte(self):
        self.blob().parent.mkdir(parents=True)
        self.blob().with_name(self.blob().name + ".incomplete").write_bytes(self.content())
        self.assertEqual(json.loads(self.fetch(self.NAME, "--json").stdout)["fetched_bytes"], 0)
        self.assert_whole()
        self.assertEqual(self.cdn.requests, [])

    def test_a_server_without_ranges(self):
        self.cdn.fail("/store/", lambda h: h.send_content(self.content(), {}, cut=100_000))
        self.cdn.fail("/store/", lambda h: h.send_content(self.content(), {}, ranges=False))
        self.fetch(self.NAME)
        self.assert_whole()

    def test_answers_that_do_not_fit(self):
        faults = [(lambda h: h.send_content(self.content() + b"more", {}), "sends 300009 bytes, but the hub lists 300005"),
                  (lambda h: h.send_content(b"<!DOCTYPE html>" + self.content()[15:], {}), "what comes is not a GGUF file"),
                  (lambda h: h.send_text(404, "gone"), "404: there is no such file"),
                  (lambda h: h.send_text(302, "", {"Location": "ftp://example.invalid/x"}), "not an address of http"),
                  (lambda h: h.send_text(302, "", {"Location": "file:///etc/passwd"}), "not an address of http"),
                  (lambda h: h.send_text(302, "", {}), "not an address of http")]
        for fault, expected in faults:
            self.cdn.fail("/store/", fault)
            self.assertIn(expected, self.fetch(self.NAME, code=FILE).stderr)
        for _ in range(12):
            self.cdn.fail("/store/", lambda h: h.send_text(302, "", {"Location": h.path}))
        self.assertIn("more than 10 redirects", self.fetch(self.NAME, code=FILE).stderr)
        self.cdn.faults.clear()
        # A part of the file from somewhere else than asked.
        self.cdn.fail("/store/", lambda h: h.send_content(self.content(), {}, cut=100_000))
        self.cdn.fail("/store/", lambda h: h.send_content(self.content(), {"Content-Range": f"bytes 7-300004/300005"}))
        self.assertIn("another part of the file", self.fetch(self.NAME, code=FILE).stderr)

    def test_a_slow_server(self):
        def dribble(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(self.content())))
            h.end_headers()
            h.wfile.write(self.content()[:1000])
            h.wfile.flush()
            time.sleep(4)
        self.cdn.fail("/store/", dribble)
        done = self.fetch(self.NAME, "--timeout", 1)
        self.assertIn("the server sent nothing for 1 s", done.stderr)
        self.assertEqual(self.cdn.seen("/store/")[1].headers["Range"], "bytes=1000-")
        self.assert_whole()

    def test_ctrl_c_keeps_the_part(self):
        started = threading.Event()

        def stall(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(self.content())))
            h.end_headers()
            h.wfile.write(self.content()[:100_000])
            h.wfile.flush()
            started.set()
            time.sleep(20)
        self.cdn.fail("/store/", stall)
        running = subprocess.Popen([WEFT, "models", "fetch", self.NAME], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(started.wait(30))
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=10)
        self.assertEqual(running.returncode, INTERRUPTED, error)
        self.assertIn("what came is kept", error)
        self.assertFalse(self.path().exists())
        self.fetch(self.NAME)
        self.assertEqual(self.cdn.seen("/store/")[1].headers["Range"], "bytes=100000-")
        self.assert_whole()

    def test_another_program_at_the_same_file(self):
        lock = self.cache / ".locks" / "models--acme--blocks" / (sha256(self.content()) + ".lock")
        lock.parent.mkdir(parents=True)
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            running = subprocess.Popen([WEFT, "models", "fetch", self.NAME], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(1)
            self.assertIsNone(running.poll())
        _, error = running.communicate(timeout=20)
        self.assertEqual(running.returncode, OK, error)
        self.assertIn("another program fetches it", error)
        self.assert_whole()

    def test_names_that_lead_elsewhere(self):
        for name in ("../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "a//b.gguf", "back\\slash.gguf", "\x1b[2J.gguf", ".", ""):
            with self.subTest(name=name):
                self.hub.repositories["acme/blocks"].extra = [{"rfilename": name, "size": 5, "blobId": "1" * 40}]
                error = self.fetch(self.NAME, code=FILE).stderr if name else self.fetch(self.NAME).stderr
                if name:
                    self.assertIn("leads out of a folder", error)
                self.assertNotIn("\x1b[2J", error)
        self.assertEqual([p for p in self.folder.rglob("*evil*")], [])

    def test_a_list_that_lies(self):
        good = self.hub.repositories["acme/blocks"].listing("acme/blocks")
        entry = next(e for e in good["siblings"] if "Q8_0" in e["rfilename"])
        for change, expected in ((lambda: good.update(sha="../../main"), "names no commit"), (lambda: good.update(siblings=3), "lists no files"),
                                 (lambda: entry["lfs"].update(sha256="../../x"), "the SHA-256 of"), (lambda: entry["lfs"].update(size=-1), "the size of"),
                                 (lambda: entry.update(lfs=None, blobId="../x"), "the hash of")):
            before = json.dumps(good)
            change()
            self.hub.fail("/api/", lambda h, text=json.dumps(good): h.send_text(200, text))
            self.assertIn(expected, self.fetch(self.NAME, code=FILE).stderr)
            good.clear()
            good.update(json.loads(before))
            entry = next(e for e in good["siblings"] if "Q8_0" in e["rfilename"])
        for text, expected in (("<html>", "syntax"), ("[" * 10_000, ""), ("", "")):
            self.hub.fail("/api/", lambda h, text=text: h.send_text(200, text))
            self.assertIn("hf:acme/blocks:Q8_0", self.fetch(self.NAME, code=FILE).stderr)

    def test_links_in_the_cache_are_not_followed(self):
        self.blob().parent.mkdir(parents=True)
        victim = self.folder / "victim"
        victim.write_text("mine")
        self.blob().with_name(self.blob().name + ".incomplete").symlink_to(victim)
        self.assertIn("symbolic link", self.fetch(self.NAME, code=FILE).stderr)
        self.assertEqual(victim.read_text(), "mine")

    def test_folders_that_cannot_be_written(self):
        blocked = self.folder / "file"
        blocked.write_text("")
        self.assertIn("cannot make the folder", self.fetch(self.NAME, code=FILE, HF_HUB_CACHE=str(blocked / "hub")).stderr)


class Access(FetchTest):
    def setUp(self):
        super().setUp()
        self.hub.repositories["acme/gated"] = Repository({"g-Q8_0.gguf": gguf(9)}, gated=True)

    def test_a_gated_model(self):
        error = self.fetch("acme/gated", code=FILE).stderr
        self.assertIn(f"accept the terms at {self.hub.url}/acme/gated, then set HF_TOKEN", error)
        self.assertIn("your token has none", self.fetch("acme/gated", code=FILE, HF_TOKEN="hf_other").stderr)
        self.fetch("acme/gated", HF_TOKEN="hf_secret")
        self.assertTrue((self.snapshot("acme/gated") / "g-Q8_0.gguf").exists())

    def test_the_token_does_not_follow_to_another_host(self):
        done = self.fetch("acme/gated", HF_TOKEN="hf_secret")
        self.assertTrue(all(r.headers.get("Authorization") == "Bearer hf_secret" for r in self.hub.requests))
        self.assertEqual(len(self.cdn.requests), 1)
        self.assertNotIn("Authorization", self.cdn.requests[0].headers)
        self.assertNotIn("hf_secret", done.stdout + done.stderr)
        for file in self.folder.rglob("*"):
            if file.is_file() and file.stat().st_size < 10_000:
                self.assertNotIn("hf_secret", file.read_text(errors="replace"))

    def test_where_a_token_comes_from(self):
        home = self.folder / "home"
        home.mkdir()
        (home / "token").write_text("hf_secret\n")
        self.fetch("acme/gated", HF_HOME=str(home))
        shutil.rmtree(self.cache)
        self.fetch("acme/gated", HF_TOKEN_PATH=str(home / "token"))
        shutil.rmtree(self.cache)
        # A set variable counts more than a file.
        self.fetch("acme/gated", HF_HOME=str(home), HF_TOKEN="hf_other", code=FILE)
        self.assertIn("printable", self.fetch("acme/gated", HF_TOKEN="a\r\nX: y", code=USAGE).stderr)
        self.assertIn("for everybody to read", self.fetch("acme/gated", HF_TOKEN="x", HF_ENDPOINT="http://192.0.2.1:1", code=USAGE).stderr)

    def test_a_model_that_is_not_there(self):
        self.hub.near = ["acme/tiny", "other/tinny"]
        error = self.fetch("acme/tinny", code=FILE).stderr
        self.assertIn("there is no such model", error)
        self.assertIn("did you mean hf:acme/tiny, hf:other/tinny?", error)
        self.assertEqual(self.hub.seen("search=")[0].path, "/api/models?search=tinny&limit=5")
        self.assertIn('no branch, tag or commit "v9"', self.fetch("acme/tiny@v9", code=FILE).stderr)
        self.fetch(f"acme/tiny@{COMMIT}")
        self.assertFalse((self.snapshot().parent.parent / "refs").exists())

    def test_no_network(self):
        free = socket.socket()
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        start = time.monotonic()
        self.assertIn("is the network up, and the address right?", self.fetch("acme/tiny", HF_ENDPOINT=f"http://127.0.0.1:{port}", code=FILE).stderr)
        self.assertIn("is the network up? https_proxy", self.fetch("acme/tiny", HF_ENDPOINT="https://no-such-host.invalid", code=FILE).stderr)
        self.assertLess(time.monotonic() - start, 30)
        for endpoint in ("hub.example", "ftp://hub.example", "http://user:word@hub.example", "https://hub.example/?x"):
            self.assertIn("give an address such as", self.fetch("acme/tiny", HF_ENDPOINT=endpoint, code=USAGE).stderr)

    def test_offline(self):
        self.assertIn("the network is not to be used", self.fetch("acme/tiny", HF_HUB_OFFLINE="1", code=FILE).stderr)
        self.assertEqual(self.hub.requests, [])
        self.fetch("acme/tiny")
        count = len(self.hub.requests)
        self.assertEqual(self.fetch("acme/tiny", HF_HUB_OFFLINE="1").stdout.strip(), str(self.snapshot()))
        self.assertEqual(len(self.hub.requests), count)

    def test_certificates(self):
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure = Server()
        self.addCleanup(secure.stop)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        secure.repositories = self.hub.repositories
        url = secure.url.replace("http:", "https:")
        error = self.fetch("hf:acme/blocks:Q8_0", HF_ENDPOINT=url, code=FILE).stderr
        self.assertIn("is not trusted", error)
        self.assertIn("SSL_CERT_FILE", error)
        self.fetch("hf:acme/blocks:Q8_0", HF_ENDPOINT=url, SSL_CERT_FILE=str(certificate))
        # From https nothing leads to http.
        shutil.rmtree(self.cache)
        secure.cdn = self.cdn
        error = self.fetch("hf:acme/blocks:Q8_0", HF_ENDPOINT=url, SSL_CERT_FILE=str(certificate), code=FILE).stderr
        self.assertIn("redirects from https to http://", error)
        self.assertEqual(self.cdn.requests, [])


class Addresses(FetchTest):
    def setUp(self):
        super().setUp()
        self.address = self.cdn.url + "/files/small.gguf?download=1"
        self.cdn.pages["/files/small.gguf"] = gguf(7)

    def place(self):
        return next((self.folder / "weft" / "models").rglob("small.gguf"))

    def test_a_file_from_an_address(self):
        done = self.fetch(self.address, "--sha256", sha256(gguf(7)))
        self.assertEqual(done.stdout.strip(), str(self.place()))
        self.assertEqual(self.place().read_bytes(), gguf(7))
        count = len(self.cdn.seen("/files/"))
        self.assertEqual(self.fetch(self.address).stdout, done.stdout)
        self.assertEqual(len(self.cdn.seen("/files/")), count)
        self.assertIn("the file that is here", self.fetch(self.address, "--sha256", "0" * 64, code=FILE).stderr)
        self.assertNotIn("Authorization", self.cdn.requests[0].headers)
        self.assertNotIn("download=1", (self.place().parent / "small.gguf.source").read_text())  # a query may hold secrets

    def test_a_part_goes_on_only_if_the_file_is_the_same(self):
        tag = {"ETag": '"one"'}
        self.cdn.fail("/files/", lambda h: h.send_content(gguf(7), tag) if h.command == "HEAD" else False)
        self.cdn.fail("/files/", lambda h: h.send_content(gguf(7), tag, cut=50_000))
        self.cdn.fail("/files/", lambda h: h.send_content(gguf(7), tag))
        self.fetch(self.address)
        self.assertEqual([(r.headers.get("Range"), r.headers.get("If-Range")) for r in self.cdn.seen("/files/")],
                         [(None, None), ("bytes=50000-", '"one"')])
        self.assertEqual(self.place().read_bytes(), gguf(7))
        # The server has another file now: it begins anew.
        shutil.rmtree(self.folder / "weft")
        self.cdn.requests.clear()
        self.cdn.fail("/files/", lambda h: h.send_content(gguf(7), tag) if h.command == "HEAD" else False)
        self.cdn.fail("/files/", lambda h: h.send_content(gguf(7), tag, cut=50_000))
        self.cdn.pages["/files/small.gguf"] = gguf(8)
        self.fetch(self.address)
        self.assertEqual(self.place().read_bytes(), gguf(8))

    def test_addresses_that_are_refused(self):
        for address, expected in (("http://192.0.2.1/a.gguf", "give an https address"), (self.cdn.url + "/files/a.bin", "ends in .gguf"),
                                  ("https://user:word@example.invalid/a.gguf", "without user and password"), ("hf:../etc", "not the name"),
                                  ("hf:a/b/c", "not the name"), ("hf:", "not the name"), ("hf:a/b@", "after the @"), ("hf:a/b@../x", "after the @"),
                                  ("hf:a/b:../x", "after the colon"), ("hf:a--b/c", "not the name"), ("ftp://example.invalid/a.gguf", "after the colon")):
            with self.subTest(address=address):
                self.assertIn(expected, self.fetch(address, code=USAGE).stderr)
        for arguments in ([], ["--dry-run"]):
            self.assertIn("there is no such file", self.fetch(self.cdn.url + "/files/none.gguf", *arguments, code=FILE).stderr)
            self.assertIn("is the network up", self.fetch("https://no-such-host.invalid/a.gguf", *arguments, code=FILE).stderr)
        self.cdn.requests.clear()
        self.assertIn("64 hexadecimal digits", self.fetch(self.address, "--sha256", "abc", code=USAGE).stderr)
        self.assertIn("--retries -1", self.fetch(self.address, "--retries", "-1", code=USAGE).stderr)
        self.assertIn("--timeout 0", self.fetch(self.address, "--timeout", "0", code=USAGE).stderr)
        self.assertEqual(self.cdn.requests, [])

    def test_the_pages_of_the_hub_are_names_too(self):
        for page in ("blob/main/tiny-Q8_0.gguf", "resolve/main/tiny-Q8_0.gguf?download=true"):
            done = self.fetch(f"{self.hub.url}/acme/blocks/{page}")
            self.assertEqual(done.stdout.strip(), str(self.snapshot("acme/blocks") / "tiny-Q8_0.gguf"))


class Using(FetchTest):
    def test_commands_take_names(self):
        first = self.weft("chat", "hf:acme/tiny", "Hello", "--max-tokens", 5, "--seed", 1, "--temperature", 0)
        count = len(self.hub.requests)
        self.assertGreater(count, 0)
        local = self.weft("chat", self.model, "Hello", "--max-tokens", 5, "--seed", 1, "--temperature", 0)
        self.assertEqual(first.stdout, local.stdout)
        # What is here needs no network.
        self.weft("chat", "hf:acme/tiny", "Hello", "--max-tokens", 5, HF_ENDPOINT="http://127.0.0.1:9")
        self.weft("inspect", "hf:acme/tiny", HF_ENDPOINT="http://127.0.0.1:9")
        self.weft("inspect", "hf:acme/tiny", "--fit", HF_ENDPOINT="http://127.0.0.1:9")
        self.assertEqual(self.weft("tokenize", "--model", "hf:acme/tiny", "abc").stdout, self.weft("tokenize", "--model", self.model, "abc").stdout)
        self.assertEqual(len(self.hub.requests), count)

    def test_a_tokenizer_alone(self):
        self.weft("tokenize", "--model", "hf:acme/tiny:tokenizer.json", "abc")
        self.assertEqual([p.name for p in self.snapshot().iterdir()], ["tokenizer.json"])

    def test_a_gguf_file_by_its_type(self):
        self.hub.repositories["acme/chat"] = Repository({"tiny-F32.gguf": (self.kept / "tiny.gguf").read_bytes(), "tiny-Q8_0.gguf": gguf(1)})
        done = self.weft("chat", "hf:acme/chat:F32", "Hello", "--max-tokens", 5, "--temperature", 0)
        self.assertEqual(done.stdout, self.weft("chat", self.kept / "tiny.gguf", "Hello", "--max-tokens", 5, "--temperature", 0).stdout)

    def test_a_bare_name_says_how_to_fetch(self):
        for command in (["chat", "acme/tiny", "x"], ["inspect", "acme/tiny"], ["perplexity", "acme/tiny", "--file", __file__]):
            error = self.weft(*command, code=FILE).stderr
            self.assertIn("if this is a model of the hub, write hf:acme/tiny", error)
        self.assertEqual(self.hub.requests, [])
        self.assertIn("no model of this name here", self.weft("chat", "tiny", "x", code=FILE).stderr)
        # A slip in a path is not a model.
        (self.folder / "here").mkdir()
        self.assertNotIn("hub", self.weft("inspect", self.folder / "here" / "tinny", code=FILE).stderr)

    def test_as_an_operation(self):
        given = json.dumps({"name": "hf:acme/tiny"})
        made = json.loads(self.weft("operations", "call", "model.fetch", "--input", given).stdout)
        self.assertEqual(made["path"], str(self.snapshot()))
        self.assertGreater(made["fetched_bytes"], 0)
        refused = self.weft("operations", "call", "model.fetch", "--input", json.dumps({"name": self.cdn.url + "/a.gguf"}), code=USAGE)
        self.assertIn("not an address", refused.stderr)
        # A script has no network unless it is granted one, and this operation is not a way around that.
        script = self.folder / "fetch.js"
        script.write_text('import { operations } from "weft"; try { await operations.call("model.fetch", ' + given + '); } catch (error) { console.log(String(error)); }')
        count = len(self.hub.requests)
        self.assertIn("FETCH_DISABLED", self.weft("run", script, "--allow-operations", "model.fetch").stdout)
        self.assertEqual(len(self.hub.requests), count)

    def test_a_name_served(self):
        serving = subprocess.Popen([WEFT, "serve", "hf:acme/tiny", "--port", "0"], env=self.environment(), stderr=subprocess.PIPE, text=True)
        try:
            for line in serving.stderr:
                if line.startswith("serving "):
                    self.assertRegex(line, "^serving acme/tiny on http://")
                    break
            else:
                self.fail("the server ended")
        finally:
            serving.terminate()
            serving.communicate(timeout=60)

    def test_list_storage_and_remove(self):
        self.fetch("acme/tiny")
        self.fetch("hf:acme/blocks:BF16")
        self.hub.repositories["acme/chat"] = Repository({"tiny-F32.gguf": (self.kept / "tiny.gguf").read_bytes()})
        self.fetch("acme/chat")
        models = {m["name"]: m for m in json.loads(self.weft("models", "list", "--json").stdout)}
        self.assertEqual(set(models), {"hf:acme/tiny", "tiny-F32", "tiny-BF16-00001-of-00002"})
        self.assertEqual(models["hf:acme/tiny"]["family"], "llama")
        self.assertIn("hf:acme/tiny", self.weft("models", "list").stdout)
        self.assertIn(" 3\n", self.weft("models", "storage").stdout)
        told = self.weft("models", "remove", "hf:acme/tiny", code=FAILURE).stdout
        self.assertIn("/blobs/", told)
        self.weft("models", "remove", "hf:acme/tiny", "--yes")
        self.assertFalse((self.cache / "models--acme--tiny").exists())
        # Blobs that another revision has stay.
        other = "e" * 40
        self.hub.repositories["acme/chat"].commit = other
        self.fetch("acme/chat")
        self.weft("models", "remove", self.snapshot("acme/chat") / "tiny-F32.gguf", "--yes")
        self.assertEqual((self.cache / "models--acme--chat" / "snapshots" / other / "tiny-F32.gguf").read_bytes(), (self.kept / "tiny.gguf").read_bytes())
        self.weft("models", "remove", "tiny-F32", "--yes")
        self.assertFalse((self.cache / "models--acme--chat").exists())

    def test_nothing_is_fetched_unasked(self):
        self.weft("models", "list")
        self.weft("models", "storage")
        self.weft("chat", "nothing", "x", code=FILE)
        self.assertEqual(self.hub.requests + self.cdn.requests, [])


if __name__ == "__main__":
    unittest.main()
