#!/usr/bin/python3
"""weft eval, weft ops list, weft doctor: eval_test.py WEFT [unittest arguments]. What they give, and what they refuse."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE, DEVICE = 0, 1, 2, 3, 4
CODES = {"f4": "f", "f8": "d", "i4": "i", "b1": "?"}


def npy(dtype, shape, values):
    header = repr({"descr": ("|" if dtype == "b1" else "<") + dtype, "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def read_npz(path):
    """name -> (dtype, shape, values)."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            raw = archive.read(member)
            length, = struct.unpack("<H", raw[8:10])
            header = eval(raw[10:10 + length].decode(), {})  # noqa: our own file
            dtype = header["descr"][1:]
            data = raw[10 + length:]
            values = struct.unpack(f"<{len(data) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", data)
            arrays[member.removesuffix(".npy")] = (dtype, header["shape"], list(values))
    return arrays


def weft(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") or k == "WEFT_WEBGPU_LIBRARY"}
    return subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=300, env=environment)


class Eval(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-eval-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_long_programs_in_any_order(self):
        steps = [{"op": "sin", "inputs": [f"n{i}" if i else "x"], "output": f"n{i + 1}"} for i in range(20_000)]
        last = steps[-1]["output"]
        ends = []
        for ordered in (steps, steps[::-1]):
            out = self.run_program({"steps": ordered, "outputs": [last], "gradients": []}, {"x": ("f8", [1], [0.5])})
            self.assertEqual(self.done.returncode, OK, self.done.stderr[:500])
            ends.append(out[last][2])
        self.assertEqual(*ends)
        steps[0]["inputs"] = [last]
        self.assertIsNone(self.run_program({"steps": steps[::-1]}, {"x": ("f8", [1], [0.5])}))
        self.assertEqual(self.done.returncode, USAGE)
        self.assertIn("needs its own result", self.done.stderr)

    def test_sizes_beyond_64_bits(self):
        huge = 1 << 62
        for step in ({"op": "rand", "attributes": {"shape": [huge]}}, {"op": "rand", "attributes": {"shape": [1 << 31, 1 << 31]}},
                     {"op": "arange", "attributes": {"n": huge}}, {"op": "ones", "attributes": {"shape": [1 << 32, 1 << 32]}},
                     {"op": "full", "attributes": {"shape": [(1 << 63) - 1], "value": 1}},
                     {"op": "expand", "inputs": ["x"], "attributes": {"shape": [1 << 32, 1 << 30, 4]}},
                     {"op": "pad", "inputs": ["x"], "attributes": {"padding": [[huge - 4, 0]]}},
                     {"op": "pad", "inputs": ["x"], "attributes": {"padding": [[(1 << 63) - 1] * 2]}},
                     {"op": "one_hot", "inputs": ["i"], "attributes": {"classes": 1 << 60}},
                     {"op": "scatter_add", "inputs": ["x", "i"], "attributes": {"rows": huge}}):
            with self.subTest(step=step):
                self.assertIsNone(self.run_program({"steps": [{**step, "output": "y"}]}, {"x": ("f4", [4], [1, 2, 3, 4]), "i": ("i4", [4], [0, 1, 2, 3])}))
                self.assertIn(self.done.returncode, (FAILURE, USAGE), self.done.stderr)
                self.assertRegex(self.done.stderr, r"\Aerror: ")
                self.assertNotIn("std::", self.done.stderr)

    def run_program(self, program, arrays=None, device="cpu"):
        path, out = self.folder / "program.json", self.folder / "out.npz"
        path.write_text(program if isinstance(program, str) else json.dumps(program))
        arguments = ["eval", path, "--out", out, "--device", device]
        if arrays is not None:
            with zipfile.ZipFile(self.folder / "in.npz", "w") as archive:
                for name, array in arrays.items():
                    archive.writestr(name + ".npy", npy(*array))
            arguments += ["--inputs", self.folder / "in.npz"]
        self.done = weft(*arguments)
        return read_npz(out) if self.done.returncode == OK else None

    def refused(self, code, said, program, arrays=None, device="cpu"):
        self.assertIsNone(self.run_program(program, arrays, device), said)
        self.assertEqual(self.done.returncode, code, self.done.stderr)
        self.assertIn(said, self.done.stderr)
        self.assertFalse((self.folder / "out.npz").exists())

    X = {"x": ("f8", [3], [1, 2, 3]), "w": ("f8", [3], [1, 0, 2]), "n": ("i4", [3], [0, 1, 2])}

    def test_steps_gradients_and_their_gradients(self):
        got = self.run_program({"steps": [{"op": "mul", "inputs": ["x", "x"], "output": "y"}, {"op": "square", "inputs": {"x": "dx"}, "output": "z"}],
                                "gradients": [{"of": "y", "weight": "w", "with_respect_to": ["x"], "outputs": ["dx"]}, {"of": "z", "with_respect_to": ["x", "w"]}]}, self.X)
        self.assertEqual(got["y"], ("f8", (3,), [1, 4, 9]))
        self.assertEqual(got["dx"][2], [2, 0, 12])
        self.assertEqual(got["z"][2], [4, 0, 144])
        self.assertEqual(got["grad_x"][2], [8, 0, 96])   # (2 w x)^2 -> 8 w^2 x
        self.assertEqual(got["grad_w"][2], [8, 0, 144])  # 8 w x^2

    def test_dtypes_numbers_optional_inputs_and_chosen_outputs(self):
        got = self.run_program({"steps": [{"op": "add", "inputs": ["n", 2], "output": "a"}, {"op": "mul", "inputs": ["n", 0.5], "output": "h"}, {"op": "gt", "inputs": ["n", 0], "output": "p"},
                                          {"op": "rms_norm", "inputs": ["f", None], "attributes": {"epsilon": 0}, "output": "r"},
                                          {"op": "split", "inputs": ["n"], "attributes": {"lengths": [1, 2]}, "output": ["s", "t"]}, {"op": "clip", "inputs": ["f"], "attributes": {"max": 2.5, "min": "-inf"}, "output": "c"}],
                                "outputs": ["a", "h", "p", "r", "t", "c", "n"]}, {**self.X, "f": ("f4", [2], [3, 3]), "b": ("b1", [1], [True])})
        self.assertEqual(got["a"], ("i4", (3,), [2, 3, 4]))
        self.assertEqual(got["h"], ("f4", (3,), [0, 0.5, 1]))
        self.assertEqual(got["p"], ("b1", (3,), [False, True, True]))
        self.assertEqual([round(v, 5) for v in got["r"][2]], [1, 1])
        self.assertEqual(got["t"][2], [1, 2])
        self.assertEqual(got["c"][2], [2.5, 2.5])
        self.assertNotIn("s", got)

    def test_refusals(self):
        step = lambda **more: {"steps": [{"op": "sin", "inputs": ["x"], "output": "y", **more}]}
        x = self.X
        self.refused(USAGE, "Did you mean softmax?", step(op="sofmax"), x)
        self.refused(USAGE, "making step 1 (sin -> \"y\")", step(attributes={"axis": 1}), x)
        self.refused(USAGE, "softmax has axis", step(op="softmax", attributes={"axes": 1}), x)
        self.refused(USAGE, "attribute axis is \"0.5\", not an integer", step(op="softmax", attributes={"axis": 0.5}), x)
        self.refused(USAGE, "attribute order is missing", step(op="permute"), x)
        self.refused(USAGE, "given twice", step(op="softmax", attributes={"axis": 0, "dim": 0}), x)
        self.refused(USAGE, "input y is missing; it takes x, y", step(op="add"), x)
        self.refused(USAGE, "2 inputs are given; it takes x", step(inputs=["x", "x"]), x)
        self.refused(USAGE, "unknown input \"z\"; it takes x", step(inputs={"z": "x"}), x)
        self.refused(USAGE, "\"xx\" is neither an array of --inputs nor an output", step(inputs=["xx"]), x)
        self.refused(USAGE, "unknown key \"atributes\"", step(atributes={}), x)
        self.refused(USAGE, "give \"output\"", {"steps": [{"op": "sin", "inputs": ["x"]}]}, x)
        self.refused(USAGE, "2 output names", step(output=["a", "b"]), x)
        self.refused(USAGE, "3 output names are given for 2 outputs", step(op="split", attributes={"lengths": [1, 2]}, output=["a", "b", "c"]), x)
        self.refused(USAGE, "\"y\" names two outputs", {"steps": step()["steps"] * 2}, x)
        self.refused(USAGE, "\"x\" names an output, and an array of --inputs", step(output="x"), x)
        self.refused(USAGE, "needs its own result", step(inputs=["y"]), x)
        self.refused(USAGE, "\"steps\" is missing", {"gradients": []}, x)
        self.refused(USAGE, "the program is not an object", [], x)
        self.refused(USAGE, "1 names in \"outputs\" for 2", {**step(), "gradients": [{"of": "y", "with_respect_to": ["x", "w"], "outputs": "g"}]}, x)
        self.refused(FAILURE, "floats only", {**step(), "gradients": [{"of": "y", "with_respect_to": "n"}]}, x)
        self.refused(FAILURE, "no gradient", {**step(inputs=["x"], op="isnan"), "gradients": [{"of": "y", "with_respect_to": "x"}]}, x)
        self.refused(FAILURE, "seed's shape differs", {**step(op="sum"), "gradients": [{"of": "y", "weight": "x", "with_respect_to": "x"}]}, x)
        self.refused(FAILURE, "do not broadcast", step(op="add", inputs=["x", "v"]), {**x, "v": ("f8", [2], [1, 2])})
        self.refused(FAILURE, "outside of [-1, 1)", step(op="sum", attributes={"axes": [3]}), x)
        self.refused(FAILURE, "bitwise_and", step(op="bitwise_and", inputs=["x", "x"]), x)
        self.refused(FILE, "line 1, column", "{\"steps\": ", x)
        self.refused(DEVICE, "webgpu:99", step(), x, device="webgpu:99")
        self.refused(USAGE, "device", step(), x, device="toaster")

    def test_files(self):
        program = self.folder / "program.json"
        program.write_text(json.dumps({"steps": [{"op": "ones", "attributes": {"shape": [2]}, "output": "y"}]}))
        self.assertEqual(weft("eval", program, "--out", self.folder / "out.npz", "--device", "cpu").returncode, OK)
        (self.folder / "broken.npz").write_bytes(b"PK nonsense")
        for arguments in ([program, "--inputs", self.folder / "none.npz", "--out", self.folder / "o.npz"], [program, "--inputs", self.folder / "broken.npz", "--out", self.folder / "o.npz"],
                          [program, "--out", self.folder / "none" / "o.npz"], [self.folder / "none.json", "--out", self.folder / "o.npz"]):
            done = weft("eval", *arguments, "--device", "cpu")
            self.assertEqual(done.returncode, FILE, done.stderr)
            self.assertIn(str(self.folder), done.stderr)
        self.assertEqual(weft("eval", program).returncode, USAGE)


class Ops(unittest.TestCase):
    def test_list(self):
        done = weft("ops", "list")
        self.assertEqual(done.returncode, OK)
        for name in ("  sin ", "  softmax ", "  argmax ", "  pad ", "  adamw "):
            self.assertIn(name, done.stdout)
        headings = [line for line in done.stdout.splitlines()[:-1] if line and not line.startswith(" ")]
        self.assertEqual(len(headings), len(set(headings)))

    def test_json_describes_every_op(self):
        ops = json.loads(weft("ops", "list", "--json").stdout)["ops"]
        self.assertGreater(len(ops), 150)
        names = [name for op in ops for name in [op["name"], *op["aliases"]]]
        self.assertEqual(len(names), len(set(names)))
        for op in ops:
            self.assertTrue(op["doc"].endswith("."), op["name"])
            self.assertTrue(op["dtypes"] or not op["inputs"], op["name"])
            for attribute in op["attributes"]:
                self.assertTrue(attribute["doc"], op["name"])
                self.assertEqual(attribute["required"], "default" not in attribute)
            if op["family"] in ("unary", "binary", "ternary"):
                self.assertEqual(len(op["tested"]), len(op["inputs"]))
                self.assertEqual(len(op["gradients"]), len(op["inputs"]) if op["differentiable"] else 0)


class Doctor(unittest.TestCase):
    def test_the_cpu_is_well(self):
        done = weft("doctor", "--device", "cpu")
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertGreaterEqual(done.stdout.count("PASS"), 10)
        self.assertNotIn("FAIL", done.stdout)
        for key in ("For a bug report", "weft ", "processor", "memory", "instruction set"):
            self.assertIn(key, done.stdout)

    def test_no_such_device(self):
        self.assertEqual(weft("doctor", "--device", "webgpu:99").returncode, DEVICE)
        # A device that computes nothing fails, and says where.
        done = weft("doctor", "--device", "trace")
        self.assertEqual(done.returncode, FAILURE, done.stdout + done.stderr)
        self.assertIn("FAIL", done.stdout)


if __name__ == "__main__":
    unittest.main()
