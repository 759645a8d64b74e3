#!/usr/bin/python3
"""Operations from OpenAPI descriptions: openapi_import_test.py WEFT. A small service of Python, our own server, and hostile descriptions."""
import copy
import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.parse

from import_service import TOKEN, WEFT, Handler, ImportTest, weft

DESCRIPTION = {
    "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": "/api"}],
    "paths": {
        "/pets/{name}": {
            "parameters": [{"$ref": "#/components/parameters/Name"}],
            "get": {"operationId": "findPet", "summary": "Finds a pet",
                    "parameters": [{"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                                   {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                                   {"name": "Host", "in": "header", "schema": {"type": "string"}}],
                    "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}}},
            "put": {"requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
                    "responses": {"200": {"description": ""}}}},
        "/text": {"get": {"operationId": "some.text", "responses": {"200": {"description": ""}}}},
        "/form": {"post": {"operationId": "form", "requestBody": {"content": {"text/plain": {}}}, "responses": {}}},
        "/secret": {"get": {"operationId": "cookies", "parameters": [{"name": "c", "in": "cookie"}], "responses": {}}}},
    "components": {"parameters": {"Name": {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}},
                   "schemas": {"Pet": {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0},
                                                                                           "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}},
                               "Unused": {"type": "string"}}}}


class Service(Handler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/openapi.json":
            return self.answer(200, DESCRIPTION)
        if url.path == "/api/text":
            return self.answer(200, b"plain text", "text/plain")
        if url.path == "/api/pets/nobody":
            return self.answer(404, {"reason": "no such pet"})
        if url.path == "/api/pets/broken":
            return self.answer(200, b"{")
        self.answer(200, {"path": url.path, "query": urllib.parse.parse_qs(url.query), "trace": self.headers["X-Trace"], "host": self.headers["Host"],
                          "token": self.headers["Authorization"]})

    def do_PUT(self):
        self.answer(200, {"path": self.path, "put": self.body()})


class Import(ImportTest):
    handler = Service

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = f"openapi+http://{cls.host}/openapi.json"

    def call(self, name, value, *more):
        return weft("call", name, "--from", self.place, "--input", json.dumps(value), *more)

    def test_a_service(self):
        run = weft("list", "--json", "--from", self.place)
        self.assertEqual(run.returncode, 0, run.stderr)
        listed = {f"{o['namespace']}.{o['name']}": o for o in json.loads(run.stdout)["operations"]}
        self.assertEqual(set(listed), {"Pets.findPet", "Pets.put_pets__name_", "some.text"}, "bodies that are not JSON, and cookies, are left out")
        found = listed["Pets.findPet"]
        self.assertEqual((found["type"], found["title"], listed["Pets.put_pets__name_"]["type"]), ("query", "Finds a pet", "mutation"))
        self.assertEqual(set(found["inputSchema"]["properties"]), {"name", "tag", "X-Trace"})
        self.assertEqual(set(listed["Pets.put_pets__name_"]["inputSchema"]["$defs"]), {"Pet"})
        run = self.call("Pets.findPet", {"name": "a/b ?é", "tag": ["x", "y&z"], "X-Trace": "t"}, "--token", TOKEN)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout), {"path": "/api/pets/a%2Fb%20%3F%C3%A9", "query": {"tag": ["x", "y&z"]}, "trace": "t", "host": self.host,
                                                  "token": f"Bearer {TOKEN}"})
        run = self.call("Pets.put_pets__name_", {"name": "rex", "body": {"age": 3, "friends": [{"age": 1}]}})
        self.assertEqual(json.loads(run.stdout or "null"), {"path": "/api/pets/rex", "put": {"age": 3, "friends": [{"age": 1}]}}, run.stderr)
        self.assertEqual(json.loads(self.call("some.text", {}).stdout), "plain text")

    def test_errors(self):
        for name, value, code, message in (("Pets.findPet", {}, 2, "name"), ("Pets.findPet", {"name": ".."}, 2, "change the path"), ("Pets.findPet", {"name": "x", "more": 1}, 2, "more"),
                                           ("Pets.put_pets__name_", {"name": "x", "body": {"age": 1, "friends": [{"age": -1}]}}, 2, "/body/friends/0/age"),
                                           ("Pets.findPet", {"name": "x", "X-Trace": "a\r\nHost: evil"}, 2, "control characters"),
                                           ("Pets.findPet", {"name": "nobody"}, 1, "HTTP_ERROR: .*status 404"), ("Pets.findPet", {"name": "broken"}, 1, "cannot be read")):
            with self.subTest(name=name, value=value):
                run = self.call(name, value)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertRegex(run.stderr, message)

    def test_our_own_server(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = pathlib.Path(folder) / "tokens.json"
            tokens.write_text(json.dumps({"tokens": [{"token": TOKEN, "id": "me", "scopes": ["*"]}]}))
            with subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", tokens, "--device", "cpu", "--quiet"],
                                  stderr=subprocess.PIPE, text=True) as server:
                try:
                    place = "openapi+" + re.search(r"on (http://\S+)", server.stderr.readline())[1] + "/openapi.json"
                    run = weft("call", "tensor.add", "--from", place, "--token", TOKEN, "--input", '{"body": {"x": 2, "y": 3}}', "--device", "cpu")
                    self.assertEqual(run.returncode, 0, run.stderr)
                    self.assertEqual(json.loads(run.stdout)["meta"]["operationId"], "tensor.add")
                    self.assertIn("status 401", weft("list", "--from", place, "--token", "a-wrong-token-of-nobody").stderr)
                finally:
                    server.terminate()

    def test_hostile_descriptions(self):
        def changed(change):
            description = copy.deepcopy(DESCRIPTION)
            description["servers"] = [{"url": f"http://{self.host}/api"}]
            change(description)
            return json.dumps(description)

        def put(path, value):
            def change(description):
                at = description
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value
            return change

        deep = "[" * 100 + "]" * 100
        nested = {"type": "object"}
        for _ in range(27):
            nested = {"properties": {"a": nested}}
        many = {f"/{i}": {"get": {"responses": {}}} for i in range(10_001)}
        cases = [("[]", 2, "not an object"), ("{", 3, "JSON"), (deep, 3, "deep"), (changed(put(["openapi"], "2.0")), 2, "3.1 is read"), (changed(put(["openapi"], 3)), 2, "not a string"),
                 (changed(put(["info"], [])), 2, '"title" is missing'), (changed(put(["paths"], [])), 2, '"paths"'), (changed(put(["paths", "x"], {})), 2, "not a path"),
                 (changed(put(["servers"], [{"url": "http://evil.example/"}])), 2, "--allow-host evil.example"),
                 (changed(put(["servers"], [{"url": "file:///etc/passwd"}])), 2, "not a URL"), (changed(put(["servers"], [{"url": "http://{host}/"}])), 2, "variables"),
                 (changed(put(["servers"], [{"url": "http://user:password@127.0.0.1/"}])), 2, "not a URL"), (changed(put(["servers"], [{"url": "/api"}])), 2, "relative"),
                 (changed(put(["paths", "/text", "servers"], [{"url": "http://169.254.169.254/"}])), 2, "--allow-host 169.254.169.254"),
                 (changed(put(["components", "parameters", "Name"], {"$ref": "#/components/parameters/Name"})), 2, "circle"),
                 (changed(put(["components", "parameters", "Name"], {"$ref": "http://evil.example/x"})), 2, "another document"),
                 (changed(put(["components", "parameters", "Name"], {"$ref": "#/nothing/here"})), 2, "leads nowhere"),
                 (changed(put(["components", "schemas", "Pet", "properties", "age"], {"$ref": "file:///etc/passwd"})), 2, "refers to"),
                 (changed(put(["components", "schemas", "Pet", "properties", "age"], {"$ref": "#/components/schemas/None"})), 2, "leads nowhere"),
                 (changed(put(["components", "schemas", "Pet", "properties", "age"], {"type": "number", "minimum": "x"})), 2, "minimum"),
                 (changed(put(["components", "schemas", "Pet", "properties", "age"], nested)), 2, "nested too deep"),
                 (changed(put(["paths"], many)), 2, "more than 10000 operations"), (" " * (17 << 20), 3, "at most")]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "description.json"
            for text, code, message in cases:
                with self.subTest(message=message, text=text[:60]):
                    file.write_text(text)
                    run = weft("list", "--from", f"openapi:{file}", "--allow-host", self.host)
                    self.assertEqual(run.returncode, code, run.stderr)
                    self.assertRegex(run.stderr, message)
                    self.assertNotIn("password@", run.stderr)
            file.write_text(changed(lambda description: None))
            self.assertEqual(weft("list", "--from", f"openapi:{file}", "--allow-host", self.host).returncode, 0)
            self.assertIn("--allow-host", weft("list", "--from", f"openapi:{file}").stderr)


if __name__ == "__main__":
    unittest.main()
