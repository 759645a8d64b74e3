#!/usr/bin/python3
"""A client that openapi-python-client generates from the OpenAPI description calls the server that gave it: openapi_client_judge.py WEFT."""
import base64
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
TOKEN = "a-token-for-the-judge"
# Frames are bytes, and events are text, to a generator that knows neither type.
CONFIG = {"post_hooks": [], "content_type_overrides": {"application/vnd.weft.frame": "application/octet-stream", "text/event-stream": "text/plain"}}
GENERATE = ["-m", "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.json", "--meta", "none", "--output-path", "weft_client"]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        folder = pathlib.Path(cls.temporary.name)
        tokens = folder / "tokens.json"
        tokens.write_text(json.dumps({"tokens": [{"token": TOKEN, "id": "judge", "scopes": ["*"]}, {"token": "a-token-without-rights", "id": "nobody"}]}))
        cls.server = subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", tokens, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.server.communicate, timeout=30)
        cls.addClassCleanup(cls.server.terminate)
        cls.url = re.search(r"on (http://\S+)", cls.server.stderr.readline())[1]
        request = urllib.request.Request(cls.url + "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
        cls.description = urllib.request.urlopen(request, timeout=60).read()
        (folder / "openapi.json").write_bytes(cls.description)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(JUDGES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])}
        cls.generated = subprocess.run([sys.executable, *GENERATE], cwd=folder, env=environment, capture_output=True, text=True, timeout=170)
        sys.path[:0] = [str(folder), str(JUDGES)]

    def test_every_operation_is_generated(self):
        self.assertEqual(self.generated.returncode, 0, self.generated.stdout + self.generated.stderr)
        said = self.generated.stdout + self.generated.stderr
        self.assertNotIn("WARNING", said)
        self.assertNotIn("ERROR", said)
        made = list(pathlib.Path(self.temporary.name, "weft_client", "api").glob("*/*_*.py"))
        operations = [path for path in json.loads(self.description)["paths"] if path.startswith("/v1/operations/")]
        self.assertGreater(len(operations), 300)
        self.assertEqual(len([each for each in made if each.name != "__init__.py"]), len(operations))

    def test_calls(self):
        from weft_client import AuthenticatedClient
        from weft_client.api.handle import handle_list
        from weft_client.api.tensor import tensor_add, tensor_softmax
        from weft_client.models import Error, HandleListJsonBodyType0, TensorAddJsonBody, TensorSoftmaxJsonBody, TensorSoftmaxWeftTensors
        client = AuthenticatedClient(base_url=self.url, token=TOKEN, timeout=60)
        x = {"$tensor": {"dtype": "f32", "shape": [2], "data": base64.b64encode(struct.pack("<2f", 0, 0)).decode()}}
        answer = tensor_softmax.sync(client=client, body=TensorSoftmaxJsonBody.from_dict({"x": x, "axis": 0})).to_dict()
        made = answer["data"]["result"]["$tensor"]
        self.assertEqual((made["dtype"], made["shape"], struct.unpack("<2f", base64.b64decode(made["data"]))), ("f32", [2], (0.5, 0.5)))
        total = tensor_add.sync(client=client, body=TensorAddJsonBody.from_dict({"x": 2, "y": 3})).to_dict()
        self.assertEqual(total["meta"]["operationId"], "tensor.add")
        # A tensor that stays in the server, named by its handle in the next call.
        held = tensor_softmax.sync(client=client, body=TensorSoftmaxJsonBody.from_dict({"x": x}), weft_tensors=TensorSoftmaxWeftTensors.HANDLES).to_dict()
        handle = held["data"]["result"]["$tensor"]["handle"]
        twice = tensor_add.sync(client=client, body=TensorAddJsonBody.from_dict({"x": {"$tensor": {"handle": handle}}, "y": 1})).to_dict()
        self.assertEqual(struct.unpack("<2f", base64.b64decode(twice["data"]["result"]["$tensor"]["data"])), (1.5, 1.5))
        listed = handle_list.sync(client=client, body=HandleListJsonBodyType0()).to_dict()
        self.assertIn(handle, [each["handle"] for each in listed["data"]["handles"]])
        # What is refused is the error of the description.
        wrong = tensor_softmax.sync_detailed(client=client, body=TensorSoftmaxJsonBody.from_dict({"x": x, "axis": "last"}))
        self.assertEqual((int(wrong.status_code), type(wrong.parsed), wrong.parsed.error.code), (400, Error, "VALIDATION_ERROR"))
        for token, status, code in (("a-token-without-rights", 403, "ACCESS_DENIED"), ("a-token-of-nobody-here", 401, None)):
            other = AuthenticatedClient(base_url=self.url, token=token, timeout=60)
            refused = tensor_add.sync_detailed(client=other, body=TensorAddJsonBody.from_dict({"x": 2, "y": 3}))
            self.assertEqual((int(refused.status_code), type(refused.parsed)), (status, Error))
            if code:
                self.assertEqual(refused.parsed.error.code, code)


if __name__ == "__main__":
    unittest.main()
