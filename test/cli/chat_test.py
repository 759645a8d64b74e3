#!/usr/bin/python3
"""weft chat, generate and perplexity from end to end: chat_test.py WEFT [unittest arguments].

On the tiny model of tiny_model.py.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from tiny_model import put_byte_model, put_model

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE = 0, 2, 3


def weft(*arguments, text=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=300,
                          env={**environment, "WEFT_THREADS": "1"})


def screen_lines(text):
    """The lines that a terminal shows for text that moves the cursor back."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|[^\x1b]", text.replace("\r\n", "\n")):
        if part == "\n":
            lines.append("")
            column = 0
        elif part.endswith("D") and part.startswith("\x1b"):
            column -= int(part[2:-1])
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif not part.startswith("\x1b"):
            lines[-1] = lines[-1][:column] + part + lines[-1][column + 1:]
            column += 1
    return lines


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-chat-"))
        cls.model = put_model(cls.folder / "model")
        cls.plain = put_model(cls.folder / "plain", template=False)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)


class DividedTest(ModelTest):
    """A model over two devices, which are both the CPU here."""

    def ok(self, *arguments):
        done = weft(*arguments, text="")
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stdout

    def test_each_command_gives_what_one_device_gives(self):
        text = self.folder / "text.txt"
        text.write_text("w1 w2 w3 w4 w5 w6 w7 w8 " * 20)
        for command in (["chat", self.model, "w1 w2", "--temperature", "0", "--max-tokens", "6"],
                        ["generate", self.model, "--prompt", "w1 w2 w3", "--temperature", "0", "--max-tokens", "6", "--draft", "3"],
                        ["perplexity", self.model, "--file", text, "--window", "32"]):
            wanted = self.ok(*command, "--device", "cpu")
            for division in ([], ["--split", "3,1"], ["--layers", "1"], ["--layers", "1,1"]):
                self.assertEqual(self.ok(*command, "--device", "cpu,cpu", *division), wanted)

    def test_divisions_that_cannot_be(self):
        for said, options in (("1 shares for 2 devices", ["--device", "cpu,cpu", "--split", "1"]),
                              ("at least one layer", ["--device", "cpu,cpu", "--layers", "2"]),
                              ("there is one device", ["--device", "cpu", "--split", "1"]),
                              ("3 devices for a model of 2 layers", ["--device", "cpu,cpu,cpu"]),
                              ("leave one of them out", ["--device", "cpu,cpu", "--split", "1,1", "--layers", "1,1"]),
                              ("an empty name", ["--device", "cpu,"])):
            done = weft("generate", self.model, "--prompt", "w1", *options, text="")
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn(said, done.stderr)


