#!/usr/bin/python3
"""weft operations serve --mcp, line by line: mcp_test.py WEFT [unittest arguments]. What the protocol asks, and hostile clients."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()


class Mcp(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([WEFT, "operations", "serve", "--mcp", "--device", "cpu", "--allow-read", self.folder.name, "--allow-write", self.folder.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def tearDown(self):
        self.process.stdin.close()
        self.assertEqual(self.process.wait(30), 0, "it ends with its client")
        self.process.stdout.close()
        self.folder.cleanup()

    def write(self, line):
        self.process.stdin.write((line if isinstance(line, bytes) else line.encode()) + b"\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, params=None, id=1):
        self.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params is not None else {})}))
        answer = self.read()
        self.assertEqual((answer["jsonrpc"], answer["id"]), ("2.0", id))
        return answer

    def test_greets(self):
        for wanted, given in [("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")]:
            result = self.ask("initialize", {"protocolVersion": wanted, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}})["result"]
            self.assertEqual(result["protocolVersion"], given)
            self.assertIn("tools", result["capabilities"])
        self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        self.assertEqual(self.ask("ping", id="a")["result"], {})

    def test_refuses_wrong_messages(self):
        for line, code in [("{", -32700), (b"\xff", -32700), ("[" * 200, -32700), ('{"a": 1, "a": 2}', -32700), ("[]", -32600), ("3", -32600),
                           ('{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600), ('{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
                           ('{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600), ('{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', -32601),
                           ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 3}', -32602), ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602),
                           ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}', -32602),
                           ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no.tool"}}', -32602),
                           ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x"}}', -32602)]:
            self.write(line)
            self.assertEqual(self.read()["error"]["code"], code, line)
        for line in ("", '{"jsonrpc": "2.0", "method": "nothing"}', '{"jsonrpc": "2.0", "id": 7, "result": {}}', '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}'):
            self.write(line)  # without an answer
        self.assertEqual(self.ask("ping", id=8)["result"], {})

    def test_cancels_and_reports_progress(self):
        path = pathlib.Path(self.folder.name)
        (path / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
        run = self.ask("tools/call", {"name": "training.start", "arguments": {"data": str(path / "text.txt"), "out": str(path / "run"), "preset": "tiny",
                                                                              "seconds": 600, "log_every": 1}})["result"]["structuredContent"]
        self.write(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "training.observe", "arguments": run, "_meta": {"progressToken": "p"}}}))
        message = self.read()
        self.assertEqual((message["method"], message["params"]["progressToken"], message["params"]["progress"]), ("notifications/progress", "p", 1))
        self.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}))
        self.write(json.dumps({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "training.stop", "arguments": run}}))
        while (message := self.read()).get("id") != 6:
            self.assertEqual(message.get("method"), "notifications/progress", "a cancelled call has no answer")
        time.sleep(0.2)
        self.assertEqual(self.ask("ping", id=9)["result"], {})

    def test_ends_with_calls_under_way(self):
        path = pathlib.Path(self.folder.name)
        (path / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
        run = self.ask("tools/call", {"name": "training.start", "arguments": {"data": str(path / "text.txt"), "out": str(path / "run"), "preset": "tiny",
                                                                              "seconds": 600}})["result"]["structuredContent"]
        self.write(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "training.observe", "arguments": run}}))


if __name__ == "__main__":
    unittest.main()
