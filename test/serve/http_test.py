#!/usr/bin/python3
"""weft operations serve --http: http_test.py WEFT [unittest arguments]. Routes, access, events, aborts, hostile clients."""
import base64
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_model  # noqa: E402
from command_server import CommandServer, ask  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
SECRET, WEAK, OTHER = "secret-token-of-the-owner", "weak-token-without-scopes", "other-token-with-scopes"


def tensor(values):
    return {"$tensor": {"dtype": "f32", "shape": [len(values)], "data": base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()}}


def floats(value):
    data = base64.b64decode(value["$tensor"]["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        (path / "tokens.json").write_text(json.dumps({"tokens": [
            {"token": SECRET, "id": "owner", "scopes": ["*"], "resources": {"model:*": ["*"], "weights:*": ["*"]}},
            {"token": OTHER, "id": "other", "scopes": ["tensor:run", "training:read"]},
            {"token": WEAK, "id": "weak"}]}))
        (path / "data").mkdir()
        tiny_model.put_model(path / "first")
        (path / "data" / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
        cls.server = CommandServer([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", path / "tokens.json", "--device", "cpu",
                                    "--allow-read", path, "--allow-write", path / "data", "--model", f"first={path}/first"],
                                   path / "log", r"serving \d+ operations on http://127.0.0.1:(\d+)\n")
        cls.port = int(cls.server.found[1])

    @classmethod
    def tearDownClass(cls):
        code, text = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, (code, text[-2000:])
        for token in (SECRET, WEAK, OTHER, "Bearer"):
            assert token not in text, "a token in the log"

    def ask(self, method, path, body=None, token=SECRET, headers=None):
        status, _, answer = ask(self.port, method, path, body, token, headers)
        return status, answer

    def call(self, name, value, **options):
        return self.ask("POST", f"/v1/operations/{name}", value, **options)

    def test_the_command_calls_it(self):
        # A workflow of operations of the server: a model writes at once, and its text becomes tokens.
        steps = {"name": "steps", "tree": {"type": "Sequential", "props": {"output": "$.said.tokens"}, "children": [
            {"type": "Operation", "props": {"id": "said", "name": "model.complete", "retries": 2, "input": {"model": "first", "prompt": "w1 w2", "max_tokens": 3, "temperature": 0}}},
            {"type": "Operation", "props": {"name": "model.tokenize", "input": {"model": "first", "text": "$.said.text"}}}]}}
        for arguments, answer in ((["operations", "call", "tensor.add", "--input", '{"x": 2, "y": 3}'], "tensor"), (["operations", "list"], "tensor.softmax"),
                                  (["workflow", "run", "-"], "3\n")):
            run = subprocess.run([WEFT, *arguments, "--from", f"http://127.0.0.1:{self.port}"], input=json.dumps(steps), capture_output=True, text=True,
                                 timeout=60, env=os.environ | {"WEFT_TOKEN": SECRET})
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn(answer, run.stdout)
        run = subprocess.run([WEFT, "operations", "list", "--from", f"http://127.0.0.1:{self.port}/v1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 2)
        self.assertIn("has a path", run.stderr)

    def raw(self, data, seconds=10):
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as client:
            client.sendall(data)
            answer = b""
            try:
                while chunk := client.recv(65536):
                    answer += chunk
            except (TimeoutError, ConnectionResetError):
                pass
        return answer

    # ---- Calls -------------------------------------------------------------------------------------------------------------------

    def test_calls(self):
        status, answer = self.call("tensor.add", {"x": tensor([1, 2]), "y": 3})
        self.assertEqual(status, 200, answer)
        self.assertEqual(floats(answer["data"]["result"]), [4, 5])
        self.assertEqual(answer["meta"]["source"], "local")
        self.assertEqual(answer["meta"]["operationId"], "tensor.add")

    def test_tensors_as_bytes(self):
        kind = "application/vnd.weft.frame"

        def frame(value, section=b""):
            text = json.dumps(value).encode()
            head = b"WEFT" + struct.pack("<IQ", 1, len(text)) + text
            return head + bytes(-len(head) % 64) + section
        value = {"x": {"$tensor": {"dtype": "f32", "shape": [3], "offset": 0}}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/operations/tensor.neg", frame(value, struct.pack("<3f", 1, 2, 3)),
                           {"Authorization": f"Bearer {SECRET}", "Content-Type": kind, "Accept": kind})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        self.assertEqual((response.status, response.getheader("Content-Type"), body[:4]), (200, kind, b"WEFT"))
        length = struct.unpack_from("<Q", body, 8)[0]
        answer = json.loads(body[16:16 + length])["data"]["result"]["$tensor"]
        section = body[(16 + length + 63) // 64 * 64:]
        self.assertEqual(struct.unpack_from("<3f", section, answer["offset"]), (-1, -2, -3))
        # In as bytes, out as JSON; and what is damaged.
        status, answer = self.call("tensor.neg", frame(value, struct.pack("<3f", 1, 2, 3)), headers={"Content-Type": kind})
        self.assertEqual((status, floats(answer["data"]["result"])), (200, [-1, -2, -3]))
        for damaged in (b"", b"WEFT", b"{}", frame(value), frame(value, b"12345678901"), frame(value)[:20], frame({"x": {"$tensor": {"dtype": "f32", "shape": [3], "offset": 2 ** 63}}}, b"x" * 64)):
            status, answer = self.call("tensor.neg", damaged, headers={"Content-Type": kind})
            self.assertEqual((status, answer["error"]["code"]), (400, "VALIDATION_ERROR"), damaged)

    def test_mcp_over_http(self):
        def message(method, id=1, session=None, token=SECRET, headers=(), **params):
            body = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": id} if id else {})}
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("POST", "/mcp", json.dumps(body), {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream",
                                                                  **({"Mcp-Session-Id": session} if session else {}), **dict(headers)})
            response = connection.getresponse()
            text = response.read().decode()
            connection.close()
            return response.status, response.getheader("Mcp-Session-Id"), text
        start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        status, session, text = message("initialize", **start)
        self.assertEqual((status, json.loads(text)["result"]["serverInfo"]["name"]), (200, "weft"))
        self.assertEqual(message("notifications/initialized", id=None, session=session)[0], 202)
        self.assertEqual(len(json.loads(message("tools/list", session=session)[2])["result"]["tools"]), 100)
        status, _, text = message("tools/call", session=session, name="tensor.add", arguments={"x": tensor([1]), "y": 2})
        self.assertEqual(status, 200)
        self.assertIn("event: message\ndata: ", text)
        self.assertFalse(json.loads(text.split("data: ", 1)[1])["result"]["isError"])
        held = json.loads(message("tools/call", session=session, name="handle.create", arguments={"tensor": tensor([1])})[2].split("data: ", 1)[1])
        self.assertIn("handle", held["result"]["structuredContent"])
        self.assertEqual(message("ping")[0], 400, "without a session")
        self.assertEqual(message("ping", session="none")[0], 404)
        self.assertEqual(message("ping", session=session, token=OTHER)[0], 404, "the session of another")
        self.assertEqual(message("ping", session=session, token="x" * 20)[0], 401)
        self.assertEqual(message("ping", session=session, headers={"Origin": "http://elsewhere.example"})[0], 403)
        self.assertEqual(message("ping", session=session, headers={"MCP-Protocol-Version": "1999-01-01"})[0], 400)
        self.assertEqual(self.ask("GET", "/mcp")[0], 406)
        handles = len(self.call("handle.list", {})[1]["data"]["handles"])
        self.assertEqual(self.ask("DELETE", "/mcp", token=OTHER, headers={"Mcp-Session-Id": session})[0], 404)
        self.assertEqual(self.ask("DELETE", "/mcp", headers={"Mcp-Session-Id": session})[0], 200)
        self.assertEqual(message("ping", session=session)[0], 404)
        self.assertEqual(len(self.call("handle.list", {})[1]["data"]["handles"]), handles - 1, "a session that has ended frees its tensors")

    def test_lists_and_describes(self):
        status, answer = self.ask("GET", "/v1/operations")
        self.assertEqual(status, 200)
        self.assertGreater(len(answer["operations"]), 150)
        status, answer = self.ask("GET", "/v1/operations/tensor.softmax")
        self.assertEqual((status, answer["name"]), (200, "softmax"))
        self.assertEqual(self.ask("GET", "/health", token=None), (200, {"status": "ok"}))
        self.assertEqual(self.ask("GET", "/v1/operations/nothing.here")[0], 404)
        self.assertEqual(self.ask("GET", "/nothing")[0], 404)
        self.assertEqual(self.ask("PUT", "/v1/operations/tensor.softmax", {})[0], 405)

    def test_describes_itself(self):
        status, answer = self.ask("GET", "/openapi.json")
        self.assertEqual((status, answer["openapi"]), (200, "3.1.0"))
        self.assertIn("post", answer["paths"]["/v1/operations/tensor.softmax"])

    def test_errors(self):
        for name, value, status, code in [
                ("nothing.here", {}, 404, "OPERATION_NOT_FOUND"), ("tensor.softmax", {}, 400, "VALIDATION_ERROR"),
                ("tensor.softmax", {"x": 1, "axis": 9}, 422, "SHAPE_ERROR"), ("tensor.softmax", "{", 400, "VALIDATION_ERROR"),
                ("tensor.softmax", b"\xff", 400, "VALIDATION_ERROR"), ("tensor.softmax", "[" * 100, 400, "VALIDATION_ERROR"),
                ("tensor.expand", {"x": 1, "shape": [1 << 40]}, 413, "TENSOR_TOO_LARGE"),
                ("handle.read", {"handle": "t-0"}, 404, "HANDLE_NOT_FOUND"), ("weights.list", {"path": "/etc/passwd"}, 403, "ACCESS_DENIED"),
                ("training.observe", {"run": "run-99"}, 200, None)]:
            got, answer = self.call(name, value)
            self.assertEqual(got, status, (name, answer))
            if code:
                self.assertEqual(answer["error"]["code"], code)
        self.assertEqual(self.call("tensor.neg", "[" + "1," * 1_000_000 + "1]")[0], 400, "too many values")
        self.assertEqual(self.call("tensor.neg", "{}", headers={"Content-Type": "text/plain"})[0], 415)
        for header, value in [("Weft-Timeout", "x"), ("Weft-Timeout", "-1"), ("Weft-Timeout", "nan"), ("Weft-Tensors", "both"), ("Weft-Request-Id", "x" * 101)]:
            self.assertEqual(self.call("tensor.neg", {"x": 1}, headers={header: value})[0], 400, header)

    def test_handles(self):
        status, answer = self.call("tensor.add", {"x": tensor([1, 2]), "y": 3}, headers={"Weft-Tensors": "handles"})
        held = answer["data"]["result"]["$tensor"]
        self.assertEqual((held["dtype"], held["shape"]), ("f32", [2]))
        handle = {"$tensor": {"handle": held["handle"]}}
        self.assertEqual(floats(self.call("tensor.neg", {"x": handle})[1]["data"]["result"]), [-4, -5])
        self.assertEqual(self.call("tensor.neg", {"x": handle}, token=OTHER)[0], 400, "the handle of another")
        self.assertEqual(self.call("handle.free", {"handle": held["handle"]}, token=OTHER)[0], 404)
        self.assertEqual(self.call("handle.free", {"handle": held["handle"]})[0], 200)
        self.assertEqual(self.call("tensor.neg", {"x": handle})[0], 400)

    def test_handles_and_sessions_are_deleted(self):
        def hold(session=None, token=SECRET):
            headers = {"Weft-Tensors": "handles"} | ({"Weft-Session": session} if session else {})
            return self.call("tensor.add", {"x": tensor([1, 2]), "y": 3}, headers=headers, token=token)[1]["data"]["result"]["$tensor"]["handle"]

        is_held = lambda handle, token=SECRET: self.call("handle.read", {"handle": handle}, token=token)[0] == 200
        one, first, second, others = hold(), hold("a"), hold("b"), hold("a", OTHER)
        self.assertEqual(self.ask("DELETE", f"/v1/handles/{one}", token=OTHER)[0], 404, "the handle of another")
        self.assertEqual(self.ask("DELETE", f"/v1/handles/{one}", token=None)[0], 401)
        self.assertTrue(is_held(one))
        self.assertEqual(self.ask("DELETE", f"/v1/handles/{one}")[0], 200)
        self.assertFalse(is_held(one))
        self.assertEqual(self.ask("DELETE", f"/v1/handles/{one}")[0], 404)
        made = self.call("handle.create", {"tensor": tensor([1])}, headers={"Weft-Session": "a"})[1]["data"]["handle"]
        self.assertEqual(self.ask("DELETE", "/v1/sessions/a")[0], 200)
        self.assertEqual([is_held(each) for each in (first, made, second)], [False, False, True])
        self.assertTrue(is_held(others, OTHER), "another's session of the same name")
        self.assertEqual(self.call("tensor.add", {"x": 1, "y": 3}, headers={"Weft-Session": "x" * 101})[0], 400)

    # ---- Access --------------------------------------------------------------------------------------------------------------------

    def test_nobody_gets_in_without_the_right(self):
        refused = 0
        operations = [o["namespace"] + "." + o["name"] for o in self.ask("GET", "/v1/operations")[1]["operations"]]
        some = [o for o in operations if not o.startswith("tensor.")] + ["tensor.neg", "tensor.matmul"]
        for name in some:
            value = {"model": "m", "path": "p", "run": "r", "handle": "h", "x": 1}
            for token in (None, "", "x", SECRET + "x", SECRET[:-1], SECRET.upper(), WEAK + ".", "null"):
                for method, path in (("POST", f"/v1/operations/{name}"), ("GET", f"/v1/operations/{name}")):
                    status, answer = self.ask(method, path, value if method == "POST" else None, token=None,
                                              headers={"Authorization": f"Bearer {token}"} if token is not None else {})
                    self.assertEqual((status, answer["error"]["code"]), (401, "UNAUTHENTICATED"), (name, token))
                    refused += 1
            if name not in ("model.list", "speech.list", "vision.list", "encoder.list"):  # open to all who have a token; they list what they may see
                status, answer = self.call(name, value, token=WEAK)
                if status == 200:  # a stream has begun
                    self.assertIn("ACCESS_DENIED", answer, name)
                else:
                    self.assertEqual((status, answer["error"]["code"]), (403, "ACCESS_DENIED"), name)
                refused += 1
        for scheme in ("Basic " + SECRET, SECRET, "Bearer", "Bearer\t" + SECRET, "Token " + SECRET):
            self.assertEqual(self.ask("GET", "/v1/operations", token=None, headers={"Authorization": scheme})[0], 401, scheme)
            refused += 1
        two = f"GET /v1/operations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WEAK}\r\nAuthorization: Bearer {SECRET}\r\nConnection: close\r\n\r\n"
        self.assertTrue(self.raw(two.encode()).startswith(b"HTTP/1.1 401"))
        self.assertGreaterEqual(refused, 200)

    # ---- Streams -------------------------------------------------------------------------------------------------------------------

    def start_training(self, name, **more):
        data = pathlib.Path(self.folder.name) / "data"
        status, answer = self.call("training.start", {"data": str(data / "text.txt"), "out": str(data / name), "preset": "tiny", "log_every": 1, **more})
        self.assertEqual(status, 200, answer)
        return answer["data"]

    def test_streams_events(self):
        run = self.start_training("run", steps=5)
        status, text = self.call("training.observe", run)
        self.assertEqual(status, 200)
        events = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block and not block.startswith(":")]
        self.assertEqual(events[-1]["event"], "call.completed")
        self.assertTrue(all(e["event"] == "call.responded" for e in events[:-1]))
        kinds = [json.loads(e["data"])["data"]["event"] for e in events[:-1]]
        self.assertEqual((kinds[0], kinds[-1]), ("begin", "end"))
        status, text = self.call("tensor.neg", {"x": 1}, headers={"Accept": "text/event-stream"})
        self.assertEqual(re.findall("^event: (.*)$", text, re.M), ["call.responded", "call.completed"])
        status, text = self.call("training.observe", {"run": "none"})
        self.assertIn("event: call.error\ndata: {\"code\":\"RUN_NOT_FOUND\"", text)
        self.assertIn("event: call.error", self.call("training.observe", run, token=OTHER)[1], "the run of another")

    def test_a_deadline_and_an_abort_end_a_stream(self):
        run = self.start_training("long", seconds=600)
        try:
            start = time.monotonic()
            _, text = self.call("training.observe", run, headers={"Weft-Timeout": "0.5"})
            self.assertIn("event: call.error\ndata: {\"code\":\"TIMEOUT\"", text)
            self.assertLess(time.monotonic() - start, 30)
            answers = []
            watcher = threading.Thread(target=lambda: answers.append(self.call("training.observe", run, headers={"Weft-Request-Id": "watch"})))
            watcher.start()
            for _ in range(200):
                status, answer = self.ask("DELETE", "/v1/calls/owner/watch")
                if status == 200:
                    break
                self.assertEqual(self.ask("DELETE", "/v1/calls/owner/watch", token=OTHER)[0], 404)
                time.sleep(0.02)
            watcher.join(30)
            self.assertIn("event: call.aborted", answers[0][1])
            # A client that leaves: its call ends, so the same request id is free again.
            head = (f"POST /v1/operations/training.observe HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: application/json\r\n"
                    f"Weft-Request-Id: leaver\r\nContent-Length: {len(json.dumps(run))}\r\n\r\n{json.dumps(run)}")
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
                client.sendall(head.encode())
                self.assertIn(b"200 OK", client.recv(4096))
            for _ in range(200):
                if self.ask("DELETE", "/v1/calls/owner/leaver")[0] == 404:
                    break
                time.sleep(0.05)
            else:
                self.fail("the call of a client that has left goes on")
        finally:
            self.call("training.stop", run)

    def test_models_are_resources(self):
        folder = pathlib.Path(self.folder.name) / "tiny"
        tiny_model.put_model(folder)
        self.assertEqual(self.call("model.load", {"path": str(folder), "model": "tiny"}, token=OTHER)[0], 403)
        self.assertEqual(self.call("model.load", {"path": str(folder), "model": "tiny"})[0], 200)
        self.assertEqual(self.call("model.load", {"path": str(folder), "model": "tiny"})[0], 409)
        self.assertEqual(self.call("model.list", {})[1]["data"], {"models": ["first", "tiny"]})
        self.assertEqual(self.call("model.list", {}, token=OTHER)[1]["data"], {"models": []}, "it may not see it")
        self.assertEqual(self.call("model.tokenize", {"model": "tiny", "text": "w1 w2"}, token=OTHER)[0], 403)
        tokens = self.call("model.tokenize", {"model": "tiny", "text": "w1 w2"})[1]["data"]["tokens"]
        self.assertEqual(len(tokens), 2)
        self.assertEqual(self.call("model.detokenize", {"model": "tiny", "tokens": tokens})[1]["data"]["text"].split(), ["w1", "w2"])
        self.assertTrue(self.call("model.describe", {"model": "tiny"})[1]["data"]["chats"])
        said = []
        for name, more in (("model.generate", {"prompt": "w1 w2"}), ("model.generate", {"prompt": "w1 w2"}), ("model.chat", {"messages": [{"role": "user", "content": "w3"}]})):
            status, text = self.call(name, {"model": "tiny", "max_tokens": 8, "temperature": 0, **more})
            answers = [json.loads(line)["data"] for line in re.findall(r"^event: call.responded\ndata: (.*)$", text, re.M)]
            self.assertEqual((answers[-1]["finish"], answers[-1]["tokens"]), ("length", 8), text)
            self.assertIn("event: call.completed", text)
            said.append("".join(a["text"] for a in answers))
        self.assertEqual(said[0], said[1])
        self.assertIn("event: call.error", self.call("model.generate", {"model": "tiny", "prompt": "w1"}, token=WEAK)[1])
        self.assertEqual(self.call("model.unload", {"model": "tiny"})[0], 200)
        self.assertEqual(self.call("model.tokenize", {"model": "tiny", "text": "w1"})[0], 404)

    # ---- Hostile clients -------------------------------------------------------------------------------------------------------------

    def test_refuses_what_is_not_http(self):
        auth = f"Authorization: Bearer {SECRET}\r\n"
        for request, status in [
                (b"\x16\x03\x01\x00\x00garbage\r\n\r\n", b"400"), (b"GET / HTTP/9.9\r\n\r\n", b"400"), (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
                (b"GET / HTTP/1.1\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
                (f"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(), b"400"),
                (f"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: 4\r\nContent-Length: 5\r\n\r\n{{}}".encode(), b"400"),
                (f"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: -1\r\n\r\n".encode(), b"400"),
                (f"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\n{auth}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(), b"400"),
                (f"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\n{auth}Content-Length: 99999999999\r\n\r\n".encode(), b"413"),
                (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40000 + b"\r\n\r\n", b"431")]:
            answer = self.raw(request)
            self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), (request[:120], answer[:200]))
        # The body of a caller without a token is not waited for.
        self.assertTrue(self.raw(b"POST /v1/operations/tensor.neg HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").startswith(b"HTTP/1.1 401"))
        self.assertEqual(self.call("tensor.neg", {"x": 1})[0], 200, "it still serves")

    def test_paths_are_only_names(self):
        for path in ("/v1/operations/../../etc/passwd", "/v1/operations/%2e%2e", "/v1/operations/", "/v1/operations//", "/v1/operations/tensor.neg/", "//health",
                     "/v1/operations/tensor.neg%00", "/V1/operations", "/v1/calls/", "/v1/calls/owner/none"):
            self.assertIn(self.ask("GET", path)[0], (404, 405), path)

    def test_survives_mutated_requests(self):
        body = json.dumps({"x": tensor([1, 2]), "y": 3})
        request = (f"POST /v1/operations/tensor.add HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: application/json\r\n"
                   f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()
        seed = 12345
        for i in range(300):
            data = bytearray(request)
            for _ in range(1 + i % 3):
                seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
                data[(seed >> 33) % len(data)] = (seed >> 20) & 0xFF
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)  # so that nobody waits for the rest of a body
                try:
                    while client.recv(65536):
                        pass
                except (TimeoutError, ConnectionResetError):
                    pass
        self.assertEqual(self.call("tensor.neg", {"x": 1})[0], 200, "it still serves")

    def test_more_connections_than_it_takes(self):
        clients = []
        try:
            for _ in range(300):
                clients.append(socket.create_connection(("127.0.0.1", self.port), timeout=10))
            self.assertEqual(clients[0].recv(100), b"", "it has waited the longest for a request")
            self.assertEqual(self.call("tensor.neg", {"x": 1})[0], 200, "another takes its place")
        finally:
            for client in clients:
                client.close()
        for _ in range(100):
            try:
                if self.call("tensor.neg", {"x": 1})[0] == 200:
                    break
            except (ConnectionError, http.client.HTTPException, OSError):
                pass
            time.sleep(0.1)
        else:
            self.fail("the places of clients that have left are not free again")

    def test_the_kernel_asks_whether_silent_clients_live(self):
        timer = None
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b"200 OK", client.recv(4096))
            ends = f":{self.port:04X}", f":{client.getsockname()[1]:04X}"
            for _ in range(100):
                for fields in map(str.split, pathlib.Path("/proc/net/tcp").read_text().splitlines()):
                    if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                        timer = fields[5][:2]
                if timer == "02":  # of keep-alive
                    break
                time.sleep(0.02)
        self.assertEqual(timer, "02")

    def test_many_clients_at_once(self):
        results = []

        def work(k):
            for i in range(25):
                status, answer = self.call("tensor.add", {"x": tensor([k, i]), "y": 1})
                results.append(status == 200 and floats(answer["data"]["result"]) == [k + 1, i + 1])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 200)


class Tls(unittest.TestCase):
    def start(self, folder, *arguments):
        with open(folder / "log", "w+") as log:
            process = subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu",
                                        "--certificate", folder / "certificate.pem", "--key", folder / "key.pem", *arguments],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self.addCleanup(lambda: (process.terminate(), self.assertEqual(process.wait(30), 0)))
        for _ in range(600):
            if found := re.search(r"on (https://127.0.0.1:\d+)\n", (folder / "log").read_text()):
                return found[1]
            time.sleep(0.05)
        self.fail((folder / "log").read_text())

    def test_https_with_and_without_certificates_of_clients(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        (folder / "tokens.json").write_text(json.dumps({"tokens": [{"token": SECRET, "id": "owner", "scopes": ["*"]}]}))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem"],
                       check=True, capture_output=True, cwd=folder)
        pem, key = folder / "certificate.pem", folder / "key.pem"

        def curl(url, *arguments):
            return subprocess.run(["curl", "-sS", "--max-time", "30", "-H", f"Authorization: Bearer {SECRET}", *arguments, url], capture_output=True, text=True)

        url = self.start(folder)
        run = curl(f"{url}/v1/operations/tensor.add", "--cacert", pem, "-H", "Content-Type: application/json", "-d", '{"x": 2, "y": 3}')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout)["meta"]["operationId"], "tensor.add")
        self.assertEqual(curl(f"{url}/health").returncode, 60, "a certificate that nobody knows")
        self.assertNotEqual(curl(f"http{url[5:]}/health").returncode, 0, "without TLS")
        self.assertNotEqual(curl(f"{url}/health", "--cacert", pem, "--tls-max", "1.1").returncode, 0)
        # Several requests of one connection, and a body of 8 MB.
        connection = http.client.HTTPSConnection(url[8:], context=ssl.create_default_context(cafile=pem), timeout=60)
        x = tensor([1.0] * (2 << 20))
        for _ in range(3):
            connection.request("POST", "/v1/operations/tensor.neg", json.dumps({"x": x}), {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            self.assertEqual(floats(json.loads(answer.read())["data"]["result"])[:2], [-1, -1])
        connection.close()
        # Clients that say nothing, or nonsense, hold nothing up.
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as wrong:
            wrong.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            self.assertEqual(curl(f"{url}/health", "--cacert", pem).stdout, '{"status":"ok"}')
            silent.close()
        # The command as a client, through MCP.
        run = subprocess.run([WEFT, "operations", "call", "tensor.add", "--from", f"mcp+{url}/mcp", "--ca", pem, "--token", SECRET, "--input",
                              '{"x": 2, "y": 3}', "--device", "cpu"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        run = subprocess.run([WEFT, "operations", "list", "--from", f"mcp+{url}/mcp", "--token", SECRET], capture_output=True, text=True, timeout=60)
        self.assertIn("certificate verify failed", run.stderr)

        url = self.start(folder, "--client-ca", pem)
        self.assertNotEqual(curl(f"{url}/health", "--cacert", pem).returncode, 0, "without a certificate of its own")
        self.assertEqual(curl(f"{url}/health", "--cacert", pem, "--cert", pem, "--key", key).stdout, '{"status":"ok"}')
        (folder / "key.pem").write_text("not a key")
        run = subprocess.run([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--certificate", pem, "--key", key],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("key.pem", run.stderr)


class TokenFiles(unittest.TestCase):
    def test_refuses_wrong_files_without_showing_tokens(self):
        token = "a-token-that-nobody-may-see"
        for content in ("{", "[]", json.dumps({"tokens": [{"token": token}]}), json.dumps({"tokens": [{"token": token, "id": "a", "scope": ["x"]}]}),
                        json.dumps({"tokens": [{"token": "short", "id": "a"}]}), json.dumps({"tokens": [{"token": token, "id": "a"}, {"token": token, "id": "b"}]}),
                        json.dumps({"tokens": [{"token": token + "\n", "id": "a"}]}), json.dumps({"tokens": {token: "a"}})):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(content)
                file.flush()
                run = subprocess.run([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", file.name], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 3, (content, run.stderr))
                self.assertNotIn(token, run.stderr)
                self.assertNotIn("short", run.stderr.replace("shorter", ""))

    def test_needs_a_way_and_tokens(self):
        for arguments in ([], ["--http", "127.0.0.1:0"], ["--http", "x", "--token-file", "/dev/null"]):
            run = subprocess.run([WEFT, "operations", "serve", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, (arguments, run.stderr))


if __name__ == "__main__":
    unittest.main()