class ChatTest(ModelTest):
    def chat(self, text, *more, code=OK):
        done = weft("chat", self.model, "--device", "cpu", "--temperature", "0", "--max-tokens", "6", *more, text=text)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_a_pipe_gets_one_answer_a_line(self):
        lines = self.chat("w1 w2\nw3\n").stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertTrue(all(len(line.split()) >= 1 for line in lines), lines)

    def test_history_grows_and_is_cleared(self):
        done = self.chat("/system w9\nw1\n/history\n/clear\n/history\n/exit\nw2\n")
        self.assertIn("system: w9\nuser: w1\nassistant: ", done.stdout)
        self.assertEqual(done.stdout.count("user:"), 1)

    def test_undo_and_again(self):
        answer = self.chat("w1\n").stdout
        self.assertEqual(self.chat("w1\n/again\n").stdout, answer + answer)
        self.assertNotIn("user:", self.chat("w1\n/undo\n/history\n").stdout)
        self.assertIn("no question to take back", self.chat("/undo\n", code=USAGE).stderr)

    def test_a_line_goes_on_after_a_backslash(self):
        self.assertIn("user: w1\nw2\n", self.chat("w1\\\nw2\n/history\n").stdout)

    def test_settings_are_checked(self):
        for line, said in (("/set top-k x", 'expected a number, got "x"'), ("/set colour 3", "/set colour 3: there is no such setting"),
                           ("/set repetition-penalty 0", "repetition_penalty is 0"), ("/set top-p 0\nw1", "top_p is 0"),
                           ("/nonsense", "/nonsense is not a command"), ("/set top-k", 'expected a number, got ""')):
            self.assertIn(said, self.chat(line + "\n", code=USAGE).stderr)
        listed = self.chat("/set top-k 7\n/set\n").stdout
        self.assertRegex(listed, r"top-k +7\n")
        self.assertRegex(listed, r"temperature +0\n")

    def test_save_writes_the_messages(self):
        path = self.folder / "saved.json"
        self.chat(f"w4\n/save {path}\n")
        saved = json.loads(path.read_text())
        self.assertEqual([m["role"] for m in saved], ["user", "assistant"])
        self.assertEqual(saved[0]["content"], "w4")

    def test_load_goes_on_with_what_was_saved(self):
        path = self.folder / "talk.json"
        whole = self.chat("/system w9\nw4\nw5\n/history\n").stdout
        self.chat(f"/system w9\nw4\n/save {path}\n")
        loaded = self.chat(f"/load {path}\nw5\n/history\n").stdout
        self.assertEqual(loaded.splitlines()[-5:], whole.splitlines()[-5:])
        saved = json.loads(path.read_text())
        saved[2] |= {"reasoning_content": "w1", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
        path.write_text(json.dumps({"messages": saved}))
        self.chat(f"/load {path}\n/save {path}\n")
        self.assertEqual(json.loads(path.read_text()), saved)
        for text, said in (("{", "line 1"), ("{}", "not a list of messages"), ('[{"role": 3}]', '"role" is not a text'), ("[3]", "message 1 is not an object"),
                           ('[{"content": ""}]', 'has no "role"')):
            path.write_text(text)
            self.assertIn(said, self.chat(f"/load {path}\n", code=USAGE).stderr)
        self.assertIn("/load: give the file's name", self.chat("/load\n", code=USAGE).stderr)

    def test_saved_files_keep_their_permissions(self):
        path = self.folder / "private.json"
        path.write_text("[]")
        path.chmod(0o600)
        self.chat(f"w1\n/save {path}\n")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)

    def test_messages_of_several_lines(self):
        self.assertIn("user: w1\nw2\nw3\n", self.chat('"""\nw1\nw2\nw3\n"""\n/history\n').stdout)
        self.assertIn("user: w1\n/clear\n", self.chat('"""w1\n/clear"""\n/history\n').stdout)
        self.assertIn("user: w1 w2\n", self.chat('"""w1 w2"""\n/history\n').stdout)
        self.assertIn("user: w1\n", self.chat('"""\nw1').stdout + "user: w1\n")  # the end of the input ends it
        self.assertIn("user: /w1\n", self.chat("//w1\n/history\n").stdout)

    def test_questions_about_files(self):
        path = self.folder / "a text.txt"
        path.write_text("w1\nw2\n")
        self.assertIn("user: w3 w4\n\nw1\nw2\n", self.chat(f'/file "{path}" w3 w4\n/history\n').stdout)
        path = path.rename(self.folder / "text.txt")
        self.assertIn("user: w1\nw2\n", self.chat(f"/file {path}\n/history\n").stdout)
        self.assertIn("give the file's name", self.chat("/file\n", code=USAGE).stderr)
        self.assertIn("nowhere", self.chat("/file /nowhere w1\n", code=USAGE).stderr)

    def test_one_question(self):
        answer = self.chat("w1\n").stdout
        self.assertEqual(self.chat("", "w1").stdout, answer)
        self.assertEqual(self.chat("", "-p", "w1").stdout, answer)
        (self.folder / "question.txt").write_text("w1\n")
        self.assertEqual(self.chat("", "-f", self.folder / "question.txt").stdout, answer)
        self.assertEqual(self.chat("w1\n", "--file", "-").stdout, answer)
        self.assertEqual(self.chat("", "w3", "-f", self.folder / "question.txt").stdout, self.chat('"""w3\n\nw1"""\n').stdout)
        self.assertIn("not both", self.chat("", "w1", "-p", "w2", code=USAGE).stderr)
        done = self.chat("", "w1 " * 200, code=USAGE)
        self.assertRegex(done.stderr, r"\Aerror: .*the context")
        self.assertEqual(done.stdout, "")

    def test_a_question_beyond_the_context_is_told_and_the_chat_goes_on(self):
        done = self.chat("w1 " * 200 + "\nw1\n", code=USAGE)
        self.assertIn("the context", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)

    def test_old_turns_make_room(self):
        """96 positions: of turns of 24 words the model soon sees the last ones only, and all of them are kept."""
        question = " ".join(["w1"] * 16)
        done = self.chat((question + "\n") * 9 + "/history\n")
        self.assertIn("the conversation has outgrown the context of 96 positions; the model no longer sees its first", done.stderr)
        self.assertEqual(done.stdout.count("user: "), 9)
        self.assertEqual(done.stdout.count("assistant: "), 9)
        # Once room is made there is some for more than one turn.
        self.assertLess(done.stderr.count("outgrown"), 5)
        self.assertEqual(self.chat("w1\n").stderr, "")

    def test_another_template(self):
        path = self.folder / "t.jinja"
        path.write_text("{{ messages[-1].content + ' w7' }}")
        self.assertEqual(weft("chat", self.plain, "--device", "cpu", "--temperature", "0", "--max-tokens", "6", "--chat-template", path, "w1").stdout.split(),
                         weft("generate", self.plain, "--device", "cpu", "--temperature", "0", "--max-tokens", "6", "-p", "w1 w7").stdout.removeprefix("w1 w7").split())
        path.write_text("{{ broken")
        done = weft("chat", self.model, "--chat-template", path, "w1")
        self.assertEqual(done.returncode, FILE)
        self.assertIn("the chat template given: line 1", done.stderr)

    def test_threads_and_memory(self):
        answer = self.chat("w1\n").stdout
        self.assertEqual(self.chat("w1\n", "--threads", "2").stdout, answer)
        self.assertEqual(self.chat("w1\n", "--device-memory", "1G").stdout, answer)
        for option, value, said in (("--threads", "-1", "--threads -1"), ("--device-memory", "many", "write a size such as 6G"),
                                    ("--device-memory", "-3G", "write a size"), ("--device-memory", "1k", "the weights take")):
            self.assertIn(said, self.chat("w1\n", option, value, code=USAGE).stderr)

    def test_text_that_is_not_utf8_fails(self):
        done = subprocess.run([WEFT, "chat", self.model, "--device", "cpu"], input=b"\xff\n", capture_output=True, timeout=60)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn(b"not UTF-8", done.stderr)

    def test_reasoning_that_the_template_opens_is_no_answer(self):
        thinking = self.folder / "thinking"
        shutil.copytree(self.model, thinking)
        template = (thinking / "chat_template.jinja").read_text()
        (thinking / "chat_template.jinja").write_text(template.replace("'assistant '", "'assistant <think>\\n'"))
        done = weft("chat", thinking, "--device", "cpu", "--temperature", "0", "--max-tokens", "6", text="w1\n/history\n")
        self.assertRegex(done.stderr, "w[0-9]")  # it thought to the end
        self.assertEqual(done.stdout, "\nuser: w1\nassistant: \n")

    def test_stats_tell_the_speed(self):
        self.assertIn("a second", self.chat("w1\n/stats\n").stdout)
        self.assertEqual(self.chat("/stats\n").stdout, "there is no answer yet\n")

    def test_a_model_without_a_template_is_refused(self):
        done = weft("chat", self.plain, "--device", "cpu", text="w1\n")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("no chat template", done.stderr)


class GrammarTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-grammar-"))
        cls.model = put_byte_model(cls.folder / "model")
        (cls.folder / "schema.json").write_text(json.dumps({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 4}, "born": {"type": "string", "format": "date"}}}))
        (cls.folder / "answer.gbnf").write_text('root ::= "yes" | "no"\n')

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def ask(self, command, *options):
        question = ["hello"] if command == "chat" else ["--prompt", "x"]
        return weft(command, self.model, *question, *options, "--device", "cpu", "--seed", 1, "--max-tokens", 200, "--temperature", 1)

    def test_answers_fit(self):
        for command in ("chat", "generate"):
            run = self.ask(command, "--schema", self.folder / "schema.json")
            self.assertEqual(run.returncode, OK, run.stderr)
            value = json.loads(run.stdout.removeprefix("x"))
            self.assertLessEqual({"name"}, set(value))
            self.assertLessEqual(len(value["name"]), 4)
            run = self.ask(command, "--grammar", self.folder / "answer.gbnf")
            self.assertIn(run.stdout.removeprefix("x").strip(), ("yes", "no"))

    def test_bad_grammars_name_file_and_place(self):
        files = {"bad.gbnf": "root ::= other\n", "bad.json": "{",
                 "names.json": '{"type": "object", "propertyNames": {"maxLength": 3}, "properties": {"a": {"type": "integer"}}, '
                               '"required": ["a"], "additionalProperties": false}', "type.json": '{"type": "x"}'}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        for options, code, message in [
                (["--grammar", "bad.gbnf"], USAGE, 'bad.gbnf:1: rule "other" is not defined'), (["--schema", "bad.json"], FILE, "bad.json"),
                (["--schema", "names.json"], USAGE, 'uses "propertyNames"'), (["--schema", "type.json"], USAGE, "type"), (["--schema", "none.json"], FILE, "none.json"),
                (["--schema", "schema.json", "--grammar", "answer.gbnf"], USAGE, "give one of them"), (["--lenient-schema"], USAGE, "needs --schema")]:
            run = self.ask("chat", *(self.folder / o if "." in o else o for o in options))
            self.assertEqual(run.returncode, code, (options, run.stderr))
            self.assertIn(message, run.stderr)
        run = self.ask("chat", "--schema", self.folder / "names.json", "--lenient-schema")
        self.assertEqual(run.returncode, OK, run.stderr)
        self.assertEqual(list(json.loads(run.stdout)), ["a"])


