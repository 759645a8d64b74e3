#!/usr/bin/python3
"""One model, defined in a script, called by everything: run.py WEFT [--text FILE] [--wheel PYTHON] [--small]

writer.ts defines a GPT, trains it and answers; `weft operations serve` offers it over HTTP, MCP, gRPC and NATS. Then come, as separate
programs: grpcurl, a gRPC client in Python, an HTTP client in Python, the official client of MCP, a second worker over NATS, and
the Python package, which reads the weights. All must give the same answers. docs/joined.md has the picture.

WEFT       the command, build/weft
--text     a text to learn from, Moby-Dick unless given
--wheel    a Python that has the package weft; without one, that part is left out
--small    a smaller model and fewer steps, for the tests
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TREE = pathlib.Path(__file__).resolve().parents[2]
JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(os.environ.get("WEFT_CACHE") or TREE / ".cache") / "judges")
sys.path.insert(0, str(JUDGES))  # the official clients, which script/setup --judges fetches

TRAINER, USER, WORKER, STRANGER = "token-of-the-trainer", "token-of-some-user", "token-of-the-second-worker", "token-of-a-stranger"
PROMPT = "the whale "


def say(text):
    print(text, flush=True)


def check(is_right, what):
    if not is_right:
        raise SystemExit(f"run.py: {what}")


# ---- The programs -----------------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def running(*command, folder, log, pattern, **environment):
    """A program, once `pattern` stands in its log: the match."""
    with open(folder / log, "w") as out:
        process = subprocess.Popen([str(each) for each in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env={**os.environ, **environment})
    try:
        until = time.monotonic() + 120
        while not (found := re.search(pattern, (folder / log).read_text(), re.S)):
            check(process.poll() is None and time.monotonic() < until, f"{command[0]} did not begin:\n{(folder / log).read_text()}")
            time.sleep(0.05)
        yield found
    finally:
        process.terminate()
        process.wait(30)
        text = (folder / log).read_text()
        check(not any(token in text for token in (TRAINER, USER, WORKER, STRANGER)), f"{log} has a token")


def writer(weft, folder, nats):
    return running(weft, "operations", "serve", "--script", TREE / "examples/joined/writer.ts", "--allow-register", "writer", "--allow-read", folder,
                   "--allow-write", folder, "--time-limit", "60", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--nats", nats,
                   "--token-file", folder / "tokens.json", "--device", "cpu", folder=folder, log="writer.log",
                   pattern=r"on http://127.0.0.1:(\d+)\n.*gRPC on 127.0.0.1:(\d+)\n.*as worker")


def reader(weft, folder, nats):
    return running(weft, "operations", "serve", "--script", TREE / "examples/joined/reader.js", "--allow-register", "reader", "--allow-operations", "writer.write",
                   "--allow-read", folder, "--from", nats, "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu",
                   folder=folder, log="reader.log", pattern=r"on http://127.0.0.1:(\d+)\n", WEFT_TOKEN=WORKER)


# ---- The clients ------------------------------------------------------------------------------------------------------------------

def over_http(port, operation, value, token):
    """The data of the answer, or the code of the error."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/operations/{operation}", json.dumps(value).encode(),
                                     {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            text = reply.read().decode()
        if text.startswith("event:"):  # what a subscription answers
            return re.findall(r'"code":\s*"(\w+)"', text)[-1]
        return json.loads(text)["data"]
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["error"]["code"]


class Grpc:
    """A client made from what the server says about itself."""
    def __init__(self, port):
        import grpc
        from google.protobuf import descriptor_pool, message_factory
        from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.request, self.methods = {}, {}
        for method in pool.FindServiceByName("weft.v1.Operations").methods:
            request, reply = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
            make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
            self.request[method.name] = request
            self.methods[method.name] = make(f"/weft.v1.Operations/{method.name}", request.SerializeToString, reply.FromString)

    def __call__(self, method, token, operation, value, tensors=b""):
        return self.methods[method](self.request[method](operation=operation, input=json.dumps(value), tensors=tensors),
                                    metadata=(("authorization", f"Bearer {token}"),), timeout=300)


def grpcurl(program, port, operation, value, token):
    ran = subprocess.run([program, "-plaintext", "-H", f"Authorization: Bearer {token}", "-d", json.dumps({"operation": operation, "input": json.dumps(value)}),
                          f"127.0.0.1:{port}", "weft.v1.Operations/Call"], capture_output=True, text=True, timeout=120, check=False)
    check(ran.returncode == 0, f"grpcurl: {ran.stderr}")
    return json.loads(json.loads(ran.stdout)["envelope"])["data"]


async def over_mcp(port, tool, value, token):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client
    from mcp.types import PaginatedRequestParams
    client = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with client, streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=client) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        cursor, names = None, set()
        while cursor or not names:  # its pages
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            names |= {each.name for each in page.tools}
            cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        check(tool in names, f"{tool} is no tool")
        answer = await session.call_tool(tool, value)
        return getattr(answer, "structured_content", None) or answer.structuredContent


# The package reads what the script wrote, and computes the same.
WITH_THE_PACKAGE = """
import json, sys
import weft
settings = json.load(open("settings.json"))
model = weft.nn.GPT(vocabulary=128, context=settings["context"], layers=settings["layers"], heads=4, width=settings["width"])
model.load("model.safetensors")
tokens = list(sys.argv[1].encode())
for _ in range(40):
    scores = model(weft.tensor([tokens[-settings["context"]:]], dtype="i32"))[0, -1]
    if len(tokens) == len(sys.argv[1]): first = scores.numpy().tobytes()
    tokens.append(int(scores.argmax(-1).item()))
print(json.dumps({"text": bytes(tokens[len(sys.argv[1]):]).decode(), "scores": first.hex()}))
"""


