"""Models by name, from a hub on this machine that the tests of the command use too."""
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

import weft
from weft import models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "test" / "cli"))
from fake_hub import COMMIT, Repository, Server
from tiny_model import put_byte_model


class Fetch(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
            del os.environ[name]
        os.environ["HF_HOME"] = str(self.folder / "home")
        self.hub = Server()
        self.addCleanup(self.hub.stop)
        model = put_byte_model(self.folder / "model")
        self.hub.repositories["acme/tiny"] = Repository({f.name: f.read_bytes() for f in model.iterdir()})
        self.cache = self.folder / "hub"
        self.given = {"endpoint": self.hub.url, "cache": self.cache}

    def test_fetch_find_and_load(self):
        self.assertIsNone(models.find("hf:acme/tiny", cache=self.cache))
        seen = []
        plan = models.plan("hf:acme/tiny", **self.given)
        self.assertTrue(plan.fits)
        self.assertEqual((plan.commit, plan.missing_bytes), (COMMIT, plan.bytes))
        path = models.fetch("hf:acme/tiny", **self.given, progress=lambda file, done, total: seen.append((file, done, total)))
        self.assertEqual(path, plan.path)
        self.assertEqual(seen[-1][1:], (plan.bytes, plan.bytes))
        self.assertEqual(models.find("hf:acme/tiny", cache=self.cache), path)
        self.assertEqual(models.fetch("acme/tiny", cache=self.cache, offline=True), path)
        self.assertEqual([(m.name, m.family, m.problem) for m in models.stored([self.cache])], [("hf:acme/tiny", "llama", "")])
        model = weft.llm.load(path, device="cpu")
        self.assertEqual(len(model.generate("a", max_tokens=3).result().tokens), 3)

    def test_errors(self):
        with self.assertRaisesRegex(weft.FileError, "there is no such model"):
            models.fetch("acme/none", **self.given)
        with self.assertRaisesRegex(weft.UsageError, "not the name of a model"):
            models.fetch("../x", **self.given)
        with self.assertRaisesRegex(weft.FileError, "the network is not to be used"):
            models.fetch("acme/tiny", offline=True, **self.given)
        with self.assertRaises(ZeroDivisionError):
            models.fetch("acme/tiny", **self.given, progress=lambda *_: 1 / 0)

    def test_a_token_is_sent(self):
        self.hub.repositories["acme/tiny"].gated = True
        with self.assertRaisesRegex(weft.FileError, "accept the terms"):
            models.fetch("acme/tiny", **self.given)
        models.fetch("acme/tiny", **self.given, token="hf_secret")

    def test_other_threads_run_meanwhile(self):
        def slow(handler):
            time.sleep(1)
            return False
        self.hub.fail("/api/", slow)
        ticks = []
        thread = threading.Thread(target=lambda: models.fetch("acme/tiny", **self.given))
        thread.start()
        while thread.is_alive():
            ticks.append(time.monotonic())
            time.sleep(0.01)
        self.assertGreater(len(ticks), 20)

    def test_as_an_operation(self):
        from weft import operations
        with operations.Exchange() as exchange, self.assertRaises(operations.OperationError) as refused:
            exchange.call("model.fetch", {"name": "hf:acme/tiny"})
        self.assertEqual(refused.exception.code, "FETCH_DISABLED")
        os.environ |= {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache)}
        with operations.Exchange(allow_fetch=True) as exchange:
            told = exchange.call("model.fetch", {"name": "hf:acme/tiny", "dry_run": True})
            self.assertEqual((told["fits"], told["missing_bytes"]), (True, told["bytes"]))
            made = exchange.call("model.fetch", {"name": "hf:acme/tiny"})
        self.assertEqual(made["path"], str(models.find("hf:acme/tiny")))


if __name__ == "__main__":
    unittest.main()
