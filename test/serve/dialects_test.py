#!/usr/bin/python3
"""weft serve: dialects_test.py WEFT [unittest arguments]. The APIs of Anthropic and Ollama, with a tiny model that makes noise."""
import http.client
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_model  # noqa: E402
from command_server import CommandServer, ask  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
KEY = "key-of-the-client"
HELLO = [{"role": "user", "content": "hello"}]
HELLO_TOKENS = 24  # <|start|>user\nhello<|end|>\n<|start|>assistant\n, a token for each byte
ADD = {"name": "add", "description": "adds", "input_schema": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"], "additionalProperties": False}}
SUB = ADD | {"name": "sub"}


def function(tool):
    return {"type": "function", "function": {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        model = tiny_model.put_byte_model(path / "noise")
        cls.server = CommandServer([WEFT, "serve", model, "--port", "0", "--device", "cpu", "--sequences", "2", "--api-key", KEY], path / "log",
                                   r"serving noise on http://127\.0\.0\.1:(\d+)/v1\n")
        cls.port = int(cls.server.found[1])

    @classmethod
    def tearDownClass(cls):
        code, text = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0 and KEY not in text, (code, text[-2000:])

    def ask(self, method, path, body=None, headers=None, token=KEY):
        status, _, answer = ask(self.port, method, path, body, token, headers)
        return status, answer

    def post(self, path, **body):
        status, answer = self.ask("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer

    # ---- Anthropic -----------------------------------------------------------------------------------------------------------

    def message(self, **body):
        return self.post("/v1/messages", **{"model": "noise", "max_tokens": 12, "seed": 5, "messages": HELLO, **body})

    def events(self, **body):
        text = self.message(**body, stream=True)
        pairs = [event.split("\n") for event in text.split("\n\n") if event]
        events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
        self.assertEqual([name.removeprefix("event: ") for name, _ in pairs], [event["type"] for event in events])
        return events

    def test_a_message(self):
        answer = self.message()
        self.assertRegex(answer["id"], r"^msg_[0-9a-f]{24}$")
        self.assertEqual((answer["type"], answer["role"], answer["model"], answer["stop_sequence"]), ("message", "assistant", "noise", None))
        [block] = answer["content"]
        self.assertEqual(block["type"], "text")
        usage = answer["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], HELLO_TOKENS)
        same = self.post("/v1/chat/completions", model="noise", messages=HELLO, max_tokens=12, seed=5)
        self.assertEqual(block["text"], same["choices"][0]["message"]["content"])
        self.assertEqual(answer["stop_reason"], {"length": "max_tokens", "stop": "end_turn"}[same["choices"][0]["finish_reason"]])

    def test_a_stream_is_the_same_message(self):
        for extra in ({}, {"tools": [ADD], "tool_choice": {"type": "any"}, "max_tokens": 300}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
            whole, events = self.message(**extra), self.events(**extra)
            self.assertEqual(events[0]["message"]["content"], [])
            self.assertEqual([e["type"] for e in events[-2:]], ["message_delta", "message_stop"])
            self.assertEqual(events[-2]["delta"], {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]})
            self.assertEqual(events[-2]["usage"]["output_tokens"], whole["usage"]["output_tokens"])
            for i, block in enumerate(whole["content"]):
                own = [e for e in events if e.get("index") == i]
                self.assertEqual((own[0]["type"], own[0]["content_block"]["type"], own[-1]["type"]), ("content_block_start", block["type"], "content_block_stop"))
                text = "".join(e["delta"][{"text": "text", "thinking": "thinking", "tool_use": "partial_json"}[block["type"]]] for e in own[1:-1])
                self.assertEqual(json.loads(text) if block["type"] == "tool_use" else text, block.get("input", block.get("text", block.get("thinking"))))

    def test_a_stop_text_is_named(self):
        answer = self.message(stop_sequences=["\u0000never", *"abcdefghijklmnopqrstuvwxyz", *" 0123456789"], max_tokens=500)
        self.assertEqual(answer["stop_reason"], "stop_sequence")
        self.assertIn(answer["stop_sequence"], "abcdefghijklmnopqrstuvwxyz 0123456789")
        self.assertNotIn(answer["stop_sequence"], answer["content"][0]["text"] if answer["content"] else "")

    def test_calls_of_tools(self):
        answer = self.message(tools=[ADD, SUB], tool_choice={"type": "tool", "name": "sub"}, max_tokens=300)
        [call] = answer["content"]
        self.assertEqual((answer["stop_reason"], call["type"], call["name"], list(call["input"])), ("tool_use", "tool_use", "sub", ["a"]))
        # The conversation goes on: what the model reads is the same as in a chat.
        going_on = HELLO + [{"role": "assistant", "content": [{"type": "text", "text": "I add."}, call]},
                            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "7"}]},
                                                         {"type": "text", "text": "And now?"}]}]
        chat = HELLO + [{"role": "assistant", "content": "I add.", "tool_calls": [{"id": call["id"], "type": "function", "function": {
                            "name": "sub", "arguments": json.dumps(call["input"])}}]},
                        {"role": "tool", "tool_call_id": call["id"], "content": "7"}, {"role": "user", "content": "And now?"}]
        counted = self.post("/v1/messages/count_tokens", model="noise", messages=going_on, tools=[ADD, SUB])
        usage = self.post("/v1/chat/completions", model="noise", messages=chat, tools=[function(ADD), function(SUB)], max_tokens=1)["usage"]
        self.assertEqual(counted, {"input_tokens": usage["prompt_tokens"]})

    def test_turns_and_beginnings(self):
        count = lambda **body: self.post("/v1/messages/count_tokens", **{"model": "noise", "messages": HELLO, **body})["input_tokens"]
        self.assertEqual(count(), HELLO_TOKENS)
        self.assertEqual(count(messages=[{"role": "user", "content": "hel"}, {"role": "user", "content": [{"type": "text", "text": "lo"}]}]), HELLO_TOKENS)
        self.assertEqual(count(messages=HELLO + [{"role": "assistant", "content": "So: "}]), HELLO_TOKENS + 4)
        self.assertEqual(count(system=[{"type": "text", "text": "be"}, {"type": "text", "text": "so"}]), count(system="be\n\nso"))
        self.assertEqual(count(system="be"), HELLO_TOKENS + len("system\nbe\n") + 2)

    def test_a_format(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        answer = self.message(output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=300)
        self.assertIsInstance(json.loads(answer["content"][0]["text"])["n"], int)

    def test_refusals(self):
        for change, status, kind, word in (
                ({"model": "claude"}, 404, "not_found_error", "claude"), ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
                ({"messages": []}, 400, "invalid_request_error", "messages"), ({"temperature": 9}, 400, "invalid_request_error", "temperature"),
                ({"messages": [{"role": "system", "content": "x"}]}, 400, "invalid_request_error", "role"),
                ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "invalid_request_error", "messages[0].content[0].type"),
                ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]}, 400, "invalid_request_error", "source"),
                ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "invalid_request_error", "tools[0].type"),
                ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "mul"}}, 400, "invalid_request_error", "mul"),
                ({"messages": HELLO + [{"role": "assistant", "content": "a"}], "thinking": {"type": "enabled"}}, 400, "invalid_request_error", "reasoning")):
            got, answer = self.ask("POST", "/v1/messages", {"model": "noise", "max_tokens": 4, "messages": HELLO, **change})
            self.assertEqual((got, answer["type"], answer["error"]["type"]), (status, "error", kind), answer)
            self.assertIn(word, answer["error"]["message"])
        # Clients read this code, and send whole conversations from then on.
        _, answer = self.ask("POST", "/v1/messages", {"model": "noise", "max_tokens": 4, "messages": HELLO, "thread": {"type": "create"}})
        self.assertEqual(answer["error"]["details"], {"error_code": "thread_unsupported_request", "unsupported": ["thread"]})

    def test_keys(self):
        body = {"model": "noise", "max_tokens": 1, "messages": HELLO}
        self.assertEqual(self.ask("POST", "/v1/messages", body, {"x-api-key": KEY}, token=None)[0], 200)
        for headers in ({}, {"x-api-key": KEY[:-1]}, {"x-api-key": ""}):
            status, answer = self.ask("POST", "/v1/messages", body, headers, token=None)
            self.assertEqual((status, answer["error"]["type"]), (401, "authentication_error"))
        self.assertEqual(self.ask("GET", "/api/tags", token="wrong"), (401, {"error": "a known key is needed: Authorization: Bearer KEY"}))

    def test_lists_of_models(self):
        _, models = self.ask("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"})
        self.assertEqual((models["first_id"], models["has_more"], models["data"][0]["display_name"]), ("noise", False, "noise"))
        self.assertRegex(models["data"][0]["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(self.ask("GET", "/v1/models")[1]["object"], "list")
        self.assertEqual(self.ask("GET", "/v1/models/noise", headers={"anthropic-version": "2023-06-01"})[1], models["data"][0])

    # ---- Ollama --------------------------------------------------------------------------------------------------------------

    def lines(self, path, **body):
        return [json.loads(line) for line in self.post(path, **{"model": "noise", "options": {"num_predict": 12, "seed": 5}, **body}).splitlines()]

    def test_chats_in_lines(self):
        whole = self.post("/api/chat", model="noise:latest", messages=HELLO, stream=False, options={"num_predict": 12, "seed": 5})
        lines = self.lines("/api/chat", messages=HELLO)
        self.assertEqual("".join(line["message"]["content"] for line in lines), whole["message"]["content"])
        self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])
        self.assertEqual((lines[-1]["done_reason"], lines[-1]["eval_count"], lines[-1]["prompt_eval_count"]), ("length", 12, HELLO_TOKENS))
        self.assertGreaterEqual(whole["total_duration"], whole["eval_duration"])
        self.assertGreater(whole["eval_duration"], 0)
        # The settings are Ollama's unless they are given.
        same = self.post("/v1/chat/completions", model="noise", messages=HELLO, max_tokens=12, seed=5, temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1)
        self.assertEqual(whole["message"]["content"], same["choices"][0]["message"]["content"])

    def test_generate(self):
        told = "".join(line["response"] for line in self.lines("/api/generate", prompt="hello"))
        self.assertEqual(told, "".join(line["message"]["content"] for line in self.lines("/api/chat", messages=HELLO)))
        [_, *_, last] = self.lines("/api/generate", prompt="abc", raw=True)
        self.assertEqual(last["prompt_eval_count"], 3)
        self.assertEqual([line["done_reason"] for line in self.lines("/api/generate")], ["load"])
        self.assertEqual(self.lines("/api/generate", prompt="x", options={"num_predict": 400, "stop": list("abcdefgh\n ")})[-1]["done_reason"], "stop")

    def test_formats_tools_and_reasoning(self):
        text = self.post("/api/chat", model="noise", messages=HELLO, stream=False, format={"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]})
        self.assertIsInstance(json.loads(text["message"]["content"])["n"], bool)
        thinking = self.lines("/api/chat", messages=HELLO, think=True)
        self.assertTrue(all(not line["message"]["content"] or line["message"].get("thinking") is None for line in thinking))
        self.assertTrue("".join(line["message"].get("thinking", "") for line in thinking))
        history = HELLO + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}, {"role": "tool", "tool_name": "add", "content": "2"}]
        chat = HELLO + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}, {"role": "tool", "content": "2"}]
        read = self.post("/v1/chat/completions", model="noise", messages=chat, tools=[function(ADD)], max_tokens=1)["usage"]["prompt_tokens"]
        self.assertEqual(self.lines("/api/chat", messages=history, tools=[function(ADD)])[-1]["prompt_eval_count"], read)
        probable = self.lines("/api/chat", messages=HELLO, logprobs=True, top_logprobs=2)
        self.assertEqual(sum(len(line.get("logprobs", [])) for line in probable), 12)

    def test_what_models_there_are(self):
        [tag] = self.ask("GET", "/api/tags")[1]["models"]
        self.assertEqual((tag["name"], tag["details"]["family"], len(tag["digest"])), ("noise:latest", "llama", 64))
        self.assertEqual(self.ask("GET", "/api/ps")[1]["models"][0]["digest"], tag["digest"])
        shown = self.post("/api/show", name="noise")
        self.assertEqual(shown["capabilities"], ["completion", "tools", "thinking"])
        self.assertEqual(shown["model_info"]["llama.embedding_length"], 32)
        self.assertEqual(self.post("/api/pull", model="noise"), '{"status":"success"}\n')
        for path, body in (("/api/show", {"model": "llama3"}), ("/api/chat", {"model": "llama3", "messages": HELLO}), ("/api/generate", {"model": "llama3"}), ("/api/push", {"model": "noise"})):
            status, answer = self.ask("POST", path, body)
            self.assertEqual((status, list(answer)), (404, ["error"]), path)

    def test_embeddings(self):
        rows = self.post("/api/embed", model="noise", input=["abc", "d"])
        self.assertEqual((len(rows["embeddings"]), rows["prompt_eval_count"]), (2, 4))
        of_openai = self.post("/v1/embeddings", model="noise", input="abc", encoding_format="float")["data"][0]["embedding"]
        for a, b in zip(of_openai, rows["embeddings"][0]):  # batches of two and of one
            self.assertAlmostEqual(a, b, places=5)
        self.assertEqual(self.post("/api/embeddings", model="noise", prompt="abc")["embedding"], of_openai)
        self.assertEqual(len(self.post("/api/embed", model="noise", input="abc", dimensions=8)["embeddings"][0]), 8)
        # The model has 1024 positions; a text in the middle of a character that is cut is read without it.
        cut, whole = (self.post("/api/embed", model="noise", input=text) for text in ("b" + "\u00fc" * 700, "b" + "\u00fc" * 511))
        self.assertEqual((cut["embeddings"], cut["prompt_eval_count"]), (whole["embeddings"], whole["prompt_eval_count"]))
        status, answer = self.ask("POST", "/api/embed", {"model": "noise", "input": "b" * 2000, "truncate": False})
        self.assertEqual(status, 400)
        self.assertIn("2000 tokens", answer["error"])
        self.assertEqual(self.ask("POST", "/v1/embeddings", {"model": "noise", "input": "b" * 2000})[0], 400)

    def test_a_server_is_found(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {KEY}"}
        for method in ("HEAD", "GET", "HEAD"):  # on one connection: an answer to HEAD must have no body
            connection.request(method, "/", headers=headers)
            response = connection.getresponse()
            self.assertEqual((response.status, response.read()), (200, b"Weft is running" if method == "GET" else b""))
        connection.close()
        self.assertRegex(self.ask("GET", "/api/version")[1]["version"], r"^\d+\.\d+")

    # ---- OpenAI --------------------------------------------------------------------------------------------------------------

    def test_allowed_tools(self):
        tools = [function(ADD), function(SUB)]
        only = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "sub"}}]}}
        for seed in range(4):
            calls = self.post("/v1/chat/completions", model="noise", messages=HELLO, tools=tools, tool_choice=only, max_tokens=300, seed=seed)["choices"][0]["message"]["tool_calls"]
            self.assertEqual({call["function"]["name"] for call in calls}, {"sub"})
        flat = [{"type": "function", **tool["function"]} for tool in tools]
        answer = self.post("/v1/responses", model="noise", input="hello", tools=flat, max_output_tokens=300, parallel_tool_calls=False,
                           tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "sub"}]})
        self.assertEqual([item["name"] for item in answer["output"]], ["sub"])

    def test_a_model_without_marks_fills_nothing_in(self):
        status, answer = self.ask("POST", "/v1/completions", {"model": "noise", "prompt": "ab", "suffix": "cd"})
        self.assertEqual((status, answer["error"]["param"]), (400, "suffix"))

    def test_input_of_responses(self):
        counted = self.post("/v1/responses/input_tokens", model="noise", input="hello")
        self.assertEqual(counted, {"object": "response.input_tokens", "input_tokens": HELLO_TOKENS})
        first = self.post("/v1/responses", model="noise", input="hello", max_output_tokens=3)
        second = self.post("/v1/responses", model="noise", input="more", max_output_tokens=3, previous_response_id=first["id"])
        items = self.ask("GET", f"/v1/responses/{second['id']}/input_items")[1]
        self.assertEqual([(item["type"], item["role"], item["content"][0]["text"]) for item in items["data"]],
                         [("message", "user", "hello"), ("message", "assistant", first["output"][0]["content"][0]["text"]), ("message", "user", "more")])
        self.assertEqual((items["first_id"], items["last_id"]), (items["data"][0]["id"], items["data"][2]["id"]))


