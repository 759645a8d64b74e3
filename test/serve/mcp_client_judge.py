#!/usr/bin/python3
"""Tools of other MCP servers as operations: mcp_client_judge.py WEFT. The servers are those of the official Python package (PyPI mcp), over
standard input and over streamable HTTP; our own; and programs that break the protocol."""
import base64
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
PYTHON = "/usr/bin/python3"

SERVER = '''
import asyncio, sys
sys.path.insert(0, %r)
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel
server = MCPServer("Weather & more")

class Forecast(BaseModel):
    city: str
    degrees: float

@server.tool()
def forecast(city: str, days: int = 1) -> Forecast:
    """The weather of a city."""
    return Forecast(city=city, degrees=days * 1.5)

@server.tool(structured_output=False)
def shout(text: str) -> str:
    return text.upper()

@server.tool()
def fails() -> str:
    raise ValueError("nothing works today")

@server.tool()
async def waits(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@server.tool()
def big(size: int) -> str:
    return "x" * size

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run()
''' % str(JUDGES)


def operations(*arguments, place, timeout=60):
    return subprocess.run([WEFT, "operations", *arguments, "--from", place], capture_output=True, text=True, timeout=timeout)


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name) / "server.py"
        cls.program.write_text(SERVER)
        cls.place = f"mcp+stdio:{PYTHON} {cls.program}"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_tools(self, place):
        run = operations("list", "--json", place=place)
        self.assertEqual(run.returncode, 0, run.stderr)
        listed = {o["name"]: o for o in json.loads(run.stdout)["operations"]}
        self.assertEqual(set(listed), {"forecast", "shout", "fails", "waits", "big"})
        self.assertEqual({o["namespace"] for o in listed.values()}, {"Weather___more"})
        self.assertEqual(listed["forecast"]["description"], "The weather of a city.")
        self.assertEqual(listed["forecast"]["inputSchema"]["required"], ["city"])
        call = lambda name, value, *more: operations("call", f"Weather___more.{name}", "--input", json.dumps(value), *more, place=place)
        run = call("forecast", {"city": "Berlin", "days": 2})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(run.stdout), {"city": "Berlin", "degrees": 3.0})
        run = call("shout", {"text": "häh"})
        self.assertEqual(json.loads(run.stdout)["content"][0], {"type": "text", "text": "HÄH"})
        run = call("fails", {})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, "TOOL_ERROR: .*nothing works today|TOOL_ERROR: .*fails")
        run = call("forecast", {"days": 2})  # refused here, by the tool's schema
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("city", run.stderr)
        begin = time.time()
        run = call("waits", {"seconds": 60}, "--timeout", "0.5")
        self.assertIn("TIMEOUT", run.stderr)
        self.assertLess(time.time() - begin, 20)
        run = call("big", {"size": 3_000_000})
        self.assertEqual(len(json.loads(run.stdout).popitem()[1]), 3_000_000) if "result" in run.stdout[:20] else self.assertIn("x" * 100_000, run.stdout)

    def test_over_standard_input(self):
        self.check_tools(self.place)

    def test_over_http(self):
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen([PYTHON, self.program, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                for _ in range(200):
                    with socket.socket() as probe:
                        if probe.connect_ex(("127.0.0.1", port)) == 0:
                            break
                    time.sleep(0.1)
                self.check_tools(f"mcp+http://127.0.0.1:{port}/mcp")
                run = operations("list", place=f"mcp+http://127.0.0.1:{port}/nothing")
                self.assertNotEqual(run.returncode, 0)
                self.assertIn("status 404", run.stderr)
            finally:
                server.kill()

    def test_our_own_server_over_both(self):
        values = struct.pack("<2f", 1, 2)
        x = {"$tensor": {"dtype": "f32", "shape": [2], "data": base64.b64encode(values).decode()}}
        token = "a-token-of-this-test"
        tokens = pathlib.Path(self.folder.name) / "tokens.json"
        tokens.write_text(json.dumps({"tokens": [{"token": token, "id": "me", "scopes": ["*"]}]}))
        with subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", tokens, "--device", "cpu"],
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                url = re.search(r"on http://(\S+)", server.stderr.readline())[1]
                for place, more in ((f"mcp+stdio:{WEFT} operations serve --mcp --device cpu", []), (f"mcp+http://{url}/mcp", ["--token", token])):
                    run = operations("call", "tensor.add", "--input", json.dumps({"x": x, "y": 1}), "--device", "cpu", *more, place=place)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    data = base64.b64decode(json.loads(run.stdout)["result"]["$tensor"]["data"])
                    self.assertEqual(struct.unpack("<2f", data), (2, 3))
                run = operations("list", "--token", "a-wrong-token-of-nobody", place=f"mcp+http://{url}/mcp")
                self.assertIn("status 401", run.stderr)
                self.assertNotIn("a-wrong-token", run.stderr)
            finally:
                server.send_signal(signal.SIGTERM)
                server.stderr.read()

    def test_what_is_no_server_is_refused(self):
        greeting = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}})
        tools = lambda result: f"""read line; echo '{greeting}'; read line; read line; echo '{{"jsonrpc": "2.0", "id": 2, "result": {result}}}'; cat > /dev/null"""
        for command, message in ((("false"), "has ended"), ("nothing-of-this-name", "has ended"), ("echo nonsense", "has ended"),
                                 (f"""read line; echo '{greeting.replace("2025-06-18", "1999-01-01")}'; cat > /dev/null""", "speaks version"),
                                 ("head -c 70000000 /dev/zero", "more than"), (tools("{}"), "no tools"), (tools("""{"tools": []}"""), "nobody answers here")):
            with self.subTest(command=command[:80]):
                run = operations("list", place=f"mcp+stdio:{command}")
                self.assertNotIn(run.returncode, (0, -6, -11), run.stderr)
                self.assertRegex(run.stderr, message)

    def test_the_program_ends_with_the_command(self):
        mark = pathlib.Path(self.folder.name) / "pid"
        stubborn = f"echo $$ > {mark}; trap '' TERM; {PYTHON} {self.program}; sleep 1000"
        run = operations("list", place=f"mcp+stdio:{stubborn}")
        self.assertEqual(run.returncode, 0, run.stderr)
        time.sleep(0.2)
        self.assertFalse(pathlib.Path(f"/proc/{mark.read_text().strip()}").exists())


if __name__ == "__main__":
    unittest.main()
