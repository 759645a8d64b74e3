#!/usr/bin/python3
"""weft serve with the official client (PyPI openai), and its structured output by jsonschema: openai_judge.py WEFT."""
import base64
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import wave

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import jsonschema  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
import tiny_model  # noqa: E402
import vision_model  # noqa: E402
import tiny_speech  # noqa: E402

SCHEMAS = [
    {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}, "when": {"type": "string", "format": "date-time"}, "mail": {"type": "string", "format": "email"}},
     "required": ["id", "when", "mail"], "additionalProperties": False},
    {"type": "array", "items": {"anyOf": [{"type": "integer", "multipleOf": 3, "minimum": -30, "maximum": 30}, {"type": "string", "pattern": "^[A-C]{2,4}-\\d+$", "maxLength": 8}]}, "minItems": 2, "maxItems": 5},
    {"$defs": {"tree": {"type": "object", "properties": {"v": {"enum": [1, "é", None]}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}}, "required": ["v"], "additionalProperties": False}},
     "$ref": "#/$defs/tree"},
    {"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": -1, "maximum": 2.5}}, "additionalProperties": {"type": "boolean"}, "required": ["a"], "maxProperties": 3},
]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=6)
    age: int = pydantic.Field(ge=0, le=120)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.put_byte_model(pathlib.Path(folder) / "noise")
        ears, sound = tiny_speech.put_whisper(pathlib.Path(folder) / "ears"), tiny_speech.put_sound(pathlib.Path(folder) / "a.wav", 1.5)
        throat = tiny_speech.put_voice(pathlib.Path(folder) / "throat")
        server = subprocess.Popen([sys.argv[1], "serve", model, "--transcriber", ears, "--voice", throat, "--port", "0", "--device", "cpu", "--api-key", "the-key", "--quiet"], stderr=subprocess.PIPE, text=True)
        try:
            while not (found := re.search(r"serving noise and throat and ears on (\S+)", server.stderr.readline())):
                assert server.poll() is None
            client = openai.OpenAI(base_url=found[1], api_key="the-key", max_retries=0)
            check(client)
            check_speech(client, sound)
            try:
                openai.OpenAI(base_url=found[1], api_key="another", max_retries=0).models.list()
                raise AssertionError("a wrong key was taken")
            except openai.AuthenticationError as error:
                assert error.body["type"] == "authentication_error", error.body
        finally:
            server.terminate()
            assert server.wait(60) == 0


