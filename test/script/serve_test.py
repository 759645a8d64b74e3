#!/usr/bin/python3
"""weft operations serve --script: serve_test.py WEFT. Grants, scopes, limits and failures, through the command and HTTP."""
import concurrent.futures
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

WEFT = ""
LAB = """
import { operations, files } from "weft";
const lab = (name, f, more = {}) => operations.register({ namespace: "lab", name, scopes: ["lab:run"], ...more }, f);
console.log("loading");
let count = 0;
lab("count", () => ++count);
lab("loops", () => { for (;;); });
lab("throws", () => { throw new RangeError("mine") });
lab("file", ({ path }) => files.readText(path));
lab("add", async ({ x, y }) => (await operations.call("tensor.add", { x, y })).result.item());
lab("exp", async ({ x }) => (await operations.call("tensor.exp", { x })).result.item());
lab("up", async function* ({ to }) { for (let i = 0; i < to; ++i) yield i }, { kind: "subscription" });
"""


@contextlib.contextmanager
def server(folder, *options):
    (folder / "lab.js").write_text(LAB)
    (folder / "open").mkdir()
    (folder / "open" / "text.txt").write_text("open")
    (folder / "secret.txt").write_text("secret")
    (folder / "tokens.json").write_text(json.dumps({"tokens": [{"token": "token-with-the-scope", "id": "me", "scopes": ["lab:run"]},
                                                               {"token": "token-that-runs-scripts", "id": "runner", "scopes": ["script:run"]},
                                                               {"token": "token-without-the-scope", "id": "other"}]}))
    log = folder / "log"
    with open(log, "w") as out:
        process = subprocess.Popen([WEFT, "operations", "serve", "--script", folder / "lab.js", "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json",
                                    "--device", "cpu", *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out, cwd=folder)
    try:
        while not (found := re.search(r"on http://127.0.0.1:(\d+)\n", log.read_text())):
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.05)
        yield int(found[1]), log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, process.returncode


