#!/usr/bin/python3
"""weft workflow check and run: workflow_test.py WEFT [unittest arguments]."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE = 0, 1, 2, 3


def weft(*arguments, stdin=""):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, "workflow", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300,
                          env=environment)


def operation(name, **props):
    return {"type": "Operation", "props": {"name": name, **props}}


def sequential(*children, **props):
    return {"type": "Sequential", "props": props, "children": list(children)}


SOFTMAX = {"name": "softmax", "inputSchema": {"type": "object", "required": ["x"]}, "tree": sequential(
    operation("tensor.exp", id="exp", input={"x": "$.input.x"}),
    operation("tensor.sum", id="sum", input={"x": "$.exp.result"}),
    operation("tensor.div", input={"x": "$.exp.result", "y": "$.sum.result"}), output={"y": "$.previous.result"})}


class Workflow(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-workflow-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def template(self, template):
        path = self.folder / "w.json"
        path.write_text(json.dumps(template))
        return path

    def test_check(self):
        done = weft("check", self.template(SOFTMAX))
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("3 operations; nothing is wrong", done.stdout)
        graph = json.loads(weft("check", self.template(SOFTMAX), "--json").stdout)
        self.assertEqual(graph["problems"], [])
        self.assertEqual([n["operation"] for n in graph["graph"]["nodes"]], ["tensor.exp", "tensor.sum", "tensor.div"])
        done = weft("check", "-", stdin=json.dumps(sequential(operation("tensor.exq"), operation("tensor.exp", input={"x": "one"}))))
        self.assertEqual(done.returncode, USAGE)
        self.assertEqual(done.stdout.splitlines(),
                         ['/tree/children/0/props/name: there is no operation "tensor.exq". Did you mean tensor.exp? (UNKNOWN_OPERATION)'])
        done = weft("check", self.template(sequential(operation("tensor.exp", input={"x": "one"}))), "--json")
        self.assertEqual([p["code"] for p in json.loads(done.stdout)["problems"]], ["TYPE_MISMATCH"])

    def test_run(self):
        (self.folder / "x.npy").write_bytes(
            b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".ljust(117) + b"\n" +
            struct.pack("<2f", 0, 0))
        done = weft("run", self.template(SOFTMAX), "--tensor", f"x={self.folder / 'x.npy'}", "--device", "cpu", "--events", "--graph",
                    self.folder / "g.json", "--out", self.folder / "y.npy")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn('completed  root.1 "sum"  tensor.sum', done.stderr)
        self.assertEqual((self.folder / "y.npy").read_bytes()[-8:], struct.pack("<2f", 0.5, 0.5))
        nodes = {n["id"]: n for n in json.loads((self.folder / "g.json").read_text())["nodes"]}
        self.assertEqual(nodes["root.2"]["status"], "completed")
        self.assertEqual(json.loads(weft("run", self.template(operation("tensor.add", input={"x": 1, "y": 2})), "--device", "cpu").stdout)
                         ["result"]["$tensor"]["shape"], [])

    def test_what_goes_wrong(self):
        for template, code, said in ((SOFTMAX, USAGE, "the workflow's input does not fit"), (sequential(operation("tensor.none")), USAGE, "UNKNOWN_OPERATION"),
                                     ({"type": "Loop"}, USAGE, 'there is no element "Loop"')):
            done = weft("run", self.template(template), "--device", "cpu")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stderr)
        failing = sequential(operation("tensor.reshape", input={"x": 1, "shape": [2]}), operation("tensor.exp", input={"x": 1}))
        done = weft("run", self.template(failing), "--device", "cpu", "--graph", self.folder / "g.json")
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertIn("SHAPE_ERROR: /tree/children/0: reshape", done.stderr)
        nodes = {n["id"]: n["status"] for n in json.loads((self.folder / "g.json").read_text())["nodes"]}
        self.assertEqual(nodes, {"root": "failed", "root.0": "failed", "root.1": "aborted"})
        self.assertEqual(weft("check", self.folder / "none.json").returncode, FILE)
        self.assertEqual(weft("check", "-", stdin="{").returncode, FILE)


if __name__ == "__main__":
    unittest.main()
