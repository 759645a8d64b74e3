#!/usr/bin/python3
"""weft template render: template_test.py WEFT [unittest arguments]."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE = 0, 1, 2, 3
MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi <|im_end|>"}]
CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


class Render(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-template-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.messages = self.write("messages.json", json.dumps(MESSAGES))

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def weft(self, *arguments, stdin=""):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        return subprocess.run([WEFT, "template", "render", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=60, env=environment)

    def render(self, source, *arguments, **more):
        done = self.weft("--template", self.write("t.jinja", source), "--messages", self.messages, *arguments, **more)
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stdout

    def refused(self, code, said, *arguments, **more):
        done = self.weft(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(said, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_text(self):
        chat = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
        self.assertEqual(self.render(CHATML), chat)
        self.assertEqual(self.render(CHATML, "--add-generation-prompt"), chat + "<|im_start|>assistant\n")
        self.assertEqual(self.weft("--template", self.folder / "t.jinja", stdin=json.dumps(MESSAGES)).stdout, chat)
        self.assertEqual(self.weft("--template", self.folder / "t.jinja", "--messages", "-", stdin="[]").stdout, "")

    def test_tools_variables_and_date(self):
        tools = self.write("tools.json", '[{"z": 1, "a": 2}]')
        self.assertEqual(self.render("{{ tools|tojson }}{{ tools is none }}", "--tools", tools), '[{"z": 1, "a": 2}]False')
        self.assertEqual(self.render("{{ [a, b, c, d, bos_token] }}", "--set", "a=false", "--set", "b=1=2", "--set", "c={\"k\": [1]}", "--set", "d=", "--set", "bos_token=<s>"),
                         "[False, '1=2', {'k': [1]}, '', '<s>']")
        self.assertEqual(self.render("{{ strftime_now('%d %b %Y %H:%M') }}", "--date", "2025-03-31"), "31 Mar 2025 00:00")
        self.assertEqual(self.render("{{ strftime_now('%H:%M:%S') }}", "--date", "2025-03-31T12:34:56"), "12:34:56")

    def test_documents(self):
        documents = self.write("documents.json", '[{"title": "T", "text": "x"}]')
        self.assertEqual(self.render("{{ documents[0].title }}{{ documents | length }}", "--documents", documents), "T1")
        self.assertEqual(self.render("{{ documents is none }}"), "True")
        self.refused(USAGE, "only one of", "--template", self.folder / "t.jinja", "--documents", "-", stdin="[]")
        self.refused(USAGE, "the documents are not a list", "--template", self.folder / "t.jinja", "--messages", self.messages, "--documents",
                     self.write("one.json", "{}"))

    def test_segments(self):
        pieces = json.loads(self.render("<s>{{ messages[1].content }}</s>{{ bos_token }}", "--segments", "--set", "bos_token=<b>"))
        self.assertEqual(pieces, [{"text": "<s>", "from_user": False}, {"text": "Hi <|im_end|>", "from_user": True}, {"text": "</s><b>", "from_user": False}])

    def test_models(self):
        self.write("tokenizer_config.json", json.dumps({"bos_token": "<s>", "chat_template": [{"name": "default", "template": "{{ bos_token }}d"}, {"name": "rag", "template": "r"}]}))
        for arguments, text in (((), "<s>d"), (("--name", "rag"), "r")):
            self.assertEqual(self.weft("--model", self.folder, "--messages", self.messages, *arguments).stdout, text)
        self.refused(USAGE, "no chat template is called \"x\"; this model has default, rag", "--model", self.folder, "--messages", self.messages, "--name", "x")

    def test_refusals(self):
        good = self.write("good.jinja", "x")
        bad = self.write("bad.jinja", "a\n{{ 1 + }}")
        picky = self.write("picky.jinja", "{{ raise_exception('no system message, please') }}")
        self.refused(FILE, "bad.jinja: line 2, column 8: ", "--template", bad, "--messages", self.messages)
        self.refused(USAGE, "picky.jinja: line 1, column 19: the template refuses its input: no system message, please", "--template", picky, "--messages", self.messages)
        self.refused(USAGE, "give one of --template FILE and --model", "--messages", self.messages)
        self.refused(USAGE, "give one of --template FILE and --model", "--messages", self.messages, "--template", good, "--model", self.folder)
        self.refused(FILE, "none.jinja", "--template", self.folder / "none.jinja", "--messages", self.messages)
        self.refused(FILE, "none.json", "--template", good, "--messages", self.folder / "none.json")
        self.refused(FILE, "standard input: line 1, column", "--template", good, stdin="[{")
        self.refused(USAGE, "the messages are not a list of objects", "--template", good, stdin="{}")
        self.refused(USAGE, "write name=value", "--template", good, "--messages", self.messages, "--set", "x")
        self.refused(USAGE, "the variable messages is not a further one", "--template", good, "--messages", self.messages, "--set", "messages=1")
        self.refused(USAGE, "is not a date", "--template", good, "--messages", self.messages, "--date", "today")
        self.refused(FILE, "holds no chat template", "--model", self.folder, "--messages", self.messages)
        self.refused(FILE, "good.jinja", "--model", good, "--messages", self.messages)
        self.refused(USAGE, "--tmplate", "--tmplate", good)


if __name__ == "__main__":
    unittest.main()
