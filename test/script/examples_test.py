#!/usr/bin/python3
"""The examples run, and `weft run` and `weft repl` keep their promises: examples_test.py WEFT"""
import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/scripts"
WEFT = ""


def weft(*arguments, text=None, timeout=100):
    environment = {**os.environ, "WEFT_DEVICE": "cpu"}
    return subprocess.run([WEFT, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=timeout, env=environment, check=False)


def run_text(text, *options, name="script.js"):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_text(text, "utf-8")
        return weft("run", path, "--device", "cpu", *options)


class Examples(unittest.TestCase):
    OPTIONS = {"operation.js": ["--allow-register", "models", "--allow-operations", "tensor.softmax"]}
    PRINTED = {"tensors.js": "sum 21", "autograd.js": "slope 2.00 offset 1.00", "train.js": "accuracy", "operation.js": "OperationError VALIDATION_ERROR",
               "regression.ts": "width 32", "tree.tsx": "result [4, 1]", "kernel.js": "[4, 5, 6, 1, 2, 3]", "data.ts": "",
               "spectrogram.ts": "a picture 160 x 200 x 3"}

    def test_all(self):
        names = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".js", ".ts", ".tsx", ".jsx"))
        self.assertEqual(names, sorted(self.PRINTED))
        for name in names:
            with self.subTest(name):
                ran = weft("run", EXAMPLES / name, "--device", "cpu", *self.OPTIONS.get(name, []))
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                self.assertIn(self.PRINTED[name], ran.stdout)

    def test_an_example_without_its_grant_is_refused(self):
        ran = weft("run", EXAMPLES / "operation.js", "--device", "cpu")
        self.assertEqual(ran.returncode, 9)
        self.assertIn("--allow-register", ran.stderr)


