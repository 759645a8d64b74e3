#!/usr/bin/python3
"""Runs the code blocks of documents against an installed Weft: check_blocks.py --prefix P --scratch S DOCUMENT...

cpp       compiled and run. A block without main() is a function body behind `#include <weft/weft.hpp>` and
          `using namespace weft;`; its own includes are moved to the top.
sh, bash, console   run by bash -euo pipefail in a folder of the document's own, with `weft` on the PATH; later blocks find
          the files of earlier ones. Of console blocks, the lines that open with `$ ` run. Lines that run a script of the
          tree, or clone it, are only looked up.
json      parsed.
js, jsx, ts, tsx   run by `weft run`, each by itself, in a folder of the document's own.

A comment on the line before a block changes that: <!-- test: skip REASON -->; <!-- test: compile --> (cpp, not run);
<!-- test: continue --> (cpp, goes on in the scope of the block before); <!-- test: declarations --> (cpp, functions and
templates, at namespace scope); <!-- test: part FILE --> (cpp, not compiled: a document's parts of a file of the tree, in
order with a blank line between, must be that file); <!-- test: excerpt FILE --> (cpp, not compiled: lines that stand in
that file one after another, however indented); <!-- test: syntax --> (sh, only parsed).
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
SHELL = ("sh", "bash", "console")
SCRIPTS = ("js", "jsx", "ts", "tsx")
MODES = {"cpp": ("skip", "compile", "continue", "declarations", "part", "excerpt"), "json": ("skip",),
         **{language: ("skip", "run") for language in SCRIPTS},
         **{language: ("skip", "syntax") for language in SHELL}}
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
COMMENT = re.compile(r"^<!-- test: (\w+) ?(.*?) ?-->$")
HOISTED = re.compile(r"^\s*(#\s*include\b.*|using namespace [\w:]+;.*)$")
OF_THE_TREE = re.compile(r"^(?:\./)?(script/\w+)\b.*|^git clone .*|^cd weft$")
SECONDS_MAX = 600


@dataclasses.dataclass
class Block:
    document: pathlib.Path
    line: int  # of the first line of code
    language: str
    mode: str
    argument: str  # what follows the mode
    lines: list

    @property
    def place(self):
        return f"{self.document.name}:{self.line}"


class Mistake(Exception):
    """A document that cannot be read as blocks, or a block that fails."""


def blocks_of(document):
    """The blocks of a document whose language is tested, in order."""
    lines = document.read_text("utf-8").splitlines()
    blocks, i, before = [], 0, ""
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if not fence:
            before = lines[i].strip() or before
            i += 1
            continue
        first = i + 1
        i = first
        while i < len(lines) and not (lines[i].strip().startswith(fence[1]) and not lines[i].strip(" `~")):
            i += 1
        if i == len(lines):
            raise Mistake(f"{document.name}:{first}: a block that does not end")
        comment = COMMENT.match(before)
        mode = comment[1] if comment else ""
        if fence[2] in MODES:
            if mode and mode not in MODES[fence[2]]:
                raise Mistake(f"{document.name}:{first}: '{mode}' means nothing for {fence[2]}; there are {MODES[fence[2]]}")
            if mode == "skip" and not comment[2]:
                raise Mistake(f"{document.name}:{first}: say why the block is skipped")
            if mode in ("part", "excerpt") and not (TREE / comment[2]).is_file():
                raise Mistake(f"{document.name}:{first}: '{comment[2]}' is no file of the tree")
            blocks.append(Block(document, first + 1, fence[2], mode, comment[2] if comment else "", lines[first:i]))
        elif mode:
            raise Mistake(f"{document.name}:{first}: a block of {fence[2] or 'no language'} is not tested anyway")
        before = ""
        i += 1
    return blocks


def program_of(blocks):
    """One translation unit for blocks without main(): each a function, run by its number."""
    head, body, bodies = ["#include <weft/weft.hpp>"], [], []
    for block in blocks:
        code = []
        for offset, line in enumerate(block.lines):
            hoisted = HOISTED.match(line)
            if hoisted:
                head.append(line)
            code.append("" if hoisted else line)
        code = [f'#line {block.line} "{block.document.name}"', *code]
        if block.mode == "continue":
            if not bodies:
                raise Mistake(f"{block.place}: nothing to continue")
            bodies[-1][1].extend(code)
        elif block.mode == "declarations":
            body += [f"inline namespace block_{block.line} {{", *code, "}"]
        else:
            bodies.append((block, code))
    calls = []
    for block, code in bodies:
        body += [f"static void block_{block.line}() {{", *code, "}"]
        calls.append(f'  if (number == "{block.line}") block_{block.line}();')
    return "\n".join([*head, "#include <cstdio>", "#include <exception>", "#include <string>", "using namespace weft;", *body,
                      '#line 1 "main"', "int main(int, char** arguments) try {", "  const std::string number = arguments[1];",
                      *calls, "} catch (const std::exception& error) {", '  std::fprintf(stderr, "%s\\n", error.what());',
                      "  return 1;", "}", ""])


def build(blocks, options):
    """Compiles all C++ blocks, and gives for each block that runs by itself its command."""
    folder = options.scratch / "cpp"
    folder.mkdir(parents=True)
    commands, targets, joined = {}, [], {}
    for block in blocks:
        if any(re.match(r"\s*int main\(", line) for line in block.lines):
            if block.mode in ("continue", "declarations"):
                raise Mistake(f"{block.place}: a block with main() stands alone")
            target = f"{block.document.stem}_{block.line}"
            text = "\n".join([f'#line {block.line} "{block.document.name}"', *block.lines, ""])
            (folder / f"{target}.cpp").write_text(text, "utf-8")
            targets.append(target)
            commands[id(block)] = [folder / "build" / target]
        else:
            joined.setdefault(block.document, []).append(block)
            if block.mode not in ("continue", "declarations"):
                commands[id(block)] = [folder / "build" / block.document.stem, str(block.line)]
    for document, group in joined.items():
        (folder / f"{document.stem}.cpp").write_text(program_of(group), "utf-8")
        targets.append(document.stem)
    (folder / "CMakeLists.txt").write_text("\n".join([
        "cmake_minimum_required(VERSION 3.25)", "project(blocks LANGUAGES CXX)", "find_package(weft REQUIRED)",
        "find_package(fmt REQUIRED)",
        *(f"add_executable({target} {target}.cpp)\ntarget_link_libraries({target} PRIVATE weft::weft fmt::fmt)"
          for target in targets), ""]), "utf-8")
    configure = ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={options.prefix}"]
    if options.compiler:
        configure.append(f"-DCMAKE_CXX_COMPILER={options.compiler}")
    for command in (configure, ["cmake", "--build", folder / "build", "--", "-k", "0"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise Mistake(f"C++ blocks do not compile:\n{built.stdout}{built.stderr}")
    return commands


def script_of(block):
    lines = block.lines
    if block.language == "console":
        taken, lines = False, []
        for line in block.lines:
            if line.startswith("$ ") or taken:
                lines.append(line.removeprefix("$ "))
                taken = line.endswith("\\")
    kept = []
    for line in lines:
        ours = OF_THE_TREE.match(line.strip())
        if ours and ours[1] and not os.access(TREE / ours[1], os.X_OK):
            raise Mistake(f"{ours[1]} is no script of the tree")
        kept.append("" if ours else line)
    return "\n".join(kept) + "\n"


def run(command, folder, options, **more):
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": f"{options.prefix / 'bin'}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS_MAX, check=False, **more)
    except subprocess.TimeoutExpired as expired:
        raise Mistake(f"still running after {SECONDS_MAX} s") from expired
    if done.returncode != 0:
        raise Mistake(f"exit code {done.returncode}\n{done.stdout.decode('utf-8', 'replace')}")


def check_parts(block, blocks):
    parts = [other for other in blocks
             if (other.document, other.mode, other.argument) == (block.document, "part", block.argument)]
    wanted = (TREE / block.argument).read_text("utf-8").splitlines()
    at = 0  # line of the file where the next part begins
    for part in parts:
        for offset, line in enumerate(part.lines):
            if at + offset >= len(wanted) or line != wanted[at + offset]:
                raise Mistake(f"line {part.line + offset} of the document is not line {at + offset + 1} of {block.argument}")
        at += len(part.lines)
        if part is not parts[-1]:
            if at >= len(wanted) or wanted[at]:
                raise Mistake(f"{block.argument}:{at + 1}: the part at line {part.line} of the document ends here")
            at += 1
    if at != len(wanted):
        raise Mistake(f"{block.argument} goes on after line {at}, where the last part ends")


def check_excerpt(block):
    wanted = [line.strip() for line in block.lines]
    there = [line.strip() for line in (TREE / block.argument).read_text("utf-8").splitlines()]
    if not any(there[at:at + len(wanted)] == wanted for at in range(len(there) - len(wanted) + 1)):
        raise Mistake(f"these lines do not stand in {block.argument}")


def check(block, blocks, commands, options):
    folder = options.scratch / block.document.stem
    if block.mode == "part":
        check_parts(block, blocks)
    elif block.mode == "excerpt":
        check_excerpt(block)
    elif block.language == "json":
        try:
            json.loads("\n".join(block.lines))
        except ValueError as error:
            raise Mistake(f"not JSON: {error}") from error
    elif block.language in SCRIPTS:
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / f"block-{block.line}.{block.language}"
        script.write_text("\n".join([*block.lines, ""]), "utf-8")
        run([options.prefix / "bin/weft", "run", script.resolve(), *(block.argument.split() if block.mode == "run" else [])], folder, options, stdin=subprocess.DEVNULL)
    elif block.language == "cpp":
        if block.mode != "compile" and id(block) in commands:
            run(commands[id(block)], folder, options, stdin=subprocess.DEVNULL)
    else:
        flags = ["-n"] if block.mode == "syntax" else ["-euo", "pipefail"]
        run(["bash", *flags, "-c", script_of(block)], folder, options, stdin=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="where Weft is installed")
    parser.add_argument("--scratch", type=pathlib.Path, required=True, help="a folder to work in; emptied first")
    parser.add_argument("--compiler", help="the C++ compiler")
    parser.add_argument("documents", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    options.prefix = options.prefix.resolve()
    shutil.rmtree(options.scratch, ignore_errors=True)
    options.scratch.mkdir(parents=True)
    options.scratch = options.scratch.resolve()

    passed = failed = skipped = 0
    try:
        blocks = [block for document in options.documents for block in blocks_of(document)]
        cpp = [block for block in blocks if block.language == "cpp" and block.mode not in ("skip", "part", "excerpt")]
        commands = build(cpp, options) if cpp else {}
    except Mistake as mistake:
        print(mistake)
        print("0 passed, 1 failed")
        return 1
    for block in blocks:
        if block.mode == "skip":
            skipped += 1
            continue
        start = time.monotonic()
        try:
            check(block, blocks, commands, options)
            passed += 1
            print(f"{block.place} {block.language} passed, {time.monotonic() - start:.1f} s")
        except Mistake as mistake:
            failed += 1
            print(f"{block.place} {block.language} FAILED: {mistake}")
    if passed + failed == 0:
        print("no block was found to test")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
