#!/usr/bin/python3
"""script/lint finds what it is there for, and nothing in a clean tree."""
import json
import pathlib
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).parents[2] / "script" / "lint"
ONCE = "#pragma once\n"
SLASH = "/"  # so that this file names no machine's path itself

# name of the case, file, its text, what the finding says (None: no finding)
CASES = [
    ("a folder may include one before it", "src/graph/a.cpp", '#include "ops/b.hpp"\n', None),
    ("a folder may include itself", "src/graph/a.cpp", '#include "graph/b.hpp"\n', None),
    ("public headers are for all", "src/base/a.cpp", '#include "weft/error.hpp"\n#include <weft/error.hpp>\n', None),
    ("runtime sees the backends", "src/runtime/a.cpp", '#include "backend/cpu/a.hpp"\n', None),
    ("a backend sees the contract", "src/backend/cpu/a.cpp", '#include "backend/contract.hpp"\n', None),
    ("a backend sees kernels", "src/backend/webgpu/a.cpp", '#include "compile/kernel.hpp"\n', None),
    ("against the order", "src/ops/a.cpp", '\n#include "graph/b.hpp"\n', "src/ops/a.cpp:2: ops/ must not include graph/"),
    ("against the order with angle brackets", "src/base/a.hpp", ONCE + "#include <cli/b.hpp>\n", "base/ must not include cli/"),
    ("a path that goes round", "src/base/a.cpp", '#include "tensor/../graph/b.hpp"\n', "base/ must not include graph/"),
    ("a relative path", "src/base/a.cpp", '#include "../graph/b.hpp"\n', "not by a relative path"),
    ("compile without gradients", "src/compile/a.cpp", '#include "autograd/b.hpp"\n', "compile/ must not include autograd/"),
    ("a backend without gradients", "src/backend/cpu/a.cpp", '#include "autograd/b.hpp"\n', "must not include autograd/"),
    ("backends apart", "src/backend/cpu/a.cpp", '#include "backend/webgpu/b.hpp"\n', "must not include backend/webgpu/"),
    ("the contract alone", "src/backend/a.hpp", ONCE + '#include "backend/cpu/b.hpp"\n', "backend/ must not include backend/cpu/"),
    ("links against the order", "src/CMakeLists.txt", "weft_folder(graph)\nweft_folder(ops graph)\n", "ops/ must not link graph/"),
    ("links that bring gradients", "src/CMakeLists.txt", "weft_folder(autograd)\nweft_folder(compile autograd)\n",
     "compile/ must not link autograd/"),
    ("links in order", "src/CMakeLists.txt", "weft_folder(base)\nweft_folder(compile base)\nweft_folder(backend/cpu compile)\n", None),
    ("an unknown folder", "src/misc/a.cpp", "int a;\n", "lies in no folder of the map"),
    ("public headers stay public", "include/weft/a.hpp", ONCE + '#include "graph/node.hpp"\n', "public and standard headers only"),
    ("public headers without libraries", "include/weft/a.hpp", ONCE + "#include <fmt/core.h>\n", "public and standard headers only"),
    ("public headers meet", "include/weft/a.hpp", ONCE + "#include <vector>\n#include <weft/b.hpp>\n", None),
    ("a library that prints", "src/train/a.cpp", 'void a() {\n  std::printf("step");\n}\n', "src/train/a.cpp:2: only cli/ prints"),
    ("a library that listens", "src/train/a.cpp", "auto a = isatty(1);\n", "only cli/ prints"),
    ("a library that speaks of printing", "src/train/a.cpp", "// goes to stdout\nint b = snprintf(nullptr, 0, \"\");\n", None),
    ("a command that prints", "src/cli/a.cpp", "auto a = stdout;\n", None),
    ("a header once", "src/base/a.hpp", "int a();\n", "without #pragma once"),
    ("a machine's path", "docs/a.md", f"see {SLASH}work/main\n", "names a path or a host of one machine"),
    ("a home folder", "script/a", f"cd {SLASH}home/ann/weft\n", "names a path or a host of one machine"),
    ("a registry's host", "script/a", "fetch https://pypi" + ".org/simple\n", "names a path or a host of one machine"),
    ("a path that is not one", "docs/a.md", f"network{SLASH}work{SLASH}net, framework{SLASH}rooted\n", None),
    ("a large file", "docs/a.bin", "x" * ((1 << 20) + 1), "a file of the tree has at most"),
]


def lint(*arguments):
    return subprocess.run([LINT, "--no-format", *arguments], capture_output=True, text=True, check=False)


def main():
    failed = 0
    for name, path, text, expected in CASES:
        with tempfile.TemporaryDirectory() as tree:
            file = pathlib.Path(tree) / path
            file.parent.mkdir(parents=True)
            file.write_text(text, "utf-8")
            result = lint(tree)
            if expected is None:
                good = result.returncode == 0
            else:
                good = result.returncode == 1 and expected in result.stdout and "1 finding\n" in result.stdout
            if not good:
                failed += 1
                print(f"{name}: expected {expected!r}, got {result.returncode}: {result.stdout}{result.stderr}")
    with tempfile.TemporaryDirectory() as tree:
        source = pathlib.Path(tree) / "src"
        (source / "llm").mkdir(parents=True)
        (source / "CMakeLists.txt").write_text("weft_folder(base)\nweft_folder(nn base)\nweft_folder(llm base)\n", "utf-8")
        (source / "llm" / "a.cpp").write_text('#include "base/a.hpp"\n#include "nn/b.hpp"\n', "utf-8")
        result = lint(tree)
        if "llm/a.cpp:2: llm/ includes nn/ (nn/b.hpp) but does not link it" not in result.stdout or "1 finding\n" not in result.stdout:
            failed += 1
            print(f"an include without a link: got {result.returncode}: {result.stdout}{result.stderr}")
    with tempfile.TemporaryDirectory() as tree:
        tree = pathlib.Path(tree)
        (tree / "src").mkdir()
        (tree / "src" / "CMakeLists.txt").write_text("weft_folder(base)\nweft_folder(nn base)\nweft_folder(llm nn)\n", "utf-8")
        preset = {"name": "wasm", "cacheVariables": {"WEFT_ONLY_FOLDERS": "base;llm"}}
        (tree / "CMakePresets.json").write_text(json.dumps({"configurePresets": [preset]}), "utf-8")
        result = lint(tree)
        if "the preset wasm has llm/ and lacks nn/, which llm/ links" not in result.stdout or "1 finding\n" not in result.stdout:
            failed += 1
            print(f"a module without a folder that it links: got {result.returncode}: {result.stdout}{result.stderr}")
    if lint("--bogus").returncode != 2:
        failed += 1
        print("a wrong argument must exit with 2")
    print(f"{len(CASES) + 3 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
