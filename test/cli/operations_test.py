#!/usr/bin/python3
"""weft operations: operations_test.py WEFT [unittest arguments]. Lists, descriptions, calls, exit codes."""
import base64
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILURE, USAGE, FILE, DEVICE = 0, 1, 2, 3, 4


def weft(*arguments, **options):
    return subprocess.run([WEFT, "operations", *arguments], capture_output=True, text=True, timeout=120, **options)


def tensor(dtype, shape, values):
    code = {"f32": "f", "f64": "d", "i32": "i"}[dtype]
    data = base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode()
    return {"$tensor": {"dtype": dtype, "shape": shape, "data": data}}


def floats(value):
    data = base64.b64decode(value["$tensor"]["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def npy(shape, values):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


class Operations(unittest.TestCase):
    def call(self, name, value, *more):
        run = weft("call", name, "--input", json.dumps(value), "--device", "cpu", *more)
        self.assertEqual(run.returncode, OK, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def test_list(self):
        run = weft("list")
        self.assertEqual(run.returncode, OK)
        self.assertRegex(run.stdout, r"\n\d+ operations\. ")
        self.assertIn("tensor.matmul", run.stdout)
        everything = json.loads(weft("list", "--json").stdout)["operations"]
        ops = json.loads(subprocess.run([WEFT, "ops", "list", "--json"], capture_output=True, text=True).stdout)["ops"]
        self.assertEqual({o["name"] for o in everything if o["namespace"] == "tensor"}, {o["name"] for o in ops})
        models = json.loads(weft("list", "--json", "--namespace", "model").stdout)["operations"]
        self.assertEqual({o["namespace"] for o in models}, {"model"})

    def test_network_is_loaded_when_it_is_needed(self):
        libraries = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(libraries, "grpc|protobuf|nats|ssl")  # they would triple the time to start
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(WEFT, folder)
            self.assertEqual(subprocess.run([alone, "operations", "describe", "tensor.add"], capture_output=True).returncode, OK)
            run = subprocess.run([alone, "operations", "list", "--from", "grpc://127.0.0.1:1"], capture_output=True, text=True)
            self.assertEqual(run.returncode, FILE, run.stderr)
            self.assertIn("the network needs libweft_remote.so, which was not found", run.stderr)
            self.assertIn(f"{folder}/libweft_remote.so: no such file", run.stderr)
            (pathlib.Path(folder) / "libweft_remote.so").write_bytes(b"not a library")
            run = subprocess.run([alone, "operations", "list", "--from", "grpc://127.0.0.1:1"], capture_output=True, text=True)
            self.assertEqual(run.returncode, FILE, run.stderr)
            self.assertIn("cannot be loaded", run.stderr)

    def test_describe(self):
        run = weft("describe", "tensor.softmax")
        self.assertEqual(run.returncode, OK)
        specification = json.loads(run.stdout)
        self.assertEqual(specification["inputSchema"]["properties"]["axis"]["default"], -1)
        self.assertEqual(specification["accessControl"], {"requiredScopes": ["tensor:run"]})

    def test_call(self):
        answer, = self.call("tensor.add", {"x": tensor("f32", [2], [1, 2]), "y": 0.5})
        self.assertEqual(floats(answer["result"]), [1.5, 2.5])
        answer, = self.call("tensor.split", {"x": tensor("f32", [4], [1, 2, 3, 4]), "lengths": [1, 3]})
        self.assertEqual([floats(part) for part in answer["results"]], [[1], [2, 3, 4]])
        envelope, = self.call("tensor.neg", {"x": 2}, "--envelope")
        self.assertEqual(envelope["meta"]["operationId"], "tensor.neg")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "x.npy").write_bytes(npy([2], [3, 4]))
            (path / "in.json").write_text(json.dumps({"y": 1}))
            run = weft("call", "tensor.sub", "--input", f"@{path}/in.json", "--tensor", f"x={path}/x.npy", "--out", f"{path}/y.npy", "--device", "cpu")
            self.assertEqual(run.returncode, OK, run.stderr)
            self.assertEqual((path / "y.npy").read_bytes()[-8:], struct.pack("<2f", 2, 3))
            self.assertEqual(json.loads(run.stdout), {"result": {"$tensor": {"dtype": "f32", "shape": [2]}}})

    def test_files_of_images_and_sounds(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tone.npy").write_bytes(npy([1, 400], [0.5 * (-1) ** (i // 8) for i in range(400)]))
            wav = folder / "tone.wav"
            self.call("audio.encode", {"rate": 8000, "format": "f32"}, "--tensor", f"sound={folder / 'tone.npy'}", "--out", wav)
            with open(wav, "rb") as file:
                self.assertEqual(file.read(4), b"RIFF")
            answer, = self.call("audio.resample", {"to": 4000}, "--tensor", f"sound={wav}")
            self.assertEqual((answer["rate"], answer["sound"]["$tensor"]["shape"]), (4000, [1, 200]))
            pixels = {"$tensor": {"dtype": "u8", "shape": [1, 2, 3], "data": base64.b64encode(bytes([1, 2, 3, 250, 0, 9])).decode()}}
            png = folder / "a.png"
            self.call("image.encode", {"image": pixels}, "--out", png)
            answer, = self.call("image.resize", {"height": 2, "width": 2, "filter": "nearest"}, "--tensor", f"image={png}")
            self.assertEqual(base64.b64decode(answer["image"]["$tensor"]["data"]), bytes([1, 2, 3, 250, 0, 9] * 2))
            run = weft("call", "tensor.abs", "--input", '{"x": -1}', "--out", folder / "a.png", "--device", "cpu")
            self.assertEqual((run.returncode, "not the bytes of a file" in run.stderr), (USAGE, True))
            run = weft("call", "image.decode", "--tensor", f"file={folder / 'tone.npy'}", "--device", "cpu")
            self.assertEqual(run.returncode, USAGE)   # floats are no bytes
            run = weft("call", "image.decode", "--tensor", f"file={wav}", "--device", "cpu")
            self.assertEqual((run.returncode, "not a PNG" in run.stderr), (FILE, True))

    def test_subscription(self):
        with tempfile.TemporaryDirectory() as folder:
            run = weft("call", "training.observe", "--input", '{"run": "run-1"}')
            self.assertEqual(run.returncode, FAILURE)
            self.assertIn("RUN_NOT_FOUND", run.stderr)

    def test_errors(self):
        for arguments, code, text in [
                (["call", "tensor.softmx"], USAGE, "Did you mean tensor.softmax?"),
                (["describe", "nothing"], USAGE, "there is no operation"),
                (["list", "--namespace", "nothing"], USAGE, "there is no namespace"),
                (["call", "tensor.softmax", "--input", "{}"], USAGE, "has no property \"x\", which is required"),
                (["call", "tensor.softmax", "--input", "{"], USAGE, "--input: line 1, column"),
                (["call", "tensor.softmax", "--input", "@" + __file__], FILE, "operations_test.py: line 1, column"),
                (["call", "tensor.softmax", "--input", "@/nonexistent"], FILE, "/nonexistent"),
                (["call", "tensor.softmax", "--input", '{"x": 1, "axis": 9}', "--device", "cpu"], USAGE, "SHAPE_ERROR"),
                (["call", "tensor.softmax", "--tensor", "x"], USAGE, "NAME=FILE"),
                (["call", "weights.list", "--input", '{"path": "/nonexistent"}'], FILE, "FILE_ERROR"),
                (["call", "gradient.check", "--input", '{"op": "argmax", "input": {}}'], FAILURE, "NO_GRADIENT"),
                (["call", "tensor.neg", "--input", '{"x": {"$tensor": {"dtype": "f32", "shape": [2], "data": "AA=="}}}'], USAGE, "/x: \"data\" has 1 bytes"),
        ]:
            run = weft(*arguments)
            self.assertEqual(run.returncode, code, (arguments, run.stderr))
            self.assertIn(text, run.stderr, arguments)


if __name__ == "__main__":
    unittest.main()
