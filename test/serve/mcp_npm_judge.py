#!/usr/bin/python3
"""MCP with the official SDK for Node.js (npm @modelcontextprotocol/sdk), as client and as server: mcp_npm_judge.py WEFT."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
MODULES = JUDGES.resolve() / "npm/node_modules"
NODE = shutil.which("node") or shutil.which("nodejs")
TOKEN = "a-token-of-this-test"

CLIENT = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const [weft, url, token] = process.argv.slice(2);
const transport = url ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } })
  : new StdioClientTransport({ command: weft, args: ["operations", "serve", "--mcp", "--device", "cpu"] });
const client = new Client({ name: "judge", version: "1" });
await client.connect(transport);
let cursor, names = [];
do {
  const page = await client.listTools({ cursor });
  names.push(...page.tools.map((tool) => tool.name));
  cursor = page.nextCursor;
} while (cursor);
const x = { $tensor: { dtype: "f32", shape: [1], data: Buffer.from(new Float32Array([2]).buffer).toString("base64") } };
const good = await client.callTool({ name: "tensor.add", arguments: { x, y: 3 } });
const bad = await client.callTool({ name: "tensor.add", arguments: { z: 3 } });
const many = await Promise.all([...Array(30).keys()].map((y) => client.callTool({ name: "tensor.add", arguments: { x, y } })));
const floats = (answer) => new Float32Array(new Uint8Array(Buffer.from(answer.structuredContent.result.$tensor.data, "base64")).buffer)[0];
console.log(JSON.stringify({ names, sum: floats(good), failed: bad.isError, text: bad.content[0].text, many: many.map(floats), server: client.getServerVersion().name }));
await client.close();
"""

SERVER = """
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { z } from "zod";
const server = new McpServer({ name: "npm-server", version: "1.0.0" });
server.registerTool("multiply", { description: "Multiplies.", inputSchema: { a: z.number(), b: z.number() }, outputSchema: { product: z.number() },
  annotations: { readOnlyHint: true } },
  async ({ a, b }) => ({ content: [{ type: "text", text: String(a * b) }], structuredContent: { product: a * b } }));
server.registerTool("fails", { inputSchema: {} }, async () => { throw new Error("no luck today"); });
if (process.argv[2] === "http") {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
  await server.connect(transport);
  const http = createServer((request, response) => transport.handleRequest(request, response));
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
} else {
  await server.connect(new StdioServerTransport());
}
"""


@unittest.skipUnless(MODULES.is_dir() and NODE, "Node.js or its SDK of MCP is missing: script/setup --judges")
class Npm(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "node_modules").symlink_to(MODULES)
        (self.folder / "client.mjs").write_text(CLIENT)
        (self.folder / "server.mjs").write_text(SERVER)

    def check_client(self, *place):
        run = subprocess.run([NODE, self.folder / "client.mjs", WEFT, *place], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        seen = json.loads(run.stdout)
        self.assertGreater(len(set(seen["names"])), 150)
        self.assertEqual((seen["server"], seen["sum"], seen["failed"]), ("weft", 5, True))
        self.assertIn("VALIDATION_ERROR", seen["text"])
        self.assertEqual(seen["many"], [2 + y for y in range(30)])

    def test_its_client_over_standard_input(self):
        self.check_client()

    def test_its_client_over_http(self):
        (self.folder / "tokens.json").write_text(json.dumps({"tokens": [{"token": TOKEN, "id": "me", "scopes": ["*"]}]}))
        with subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", self.folder / "tokens.json", "--device", "cpu", "--quiet"],
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                self.check_client(re.search(r"on (http://\S+)", server.stderr.readline())[1] + "/mcp", TOKEN)
            finally:
                server.terminate()

    def check_server(self, place):
        weft = lambda *arguments: subprocess.run([WEFT, "operations", *arguments, "--from", place], capture_output=True, text=True, timeout=120)
        run = weft("describe", "npm-server.multiply")
        self.assertEqual(run.returncode, 0, run.stderr)
        specification = json.loads(run.stdout)
        self.assertEqual((specification["type"], specification["description"]), ("query", "Multiplies."))
        self.assertEqual(set(specification["inputSchema"]["required"]), {"a", "b"})
        run = weft("call", "npm-server.multiply", "--input", '{"a": 6, "b": 7}')
        self.assertEqual((run.returncode, json.loads(run.stdout or "null")), (0, {"product": 42}), run.stderr)
        self.assertEqual(weft("call", "npm-server.multiply", "--input", '{"a": "6"}').returncode, 2)
        self.assertIn("TOOL_ERROR: no luck today", weft("call", "npm-server.fails").stderr)

    def test_its_server_over_standard_input(self):
        self.check_server(f"mcp+stdio:{NODE} {self.folder}/server.mjs")

    def test_its_server_over_http(self):
        # A transport of this SDK has one session, so one command is all.
        with subprocess.Popen([NODE, self.folder / "server.mjs", "http"], stdout=subprocess.PIPE, text=True) as server:
            try:
                url = server.stdout.readline().strip()
                run = subprocess.run([WEFT, "operations", "call", "npm-server.multiply", "--input", '{"a": 6, "b": 7}', "--from", f"mcp+{url}"],
                                     capture_output=True, text=True, timeout=120)
                self.assertEqual((run.returncode, json.loads(run.stdout or "null")), (0, {"product": 42}), run.stderr)
            finally:
                server.kill()


if __name__ == "__main__":
    unittest.main()
