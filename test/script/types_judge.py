#!/usr/bin/python3
"""The TypeScript compiler accepts the declarations of "weft" and the examples, and refuses wrong uses: types_judge.py WEFT"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/scripts"
TSC = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES", "")) / "typescript/lib/tsc.js"
NODE = shutil.which("node") or shutil.which("nodejs")
WEFT = ""
OPTIONS = ["--noEmit", "--strict", "--target", "esnext", "--lib", "esnext", "--module", "esnext", "--moduleResolution", "bundler",
           "--allowJs", "--allowImportingTsExtensions", "--jsx", "react", "--jsxFactory", "h", "--skipLibCheck", "false"]
WRONG = {
    "an unknown op": "import { ones } from 'weft'; ones([2]).softmaxx(-1);",
    "an attribute of another type": "import { ones } from 'weft'; ones([2]).softmax({ axis: 'last' });",
    "an unknown attribute": "import { ones } from 'weft'; ones([2]).sum({ axess: 0 });",
    "an unknown dtype": "import { tensor } from 'weft'; tensor([1], { dtype: 'f33' });",
    "an unknown word": "import { ones } from 'weft'; ones([2]).crossEntropy(ones([2]), null, { reduction: 'sums' });",
    "a missing input": "import { matmul, ones } from 'weft'; matmul(ones([2]));",
    "a missing attribute": "import { ones } from 'weft'; ones([2]).reshape();",
    "an unknown option": "import { nn } from 'weft'; nn.linear(1, 2, { bais: true });",
    "an unknown filter": "import { image, zeros } from 'weft'; image.resize(zeros([2, 2, 3]), 4, 4, { filter: 'box' });",
    "a sound without a rate": "import { audio, zeros } from 'weft'; audio.mono({ samples: zeros([2]) });",
    "files outside of the sandbox": "import * as fs from 'fs';",
}


def check(folder, *files, options=()):
    declarations = pathlib.Path(folder) / "weft.d.ts"
    declarations.write_text(subprocess.run([WEFT, "script", "types"], capture_output=True, text=True, check=True).stdout, "utf-8")
    # --typeRoots: no packages of the machine.
    return subprocess.run([NODE, TSC, *OPTIONS, *options, "--typeRoots", folder, declarations, *files], cwd=folder, capture_output=True, text=True, check=False)


@unittest.skipUnless(TSC.is_file() and NODE, "TypeScript or Node.js is missing: script/setup --judges")
class Types(unittest.TestCase):
    def test_the_examples(self):
        files = sorted(path for folder in (EXAMPLES, EXAMPLES.parent / "joined") for path in folder.iterdir() if path.suffix in (".js", ".ts", ".tsx", ".jsx"))
        with tempfile.TemporaryDirectory() as folder:
            for chosen, options in (([f for f in files if f.suffix in (".ts", ".tsx")], ()),
                                    ([f for f in files if f.suffix in (".js", ".jsx")], ("--checkJs", "--noImplicitAny", "false", "--strictNullChecks", "false", "--useUnknownInCatchVariables", "false"))):
                result = check(folder, *chosen, options=options)
                self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_globals_of_the_web(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "web.ts"
            path.write_text('const url = new URL("/x", "http://h"), controller = new AbortController();\nurl.searchParams.append("a", "b");\n'
                            'const reply = await fetch(url, { headers: new Headers({ a: "b" }), signal: AbortSignal.any([controller.signal]) });\n'
                            'const data: { a: number } = await reply.json();\nconsole.table([structuredClone(data)]);\n'
                            'const text: string = new TextDecoder().decode(new TextEncoder().encode(crypto.randomUUID()));\nconsole.log(text, import.meta.url);', "utf-8")
            self.assertEqual(check(folder, path).stdout, "")

    def test_wrong_uses(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = {}
            for i, (name, text) in enumerate(WRONG.items()):
                paths[name] = pathlib.Path(folder) / f"wrong{i}.ts"
                paths[name].write_text(text, "utf-8")
            said = check(folder, *paths.values()).stdout
            for name, path in paths.items():
                with self.subTest(name):
                    self.assertIn(f"{path.name}(1,", said)


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    unittest.main()
