"""GGUF files and block formats against the Python package gguf, through `weft convert`, `weft quantize`, `weft inspect`."""
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import types

import numpy as np

BLOCKS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
PLAIN = ["F32", "F16", "BF16"]
NO_JUDGE = "the gguf package is missing: run script/setup --judges and set WEFT_TEST_JUDGES"


def package():
    """The modules of gguf that need NumPy only: importing the package itself asks for tokenizers and YAML."""
    if "gguf" not in sys.modules:
        folder = next((pathlib.Path(p) / "gguf" for p in sys.path if (pathlib.Path(p) / "gguf" / "quants.py").is_file()), None)
        if folder is None:
            return None
        sys.modules["gguf"] = types.ModuleType("gguf")
        sys.modules["gguf"].__path__ = [str(folder)]
    return types.SimpleNamespace(**{name: importlib.import_module("gguf." + name) for name in ("constants", "quants", "gguf_reader", "gguf_writer")})


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + length:][slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"]) for name, entry in header.items()}


class Weft:
    def __init__(self, judge):
        self.command, self.folder = judge.weft, tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def __call__(self, *arguments):
        done = subprocess.run([self.command, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"weft {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout


def write(gguf, path, tensors):
    """tensors: name -> (type, rows of bytes, or of float32 for F32)."""
    writer = gguf.gguf_writer.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 1)
    for name, (kind, data) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.constants.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def values(judge):
    """Random bytes of every type, read bit for bit as the package does; every NaN counts as one."""
    gguf = package()
    if gguf is None:
        return judge.failures.append(NO_JUDGE)
    if not judge.on_cpu:
        return None
    kinds, sizes, weft = gguf.constants.GGMLQuantizationType, gguf.constants.GGML_QUANT_SIZES, Weft(judge)
    random = np.random.default_rng(20)
    for kind in PLAIN + BLOCKS:
        elements, size = sizes[kinds[kind]]
        data = random.integers(0, 256, (37, 3 * 256 // elements * size), dtype=np.uint8)
        # Scales of infinity and NaN are refused by `weft convert`; without this bit no 16-bit exponent is all ones.
        if kind == "MXFP4":
            data[:, ::size] = np.minimum(data[:, ::size], 252)  # above, 12 x 2^(e - 128) is beyond f32
        else:
            step, places = {"F32": (4, [3]), "F16": (2, [1]), "BF16": (2, [1]), "Q2_K": (84, [81, 83]), "Q3_K": (110, [109]), "Q6_K": (210, [209])}.get(
                kind, (size, [1, 3] if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [1]))
            for place in places:
                data[:, place::step] &= 0xBF
        tensor = data.view(np.float32) if kind == "F32" else data.view(np.float16) if kind == "F16" else data
        write(gguf, weft.path / "in.gguf", {"w": (kind, tensor)})
        weft("convert", weft.path / "in.gguf", weft.path / "out.safetensors", "--type", "F32")
        got = read_safetensors(weft.path / "out.safetensors")["w"]
        wanted = gguf.quants.dequantize(tensor, kinds[kind]).astype(np.float32)
        judge.compare(f"bits of {kind}", got.view(np.uint32).astype(np.float64), wanted.view(np.uint32).astype(np.float64), 0)
    return None


def rounding(judge):
    """Errors of rounding are not above the package's, where it rounds too; and files are read alike."""
    gguf = package()
    if gguf is None:
        return judge.failures.append(NO_JUDGE)
    if not judge.on_cpu:
        return None
    kinds, weft = gguf.constants.GGMLQuantizationType, Weft(judge)
    random = np.random.default_rng(21)
    matrices = {"normal": random.standard_normal((64, 512)) * 0.02, "heavy": random.standard_t(4, (64, 512)) * 0.02,
                "shifted": random.standard_normal((64, 512)) * 0.02 + 0.05}
    matrices = {f"{name}.weight": data.astype(np.float32) for name, data in matrices.items()}
    write(gguf, weft.path / "in.gguf", {name: ("F32", data) for name, data in matrices.items()})
    for kind in PLAIN + BLOCKS:
        weft("quantize", weft.path / "in.gguf", weft.path / "out.gguf", "--type", kind, "--pure")
        reader = gguf.gguf_reader.GGUFReader(weft.path / "out.gguf")
        judge.compare(f"names of {kind}", np.array([t.name for t in reader.tensors] == list(matrices)), np.array(True), 0)
        for tensor in reader.tensors:
            judge.compare(f"type of {kind}", np.array(tensor.tensor_type == kinds[kind]), np.array(True), 0)
            wanted = matrices[tensor.name]
            error = lambda got: float(np.sqrt(np.mean((got.reshape(wanted.shape).astype(np.float64) - wanted) ** 2)))
            ours = error(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
            try:
                theirs = error(gguf.quants.dequantize(gguf.quants.quantize(wanted, kinds[kind]), kinds[kind]))
            except NotImplementedError:
                # Of normal weights llama.cpp's own rounding leaves this much.
                if tensor.name != "normal.weight":
                    continue
                theirs = 0.02 * {"Q2_K": 0.2964, "Q3_K": 0.1509, "Q4_K": 0.0713, "Q5_K": 0.0361, "Q6_K": 0.0178, "IQ4_NL": 0.0762, "IQ4_XS": 0.0768}[kind]
            judge.compare(f"error of {tensor.name} as {kind}: {ours} and {theirs}", np.array(ours <= 1.001 * theirs), np.array(True), 0)
    return None


def metadata(judge):
    """Every type of metadata as the package writes it; `weft quantize` writes it back for the package."""
    gguf = package()
    if gguf is None:
        return judge.failures.append(NO_JUDGE)
    if not judge.on_cpu:
        return None
    weft, path = Weft(judge), None
    path = weft.path / "in.gguf"
    writer = gguf.gguf_writer.GGUFWriter(path, "llama")
    numbers = {"uint8": 255, "int8": -128, "uint16": 65535, "int16": -32768, "uint32": 2**32 - 1, "int32": -2**31, "uint64": 2**64 - 1, "int64": -2**63,
               "float32": 0.5, "float64": 0.1, "bool": True, "string": "zürich \"x\"\n"}
    for kind, value in numbers.items():
        getattr(writer, "add_" + kind)("a." + kind, value)
    arrays = {"a.texts": ["", "a", "ü"] * 5, "a.whole": [1, 2, 3], "a.floats": [0.5, 1.5], "a.bools": [True, False]}
    for key, value in arrays.items():
        writer.add_array(key, value)
    writer.add_tensor("w.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    seen = json.loads(weft("inspect", path, "--json", "--full"))
    for kind, value in numbers.items():
        judge.compare(f"metadata of {kind}", np.array(seen["metadata"]["a." + kind] == value), np.array(True), 0)
    for key, value in arrays.items():
        judge.compare(f"metadata {key}", np.array(seen["metadata"][key]["elements"] == value), np.array(True), 0)
    judge.compare("tensor", np.array(seen["tensors"] == [{"name": "w.weight", "shape": [2, 32], "type": "F32", "bytes": 256}]), np.array(True), 0)

    weft("quantize", path, weft.path / "out.gguf", "--type", "Q8_0")
    before, after = (gguf.gguf_reader.GGUFReader(p) for p in (path, weft.path / "out.gguf"))
    for key, field in before.fields.items():
        if not key.startswith("GGUF."):
            other = after.fields.get(key)
            same = other is not None and other.types == field.types and [bytes(p) for p in other.parts] == [bytes(p) for p in field.parts]
            judge.compare(f"bytes of {key}", np.array(same), np.array(True), 0)
    judge.compare("file type", np.array(int(after.fields["general.file_type"].parts[-1][0])), np.array(7), 0)
    return None


SUBJECTS = [values, rounding, metadata]
