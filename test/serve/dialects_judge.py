#!/usr/bin/python3
"""weft serve with the official clients of Anthropic and Ollama (PyPI anthropic and ollama): dialects_judge.py WEFT."""
import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import anthropic  # noqa: E402
import ollama  # noqa: E402
import pydantic  # noqa: E402
import tiny_model  # noqa: E402
import vision_model  # noqa: E402

HELLO = [{"role": "user", "content": "hello"}]


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    age: int


@anthropic.beta_tool
def add(a: int, b: int) -> str:
    """Adds.

    Args:
        a: one number
        b: another one
    """
    return str(a + b)


def product(a: int, b: int) -> int:
    """Multiplies.

    Args:
        a: one number
        b: another one
    """
    return a * b


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([sys.argv[1], "serve", model, "--port", "0", "--device", "cpu", "--api-key", "the-key", "--quiet"],
                                        stderr=subprocess.PIPE, text=True)
        while not (found := re.search(r"serving \S+ on (\S+)/v1", self.process.stderr.readline())):
            assert self.process.poll() is None
        self.url = found[1]

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0


def check_anthropic(url):
    client = anthropic.Anthropic(base_url=url, api_key="the-key", max_retries=0)
    assert [model.id for model in client.models.list()] == ["noise"] and client.models.retrieve("noise").display_name == "noise"
    settings = {"model": "noise", "max_tokens": 40, "messages": HELLO, "extra_body": {"seed": 3}}
    plain = client.messages.create(**settings)
    counted = client.messages.count_tokens(model="noise", messages=HELLO).input_tokens
    assert plain.usage.input_tokens + plain.usage.cache_read_input_tokens == counted, (plain.usage, counted)
    with client.messages.stream(**settings) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == plain.content[0].text == final.content[0].text and final.stop_reason == plain.stop_reason, (text, plain)
    assert final.usage.output_tokens == plain.usage.output_tokens, (final.usage, plain.usage)
    assert isinstance(client.messages.parse(**settings | {"max_tokens": 600}, output_format=Person).parsed_output, Person)
    # The runner asks for a conversation that the server holds, and goes on without one; it calls the function and sends its result.
    for params in ({}, {"stream": True}):
        runner = client.beta.messages.tool_runner(**settings | {"max_tokens": 300}, tools=[add], tool_choice={"type": "any"}, max_iterations=2, **params)
        turns = [turn.get_final_message() if params else turn for turn in runner]
        calls = [block for turn in turns for block in turn.content if block.type == "tool_use"]
        assert len(turns) == 2 and all(isinstance(call.input["a"], int) for call in calls if turns[0].stop_reason == "tool_use"), turns
    for bad, error in (({"model": "claude"}, anthropic.NotFoundError), ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError)):
        try:
            client.messages.create(**settings | bad)
            raise AssertionError(f"{bad} was taken")
        except error as refused:
            assert refused.body["type"] == "error", refused.body
    try:
        anthropic.Anthropic(base_url=url, api_key="another", max_retries=0).messages.create(**settings)
        raise AssertionError("a wrong key was taken")
    except anthropic.AuthenticationError:
        pass


def check_ollama(url):
    client = ollama.Client(host=url, headers={"Authorization": "Bearer the-key"})
    [listed], [running] = client.list().models, client.ps().models
    assert listed.model == running.model == "noise:latest" and listed.size == running.size > 0, (listed, running)
    assert client.show(listed.model).capabilities == ["completion", "tools", "thinking"]
    options = {"num_predict": 30, "seed": 3}
    whole = client.chat(listed.model, HELLO, options=options)
    pieces = list(client.chat(listed.model, HELLO, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content and pieces[-1].eval_count == whole.eval_count, whole
    assert client.generate("noise", "hello", options=options).response == whole.message.content
    assert Person.model_validate_json(client.chat("noise", HELLO, format=Person.model_json_schema(), options={"seed": 3}).message.content)
    objects = [client.generate("noise", "hello", format="json", options={"seed": seed, "num_predict": 300}) for seed in range(8)]
    ended = [json.loads(answer.response) for answer in objects if answer.done_reason == "stop"]
    assert ended and all(isinstance(each, dict) for each in ended), objects
    assert client.chat("noise", HELLO, tools=[product], options=options).done
    probable = client.chat("noise", HELLO, logprobs=True, top_logprobs=2, options={"num_predict": 3})
    assert len(probable.logprobs) == 3 and all(len(each.top_logprobs) == 2 for each in probable.logprobs), probable
    assert [len(row) for row in client.embed("noise", ["a", "b"]).embeddings] == [32, 32] and len(client.embeddings("noise", "a").embedding) == 32
    assert [step.status for step in client.pull("noise", stream=True)] == ["success"]
    try:
        client.chat("llama3", HELLO)
        raise AssertionError("another model was taken")
    except ollama.ResponseError as refused:
        assert refused.status_code == 404 and "llama3" in refused.error, refused


def check_images(folder):
    """A model that sees says what transformers made it say."""
    case = vision_model.put_vision_model("llava", folder / "llava")
    chat = next(chat for chat in case["chats"] if sum(len([p for p in m["content"] if p["type"] == "image"]) for m in chat["messages"]) == 1 and len(chat["messages"]) == 1)
    image = vision_model.png_of(case["images"][0])
    [message] = chat["messages"]
    text = "".join(part.get("text", "") for part in message["content"])
    expected, most = vision_model.text_of(case, chat["greedy"]), len(chat["greedy"])
    with Server(folder / "llava") as url:
        client = ollama.Client(host=url, headers={"Authorization": "Bearer the-key"})
        seen = client.chat("llava", [{"role": "user", "content": text, "images": [image]}], options={"temperature": 0, "num_predict": most, "repeat_penalty": 1})
        assert seen.message.content == expected, (seen, expected)
        blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(image).decode()}}, {"type": "text", "text": text}]
        answer = anthropic.Anthropic(base_url=url, api_key="the-key", max_retries=0).messages.create(
            model="llava", max_tokens=most, extra_body={"temperature": 0}, messages=[{"role": "user", "content": blocks}])
        assert answer.content[0].text == expected, (answer, expected)


with tempfile.TemporaryDirectory() as place:
    with Server(tiny_model.put_byte_model(pathlib.Path(place) / "noise")) as address:
        check_anthropic(address)
        check_ollama(address)
    check_images(pathlib.Path(place))
