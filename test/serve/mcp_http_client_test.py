#!/usr/bin/python3
"""The client of MCP over HTTP and servers that fail: mcp_http_client_test.py WEFT. What has not run is sent again, sessions that end begin
anew, streams that break are resumed, and no tool with an effect runs twice."""
import collections
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import time
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
TOOLS = [{"name": "t.write", "inputSchema": {"type": "object"}},
         {"name": "t.read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
         {"name": "t.set", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}}]


class Server(http.server.BaseHTTPRequestHandler):
    """Each method has a plan: what becomes of its first request, its second, ..."""
    protocol_version = "HTTP/1.1"

    @classmethod
    def begin(cls, plan):
        cls.plan = {method: collections.deque(steps) for method, steps in plan.items()}
        cls.runs, cls.seen, cls.sessions, cls.waiting = [], [], [], {}

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, text):
        """A stream of this text, whose connection then breaks."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = True

    def result_of(self, message):
        if message["method"] == "initialize":
            return {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
        if message["method"] == "tools/list":
            return {"tools": TOOLS}
        self.runs.append(message["params"]["name"])
        return {"content": [{"type": "text", "text": f"run {len(self.runs)}"}]}

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        self.seen.append((method, self.headers["Mcp-Session-Id"]))
        steps = self.plan.get(method)
        step = steps.popleft() if steps else "answer"
        if callable(step):
            return step(self, message)
        if method != "initialize" and self.headers["Mcp-Session-Id"] != self.sessions[-1]:
            return self.answer(404 if self.headers["Mcp-Session-Id"] else 400)
        if "id" not in message:
            return self.answer(202)
        if method == "initialize":
            self.sessions.append(f"session-{len(self.sessions) + 1}")
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": self.result_of(message)}).encode()
        self.answer(200, body, [("Content-Type", "application/json")] + ([("Mcp-Session-Id", self.sessions[-1])] if method == "initialize" else []))

    def do_GET(self):
        last = self.headers["Last-Event-ID"]
        self.seen.append(("GET", last))
        if last not in self.waiting:
            return self.answer(405)
        self.stream(self.waiting.pop(last))

    def do_DELETE(self):
        self.seen.append(("DELETE", self.headers["Mcp-Session-Id"]))
        self.answer(200)


def status(number, headers=(), body=b""):
    return lambda server, message: server.answer(number, body, headers)


def breaks(server, message):
    """It runs the tool, and the connection ends."""
    server.result_of(message)
    server.close_connection = True


def expires(server, message):
    server.sessions.append("another")
    server.answer(404)


def event(number, data):
    return f"id: {number}\nretry: 10\ndata: {json.dumps(data) if data else ''}\n\n"


def resumes(server, message):
    """A stream that breaks twice; the answer is behind the second resumption."""
    report = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
    result = {"jsonrpc": "2.0", "id": message["id"], "result": server.result_of(message)}
    server.waiting.update({"1": event(2, report) + "data: {\"half", "2": event(3, result)})
    server.stream(event(1, None))


def never_resumes(server, message):
    server.result_of(message)
    server.stream(event(9, None))


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        cls.place = f"mcp+http://127.0.0.1:{cls.server.server_port}/mcp"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def call(self, tool, plan, *more):
        Server.begin(plan)
        return subprocess.run([WEFT, "operations", "call", tool, "--input", "{}", "--from", self.place, *more], capture_output=True, text=True, timeout=60)

    def check_answer(self, run, text="run 1"):
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout)["content"][0]["text"], text)

    def count(self, method):
        return sum(each == method for each, _ in Server.seen)

    def test_without_failures_everything_is_sent_once(self):
        self.check_answer(self.call("t.write", {}))
        self.assertEqual([method for method, _ in Server.seen], ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"])
        self.assertEqual({session for _, session in Server.seen[1:]}, {"session-1"})

    def test_what_has_not_run_is_sent_again(self):
        busy = status(503)
        self.check_answer(self.call("t.write", {"initialize": [busy], "tools/list": [status(429, [("Retry-After", "1")]), busy], "tools/call": [busy, busy]}))
        self.assertEqual(Server.runs, ["t.write"])
        self.assertEqual((self.count("initialize"), self.count("tools/list"), self.count("tools/call")), (2, 3, 3))

    def test_attempts_have_an_end(self):
        run = self.call("t.write", {"tools/call": [status(503)] * 100})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"UNAVAILABLE: .*status 503 \(5 attempts\)")
        self.assertEqual((self.count("tools/call"), Server.runs), (5, []))
        begin = time.time()
        run = self.call("t.write", {"tools/call": [status(429, [("Retry-After", "3600")])]})
        self.assertRegex(run.stderr, "UNAVAILABLE: .*status 429; there is no time to ask again in 3600000 ms")
        self.assertLess(time.time() - begin, 20)

    def test_a_tool_with_an_effect_does_not_run_twice(self):
        for step in (breaks, status(500), status(502), never_resumes, lambda server, message: server.answer(200), lambda server, message: server.answer(200, b"{")):
            run = self.call("t.write", {"tools/call": [step]})
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stderr, "UNAVAILABLE: .*it is not known whether the call has had its effect")
            self.assertEqual(self.count("tools/call"), 1)

    def test_tools_that_may_run_twice_are_sent_again(self):
        for tool in ("t.read", "t.set"):
            self.check_answer(self.call(tool, {"tools/list": [breaks], "tools/call": [breaks, status(500)]}), "run 2")
            self.assertEqual(Server.runs, [tool] * 2)

    def test_a_session_that_has_ended_begins_anew(self):
        self.check_answer(self.call("t.write", {"tools/list": [expires], "tools/call": [expires]}))
        self.assertEqual(Server.runs, ["t.write"])
        self.assertEqual(self.count("initialize"), 3)
        self.assertTrue(all(session is None for method, session in Server.seen if method == "initialize"))
        self.assertEqual(Server.seen[-1], ("DELETE", Server.sessions[-1]))
        run = self.call("t.write", {"tools/call": [expires] * 9})
        self.assertRegex(run.stderr, "UNAVAILABLE: .*status 404")
        self.assertLess(self.count("initialize"), 5)

    def test_a_broken_stream_is_resumed(self):
        self.check_answer(self.call("t.write", {"tools/call": [resumes]}))
        self.assertEqual([last for method, last in Server.seen if method == "GET"], ["1", "2"])
        self.assertEqual(Server.runs, ["t.write"])

    def test_refusals_are_told(self):
        said = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "no such door"}}).encode()
        for step, message in ((status(400, body=said), "status 400: \"no such door\""), (status(401), "status 401; it wants a token"), (status(404), "status 404"),
                              (status(400, body=b"[" * 300), "status 400"), (status(200, [("Content-Type", "text/event-stream")]), "without an answer")):
            run = self.call("t.write", {"initialize": [step] * 9})
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stderr, f"error: .*{message}")
        run = self.call("t.write", {"initialize": [status(403)]}, "--token", "a-secret-of-this-test")
        self.assertIn("status 403; it refuses the token", run.stderr)
        self.assertNotIn("a-secret", run.stderr)
        # An error of JSON-RPC may come with a status that is not success.
        def told(server, message):
            body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "which tool?"}}
            server.answer(400, json.dumps(body).encode(), [("Content-Type", "application/json")])
        self.assertRegex(self.call("t.write", {"tools/call": [told]}).stderr, "VALIDATION_ERROR: MCP: which tool")

    def test_nobody_listens(self):
        begin = time.time()
        run = subprocess.run([WEFT, "operations", "list", "--from", "mcp+http://127.0.0.1:9/mcp"], capture_output=True, text=True, timeout=60)
        self.assertRegex(run.stderr, "cannot connect to 127.0.0.1:9.*attempts")
        self.assertLess(time.time() - begin, 20)


if __name__ == "__main__":
    unittest.main()