def check_images():
    """A model that sees says what transformers made it say."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        case = vision_model.put_vision_model("llava", folder / "llava")
        server = subprocess.Popen([sys.argv[1], "serve", folder / "llava", "--port", "0", "--device", "cpu", "--quiet"], stderr=subprocess.PIPE, text=True)
        try:
            while not (found := re.search(r"serving llava on (\S+)", server.stderr.readline())):
                assert server.poll() is None
            client = openai.OpenAI(base_url=found[1], api_key="none", max_retries=0)
            for chat in case["chats"]:
                urls = ["data:image/png;base64," + base64.b64encode(vision_model.png_of(image)).decode() for image in case["images"]]
                messages = [{"role": m["role"], "content": [{"type": "image_url", "image_url": {"url": urls.pop(0)}} if part["type"] == "image" else part
                                                            for part in m["content"]]} for m in chat["messages"]]
                answer = client.chat.completions.create(model="llava", messages=messages, temperature=0, max_tokens=len(chat["greedy"]))
                assert answer.choices[0].message.content == vision_model.text_of(case, chat["greedy"]), (chat["name"], answer)
                assert answer.usage.prompt_tokens == len(chat["tokens"]), answer.usage
        finally:
            server.terminate()
            assert server.wait(60) == 0


def check_speech(client, sound):
    options = {"model": "ears", "language": "de", "temperature": 0.3}
    verbose = client.audio.transcriptions.create(**options, file=sound, response_format="verbose_json", timestamp_granularities=["segment"])
    assert verbose.language == "german" and abs(verbose.duration - 1.5) < 1e-6 and verbose.segments and verbose.segments[0].end > verbose.segments[0].start
    timed = client.audio.transcriptions.create(**options, file=sound, response_format="verbose_json", timestamp_granularities=["word"])
    assert timed.words and timed.segments is None and timed.text == verbose.text and timed.words[-1].end >= timed.words[0].start, timed
    plain = client.audio.transcriptions.create(**options, file=sound)
    assert plain.text == verbose.text, (plain, verbose)
    assert client.audio.transcriptions.create(**options, file=sound, response_format="text").strip() == verbose.text
    events = list(client.audio.transcriptions.create(**options, file=sound, stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == verbose.text, events
    assert all(event.type == "transcript.text.delta" for event in events[:-1])
    with client.audio.speech.with_streaming_response.create(model="throat", voice="alloy", input="hello there", response_format="wav") as reply:
        spoken = io.BytesIO(reply.read())
    with wave.open(spoken) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (1, 8000, 2) and file.getnframes() > 100
        frames = file.getnframes()
    raw = client.audio.speech.create(model="throat", voice="alloy", input="hello there", response_format="pcm").read()
    assert len(raw) == 2 * 3 * frames, (len(raw), frames)  # at 24 kHz
    assert isinstance(client.audio.translations.create(model="ears", file=sound).text, str)
    try:
        client.audio.transcriptions.create(model="ears", file=("a.wav", b"RIFF"))
        raise AssertionError("a broken file was taken")
    except openai.BadRequestError as error:
        assert error.body["param"] == "file", error.body


def check(client):
    messages = [{"role": "user", "content": "hello"}]
    options = {"model": "noise", "messages": messages, "seed": 3}
    assert [m.id for m in client.models.list()] == ["noise", "throat", "ears"] and client.models.retrieve("noise").owned_by == "weft"

    plain = client.chat.completions.create(**options, max_completion_tokens=20)
    text = plain.choices[0].message.content
    assert plain.usage.completion_tokens == 20, plain.usage
    streamed, usage = "", None
    for chunk in client.chat.completions.create(**options, max_completion_tokens=20, stream=True, stream_options={"include_usage": True}):
        streamed += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert streamed == text and usage.completion_tokens == 20, (streamed, text)

    entries = client.chat.completions.create(**options, max_tokens=4, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(entries) == 4 and all(len(entry.top_logprobs) == 2 for entry in entries)
    assert client.completions.create(model="noise", prompt="abc", max_tokens=5, seed=1).choices[0].text

    # The client asks for base64 itself, and for numbers where it is told to.
    packed = client.embeddings.create(model="noise", input=["abc", "d"]).data[0].embedding
    listed = client.embeddings.create(model="noise", input="abc", encoding_format="float").data[0].embedding
    assert len(packed) == 32 and max(abs(a - b) for a, b in zip(packed, listed)) < 1e-4

    person = client.chat.completions.parse(**options, response_format=Person, max_tokens=200).choices[0].message.parsed
    assert isinstance(person, Person), person
    texts = set()
    for schema in SCHEMAS:
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for seed in range(8):
            choice = client.chat.completions.create(**options | {"seed": seed}, max_tokens=900, logit_bias={str(ord('"')): 2}, response_format={
                "type": "json_schema", "json_schema": {"name": "it", "schema": schema}}).choices[0]
            if choice.finish_reason == "length":
                continue
            validator.validate(json.loads(choice.message.content))
            texts.add(choice.message.content)
    assert len(texts) > 16, texts

    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}]
    [call] = client.chat.completions.create(**options, max_tokens=200, tools=tools, tool_choice={"type": "function", "function": {"name": "add"}}).choices[0].message.tool_calls
    assert call.function.name == "add" and isinstance(json.loads(call.function.arguments)["a"], int)
    with client.chat.completions.stream(**options, max_tokens=200, tools=tools, tool_choice="required", parallel_tool_calls=False) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "add", final

    settings = {"model": "noise", "extra_body": {"seed": 3}}
    first = client.responses.create(input="hello", max_output_tokens=20, **settings)
    assert first.output_text == text and first.usage.output_tokens == 20 and first.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(input="hello", max_output_tokens=20, **settings) as stream:
        events = list(stream)
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == text == events[-1].response.output_text and events[-1].type == "response.incomplete", events[-1]
    second = client.responses.create(input="more", previous_response_id=first.id, max_output_tokens=5, **settings)
    assert second.usage.input_tokens > first.usage.input_tokens and client.responses.retrieve(second.id).output_text == second.output_text
    client.responses.delete(second.id)
    parsed = client.responses.parse(input="hello", text_format=Person, max_output_tokens=200, **settings).output_parsed
    assert isinstance(parsed, Person), parsed
    functions = [{"type": "function", "strict": False, **tool["function"]} for tool in tools]
    with client.responses.stream(input="hello", max_output_tokens=200, tools=functions, tool_choice="required", parallel_tool_calls=False, **settings) as stream:
        pieces = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        [called] = stream.get_final_response().output
    assert called.name == "add" and called.arguments == "".join(pieces) and len(pieces) > 1, called
    assert isinstance(json.loads(called.arguments)["a"], int)

    for bad, error in [({"temperature": 3}, openai.BadRequestError), ({"model": "gpt"}, openai.NotFoundError)]:
        try:
            client.chat.completions.create(**options | bad)
            raise AssertionError(f"{bad} was taken")
        except error as refused:
            assert sorted(refused.body) == ["code", "message", "param", "type"], refused.body
    print(f"{len(texts)} texts of schemas")


main()
check_images()