# ---- The story --------------------------------------------------------------------------------------------------------------------

def tell(arguments, folder):
    small = arguments.small
    settings = {"folder": str(folder), "layers": 2 if small else 4, "width": 32 if small else 96, "context": 32 if small else 64, "batch": 8 if small else 16}
    (folder / "settings.json").write_text(json.dumps(settings))
    text = pathlib.Path(arguments.text).read_text("utf-8").replace("\r\n", "\n")
    (folder / "text.txt").write_text(text[-200000:] if small else text)
    (folder / "tokens.json").write_text(json.dumps({"tokens": [
        {"token": TRAINER, "id": "trainer", "scopes": ["writer:train", "writer:run"]},
        {"token": USER, "id": "user", "scopes": ["writer:run", "reader:run"]},
        {"token": WORKER, "id": "reader", "scopes": ["writer:run"]},
        {"token": STRANGER, "id": "stranger"}]}))

    ports = folder / "ports"
    ports.mkdir()
    nats_program = shutil.which("nats-server") or "/usr/sbin/nats-server"
    weft = arguments.weft.resolve()
    with contextlib.ExitStack() as programs:
        programs.enter_context(running(nats_program, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder / "nats", "--ports_file_dir", ports,
                                       folder=folder, log="nats.log", pattern="Server is ready"))
        until = time.monotonic() + 20
        while not list(ports.glob("*.ports")) and time.monotonic() < until:
            time.sleep(0.02)
        nats = json.loads(list(ports.glob("*.ports"))[0].read_text())["nats"][0]
        http, grpc_port = programs.enter_context(writer(weft, folder, nats)).groups()
        say(f"writer.ts        a GPT of {settings['layers']} layers in the sandbox of `weft operations serve`: HTTP and MCP, gRPC, NATS")

        grpc = Grpc(grpc_port)
        steps = arguments.steps or (100 if small else 600)
        losses = [json.loads(answer.envelope)["data"] for answer in grpc("Subscribe", TRAINER, "writer.train", {"steps": steps})]
        check(losses[-1]["step"] == steps and losses[-1]["loss"] < 0.85 * losses[0]["loss"], f"the model has not learned: {losses}")
        say(f"gRPC, Python     trained it for {steps} steps; the loss fell from {losses[0]['loss']:.2f} to {losses[-1]['loss']:.2f}")

        request = {"prompt": PROMPT}
        expected = over_http(http, "writer.write", request, USER)["text"]
        check(isinstance(expected, str) and len(expected) == 40, f"writer.write: {expected}")
        say(f"HTTP, Python     {PROMPT!r} -> {expected!r}")
        check(over_http(http, "writer.write", request, STRANGER) == "ACCESS_DENIED", "a stranger may call writer.write")
        check(over_http(http, "writer.train", {"steps": 1}, USER) == "ACCESS_DENIED", "a user may train")
        check(over_http(http, "writer.write", {"prompt": 3}, USER) == "VALIDATION_ERROR", "a prompt may be a number")
        check(over_http(http, "writer.score", {"tokens": {"$tensor": {"dtype": "i32", "shape": [0], "data": ""}}}, USER) == "TOO_LONG", "no tokens were scored")
        say("HTTP, Python     without the scopes: ACCESS_DENIED; a prompt that is no text: VALIDATION_ERROR")

        tokens = struct.pack(f"<{len(PROMPT)}i", *PROMPT.encode())
        answer = grpc("Call", USER, "writer.score", {"tokens": {"$tensor": {"dtype": "i32", "shape": [len(PROMPT)], "offset": 0}}}, tokens)
        at = json.loads(answer.envelope)["data"]["scores"]["$tensor"]["offset"]
        scores = struct.unpack_from("<128f", answer.tensors, at)
        check(chr(max(range(128), key=lambda i: scores[i])) == expected[0], "the best score is not that of the character that was written")
        say(f"gRPC, Python     tokens as bytes -> {len(scores)} scores as bytes; the best is {expected[0]!r}")

        program = JUDGES / "bin" / "grpcurl"
        if program.exists():
            check(grpcurl(program, grpc_port, "writer.write", request, USER)["text"] == expected, "grpcurl has another answer")
            say("grpcurl          the same text")
        else:
            say("grpcurl          left out: there is none here")

        check(asyncio.run(over_mcp(http, "writer.write", request, USER))["text"] == expected, "the client of MCP has another answer")
        say("MCP client       the same text, from the tool writer.write")

        second = programs.enter_context(reader(weft, folder, nats)).group(1)
        review = over_http(second, "reader.review", request, USER)
        check(isinstance(review, dict) and review["text"].startswith(expected) and review["words"] > 0, f"reader.review: {review}")
        say(f"second worker    called writer.write over NATS: {review['known']} of {review['words']} words are in the book")

        if arguments.wheel:
            ran = subprocess.run([arguments.wheel, "-c", WITH_THE_PACKAGE, PROMPT], cwd=folder, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "WEFT_DEVICE": "cpu"})
            check(ran.returncode == 0, ran.stderr)
            found = json.loads(ran.stdout)
            check(found["text"] == expected, f"the Python package writes {found['text']!r}")
            mine = struct.unpack("<128f", bytes.fromhex(found["scores"]))
            check(max(abs(a - b) for a, b in zip(mine, scores)) < 1e-4, "the Python package has other scores")
            say("Python package   read model.safetensors: the same text and scores")
    say("All of them agree.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("weft", type=pathlib.Path)
    parser.add_argument("--text", default=JUDGES.parent / "data/moby-dick.txt")
    parser.add_argument("--wheel")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--small", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        tell(parser.parse_args(), pathlib.Path(folder).resolve())


if __name__ == "__main__":
    main()
