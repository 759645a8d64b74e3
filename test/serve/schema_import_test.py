#!/usr/bin/python3
"""Operations of a JSON Schema document at a URL: schema_import_test.py WEFT. A small service of Python answers them."""
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
DOCUMENT = {"title": "Shop", "$defs": {
    "Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    "sell": {"description": "Sells a pet.", "properties": {"input": {"type": "object", "required": ["pet"], "properties": {
        "pet": {"$ref": "#/$defs/Pet"}, "price": {"type": "number", "minimum": 0, "default": 5}}}, "output": {"type": "object"}}},
    "fail": {"properties": {"output": {"type": "null"}}}}}


class Service(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 500 if self.path.endswith("/fail") else 200
        data = json.dumps({"path": self.path, "body": body, "token": self.headers["Authorization"]}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        Service.token_of_document = self.headers["Authorization"]
        data = json.dumps(DOCUMENT).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def weft(*arguments):
    return subprocess.run([WEFT, "operations", *arguments], capture_output=True, text=True, timeout=60)


class Import(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
        threading.Thread(target=cls.service.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.service.server_port}"
        cls.folder = tempfile.TemporaryDirectory()
        cls.file = pathlib.Path(cls.folder.name) / "shop.json"
        cls.file.write_text(json.dumps(DOCUMENT))
        cls.place = ["--from", f"schema:{cls.file}", "--service", cls.url + "/api/"]

    @classmethod
    def tearDownClass(cls):
        cls.service.shutdown()
        cls.service.server_close()
        cls.folder.cleanup()

    def test_calls(self):
        run = weft("list", "--json", *self.place)
        self.assertEqual(run.returncode, 0, run.stderr)
        listed = {f"{o['namespace']}.{o['name']}": o for o in json.loads(run.stdout)["operations"]}
        self.assertEqual(set(listed), {"Shop.sell", "Shop.fail"})
        self.assertEqual(listed["Shop.sell"]["description"], "Sells a pet.")
        run = weft("call", "Shop.sell", *self.place, "--input", '{"pet": {"name": "Rex"}}', "--token", "a-token-of-this-test")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout), {"path": "/api/sell", "body": {"pet": {"name": "Rex"}, "price": 5},
                                                  "token": "Bearer a-token-of-this-test"})
        for value, message in (("{}", "pet"), ('{"pet": {"name": 3}}', "/pet/name"), ('{"pet": {"name": "x"}, "price": -1}', "minimum")):
            run = weft("call", "Shop.sell", *self.place, "--input", value)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(message, run.stderr)
        run = weft("call", "Shop.fail", *self.place)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "HTTP_ERROR: .*status 500")

    def test_a_document_from_elsewhere_gets_no_token(self):
        run = weft("call", "Pets.sell", "--from", f"schema+{self.url}/shop.json", "--service", self.url, "--schema-namespace", "Pets",
                   "--input", '{"pet": {"name": "Rex"}}', "--token", "a-token-of-this-test")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIsNone(Service.token_of_document)
        self.assertEqual(json.loads(run.stdout)["path"], "/sell")

    def test_errors(self):
        for arguments, code, message in ((["--from", f"schema:{self.file}"], 2, "--service URL"),
                                         ([*self.place[:2], "--service", "file:///etc"], 2, "not a URL"),
                                         ([*self.place[:2], "--service", "http://me:secret@127.0.0.1/"], 2, "not a URL"),
                                         (["--from", "schema:/nonexistent.json", "--service", self.url], 3, "nonexistent")):
            run = weft("list", *arguments)
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertIn(message, run.stderr)
            self.assertNotIn("secret", run.stderr)


if __name__ == "__main__":
    unittest.main()
