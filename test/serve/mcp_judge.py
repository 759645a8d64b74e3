#!/usr/bin/python3
"""weft operations serve --mcp, and /mcp of --http, with the official client (PyPI mcp): mcp_judge.py WEFT."""
import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
from mcp import ClientSession, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: E402
from mcp.types import PaginatedRequestParams  # noqa: E402


SECRET = "secret-token-of-the-owner"


def field(model, *names):
    """A field by its name in either generation of the client."""
    for name in names:
        if hasattr(model, name):
            return getattr(model, name)
    raise AttributeError(names)


def tensor(values):
    return {"$tensor": {"dtype": "f32", "shape": [len(values)], "data": base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()}}


def floats(value):
    data = base64.b64decode(value["$tensor"]["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


# A call of late.open adds the tool late.more.
LATE = """import { operations } from "weft";
operations.register({ namespace: "late", name: "open" }, () => {
  operations.register({ namespace: "late", name: "more" }, () => 7);
});
"""
FOLDER = tempfile.TemporaryDirectory()
SCRIPT = pathlib.Path(FOLDER.name) / "late.js"
SCRIPT.write_text(LATE)
SERVE = ["operations", "serve", "--device", "cpu", "--script", str(SCRIPT), "--allow-register", "late"]


def over_stdio():
    return stdio_client(StdioServerParameters(command=sys.argv[1], args=[*SERVE, "--mcp"]))


@contextlib.asynccontextmanager
async def over_http():
    """The same over "streamable HTTP"."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "tokens.json").write_text(json.dumps({"tokens": [{"token": SECRET, "id": "owner", "scopes": ["*"]}]}))
        with open(path / "log", "w+") as log:
            process = subprocess.Popen([sys.argv[1], *SERVE, "--http", "127.0.0.1:0", "--token-file", path / "tokens.json"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
            try:
                while not (found := re.search(r"on (http://127.0.0.1:\d+)\n", (path / "log").read_text())):
                    await asyncio.sleep(0.05)
                client = create_mcp_http_client(headers={"Authorization": f"Bearer {SECRET}"})
                async with client, streamable_http_client(f"{found[1]}/mcp", http_client=client) as streams:
                    yield streams[0], streams[1]
            finally:
                process.terminate()
                assert process.wait(30) == 0
            assert SECRET not in (path / "log").read_text(), "a token in the log"


async def check(transport):
    told = asyncio.Event()

    async def heard(message):
        if "list_changed" in str(message):
            told.set()

    async with transport() as (read, write), ClientSession(read, write, message_handler=heard) as session:
        greeting = await session.initialize()
        assert field(greeting, "server_info", "serverInfo").name == "weft", greeting
        await session.send_ping()

        # All pages of tools.
        tools, cursor, pages = [], None, 0
        while True:
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            pages += 1
            cursor = field(page, "next_cursor", "nextCursor")
            if not cursor:
                break
        names = [tool.name for tool in tools]
        assert pages > 1 and len(names) == len(set(names)) > 150, (pages, len(names))
        assert {"tensor.matmul", "handle.create", "training.start", "model.generate"} <= set(names)

        # The client checks structured content against the tool's output schema.
        answer = await session.call_tool("tensor.add", {"x": tensor([1, 2]), "y": 3})
        assert not field(answer, "is_error", "isError"), answer
        content = field(answer, "structured_content", "structuredContent")
        assert floats(content["result"]) == [4, 5], content
        assert answer.content[0].type == "text"

        # A handle is held while the client lives.
        made = await session.call_tool("handle.create", {"tensor": tensor([1, 2, 3])})
        handle = field(made, "structured_content", "structuredContent")["handle"]
        answer = await session.call_tool("tensor.neg", {"x": {"$tensor": {"handle": handle}}})
        assert floats(field(answer, "structured_content", "structuredContent")["result"]) == [-1, -2, -3]

        # Errors are results, so that a model can read them.
        for name, arguments, code in [("tensor.matmul", {"a": tensor([1]), "b": 1}, "SHAPE_ERROR"), ("tensor.neg", {"y": 1}, "VALIDATION_ERROR"),
                                      ("weights.list", {"path": "/etc/passwd"}, "ACCESS_DENIED"), ("handle.read", {"handle": "t-0"}, "HANDLE_NOT_FOUND")]:
            answer = await session.call_tool(name, arguments)
            assert field(answer, "is_error", "isError") and code in answer.content[0].text, (name, answer)
        try:
            await session.call_tool("nothing.here", {})
        except Exception as error:
            assert "there is no tool" in str(error), error
        else:
            raise AssertionError("an unknown tool was called")

        # A subscription gives all its answers, and an error of its own.
        answer = await session.call_tool("training.observe", {"run": "none"})
        assert field(answer, "is_error", "isError") and "RUN_NOT_FOUND" in answer.content[0].text

        # Many at once.
        answers = await asyncio.gather(*(session.call_tool("tensor.add", {"x": tensor([i]), "y": 1}) for i in range(30)))
        assert [floats(field(a, "structured_content", "structuredContent")["result"]) for a in answers] == [[i + 1] for i in range(30)]

        # The list of tools changes while the client is there.
        assert "late.more" not in names and not told.is_set()
        await session.call_tool("late.open", {})
        await asyncio.wait_for(told.wait(), 30)
        answer = await session.call_tool("late.more", {})
        assert field(answer, "structured_content", "structuredContent") == {"data": 7}, answer
    print(f"{len(names)} tools in {pages} pages")


for each in (over_stdio, over_http):
    asyncio.run(asyncio.wait_for(check(each), 120))
