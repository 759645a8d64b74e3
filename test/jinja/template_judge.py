#!/usr/bin/python3
"""Weft's templates against Jinja2, set as the transformers library sets it: template_judge.py DUMP [SEED].

Renders must be equal byte for byte, and refused where Jinja2 refuses. Templates: those of templates/, those in the
tokenizer_config.json files of models that script/setup fetched, and expressions and layouts made at random.
"""
import copy
import datetime
import functools
import json
import os
import pathlib
import random
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or HERE.parents[1] / ".cache" / "judges")
sys.path[:0] = [str(HERE), str(JUDGES)]
import jinja2
import jinja2.ext
import jinja2.sandbox
import template_cases

NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)
SHOWN = 20


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}, whose text transformers can find again."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("text_of"), [], [], body).set_lineno(line)

    def text_of(self, caller):
        return caller()


class Walk:
    """What a filter gives one by one, printed without its address in memory."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)

    def __repr__(self):
        return "<generator object>"


def walking(function):
    return functools.wraps(function)(lambda *arguments, **named: Walk(function(*arguments, **named)))


def reference():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    for name in ("batch", "items", "map", "reject", "rejectattr", "select", "selectattr", "slice", "unique"):
        environment.filters[name] = walking(environment.filters[name])
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def wanted(environment, template, variables):
    """("text", ...) or ("error", ...)."""
    try:
        text = environment.from_string(template).render(**copy.deepcopy(variables))  # some filters change lists
        text.encode()
        return "text", text
    except Exception as error:  # any exception that a template may raise
        return "error", f"{type(error).__name__}: {error}"


# What Python prints of functions and iterators names addresses in memory.
ADDRESS = re.compile(r"0\.?x\.?[0-9a-f.]{8}|<built-in (method|function) |<function \w+ at |<class '", re.IGNORECASE)


class Judge:
    def __init__(self, dump):
        self.dump, self.environment = dump, reference()

    def run(self, title, cases, shown=SHOWN):
        """cases: (name, template, variables). Prints and counts what differs."""
        lines = [json.dumps({"template": template, "variables": variables, "now": str(NOW)}) for _, template, variables in cases]
        done = subprocess.run([self.dump], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=900)
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        if done.returncode or len(answers) != len(cases):
            print(f"{title}: exit code {done.returncode} after {len(answers)} of {len(cases)} answers\n{done.stderr}")
            return 1
        failures = errors = large = addresses = 0
        for (name, template, variables), answer in zip(cases, answers):
            kind, text = wanted(self.environment, template, variables)
            errors += kind == "error"
            if kind == "text" and "64 bits" in answer.get("error", ""):
                large += 1  # Python's integers grow without end
            elif kind == "text" and ADDRESS.search(text):
                addresses += 1
            elif answer.get("text") != (text if kind == "text" else None):
                failures += 1
                if failures <= shown:
                    print(f"  {name}: {template if len(template) < 400 else ''}\n    Jinja2: {kind} {text!r}\n    Weft:   {answer}")
        print(f"{title:<28} {len(cases):>6} renders, {errors} of them errors, {large} beyond 64 bits, {addresses} with addresses, {failures} failures", flush=True)
        return failures


def main(dump, seed="1"):
    judge = Judge(dump)
    chats = list(template_cases.chats())
    own = sorted((HERE / "templates").glob("*.jinja"))
    failures = judge.run("templates", [(f"{path.name} {name}", path.read_text(), chat) for path in own for name, chat in chats])
    real = []
    for path in sorted((JUDGES.parent / "data" / "chat-templates").glob("*.json")):
        source = json.loads(path.read_text())["chat_template"]
        real += [(f"{path.stem} {name}", source, chat) for name, chat in chats]
    if not real:
        sys.exit(f"{JUDGES.parent}/data holds no chat templates; run script/setup --judges")
    failures += judge.run("templates of models", real)
    failures += judge.run("statements", list(template_cases.statements()))
    failures += judge.run("characters", list(template_cases.characters()))
    failures += judge.run("random expressions", list(template_cases.expressions(random.Random(int(seed)), 6000)))
    failures += judge.run("random white space", list(template_cases.layouts(random.Random(int(seed)), 1500)))
    print(f"seed {seed}: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