class FillIn(unittest.TestCase):
    # Marks of the text before a gap, of that after it, and of the gap; and the prompt that they make.
    FAMILIES = ((("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>"),
                (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), "<｜fim▁begin｜>ab<｜fim▁hole｜>cd<｜fim▁end｜>"), (("[PREFIX]", "[SUFFIX]", "-"), "[SUFFIX]cd[PREFIX]ab"))

    def test_what_stands_between_two_texts(self):
        for marks, prompt in self.FAMILIES:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder)
                model = tiny_model.put_byte_model(path / "coder")
                tokenizer = json.loads((model / "tokenizer.json").read_text())
                for mark, token in zip(marks, tokenizer["added_tokens"][2:]):
                    token.update(content=mark, special=True)
                (model / "tokenizer.json").write_text(json.dumps(tokenizer))
                server = CommandServer([WEFT, "serve", model, "--port", "0", "--device", "cpu"], path / "log", r"serving coder on http://127\.0\.0\.1:(\d+)/v1\n")
                post = lambda route, **body: ask(int(server.found[1]), "POST", route, {"model": "coder", **body})[::2]
                settings = {"max_tokens": 8, "seed": 2}
                expected = post("/v1/completions", prompt=prompt, **settings)[1]
                status, answer = post("/v1/completions", prompt="ab", suffix="cd", **settings)
                self.assertEqual((status, answer.get("choices"), answer.get("usage", {}).get("prompt_tokens")), (200, expected["choices"], expected["usage"]["prompt_tokens"]), answer)
                self.assertEqual(post("/v1/completions", prompt="ab", suffix="", **settings)[1]["usage"]["prompt_tokens"], 2)
                self.assertIn("insert", post("/api/show")[1]["capabilities"])
                told = post("/api/generate", prompt="ab", suffix="cd", stream=False, options={"num_predict": 8})[1]
                self.assertEqual(told["prompt_eval_count"], expected["usage"]["prompt_tokens"])
                self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