class Run(unittest.TestCase):
    def test_exit_codes(self):
        for text, options, code, message in (
                ("console.log(1)", [], 0, ""),
                ("throw new Error('mine')", [], 1, "Error: mine"),
                ("const x = ;", [], 1, "SyntaxError"),
                ("for (;;);", ["--time-limit", "0.3"], 5, "limit of 0.3 s"),
                ("const a = []; for (;;) a.push(new Array(1000).fill(1))", ["--memory-limit", "32"], 6, "limit of 32 MB"),
                ("const f = () => f() + 1; f()", ["--stack-limit", "256"], 7, "limit of 256 KB"),
                ("import { rand } from 'weft'; rand([1e7]).eval()", ["--device-memory", "16"], 8, "DeviceMemoryError"),
                ("import { files } from 'weft'; files.readText('/etc/hosts')", [], 9, "--allow-read")):
            with self.subTest(text):
                ran = run_text(text, *options)
                self.assertEqual(ran.returncode, code, ran.stderr)
                self.assertIn(message, ran.stderr)

    def test_streams(self):
        ran = run_text("console.log('out'); console.error('err')")
        self.assertEqual((ran.stdout, ran.stderr), ("out\n", "err\n"))

    def test_a_missing_file(self):
        self.assertEqual(weft("run", "/nothing.js").returncode, 3)

    def test_leaks(self):
        ran = run_text("import { rand } from 'weft';\nglobalThis.kept = rand([1000]).eval();", "--leaks")
        self.assertIn("4000 bytes  1 Tensor", ran.stderr)
        self.assertIn("script.js:2", ran.stderr)

    def test_a_kernel_that_outlives_the_limit_ends_the_process(self):
        begin = time.monotonic()
        ran = run_text("import { rand } from 'weft'; let x = rand([6000, 6000]); for (let i = 0; i < 400; ++i) x = x.matmul(x); x.sum().item()", "--time-limit", "0.5")
        self.assertEqual(ran.returncode, 5)
        self.assertLess(time.monotonic() - begin, 30)

    def test_fetch(self):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.send_header("X-Mine", "yes")
                self.end_headers()
                self.wfile.write(b"got " + body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        text = f"""import {{ fetch }} from "weft";
        const r = await fetch("http://127.0.0.1:{port}/a?b", {{ method: "POST", body: "text", headers: {{ "X-Other": "1" }} }});
        console.log(r.status, r.ok, r.headers["x-mine"], r.text);"""
        self.assertEqual(run_text(text, "--allow-net", "127.0.0.1").stdout, "201 true yes got text\n")
        self.assertEqual(run_text(text, "--allow-net", f"127.0.0.1:{port}").stdout, "201 true yes got text\n")
        for other in ("127.0.0.1:1", "localhost", "127.0.0"):
            self.assertEqual(run_text(text, "--allow-net", other).returncode, 9)
        web = f"""const r = await fetch(new URL("a?b", "http://127.0.0.1:{port}/"), {{ method: "post", body: new URLSearchParams({{ q: "a b" }}), headers: new Headers({{ x: "1" }}) }});
        console.log(r.status, r.ok, r.headers.get("X-Mine"), await r.text(), r.bodyUsed, r.url.slice(-4));
        console.log(await fetch("http://127.0.0.1:{port}/", {{ signal: AbortSignal.abort() }}).catch((e) => e.name));
        console.log(await fetch("http://127.0.0.1:1/").catch((e) => e.name));"""
        ran = run_text(web, "--allow-net", f"127.0.0.1:{port}")
        self.assertEqual(ran.stdout, "201 true yes got q=a+b true /a?b\nAbortError\nAccessError\n", ran.stderr)
        ungranted = run_text('await fetch("http://example.org/")')
        self.assertEqual(ungranted.returncode, 9)
        self.assertIn("--allow-net", ungranted.stderr)
        server.shutdown()

    def test_imports(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "lib.ts").write_text("export const twice = (x: number): number => 2 * x;")
            (folder / "data.json").write_text('{"a": [1, 2], "__proto__": {"b": 3}}')
            (folder / "broken.json").write_text('{\n  "a": 1,\n  b\n}')
            main = folder / "my main.ts"
            main.write_text('import { twice } from "./lib";\nimport { twice as same } from "./lib.js";\nimport data from "./data.json" with { type: "json" };\n'
                            'const later = await import("./lib.ts");\nconsole.log(twice(1), same === twice, later.twice(3), data.a, Object.keys(data).length, import.meta.url);')
            ran = weft("run", main)
            self.assertEqual(ran.stdout, f"2 true 6 [1, 2] 2 file://{str(main).replace(' ', '%20')}\n", ran.stderr)
            main.write_text('import "./broken.json";')
            self.assertRegex(weft("run", main).stderr, r"SyntaxError.*\n.*broken\.json:3")


class Repl(unittest.TestCase):
    def test_a_conversation(self):
        lines = ["let x = tensor([1, 2])", "x.add(1)", "const f = (y: number) => {", "  return y * 2", "}", "f(21)",
                 "await x.sum().read()", "nothing", "_ + 1", "{ a: 1 }", ""]
        ran = weft("repl", "--device", "cpu", text="\n".join(lines))
        self.assertEqual(ran.stdout.splitlines(), ["[2, 3]  f32 [2]", "42", "Float32Array [3]", '"31"', "{ a: 1 }"])
        self.assertIn("ReferenceError", ran.stderr)

    def test_the_end_of_the_input_ends_a_statement(self):
        ran = weft("repl", "--device", "cpu", text="1 + 1\n[2,\n3")
        self.assertEqual(ran.stdout, "2\n")
        self.assertIn("SyntaxError", ran.stderr)
        self.assertNotEqual(ran.returncode, 0)

    def test_a_folder_is_not_a_script(self):
        ran = weft("run", "/")
        self.assertEqual(ran.returncode, 3)
        self.assertIn("it is a folder", ran.stderr)


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    unittest.main()