def ask(port, name, value, token="token-with-the-scope", space="lab"):
    """The data of the answer, or the code and the message of the error."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/operations/{space}.{name}", json.dumps(value).encode(),
                                     {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = reply.read().decode()
            return json.loads(text)["data"] if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read())["error"]
        return f"{error.code} {problem['code']}: {problem['message']}"


class Serve(unittest.TestCase):
    def test_a_script_is_served(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with server(folder, "--allow-register", "lab", "--allow-operations", "tensor.add", "--allow-read", folder / "open", "--time-limit", "1") as (port, log):
                self.assertIn("lab.js offers lab.count, lab.loops", log.read_text())
                self.assertIn("loading\n", log.read_text())
                self.assertEqual([ask(port, "count", {}), ask(port, "count", {})], [1, 2])
                self.assertEqual(ask(port, "add", {"x": 2, "y": 3}), 5)
                self.assertEqual(ask(port, "file", {"path": str(folder / "open/text.txt")}), "open")
                self.assertEqual(re.findall(r'"data":(\d)', ask(port, "up", {"to": 3})), ["0", "1", "2"])
                for given, start in ((("exp", {"x": 1}), "500 SCRIPT_ERROR: AccessError"),  # not granted
                                     (("file", {"path": str(folder / "secret.txt")}), "500 SCRIPT_ERROR: AccessError"),
                                     (("throws", {}), "500 SCRIPT_ERROR: RangeError: mine"),
                                     (("loops", {}), "504 TIMEOUT: the script worked longer than its limit of 1 s"),
                                     (("count", {}, "token-without-the-scope"), "403 ACCESS_DENIED")):
                    self.assertTrue(ask(port, *given).startswith(start), (start, ask(port, *given)))
                self.assertNotIn("lab.js:", ask(port, "throws", {}))
                self.assertEqual(ask(port, "count", {}), 3)
                self.assertIn("lab.js:8", log.read_text())

    def test_scripts_of_callers(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "secret.ts").write_text("export const secret = 7;")
            with server(folder, "--allow-register", "lab", "--allow-operations", "tensor.add", "--allow-read", folder / "open", "--run-scripts",
                        "--time-limit", "20", "--memory-limit", "64", "--device-memory", "64") as (port, log):
                def run(source, token="token-that-runs-scripts", **more):
                    return ask(port, "run", {"source": source, **more}, token, "script")

                # As a language model may write it: it fits a line, and prints what it found.
                fitted = """
                    import { tensor, variable, grad, optim, nn, compile, type Tensor } from "weft";
                    const x: Tensor = tensor([[0], [1], [2], [3]]), y = tensor([[1], [3], [5], [7]]);
                    const line = nn.linear(1, 1), adam = optim.adamW(line, { learningRate: 0.1 });
                    const step = compile((x: Tensor, y: Tensor) => { const loss = nn.mse(line(x), y); adam.step(grad(loss, adam)); return loss; });
                    for (let i = 0; i < 300; ++i) step(x, y);
                    console.log(Math.round(line(tensor([[10]])).item()));"""
                self.assertEqual(run(fitted), {"output": ["21"]})
                self.assertEqual(run("console.log(1); console.error('two')", language="js"), {"output": ["1", "error: two"]})
                files = f"import {{ files }} from 'weft'; console.log(files.readText({json.dumps(str(folder / 'open/text.txt'))}))"
                self.assertEqual(run(files), {"output": ["open"]})
                for given, start in (((files.replace("open/text", "secret"),), "403 SCRIPT_REFUSED: AccessError"),
                                     ((f"import {{ secret }} from {json.dumps(str(folder / 'secret.ts'))}; console.log(secret)",), "4"),
                                     (("import { secret } from './secret.ts'; console.log(secret)",), "4"),
                                     (("import { operations } from 'weft'; operations.register({namespace: 'lab', name: 'x'}, () => 1)",), "4"),
                                     (("import { operations } from 'weft'; await operations.call('tensor.add', {x: 1, y: 1})",), "4"),
                                     (("import { fetch } from 'weft'; await fetch('http://127.0.0.1:1')",), "403 SCRIPT_REFUSED"),
                                     (("let x: number = ;",), "422 SCRIPT_ERROR: SyntaxError"),
                                     (("throw new RangeError('mine')",), "422 SCRIPT_ERROR: RangeError: mine"),
                                     (("const all = []; for (;;) all.push(new Array(100000).fill(1))",), "422 SCRIPT_LIMIT"),
                                     (("const f = () => f(); f()",), "422 SCRIPT_LIMIT"),
                                     (("import { ones } from 'weft'; const all = []; for (;;) all.push(ones([1024, 1024]).eval())",), "422 SCRIPT_LIMIT"),
                                     (("x" * 1_000_001,), "400 VALIDATION_ERROR"), ((3,), "400 VALIDATION_ERROR"),
                                     (("1", "token-with-the-scope"), "403 ACCESS_DENIED")):
                    answer = run(*given)
                    self.assertTrue(str(answer).startswith(start), (start, answer))
                printed = run("for (let i = 0; i < 3000; ++i) console.log('x'.repeat(1000))")["output"]
                self.assertLess(sum(map(len, printed)), 1_100_000)
                self.assertIn("more than", printed[-1])
                begin = time.monotonic()
                self.assertTrue(run("for (;;);", time_limit=0.3).startswith("422 SCRIPT_LIMIT"))
                self.assertLess(time.monotonic() - begin, 10)
                # Each run is alone.
                run("globalThis.left = 1")
                self.assertEqual(run("console.log(typeof globalThis.left)"), {"output": ["undefined"]})
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    answers = list(pool.map(lambda _: str(run("const end = Date.now() + 1000; while (Date.now() < end);")), range(8)))
                self.assertEqual(sum("OVERLOADED" in each for each in answers), 4, answers)
                self.assertEqual(run("console.log(2)"), {"output": ["2"]})

    def test_a_script_that_cannot_be_served(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tokens.json").write_text('{"tokens": []}')
            (folder / "lab.js").write_text(LAB)
            (folder / "none.js").write_text("1")
            for options, message in ((["--script", folder / "lab.js"], "--allow-register"), (["--script", folder / "none.js"], "registers no operation"),
                                     (["--script", folder / "missing.js"], "there is no such file"), (["--script", folder / "lab.js", "--stack-limit", "1"], "--stack-limit")):
                ran = subprocess.run([WEFT, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu", *options],
                                     capture_output=True, text=True, timeout=60, check=False)
                self.assertIn(ran.returncode, (2, 3, 105), ran.stderr)
                self.assertIn(message, ran.stderr)


if __name__ == "__main__":
    WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
