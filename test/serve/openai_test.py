#!/usr/bin/python3
"""weft serve: openai_test.py WEFT [unittest arguments]. The API of OpenAI, with a tiny model that makes noise."""
import base64
import concurrent.futures
import json
import math
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_model  # noqa: E402
from command_server import CommandServer, ask  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
KEY, OTHER = "key-of-the-first-client", "key-from-the-file"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
              "type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}, "b": {"$ref": "#/$defs/n"}}, "required": ["a", "b"],
              "additionalProperties": False, "$defs": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}}}},
         {"type": "function", "function": {"name": "now"}}]
HELLO = [{"role": "user", "content": "hello"}]


class Process(CommandServer):
    """A server of one model."""

    def __init__(self, *options, wait=True):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name)
        self.model = tiny_model.put_byte_model(path / "tiny")
        (path / "keys").write_text(f"# clients\n\n{OTHER}\n")
        options = [option.replace("{folder}", str(path)) for option in options]
        super().__init__([WEFT, "serve", self.model, "--port", "0", "--device", "cpu", *options], path / "log",
                         r"serving \S+ on http://127\.0\.0\.1:(\d+)/v1\n" if wait else None)
        self.port = int(self.found[1]) if wait else None

    def stop(self):
        stopped = super().stop()
        self.folder.cleanup()
        return stopped

    def ask(self, method, path, body=None, key=KEY, headers=None):
        status, self.headers, answer = ask(self.port, method, path, body, key, headers)
        return status, answer


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Process("--api-key", KEY, "--api-key-file", "{folder}/keys", "--alias", "noise", "--sequences", "3", "--allow-origin", "https://page.example")

    @classmethod
    def tearDownClass(cls):
        code, text = cls.server.stop()
        assert code == 0, (code, text[-2000:])
        for secret in (KEY, OTHER, "Bearer"):
            assert secret not in text, "a key in the log"

    def post(self, path, **body):
        status, answer = self.server.ask("POST", f"/v1/{path}", body)
        self.assertEqual(status, 200, answer)
        return answer

    def chat(self, **body):
        return self.post("chat/completions", **{"model": "noise", "messages": HELLO, "max_tokens": 12, "seed": 5, **body})

    def stream(self, path, **body):
        status, text = self.server.ask("POST", f"/v1/{path}", {**body, "stream": True})
        self.assertEqual(status, 200, text)
        events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        self.assertEqual(events[-1], "[DONE]")
        return [json.loads(event) for event in events[:-1]]

    def refused(self, status, method, path, body=None, **options):
        got, answer = self.server.ask(method, path, body, **options)
        self.assertEqual(got, status, answer)
        self.assertEqual(list(answer), ["error"])
        self.assertEqual(sorted(answer["error"]), ["code", "message", "param", "type"])
        self.assertTrue(answer["error"]["message"])
        return answer["error"]

    # ---- Chats -------------------------------------------------------------------------------------------------------------------

    def test_a_chat(self):
        answer = self.chat()
        self.assertRegex(answer["id"], r"^chatcmpl-[0-9a-f]{24}$")
        self.assertEqual((answer["object"], answer["model"]), ("chat.completion", "noise"))
        [choice] = answer["choices"]
        self.assertEqual((choice["index"], choice["message"]["role"], choice["logprobs"]), (0, "assistant", None))
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        usage = answer["usage"]
        # <|start|>user\nhello<|end|>\n<|start|>assistant\n, a token for each byte.
        self.assertEqual(usage["prompt_tokens"], 1 + 5 + 5 + 1 + 1 + 1 + 10)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_the_seed_decides(self):
        text = self.chat()["choices"][0]["message"]["content"]
        self.assertEqual(self.chat()["choices"][0]["message"]["content"], text)
        self.assertNotEqual(self.chat(seed=6)["choices"][0]["message"]["content"], text)
        self.assertEqual(self.chat(temperature=0, seed=1)["choices"], self.chat(temperature=0, seed=2)["choices"])

    def test_a_stream_is_the_same_text(self):
        for extra in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 2}):
            whole = self.chat(**extra)
            chunks = self.stream("chat/completions", model="noise", messages=HELLO, max_tokens=12, seed=5, **extra)
            self.assertEqual({(c["id"], c["object"], c["created"], c["model"]) for c in chunks},
                             {(chunks[0]["id"], "chat.completion.chunk", chunks[0]["created"], "noise")})
            for i, choice in enumerate(whole["choices"]):
                own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == i]
                self.assertEqual(own[0]["delta"], {"role": "assistant", "content": ""})
                self.assertEqual("".join(c["delta"].get("content", "") for c in own), choice["message"]["content"])
                self.assertEqual([c["finish_reason"] for c in own], [None] * (len(own) - 1) + [choice["finish_reason"]])
                if extra.get("logprobs"):
                    self.assertEqual([t for c in own if c["logprobs"] for t in c["logprobs"]["content"]], choice["logprobs"]["content"])
            self.assertTrue(all("usage" not in c for c in chunks))

    def test_the_usage_of_a_stream(self):
        usage = self.chat()["usage"]
        chunks = self.stream("chat/completions", messages=HELLO, max_tokens=12, seed=5, stream_options={"include_usage": True})
        self.assertEqual(chunks[-1]["choices"], [])
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(chunks[-1]["usage"][key], usage[key])
        self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))

    def test_choices_differ_and_the_first_is_alone(self):
        alone = self.chat()["choices"][0]["message"]["content"]
        texts = [c["message"]["content"] for c in self.chat(n=5)["choices"]]
        self.assertEqual(texts[0], alone)
        self.assertEqual(len(set(texts)), 5)

    def test_probabilities(self):
        choice = self.chat(logprobs=True, top_logprobs=3, temperature=0, max_tokens=6)["choices"][0]
        self.assertEqual(len(choice["logprobs"]["content"]), 6)
        for entry in choice["logprobs"]["content"]:
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(bytes(entry["bytes"]).decode("utf-8", "replace"), entry["token"])
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
            self.assertLess(sum(math.exp(t["logprob"]) for t in entry["top_logprobs"]), 1.001)

    def test_stops_and_biases(self):
        text = self.chat(max_tokens=40)["choices"][0]["message"]["content"]
        mark = text[10:12]
        stopped = self.chat(max_tokens=40, stop=[mark])["choices"][0]
        self.assertEqual(stopped["message"]["content"], text[:text.index(mark)])
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(self.chat(logit_bias={str(ord("Q")): 100})["choices"][0]["message"]["content"], "Q" * 12)
        penalised = self.chat(logit_bias={str(ord("Q")): 4}, frequency_penalty=2, temperature=0, max_tokens=20)["choices"][0]["message"]["content"]
        plain = self.chat(logit_bias={str(ord("Q")): 4}, temperature=0, max_tokens=20)["choices"][0]["message"]["content"]
        self.assertLess(penalised.count("Q"), plain.count("Q"))

    def test_several_at_once(self):
        def ask(seed):
            return Process.ask(self.server, "POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 20, "seed": seed})[1]["choices"][0]["message"]["content"]
        alone = [ask(seed) for seed in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(ask, range(8))), alone)

    def test_messages_of_every_kind(self):
        messages = [{"role": "developer", "content": "be kind"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "2"}]
        self.chat(messages=messages)

    # ---- Structured output ---------------------------------------------------------------------------------------------------------

    def test_schemas(self):
        for seed in range(6):
            choice = self.chat(seed=seed, max_tokens=200, response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}})["choices"][0]
            person = json.loads(choice["message"]["content"])
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(list(person), ["name", "age"])
            self.assertTrue(len(person["name"]) <= 6 and 0 <= person["age"] <= 120)

    def test_any_object(self):
        finished = 0
        for seed in range(6):
            choice = self.chat(seed=seed, max_tokens=400, response_format={"type": "json_object"},
                               logit_bias={str(ord("}")): 6, str(ord('"')): 4, str(ord(",")): -5})["choices"][0]
            if choice["finish_reason"] == "stop":
                finished += 1
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
        self.assertGreater(finished, 0)

    def test_bad_schemas(self):
        for schema, words in [({"type": "strin"}, "type"), ({"not": {}}, "not"), ({"$ref": "https://example.org"}, "example.org"), ("x", "schema"), (None, "schema")]:
            error = self.refused(400, "POST", "/v1/chat/completions", {"messages": HELLO, "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertIn(words, error["message"])
            self.assertEqual(error["param"], "response_format.json_schema.schema")
        for body in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}, "text", {}):
            self.refused(400, "POST", "/v1/chat/completions", {"messages": HELLO, "response_format": body})
        self.chat()  # the server goes on

    def test_tools_that_must_be_called(self):
        for extra in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "add"}}}):
            names = set()
            for seed in range(5):
                choice = self.chat(seed=seed, tools=TOOLS, max_tokens=300, parallel_tool_calls=False, **extra)["choices"][0]
                self.assertEqual(choice["finish_reason"], "tool_calls", choice)
                self.assertIsNone(choice["message"]["content"])
                [call] = choice["message"]["tool_calls"]
                self.assertEqual(call["type"], "function")
                names.add(call["function"]["name"])
                arguments = json.loads(call["function"]["arguments"])
                if call["function"]["name"] == "add":
                    self.assertEqual(sorted(arguments), ["a", "b"])
            self.assertLessEqual(names, {"add", "now"})
            if extra["tool_choice"] != "required":
                self.assertEqual(names, {"add"})

    def test_tool_calls_of_a_stream(self):
        body = {"messages": HELLO, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}, "seed": 2, "max_tokens": 300}
        chunks = self.stream("chat/completions", **body)
        deltas = [c["choices"][0]["delta"] for c in chunks]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        # The name comes first, and then the arguments as they are written.
        self.assertEqual(calls[0]["function"], {"name": "add", "arguments": ""})
        self.assertGreater(len(calls), 2, calls)
        self.assertEqual({call["index"] for call in calls}, {0})
        self.assertEqual(sum("id" in call for call in calls), 1)
        self.assertEqual(sorted(json.loads("".join(call["function"]["arguments"] for call in calls))), ["a", "b"])
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "tool_calls")

    def respond(self, **body):
        return self.post("responses", **{"model": "noise", "input": "hello", "max_output_tokens": 12, "seed": 5, **body})

    def respond_in_events(self, **body):
        body = {"model": "noise", "input": "hello", "max_output_tokens": 12, "seed": 5, "stream": True, **body}
        status, text = self.server.ask("POST", "/v1/responses", body)
        self.assertEqual(status, 200, text)
        events = []
        for block in filter(None, text.split("\n\n")):
            name, data = block.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            self.assertEqual(name, f"event: {events[-1]['type']}")
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        return events

    def test_responses(self):
        answer = self.respond(instructions="be brief", metadata={"a": "b"})
        self.assertEqual((answer["object"], answer["status"]), ("response", "incomplete"))
        self.assertEqual(answer["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual((answer["instructions"], answer["metadata"]), ("be brief", {"a": "b"}))
        self.assertEqual(answer["usage"]["output_tokens"], 12)
        [item] = answer["output"]
        self.assertEqual((item["type"], item["role"], item["status"]), ("message", "assistant", "incomplete"))
        # The same text as from a chat with these messages.
        chat = self.chat(messages=[{"role": "system", "content": "be brief"}, *HELLO])["choices"][0]["message"]["content"]
        self.assertEqual(item["content"][0]["text"], chat)
        self.assertEqual(self.server.ask("GET", f"/v1/responses/{answer['id']}"), (200, answer))
        self.assertEqual(self.server.ask("DELETE", f"/v1/responses/{answer['id']}")[1]["deleted"], True)
        self.refused(404, "GET", f"/v1/responses/{answer['id']}")

    def test_responses_in_events(self):
        whole, events = self.respond(), self.respond_in_events()
        types = [event["type"].removeprefix("response.") for event in events]
        self.assertEqual(types[:4], ["created", "in_progress", "output_item.added", "content_part.added"])
        self.assertEqual(types[-4:], ["output_text.done", "content_part.done", "output_item.done", "incomplete"])
        text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        self.assertEqual(text, whole["output"][0]["content"][0]["text"])
        last = events[-1]["response"]
        self.assertEqual(last["output"][0]["content"], whole["output"][0]["content"])
        self.assertEqual(self.server.ask("GET", f"/v1/responses/{last['id']}"), (200, last))

    def test_responses_that_go_on(self):
        first = self.respond(instructions="be brief")
        said = first["output"][0]["content"][0]["text"]
        second = self.respond(input="again", previous_response_id=first["id"])
        # Instructions are not carried over; what was said is.
        chat = self.chat(messages=[*HELLO, {"role": "assistant", "content": said}, {"role": "user", "content": "again"}])
        self.assertEqual(second["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"])
        self.assertGreater(second["usage"]["input_tokens"], first["usage"]["input_tokens"])
        error = self.refused(404, "POST", "/v1/responses", {"input": "x", "previous_response_id": "resp_none"})
        self.assertEqual((error["param"], error["code"]), ("previous_response_id", "previous_response_not_found"))
        unkept = self.respond(store=False)
        self.refused(404, "POST", "/v1/responses", {"input": "x", "previous_response_id": unkept["id"]})

    def test_responses_with_tools(self):
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        events = self.respond_in_events(tools=tools, tool_choice={"type": "function", "name": "add"}, max_output_tokens=300)
        done = events[-1]["response"]
        [call] = done["output"]
        self.assertEqual((done["status"], call["type"], call["name"], call["status"]), ("completed", "function_call", "add", "completed"))
        pieces = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces), call["arguments"])
        self.assertEqual(sorted(json.loads(call["arguments"])), ["a", "b"])
        # What the tool said goes on the same conversation, or one that the client keeps.
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
        kept = self.respond(previous_response_id=done["id"], input=[output])
        given = self.respond(input=[{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}, call, output])
        self.assertEqual(kept["output"][0]["content"], given["output"][0]["content"])

    def test_responses_of_a_schema_behind_reasoning(self):
        mark = tiny_model.token_of("</think>")
        form = {"format": {"type": "json_schema", "name": "p", "schema": PERSON, "strict": True}}
        self.assertEqual(list(json.loads(self.respond(text=form, max_output_tokens=300)["output"][0]["content"][0]["text"])), ["name", "age"])
        for seed in range(20):
            answer = self.respond(text=form, max_output_tokens=700, seed=seed, chat_template_kwargs={"enable_thinking": True})
            if answer["status"] != "completed" or len(answer["output"]) < 2:
                continue
            reasoning, message = answer["output"]
            self.assertEqual((reasoning["type"], message["type"]), ("reasoning", "message"))
            self.assertEqual(list(json.loads(message["content"][0]["text"])), ["name", "age"])
            self.assertGreater(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
            break
        else:
            self.fail(f"no seed wrote the mark {mark}")

    def test_responses_that_are_refused(self):
        for body, param in (({}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [3]}, "input[0]"),
                            ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
                            ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
                            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
                            ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
                            ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
                            ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
                            ({"input": "x", "text": {"format": {"type": "xml"}}}, "response_format.type"),
                            ({"input": "x", "background": True}, "background"), ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
                            ({"input": "x", "instructions": 3}, "instructions")):
            with self.subTest(body=body):
                self.assertEqual(self.refused(400, "POST", "/v1/responses", body)["param"], param)
        self.refused(404, "POST", "/v1/responses", {"input": "x", "model": "gpt"})
        self.refused(405, "POST", "/v1/responses/x", {})

    def test_a_model_that_chooses_to_call(self):
        # The bias makes the mark of a call likely; what comes before is content.
        mark = str(tiny_model.token_of("<tool_call>"))
        called = 0
        for seed in range(6):
            choice = self.chat(seed=seed, tools=TOOLS, max_tokens=300, logit_bias={mark: 5})["choices"][0]
            for call in choice["message"].get("tool_calls", []):
                called += 1
                json.loads(call["function"]["arguments"])
                self.assertIn(call["function"]["name"], ("add", "now"))
        self.assertGreater(called, 0)

    def test_reasoning_comes_first(self):
        mark = str(tiny_model.token_of("</think>"))
        choice = self.chat(max_tokens=300, chat_template_kwargs={"enable_thinking": True}, logit_bias={mark: 5},
                           response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}})["choices"][0]
        self.assertEqual(list(json.loads(choice["message"]["content"])), ["name", "age"])
        self.assertIn("reasoning_content", choice["message"])

    # ---- Other routes --------------------------------------------------------------------------------------------------------------

    def test_completions(self):
        answer = self.post("completions", prompt="abc", max_tokens=8, seed=1, logprobs=2)
        self.assertEqual((answer["object"], answer["usage"]["prompt_tokens"]), ("text_completion", 3))
        [choice] = answer["choices"]
        self.assertEqual(len(choice["logprobs"]["tokens"]), answer["usage"]["completion_tokens"])
        for form in ([97, 98, 99], ["abc"], [[97, 98, 99]]):
            self.assertEqual(self.post("completions", prompt=form, max_tokens=8, seed=1)["choices"][0]["text"], choice["text"])
        self.assertEqual(self.post("completions", prompt="abc", max_tokens=8, seed=1, echo=True)["choices"][0]["text"], "abc" + choice["text"])
        several = self.post("completions", prompt=["abc", "de"], max_tokens=4, n=2)
        self.assertEqual([c["index"] for c in several["choices"]], [0, 1, 2, 3])
        chunks = self.stream("completions", prompt="abc", max_tokens=8, seed=1)
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), choice["text"])
        self.refused(400, "POST", "/v1/completions", {"prompt": ["x"] * 100, "n": 100})
        self.refused(400, "POST", "/v1/completions", {"prompt": "x", "grammar": "root ::= other"})
        self.assertEqual(self.post("completions", prompt="x", grammar='root ::= "y" [0-9]{2}', max_tokens=9)["choices"][0]["text"][0], "y")

    def test_embeddings(self):
        one = self.post("embeddings", input="abc")["data"]
        self.assertAlmostEqual(sum(x * x for x in one[0]["embedding"]), 1, 4)
        several = self.post("embeddings", input=["abc", "d"], encoding_format="base64")
        self.assertEqual(several["usage"]["prompt_tokens"], 4)
        row = struct.unpack("<32f", base64.b64decode(several["data"][0]["embedding"]))
        for x, y in zip(row, one[0]["embedding"]):
            self.assertAlmostEqual(x, y, 4)
        for form in ([97, 98, 99], [[97, 98, 99]]):
            self.assertEqual(self.post("embeddings", input=form)["data"][0]["embedding"], one[0]["embedding"])
        short = self.post("embeddings", input="abc", dimensions=4)["data"][0]["embedding"]
        self.assertAlmostEqual(sum(x * x for x in short), 1, 4)
        for body in ({}, {"input": ""}, {"input": []}, {"input": [""]}, {"input": {}}, {"input": "a", "encoding_format": "hex"}, {"input": "a", "dimensions": 1000}):
            self.refused(400, "POST", "/v1/embeddings", body)

    def test_models_health_and_metrics(self):
        self.assertEqual([m["id"] for m in self.server.ask("GET", "/v1/models")[1]["data"]], ["noise"])
        self.assertEqual(self.server.ask("GET", "/v1/models/noise")[1]["object"], "model")
        self.refused(404, "GET", "/v1/models/other")
        self.assertEqual(self.server.ask("GET", "/health", key=None), (200, {"status": "ok"}))
        self.chat()
        status, text = self.server.ask("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertRegex(text, r"# TYPE weft_generated_tokens_total counter\nweft_generated_tokens_total [1-9]")

    # ---- What is refused -----------------------------------------------------------------------------------------------------------

    def test_keys(self):
        for key in (None, "wrong", KEY[:-1], KEY + "x", ""):
            error = self.refused(401, "POST", "/v1/chat/completions", {"messages": HELLO}, key=key)
            self.assertEqual(error["type"], "authentication_error")
        self.refused(401, "GET", "/v1/models", key=None)
        self.assertEqual(self.server.ask("GET", "/v1/models", key=OTHER)[0], 200)

    def test_fields_out_of_range(self):
        bad = [{"messages": m} for m in (None, "x", [], [123], [{}], [{"role": "robot", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": 3}],
                                         [{"role": "user", "content": [{"type": "image_url"}]}])]
        for field, values in {"temperature": (-0.1, 2.1, "x"), "top_p": (-1, 1.1), "n": (0, 129, 1.5), "max_tokens": (0, -1, "5"), "max_completion_tokens": (0,),
                              "frequency_penalty": (-2.1, 2.1), "presence_penalty": (3,), "logprobs": (1,), "top_logprobs": (1, 21), "seed": (1.5, "x", 1e30),
                              "stop": (5, ["a"] * 5, [1]), "stream": ("yes",), "stream_options": ({"include_usage": True},), "tools": ("x", [{}], [{"type": "function", "function": {}}]),
                              "tool_choice": ("required", "maybe", {"type": "function", "function": {"name": "none"}}),
                              "logit_bias": ([], {"x": 1}, {"99999": 1}, {"1": 101}, {"1": "a"})}.items():
            bad += [{"messages": HELLO, field: value} for value in values]
        for body in bad:
            error = self.refused(400, "POST", "/v1/chat/completions", body)
            self.assertTrue(error["param"], body)
        for body in ("{", "[1]", '"x"', b"\xff", "", "{\"messages\": 1, \"messages\": 2}", "[" * 100000):
            self.refused(400, "POST", "/v1/chat/completions", body)
        error = self.refused(404, "POST", "/v1/chat/completions", {"messages": HELLO, "model": "gpt"})
        self.assertEqual(error["code"], "model_not_found")
        self.refused(400, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 5000}]})
        self.refused(404, "GET", "/v1/../../etc/passwd")
        self.refused(405, "GET", "/v1/chat/completions")
        self.chat(unknown_field={"x": 1}, user="somebody", store=False)

    def test_pages_of_the_allowed_site(self):
        status, _ = self.server.ask("OPTIONS", "/v1/chat/completions", key=None)
        self.assertEqual(status, 204)
        self.assertEqual(self.server.headers["Access-Control-Allow-Origin"], "https://page.example")

        self.assertEqual(self.server.ask("GET", "/v1/models", headers={"Origin": "https://page.example"})[0], 200)
        self.refused(403, "GET", "/v1/models", headers={"Origin": "https://other.example"})

    def test_a_body_that_is_too_large(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 999999999999\r\n\r\n".encode())
            answer = client.recv(10000).decode()
        self.assertIn(" 413 ", answer)
        self.assertEqual(sorted(json.loads(answer.split("\r\n\r\n")[1])["error"]), ["code", "message", "param", "type"])

    def test_a_client_that_leaves_frees_its_sequence(self):
        body = json.dumps({"messages": HELLO, "n": 3, "max_tokens": 900, "stream": True, "logit_bias": {str(tiny_model.token_of("<|end|>")): -100}})
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertIn(b"200 OK", client.recv(1000))
        client.close()
        for _ in range(200):
            text = self.server.ask("GET", "/metrics")[1]
            if "weft_texts_running 0\n" in text and not re.search(r"weft_texts_cancelled_total 0\n", text):
                return
            time.sleep(0.05)
        self.fail(text)


class Store(unittest.TestCase):
    def ask_for(self, server, **body):
        status, answer = server.ask("POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4, "seed": 5, **body})
        return status, answer

    def test_responses_outlive_the_server(self):
        with tempfile.TemporaryDirectory() as name:
            store = pathlib.Path(name) / "responses"
            first = Process("--quiet", "--store", str(store))
            _, kept = self.ask_for(first)
            _, removed = self.ask_for(first)
            _, unkept = self.ask_for(first, store=False)
            self.assertEqual(first.ask("DELETE", f"/v1/responses/{removed['id']}")[0], 200)
            # Another server may not use the folder meanwhile.
            other = Process("--quiet", "--store", str(store), wait=False)
            self.assertNotEqual(other.process.wait(60), 0)
            self.assertIn("another server keeps its responses here", other.text())
            first.process.kill()  # no time to write anything
            first.process.wait(60)
            (store / "resp_damaged.json").write_text('{"number": 3, "respon')
            (store / "resp_half.json.tmp-0123456789abcdef").write_text("{")
            second = Process("--store", str(store))
            self.assertRegex(second.text(), "resp_damaged.json: left out")
            self.assertFalse((store / "resp_half.json.tmp-0123456789abcdef").exists())
            self.assertEqual(second.ask("GET", f"/v1/responses/{kept['id']}"), (200, kept))
            for gone in (removed, unkept):
                self.assertEqual(second.ask("GET", f"/v1/responses/{gone['id']}")[0], 404)
            status, going_on = self.ask_for(second, input="again", previous_response_id=kept["id"])
            self.assertEqual(status, 200)
            self.assertGreater(going_on["usage"]["input_tokens"], kept["usage"]["input_tokens"])
            self.assertEqual({path.stat().st_mode & 0o777 for path in store.glob("resp_*.json") if "damaged" not in path.name}, {0o600})
            second.stop()

    def test_a_folder_that_cannot_be(self):
        with tempfile.TemporaryDirectory() as name:
            (pathlib.Path(name) / "file").write_text("x")
            server = Process("--quiet", "--store", f"{name}/file", wait=False)
            self.assertNotEqual(server.process.wait(60), 0)
            self.assertIn("folder of responses", server.text())


class Limits(unittest.TestCase):
    def test_a_full_queue(self):
        server = Process("--sequences", "1", "--queue", "1", "--quiet")
        body = {"messages": HELLO, "max_tokens": 700, "logit_bias": {str(tiny_model.token_of("<|end|>")): -100}}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: Process.ask(server, "POST", "/v1/chat/completions", body), range(6)))
        refused = [answer for status, answer in answers if status == 429]
        self.assertTrue(refused, [status for status, _ in answers])
        self.assertEqual({(a["error"]["type"], a["error"]["code"]) for a in refused}, {("rate_limit_error", "queue_full")})
        self.assertIn(200, [status for status, _ in answers])
        self.assertEqual(server.stop()[0], 0)

    def test_requests_under_way_end_before_the_server(self):
        server = Process("--quiet")
        body = {"messages": HELLO, "max_tokens": 600, "logit_bias": {str(tiny_model.token_of("<|end|>")): -100}}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(Process.ask, server, "POST", "/v1/chat/completions", body)
            time.sleep(0.2)
            code, _ = server.stop()
            status, json_answer = answer.result()
        self.assertEqual((code, status), (0, 200))
        self.assertEqual(json_answer["usage"]["completion_tokens"], 600)

    def test_bad_options(self):
        for options in (["--port", "99999"], ["--sequences", "0"], ["--host", "nowhere", "--port", "0"], ["--api-key", ""], ["--certificate", "x"]):
            with tempfile.TemporaryDirectory() as folder:
                model = tiny_model.put_byte_model(pathlib.Path(folder) / "m")
                run = subprocess.run([WEFT, "serve", model, "--device", "cpu", *options], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 2, (options, run.stderr))


if __name__ == "__main__":
    os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp()
    unittest.main()
