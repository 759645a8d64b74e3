#!/usr/bin/python3
"""check_blocks.py passes sound blocks and fails every kind of broken one. Works on a stand-in for an installed Weft."""
import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).with_name("check_blocks.py")

HEADER = """#pragma once
#include <stdexcept>
namespace weft { inline int two() { return 2; } inline void refuse() { throw std::runtime_error("refused by weft"); } }
"""
CONFIG = """add_library(weft::weft INTERFACE IMPORTED)
set_target_properties(weft::weft PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../../include)
"""
COMMAND = "#!/bin/sh\necho weft \"$@\"\n"

SOUND = """# Sound
```cpp
#include <cstdlib>
int four = two() + 2;
```
<!-- test: continue -->
```cpp
if (four != 4) std::abort();
```
<!-- test: declarations -->
```cpp
template <class T> T twice(T x) { return 2 * x; }
```
```cpp
if (twice(two()) != 4) throw std::runtime_error("wrong");
```
```cpp
#include <weft/weft.hpp>
int main() { return weft::two() - 2; }
```
<!-- test: compile -->
```cpp
refuse();
```
```sh
git clone somewhere weft
cd weft
script/build release
weft train > said
```
```console
$ grep train \\
    said
weft train
```
<!-- test: syntax -->
```bash
rm -rf does/not/run && false
```
<!-- test: skip needs a GPU -->
```sh
false
```
```json
{"steps": []}
```
<!-- test: run --allow-read . -->
```js
console.log("run by weft");
```
```text
not code
```
"""
LESSON = (CHECK.parents[2] / "examples/lesson.cpp").read_text("utf-8").rstrip("\n").split("\n\n", 1)


def part(text, of="examples/lesson.cpp", mode="part"):
    return f"<!-- test: {mode} {of} -->\n```cpp\n{text}\n```\n"


# name of the case, the document, what is said of it
BROKEN = [
    ("C++ that does not compile", "\n```cpp\nthree();\n```\n", "document.md:3"),
    ("C++ that throws", "```cpp\nrefuse();\n```\n", "refused by weft"),
    ("a main that fails", "```cpp\nint main() { return 3; }\n```\n", "exit code 3"),
    ("a command that fails", "```sh\nfalse\ntrue\n```\n", "document.md:2 sh FAILED: exit code 1"),
    ("a command that is not there", "```console\n$ weft-not-there\n```\n", "not found"),
    ("a script that is not there", "```sh\nscript/nothing\n```\n", "script/nothing is no script of the tree"),
    ("bad syntax", "<!-- test: syntax -->\n```sh\nif true\n```\n", "syntax error"),
    ("bad JSON", "```json\n{1: 2}\n```\n", "not JSON"),
    ("skipped without a reason", "<!-- test: skip -->\n```sh\ntrue\n```\n", "say why"),
    ("an unknown comment", "<!-- test: maybe -->\n```sh\ntrue\n```\n", "'maybe' means nothing"),
    ("a block that does not end", "```sh\ntrue\n", "does not end"),
    ("a part that differs", part(LESSON[0]) + part(LESSON[1].replace("sum", "total", 1)), "of the document is not line"),
    ("a part left out", part(LESSON[0]), "goes on after line"),
    ("parts out of order", part(LESSON[1]) + part(LESSON[0]), "line 3 of the document is not line 1"),
    ("a part of no file", part(LESSON[0], "examples/nothing.cpp"), "no file of the tree"),
    ("an excerpt that differs", part("int main() {\nreturn 7;", mode="excerpt"), "do not stand in examples/lesson.cpp"),
    ("nothing to test", "Only words.\n", "no block was found"),
    ("only skipped", "<!-- test: skip no GPU -->\n```sh\nfalse\n```\n", "no block was found"),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for path, text in {"include/weft/weft.hpp": HEADER, "lib/cmake/weft/weft-config.cmake": CONFIG, "bin/weft": COMMAND}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        (folder / "bin/weft").chmod(0o755)
        document = folder / "document.md"

        def check(text):
            document.write_text(text, "utf-8")
            return subprocess.run([sys.executable, CHECK, "--prefix", folder, "--scratch", folder / "scratch", document],
                                  capture_output=True, text=True, check=False)

        result = check(SOUND + part(LESSON[0]) + part(LESSON[1]) + part("int main() {", mode="excerpt"))
        if result.returncode != 0 or not result.stdout.endswith("14 passed, 0 failed, 1 skipped\n"):
            failed += 1
            print(f"sound blocks: {result.returncode}: {result.stdout}{result.stderr}")
        for name, text, expected in BROKEN:
            result = check(text)
            if result.returncode != 1 or expected not in result.stdout:
                failed += 1
                print(f"{name}: expected {expected!r}, got {result.returncode}: {result.stdout}{result.stderr}")
    print(f"{len(BROKEN) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
