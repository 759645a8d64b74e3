#!/usr/bin/python3
"""Structured output of the operations model.generate and model.chat, by jsonschema (PyPI): over HTTP, MCP with the official client (PyPI
mcp) and gRPC: grammar_judge.py WEFT."""
import asyncio
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import jsonschema  # noqa: E402
from mcp import ClientSession  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402
from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: E402
from tiny_model import put_byte_model  # noqa: E402

WEFT, SECRET = str(pathlib.Path(sys.argv[1]).resolve()), "secret-token-of-the-owner"
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["red", "green", 3, None]}, "minItems": 2, "maxItems": 4},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[a-c]{2,3}-[0-9]$"}]},
]
GBNF = 'root ::= ("yes" | "no") " because " [a-e]{1,8} "."'
SENTENCE = r"(yes|no) because [a-e]{1,8}\."
CHAT = {"messages": [{"role": "user", "content": "Who?"}]}
INPUTS = {"model.generate": {"prompt": "It is "}, "model.chat": CHAT}


def answers_of(port, name, value):
    """The answers of a call over HTTP, or its error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", f"/v1/operations/{name}", json.dumps({"model": "noise", **value}),
                       {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"})
    text = connection.getresponse().read().decode()
    connection.close()
    if found := re.search(r"^event: call.error\ndata: (.*)$", text, re.M):
        return json.loads(found[1])
    answers = [json.loads(line)["data"] for line in re.findall(r"^event: call.responded\ndata: (.*)$", text, re.M)]
    assert answers, text
    return "".join(answer["text"] for answer in answers), answers[-1]["finish"]


def check_http(port):
    texts, whole = set(), 0
    for schema in SCHEMAS:
        validator = jsonschema.Draft202012Validator(schema)
        for name, given in INPUTS.items():
            for seed in range(6):
                text, finish = answers_of(port, name, {**given, "schema": schema, "seed": seed, "temperature": 1.5, "min_p": 0, "top_k": 0,
                                                       "top_p": 1, "max_tokens": 400})
                if finish != "length":
                    validator.validate(json.loads(text))
                    texts.add(text)
                    whole += 1
    assert whole >= 30 and len(texts) >= 15, (whole, texts)
    for name, given in INPUTS.items():
        for seed in range(6):
            text, finish = answers_of(port, name, {**given, "grammar": GBNF, "seed": seed, "temperature": 2})
            assert finish != "length" and re.fullmatch(SENTENCE, text), text
    # Anything, and behind the word what the grammar says; or nothing of it.
    after = {"prompt": "It is ", "grammar": GBNF, "grammar_after": "a", "temperature": 1.5, "max_tokens": 400}
    begun = 0
    for seed in range(12):
        text, finish = answers_of(port, "model.generate", {**after, "seed": seed})
        if finish != "length":
            assert re.fullmatch(SENTENCE, text[text.index("a") + 1:]), text
            begun += 1
    assert begun > 0
    text, finish = answers_of(port, "model.generate", {**after, "grammar_is_optional": True, "max_tokens": 2, "seed": 1, "grammar_after": "zzzz"})
    assert finish == "length", text
    # What is broken is told by name.
    for value, part in (({"grammar": "root ::= ("}, "grammar:1: "), ({"grammar": "other ::= \"a\""}, "root"),
                        ({"schema": {"type": "text"}}, "type"), ({"schema": False}, "no text fits it"),
                        ({"schema": {"pattern": "(?=a)", "type": "string"}}, "pattern"),
                        ({"schema": {}, "grammar": GBNF}, "grammar and schema are both given"),
                        ({"grammar_after": "x"}, "give grammar or schema too"),
                        ({"schema": {}, "grammar_is_optional": True}, "given without grammar_after")):
        for name, given in INPUTS.items():
            error = answers_of(port, name, {**given, **value})
            assert isinstance(error, dict) and error["code"] == "GRAMMAR_ERROR" and part in error["message"], (value, error)
    # The model goes on.
    assert answers_of(port, "model.generate", {"prompt": "a", "max_tokens": 3})[1] == "length"


async def check_mcp(port):
    client = create_mcp_http_client(headers={"Authorization": f"Bearer {SECRET}"})
    async with client, streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=client) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        done = await session.call_tool("model.generate", {"model": "noise", "prompt": "a", "grammar": GBNF, "seed": 3})
        text = "".join(answer["text"] for answer in json.loads(done.content[0].text)["answers"])
        assert re.fullmatch(SENTENCE, text), done
        refused = await session.call_tool("model.generate", {"model": "noise", "prompt": "a", "grammar": "root ::= ("})
        assert "grammar:1: " in str(refused), refused


def check_grpc(port):
    def called(value):
        return subprocess.run([WEFT, "operations", "call", "model.generate", "--from", f"grpc://127.0.0.1:{port}", "--input",
                               json.dumps({"model": "noise", "prompt": "a", "seed": 3, **value})],
                              capture_output=True, text=True, timeout=120, env={**os.environ, "WEFT_TOKEN": SECRET})

    done = called({"grammar": GBNF})
    text = "".join(re.findall(r'"text": ?"([^"]*)"', done.stdout))
    assert done.returncode == 0 and re.fullmatch(SENTENCE, text), done
    refused = called({"schema": False})
    assert refused.returncode != 0 and "GRAMMAR_ERROR" in refused.stderr, refused


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        put_byte_model(path / "noise")
        (path / "tokens.json").write_text(json.dumps({"tokens": [
            {"token": SECRET, "id": "owner", "scopes": ["*"], "resources": {"model:*": ["*"]}}]}))
        with open(path / "log", "w+") as log:
            process = subprocess.Popen([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token-file",
                                        path / "tokens.json", "--device", "cpu", "--model", f"noise={path}/noise"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
            try:
                for _ in range(600):
                    text = (path / "log").read_text()
                    web, remote = re.search(r"http://127.0.0.1:(\d+)\n", text), re.search(r"gRPC on 127.0.0.1:(\d+)\n", text)
                    if (web and remote) or process.poll() is not None:
                        break
                    time.sleep(0.05)
                assert web and remote, text
                check_http(int(web[1]))
                asyncio.run(check_mcp(int(web[1])))
                check_grpc(int(remote[1]))
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0


if __name__ == "__main__":
    main()