class TerminalTest(ModelTest):
    """A person at a terminal: what is typed is edited, and remembered by the next chat."""

    def setUp(self):
        self.state = self.folder / f"state-{self._testMethodName}"

    def talk(self, *turns, model=None, columns=80, tokens=3, prompts=None, **variables):
        """Types each turn after the next prompt has come, and gives what the terminal showed."""
        parent, child = pty.openpty()
        fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        environment |= {"WEFT_THREADS": "1", "TERM": "xterm", "XDG_STATE_HOME": str(self.state), "LC_ALL": "C.UTF-8", **variables}
        with subprocess.Popen([WEFT, "chat", model or self.model, "--device", "cpu", "--temperature", "0", "--max-tokens", str(tokens)], stdin=child,
                              stdout=child, stderr=child, env=environment, start_new_session=True,
                              preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
            os.close(child)
            shown, seen = b"", 0
            deadline = time.monotonic() + 60

            def read(until):
                nonlocal shown
                while until not in shown[seen:]:
                    if time.monotonic() > deadline:
                        process.kill()
                        self.fail(f"no {until} within a minute after {shown}")
                    if select.select([parent], [], [], 0.2)[0]:
                        try:
                            piece = os.read(parent, 65536)
                        except OSError:
                            return
                        if not piece:
                            return
                        shown += piece

            for turn, prompt in zip(turns, prompts or [b"> "] * len(turns)):
                read(prompt)
                # The editor takes the terminal over just after its prompt; an end of input typed before that is lost.
                while termios.tcgetattr(parent)[3] & termios.ICANON and time.monotonic() < deadline:
                    time.sleep(0.005)
                seen = len(shown)
                os.write(parent, turn)
            read(b"\0 the end")
            try:
                self.code = process.wait(60)
            finally:
                process.kill()
            os.close(parent)
        return shown.decode(errors="replace")

    def saved(self):
        return (self.state / "weft" / "chat_history").read_text().splitlines()

    def test_lines_are_edited(self):
        # w2, then w1 and a space before it; a character taken back.
        self.talk(b"w2\x01w1 \r", b"w8\x7f9\r", b"/exit\r")
        self.assertEqual(self.code, OK)
        self.assertEqual(self.saved(), ["w1 w2", "w9", "/exit"])

    def test_each_answer_tells_its_speed(self):
        self.assertRegex(self.talk(b"w1\r", b"/exit\r"), r"3 tokens, [0-9.]+ a second; cut at max-tokens, 3")

    def test_the_history_outlives_the_run(self):
        self.talk(b"w5 w6\r", b"w7\r", b"\x04")
        self.assertEqual(self.code, OK)
        self.talk(b"\x1b[A\x1b[A\r", b"/exit\r")  # two up: before the last
        self.assertEqual(self.saved(), ["w5 w6", "w7", "w5 w6", "/exit"])
        self.assertEqual((self.state / "weft" / "chat_history").stat().st_mode & 0o777, 0o600)

    def test_characters_of_several_bytes_are_one(self):
        self.talk("é日\x7fw1\r".encode(), b"/exit\r")
        self.assertEqual(self.saved()[0], "éw1")

    def test_ctrl_c_clears_the_line_and_leaves_when_pressed_twice(self):
        shown = self.talk(b"w1 w2\x03", b"w3\r", b"\x03", b"w4\r", b"\x03", b"\x03")
        self.assertEqual(self.code, OK)
        self.assertEqual(shown.count("Press Ctrl-C again to leave."), 3)
        self.assertEqual(self.saved(), ["w3", "w4"])

    def test_what_is_pasted_is_one_message(self):
        path = self.folder / "pasted.json"
        self.talk(b"w9 \x1b[200~w1\rw2\rw3\x1b[201~\r", b"\x1b[200~w4 w5\x1b[201~ w6\r", f"/save {path}\r".encode(), b"/exit\r")
        said = [m["content"] for m in json.loads(path.read_text()) if m["role"] == "user"]
        self.assertEqual(said, ["w9 w1\nw2\nw3", "w4 w5 w6"])
        history = (self.state / "weft" / "chat_history").read_text()
        self.assertEqual(history.split("\n")[0], "w9 w1\u2028w2\u2028w3")
        self.talk(b"\x1b[A\x1b[A\x1b[A\x1b[A\r", f"/save {path}\r".encode(), b"/exit\r")
        self.assertEqual(json.loads(path.read_text())[0]["content"], "w9 w1\nw2\nw3")

    def test_several_lines_in_quotes(self):
        path = self.folder / "quoted.json"
        self.talk(b'"""\r', b"w1\r", b'w2"""\r', f"/save {path}\r".encode(), b"/exit\r", prompts=[b"> ", b". ", b". ", b"> ", b"> "])
        self.assertEqual(json.loads(path.read_text())[0]["content"], "w1\nw2")

    def test_words_wrap(self):
        shown = self.talk(b"w1 w2\r", b"/exit\r", columns=12, tokens=12)
        answer = re.split(r"w1 w2\r\n", shown, 1)[1].split("\x1b[2m")[0]
        self.assertTrue(answer.strip(), shown)
        self.assertNotIn(" " * 3, answer)
        lines = screen_lines(answer)
        self.assertTrue(all(len(line) < 12 for line in lines), lines)
        self.assertGreater(len(lines), 2)
        self.assertTrue(all(re.fullmatch(r"(w[0-9]+|user|assistant|system| )*", line) for line in lines), lines)

    def test_a_model_cannot_send_commands(self):
        hostile = self.folder / "hostile"
        if not hostile.exists():
            shutil.copytree(self.model, hostile)
            text = (hostile / "tokenizer.json").read_text()
            for i in range(45):
                text = text.replace(f'"w{i}":', f'"\\u001b]52;c;aGk=\\u0007w{i}\\u009b2J":')
            (hostile / "tokenizer.json").write_text(text.replace('"unk_token": "w0"', '"unk_token": "user"'))
            config = json.loads((hostile / "config.json").read_text())
            (hostile / "config.json").write_text(json.dumps({**config, "_name_or_path": "x\n\u001b[2Jforged"}))
        shown = self.talk(b"user\r", b"/history\r", b"/exit\r", model=hostile, tokens=12)
        self.assertIn("\\x1b]52;c;aGk=", shown)
        for forbidden in ("\x1b]", "\x9b", "\x07", "\x1b[2J", "\nforged"):
            self.assertNotIn(forbidden, shown)

    def test_what_is_typed_ahead_waits_for_the_prompt(self):
        parent, child = pty.openpty()
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}, "TERM": "xterm", "XDG_STATE_HOME": str(self.state), "LC_ALL": "C.UTF-8",
                       "WEFT_THREADS": "1"}
        with subprocess.Popen([WEFT, "chat", self.model, "--device", "cpu", "--max-tokens", "60", "--context", "96"], stdin=child, stdout=child, stderr=child,
                              env=environment, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as process:
            os.close(child)
            shown, seen, typed, deadline = b"", 0, 0, time.monotonic() + 60
            while time.monotonic() < deadline:
                if select.select([parent], [], [], 0.2)[0]:
                    try:
                        shown += os.read(parent, 65536)
                    except OSError:
                        break
                if typed < 2 and len(shown) > seen and shown.endswith(b"> ") and not termios.tcgetattr(parent)[3] & termios.ICANON:
                    os.write(parent, b"/again\r" if typed == 1 else b"w1\r")  # again: the answer ended before it was seen
                    typed, seen = 1, len(shown)
                elif typed == 1 and termios.tcgetattr(parent)[3] & termios.ICANON and not termios.tcgetattr(parent)[3] & termios.ECHO:
                    os.write(parent, b"/exit\r")  # an answer is under way
                    typed = 2
            else:
                process.kill()
            self.assertEqual(process.wait(60), OK, shown)
        os.close(parent)
        self.assertEqual((typed, shown.count(b"/exit")), (2, 1), shown)

    def test_a_history_of_garbage_does_no_harm(self):
        (self.state / "weft").mkdir(parents=True)
        (self.state / "weft" / "chat_history").write_bytes(b"\xff\xfe\0\n\n" + b"x" * (2 << 20) + b"\nw3\n")
        self.talk(b"\x1b[A\r", b"/exit\r")
        self.assertEqual(self.code, OK)
        self.assertTrue((self.state / "weft" / "chat_history").read_bytes().endswith(b"\nw3\n/exit\n"))

    def test_nowhere_to_keep_it_is_no_reason_to_stop(self):
        self.talk(b"w1\r", b"/exit\r", XDG_STATE_HOME="/proc/nowhere")
        self.assertEqual(self.code, OK)


class GenerateTest(ModelTest):
    def test_generate_goes_on_from_the_prompt(self):
        arguments = ["generate", self.model, "--device", "cpu", "--prompt", "w1 w2", "--max-tokens", "5", "--seed", "3"]
        first = weft(*arguments, "--stats")
        self.assertEqual(first.returncode, OK, first.stderr)
        self.assertTrue(first.stdout.startswith("w1 w2"))
        self.assertIn("5 tokens in", first.stderr)
        self.assertEqual(weft(*arguments).stdout, first.stdout)
        self.assertEqual(weft(*arguments, "--draft", "4").stdout, first.stdout)
        self.assertEqual(weft(*arguments, "--whole-cache").stdout, first.stdout)

    def test_prompts_come_from_files(self):
        arguments = ["generate", self.model, "--device", "cpu", "--max-tokens", "5", "--seed", "3"]
        wanted = weft(*arguments, "--prompt", "w1 w2").stdout
        (self.folder / "prompt.txt").write_text("w1 w2\n")
        self.assertEqual(weft(*arguments, "--file", self.folder / "prompt.txt").stdout, wanted)
        self.assertEqual(weft(*arguments, "--file", "-", text="w1 w2").stdout, wanted)
        done = weft(*arguments, "--file", "-", "--prompt", "w1", text="w2")
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        self.assertIn("give --prompt or --file, not both", done.stderr)

    def test_json_has_the_tokens(self):
        arguments = ["generate", self.model, "--device", "cpu", "--prompt", "w1 w2", "--max-tokens", "5", "--seed", "3"]
        result = json.loads(weft(*arguments, "--json").stdout)
        self.assertEqual(weft(*arguments).stdout, "w1 w2" + result["text"] + "\n")
        self.assertEqual((len(result["tokens"]), result["prompt_tokens"], result["finish"]), (5, 2, "length"))
        self.assertTrue(all(-50 < t["log_probability"] < 0 and t["text"] for t in result["tokens"]))
        listed = json.loads(weft(*arguments, "--json", "--top-logprobs", "4").stdout)
        self.assertEqual([t["id"] for t in listed["tokens"]], [t["id"] for t in result["tokens"]])
        for token in listed["tokens"]:
            values = [t["log_probability"] for t in token["top"]]
            self.assertEqual((len(values), values), (4, sorted(values, reverse=True)))
            self.assertTrue(all(t["text"] for t in token["top"]))
            self.assertTrue(all(t["log_probability"] == token["log_probability"] for t in token["top"] if t["id"] == token["id"]))
        for extra, said in ([["--top-logprobs", "4"], "add --json"], [["--json", "--top-logprobs", "21"], "top_log_probabilities is 21, not between 0 and 20"]):
            done = weft(*arguments, *extra)
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(said, done.stderr)
        first = result["tokens"][0]["id"]
        biased = json.loads(weft(*arguments, "--json", "--logit-bias", f"{first}=-inf").stdout)
        self.assertNotIn(first, [t["id"] for t in biased["tokens"]])
        always = json.loads(weft(*arguments, "--json", "--logit-bias", "7=1e6", "--logit-bias", "8=-1").stdout)
        self.assertEqual([t["id"] for t in always["tokens"]], [7] * 5)
        for wrong in ("7", "7=", "=3", "7=x", "x=7", "7=nan", "48=1", "-1=1", "99999999999=1"):
            done = weft(*arguments, "--logit-bias", wrong)
            self.assertEqual(done.returncode, USAGE, wrong)
            self.assertIn("logit", done.stderr)

    def test_the_folder_of_the_scripts_is_no_type_of_cache(self):
        environment = {**os.environ, "WEFT_CACHE": str(self.folder), "WEFT_THREADS": "1"}
        command = [WEFT, "generate", self.model, "--device", "cpu", "--prompt", "w1", "--max-tokens", "1"]
        self.assertEqual(subprocess.run(command, capture_output=True, env=environment).returncode, OK)
        self.assertEqual(subprocess.run(command, capture_output=True, env={**environment, "WEFT_CACHE_TYPE": "f8"}).returncode, USAGE)

    def test_each_of_several_stops_counts(self):
        arguments = ["generate", self.model, "--device", "cpu", "--prompt", "w1 w2", "--max-tokens", "12", "--temperature", "1.5", "--seed", "3"]
        words = weft(*arguments).stdout.removeprefix("w1 w2").split()
        stop = words[3]
        for stops in (("--stop", stop, "--stop", "never"), ("--stop", "never", "--stop", stop)):
            self.assertEqual(weft(*arguments, *stops).stdout.removeprefix("w1 w2").split(), words[:words.index(stop)])

    def test_a_context_beyond_the_models_is_noted(self):
        arguments = ["generate", self.model, "--device", "cpu", "--prompt", "w1", "--max-tokens", "1", "--context"]
        done = weft(*arguments, "97")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("note: a context of 97, but the model was trained for 96 positions", done.stderr)
        self.assertEqual(weft(*arguments, "96").stderr, "")

    def test_generate_refuses_bad_numbers(self):
        done = weft("generate", self.model, "--device", "cpu", "--prompt", "w1", "--top-p", "7")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("top_p is 7", done.stderr)
        done = weft("generate", self.model, "--device", "cpu", "--prompt", "w1", "--cache", "f8")
        self.assertIn("--cache \"f8\": give f32, f16 or q8", done.stderr)

    def test_damaged_models_name_the_file(self):
        broken = self.folder / "broken"
        if not broken.exists():
            shutil.copytree(self.model, broken)
            config = json.loads((broken / "config.json").read_text())
            (broken / "config.json").write_text(json.dumps({**config, "model_type": "lama"}))
        done = weft("generate", broken, "--device", "cpu", "--prompt", "w1")
        self.assertEqual(done.returncode, FILE)
        self.assertIn('Weft does not know the architecture "lama"', done.stderr)
        self.assertIn(str(broken), done.stderr)

    def test_perplexity_of_a_text(self):
        text = self.folder / "text.txt"
        text.write_text(" ".join(f"w{i * 7 % 40}" for i in range(200)))
        done = weft("perplexity", self.model, "--device", "cpu", "--file", text, "--window", "32")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertRegex(done.stdout, r"perplexity \d+\.\d+ \+- \d+\.\d+ over 90 tokens")
        self.assertEqual(weft("perplexity", self.model, "--device", "cpu", "--file", "-", "--window", "32", text=text.read_text()).stdout, done.stdout)
        done = weft("perplexity", self.model, "--device", "cpu", "--file", text, "--window", "3")
        self.assertEqual(done.returncode, USAGE)


if __name__ == "__main__":
    unittest.main()
