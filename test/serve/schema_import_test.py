#!/usr/bin/python3
"""Operations of a JSON Schema document at a URL: schema_import_test.py WEFT. A small service of Python answers them."""
import json
import pathlib
import tempfile
import unittest

from import_service import TOKEN, Handler, ImportTest, weft

DOCUMENT = {"title": "Shop", "$defs": {
    "Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    "sell": {"description": "Sells a pet.", "properties": {"input": {"type": "object", "required": ["pet"], "properties": {
        "pet": {"$ref": "#/$defs/Pet"}, "price": {"type": "number", "minimum": 0, "default": 5}}}, "output": {"type": "object"}}},
    "fail": {"properties": {"output": {"type": "null"}}}}}


class Service(Handler):
    def do_POST(self):
        self.answer(500 if self.path.endswith("/fail") else 200,
                    {"path": self.path, "body": self.body(), "token": self.headers["Authorization"]})

    def do_GET(self):
        Service.token_of_document = self.headers["Authorization"]
        self.answer(200, DOCUMENT)


class Import(ImportTest):
    handler = Service

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://{cls.host}"
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = pathlib.Path(folder.name) / "shop.json"
        cls.file.write_text(json.dumps(DOCUMENT))
        cls.place = ["--from", f"schema:{cls.file}", "--service", cls.url + "/api/"]

    def test_calls(self):
        run = weft("list", "--json", *self.place)
        self.assertEqual(run.returncode, 0, run.stderr)
        listed = {f"{o['namespace']}.{o['name']}": o for o in json.loads(run.stdout)["operations"]}
        self.assertEqual(set(listed), {"Shop.sell", "Shop.fail"})
        self.assertEqual(listed["Shop.sell"]["description"], "Sells a pet.")
        run = weft("call", "Shop.sell", *self.place, "--input", '{"pet": {"name": "Rex"}}', "--token", TOKEN)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout), {"path": "/api/sell", "body": {"pet": {"name": "Rex"}, "price": 5},
                                                  "token": f"Bearer {TOKEN}"})
        for value, message in (("{}", "pet"), ('{"pet": {"name": 3}}', "/pet/name"), ('{"pet": {"name": "x"}, "price": -1}', "minimum")):
            run = weft("call", "Shop.sell", *self.place, "--input", value)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(message, run.stderr)
        run = weft("call", "Shop.fail", *self.place)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "HTTP_ERROR: .*status 500")

    def test_a_document_from_elsewhere_gets_no_token(self):
        run = weft("call", "Pets.sell", "--from", f"schema+{self.url}/shop.json", "--service", self.url, "--schema-namespace", "Pets",
                   "--input", '{"pet": {"name": "Rex"}}', "--token", TOKEN)
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
