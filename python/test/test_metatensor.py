"""Metatensor files, judged by NumPy and, where it is installed, by the package safetensors."""
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

import numpy as np

import weft
from weft import metatensor

CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(__file__).parents[2] / ".cache")
sys.path.append(str(CACHE / "judges"))
try:
    from safetensors.numpy import load_file, save_file
except ImportError:
    load_file = save_file = None

LAYOUT = {"TypeDef:Struct": True, "properties": {
    "label": {"TypeDef:Enum": True, "enum": ["cat", "dog"]}, "id": {"TypeDef:Int32": True},
    "pixels": {"TypeDef:Tensor": {"dtype": "f32", "shape": [2, 2]}}}}


def read_by_hand(path):
    """Header and tensors of a safetensors file, with the standard library and NumPy."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    types = {"F32": "<f4", "I32": "<i4", "U8": "u1", "U64": "<u8", "I64": "<i8", "F64": "<f8"}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in types:
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + length + begin:8 + length + end], types[entry["dtype"]]).reshape(entry["shape"])
    return header, tensors


class Metatensors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "small.metatensor")
        random = np.random.default_rng(1)
        self.weight = random.normal(size=(3, 5)).astype("f4")
        self.pixels = random.normal(size=(4, 2, 2)).astype("f4")
        writer = (metatensor.Writer().tensor("layers.0.weight", self.weight).tensor("layers.0.packed", weft.tensor([1.0, -8.0, 3.0]).to("int4"))
                  .records("samples", LAYOUT, [{"label": "dog" if i % 2 else "cat", "id": i, "pixels": self.pixels[i]} for i in range(4)])
                  .blob("notes", ["a note", b"\x00\xff", ""]).optional("layers.0.packed").metadata("by", "a test"))
        writer.save(self.path)

    def test_reads_what_it_wrote(self):
        file = metatensor.open(self.path)
        self.assertEqual(set(file), {"layers.0.weight", "layers.0.packed", "samples", "notes"})
        self.assertEqual((file.metadata, file.has_schema), ({"by": "a test"}, True))
        np.testing.assert_array_equal(file["layers.0.weight"].numpy(), self.weight)
        self.assertEqual(file["layers.0.packed"].to("f32").tolist(), [1, -8, 3])
        np.testing.assert_array_equal(file.column("samples", "pixels").numpy(), self.pixels)
        np.testing.assert_array_equal(file.column("samples", "pixels", 1, 2).numpy(), self.pixels[1:3])
        samples = file["samples"]
        self.assertEqual([(each["label"], each["id"]) for each in samples], [("cat", 0), ("dog", 1), ("cat", 2), ("dog", 3)])
        np.testing.assert_array_equal(samples[-1]["pixels"].numpy(), self.pixels[3])
        np.testing.assert_array_equal(file.tensor("samples.2.pixels").numpy(), self.pixels[2])
        self.assertEqual(list(file["notes"]), [b"a note", b"\x00\xff", b""])
        self.assertEqual(metatensor.validate(self.path), [])

    def test_views_share_the_mapping(self):
        file = metatensor.open(self.path)
        bytes_of = file.array("layers.0.weight")
        self.assertTrue(np.shares_memory(bytes_of, file["layers.0.weight"].numpy()))
        self.assertFalse(bytes_of.flags.writeable)
        view = file["layers.0.weight"].numpy()
        del file
        np.testing.assert_array_equal(bytes_of.view("f4").reshape(3, 5), self.weight)  # the array keeps the mapping
        np.testing.assert_array_equal(view, self.weight)

    def test_is_a_safetensors_file(self):
        header, tensors = read_by_hand(self.path)
        np.testing.assert_array_equal(tensors["layers.0.weight"], self.weight)
        record = tensors["samples"]
        self.assertEqual(record.shape[0], 4)
        begin, end = metatensor.open(self.path).range("samples.1.pixels")
        offset = header["samples"]["data_offsets"][0]
        np.testing.assert_array_equal(record.reshape(-1)[begin - offset:end - offset].view("<f4").reshape(2, 2), self.pixels[1])
        if load_file is not None:
            np.testing.assert_array_equal(load_file(self.path)["layers.0.weight"], self.weight)

    @unittest.skipIf(save_file is None, "the package safetensors is missing: script/setup --judges")
    def test_reads_files_of_the_package(self):
        save_file({"a": self.weight, "b.c": np.arange(5)}, self.path, {"made": "elsewhere"})
        file = metatensor.open(self.path)
        self.assertFalse(file.has_schema)
        np.testing.assert_array_equal(file["a"].numpy(), self.weight)
        np.testing.assert_array_equal(file["b.c"].numpy(), np.arange(5))
        self.assertEqual(file.metadata, {"made": "elsewhere"})

    def test_versions(self):
        file = metatensor.open(self.path)
        tree = {"type": "Struct", "children": [
            {"type": "Field", "props": {"name": "layers"}, "children": [{"type": "Struct", "children": [
                {"type": "Field", "props": {"name": "0"}, "children": [{"type": "Struct", "children": [
                    {"type": "Field", "props": {"name": "weight"}, "children": [{"type": "Tensor", "props": {"dtype": "f32", "shape": [5, 3]}}]},
                    {"type": "Field", "props": {"name": "bias", "optional": True}, "children": [{"type": "Tensor", "props": {"dtype": "f32", "shape": [5]}}]},
                ]}]}]}]}]}
        schema = metatensor.schema_of(tree)
        changes = {change.path: change.kind for change in metatensor.difference(file.schema, schema)}
        self.assertEqual(changes, {"layers.0.weight": "changed", "layers.0.packed": "removed", "samples": "removed",
                                   "notes": "removed", "layers.0.bias": "added"})
        reader = metatensor.Reader(file, schema, {"layers.0.weight": lambda stored: stored.T})
        np.testing.assert_array_equal(reader.tensor("layers.0.weight").numpy(), self.weight.T)
        self.assertIsNone(reader.tensor("layers.0.bias"))
        with self.assertRaisesRegex(weft.FileError, "layers.0.weight"):
            metatensor.Reader(file, schema)
        wrong = metatensor.Reader(file, schema, {"layers.0.weight": lambda stored: stored})
        self.assertRaises(weft.FileError, wrong.tensor, "layers.0.weight")

    def test_wrong_files_and_uses(self):
        file = metatensor.open(self.path)
        for wrong in (lambda: file["layers.1.weight"], lambda: file.tensor("samples"), lambda: file.column("samples", "label"),
                      lambda: file.data("nothing"), lambda: file.column("samples", "pixels", 3, 2)):
            self.assertRaises(weft.Error, wrong)
        self.assertRaises(IndexError, lambda: file["samples"][4])
        self.assertRaises(IndexError, lambda: file["notes"][-4])
        taken = metatensor.Writer().tensor("a", self.weight)
        for wrong in (lambda: taken.tensor("a.b", self.weight), lambda: taken.tensor("__a", self.weight), lambda: taken.tensor("b", self.weight, 3)):
            self.assertRaises(weft.UsageError, wrong)
        with self.assertRaisesRegex(weft.Error, "label"):
            taken.records("s", LAYOUT, [{"label": "bird", "id": 1, "pixels": self.pixels[0]}])
        self.assertRaises(weft.Error, taken.records, "s", {"TypeDef:Struct": True, "properties": {"x": {}}}, [])
        data = pathlib.Path(self.path).read_bytes()
        for cut in (0, 7, 20, len(data) // 2, len(data) - 1):
            pathlib.Path(self.path).write_bytes(data[:cut])
            self.assertRaises(weft.FileError, metatensor.open, self.path)
            self.assertTrue(metatensor.validate(self.path))


if __name__ == "__main__":
    unittest.main()
