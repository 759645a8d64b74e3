#!/usr/bin/python3
"""weft serve with text encoders: encoders_test.py WEFT [unittest arguments]. Embeddings, orders, and what is refused."""
import base64
import http.client
import json
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_encoder  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()


class Server:
    def __init__(self, folder, *options):
        self.process = subprocess.Popen([WEFT, "serve", *options, "--port", "0", "--device", "cpu", "--quiet"], cwd=folder, stderr=subprocess.PIPE, text=True)
        while not (found := re.search(r"serving (.*) on http://127\.0\.0\.1:(\d+)/v1", self.process.stderr.readline())):
            assert self.process.poll() is None
        self.names, self.port = found[1], int(found[2])

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        return reply.status, answer

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.stderr.close()
        return self.process.wait(60)


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        tiny_encoder.put_encoder(cls.folder / "rows", "bert")
        tiny_encoder.put_encoder(cls.folder / "order", "roberta-classes")
        cls.server = Server(cls.folder, "rows", "--reranker", "order")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.holder.cleanup()

    def answer(self, path, body):
        status, answer = self.server.ask("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def refused(self, status, message, path, body):
        got, answer = self.server.ask("POST", path, body)
        self.assertEqual(got, status, answer)
        self.assertIn(message, answer["error"]["message"])

    def test_models_are_listed(self):
        self.assertEqual(self.server.names, "rows and order")
        self.assertEqual([m["id"] for m in self.server.ask("GET", "/v1/models")[1]["data"]], ["rows", "order"])

    def test_long_texts_are_cut_on_demand(self):
        [tag] = [each for each in self.server.ask("GET", "/api/tags")[1]["models"] if each["name"] == "rows:latest"]
        self.assertEqual(tag["details"]["family"], "encoder")
        length = self.answer("/api/show", {"model": "rows"})["model_info"]["encoder.context_length"]
        text = " ".join(["w9"] * (length + 5))
        self.refused(400, "tokens", "/v1/embeddings", {"input": text, "model": "rows"})
        cut = self.answer("/v1/embeddings", {"input": text, "model": "rows", "truncate": True})
        fits = self.answer("/v1/embeddings", {"input": " ".join(["w9"] * (length - 2)), "model": "rows"})
        self.assertEqual((cut["data"], cut["usage"]), (fits["data"], fits["usage"]))
        self.assertEqual(self.answer("/api/embed", {"input": text, "model": "rows:latest"})["embeddings"], [fits["data"][0]["embedding"]])

    def test_embeddings(self):
        whole = self.answer("/v1/embeddings", {"input": ["w9 w8", "w30"], "model": "rows"})
        self.assertEqual([row["index"] for row in whole["data"]], [0, 1])
        self.assertEqual(whole["usage"], {"prompt_tokens": 7, "total_tokens": 7})
        row = whole["data"][0]["embedding"]
        self.assertEqual(len(row), 32)
        self.assertAlmostEqual(sum(x * x for x in row), 1, places=5)
        packed = self.answer("/v1/embeddings", {"input": "w9 w8", "encoding_format": "base64"})["data"][0]["embedding"]
        for a, b in zip(struct.unpack("<32f", base64.b64decode(packed)), row):
            self.assertAlmostEqual(a, b, places=6)
        self.assertEqual(len(self.answer("/v1/embeddings", {"input": "w9 w8", "dimensions": 8})["data"][0]["embedding"]), 8)
        query = self.answer("/v1/embeddings", {"input": "w9 w8", "prompt_name": "query"})["data"][0]["embedding"]
        self.assertNotEqual(query, row)

    def test_orders(self):
        documents = ["w8 w7", {"text": "w30"}, "w40 w41"]
        answer = self.answer("/v1/rerank", {"model": "order", "query": "w9", "documents": documents, "return_documents": True})
        scores = [result["relevance_score"] for result in answer["results"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(sorted(result["index"] for result in answer["results"]), [0, 1, 2])
        self.assertEqual({result["document"]["text"] for result in answer["results"]}, {"w8 w7", "w30", "w40 w41"})
        best = self.answer("/v1/rerank", {"query": "w9", "documents": documents, "top_n": 1})["results"]
        self.assertEqual(best, [{key: answer["results"][0][key] for key in ("index", "relevance_score")}])

    def test_what_is_refused(self):
        self.refused(404, "does not exist here", "/v1/embeddings", {"input": "w9", "model": "order"})
        self.refused(400, "tokens", "/v1/embeddings", {"input": [1, 2]})
        self.refused(400, "prompt_name", "/v1/embeddings", {"input": "w9", "prompt_name": "question"})
        self.refused(400, "dimensions", "/v1/embeddings", {"input": "w9", "dimensions": 33})
        self.refused(400, "has 62 tokens", "/v1/embeddings", {"input": " ".join(["w9"] * 60)})
        self.refused(400, "query", "/v1/rerank", {"documents": ["w9"]})
        self.refused(400, "documents", "/v1/rerank", {"query": "w9", "documents": []})
        self.refused(400, "documents", "/v1/rerank", {"query": "w9", "documents": [{"title": "w8"}]})
        self.refused(400, "top_n", "/v1/rerank", {"query": "w9", "documents": ["w8"], "top_n": 0})
        self.refused(404, "no language model", "/v1/chat/completions", {"messages": [{"role": "user", "content": "w9"}]})


if __name__ == "__main__":
    unittest.main()
