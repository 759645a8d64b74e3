"""safetensors files of Weft read by the official package, and the other way round."""
import json
import pathlib
import subprocess
import tempfile

import numpy as np

TEXT = "the quick brown fox jumps over a lazy dog while seven wizards vex them\n" * 40


def safetensors(judge):
    try:
        from safetensors import safe_open
        from safetensors.numpy import load_file, save_file
    except ImportError:
        return judge.failures.append("the safetensors package is missing: run script/setup --judges and set WEFT_TEST_JUDGES")

    def weft(*arguments):
        return subprocess.run([judge.weft, *map(str, arguments)], check=True, capture_output=True, text=True, timeout=300).stdout

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_text(TEXT)
        weft("train", "text", "--preset", "tiny", "--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 4, "--steps", 3, "--quiet",
             "--device", "cpu", "--data", folder / "text.txt", "--out", folder / "run")
        written = folder / "run" / "last.safetensors"
        tensors = load_file(written)
        with safe_open(written, "numpy") as file:
            metadata = file.metadata()
        raw = written.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + length])
        judge.compare("names of tensors", np.array(sorted(tensors) == sorted(set(header) - {"__metadata__"})), np.array(True), 0)
        for name, array in tensors.items():
            begin, end = header[name]["data_offsets"]
            bytes_of = np.frombuffer(raw[8 + length + begin:8 + length + end], np.uint8)
            judge.compare(f"bytes of {name}", np.frombuffer(array.tobytes(), np.uint8), bytes_of, 0)
            if array.dtype.kind == "f":
                judge.compare(f"{name} is finite", np.array(bool(np.isfinite(array).all())), np.array(True), 0)
        # Written again by the package, in its own order, the model says the same.
        (folder / "copy").mkdir()
        save_file(tensors, folder / "copy" / "model.safetensors", metadata=metadata)
        said = [weft("generate", path, "--prompt", "the ", "--max-tokens", 30, "--seed", 5, "--device", "cpu") for path in (written, folder / "copy" / "model.safetensors")]
        judge.compare("text of the copied model", np.array(said[0] == said[1] and len(said[0]) > 20), np.array(True), 0)
    return None


def decoded(dtype, raw):
    """The values of the bytes of a safetensors dtype, as f64; bf16 and the types below it from their definition."""
    plain = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
             "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_}
    if dtype in plain:
        return np.frombuffer(raw, plain[dtype]).astype(np.float64)
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    codes = np.frombuffer(raw, np.uint8)
    if dtype == "F4":  # the first of two in the low bits
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(-1)
    exponent_bits, fraction_bits, bias = {"F8_E4M3": (4, 3, 7), "F8_E5M2": (5, 2, 15), "F4": (2, 1, 1)}[dtype]
    rest = codes.astype(np.int64) & ((1 << exponent_bits + fraction_bits) - 1)
    exponent, fraction = rest >> fraction_bits, (rest & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    values = np.where(exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, (exponent - bias).astype(np.int32)))
    if dtype == "F8_E5M2":
        values = np.where(exponent == 31, np.where(fraction == 0, np.inf, np.nan), values)
    if dtype == "F8_E4M3":
        values = np.where(rest == 127, np.nan, values)
    return np.where(codes >> (exponent_bits + fraction_bits) != 0, -values, values)


def every_type(judge):
    """Every type of safetensors that Weft has, read from a file of the package and written to one that it reads."""
    try:
        import safetensors as package
    except ImportError:
        return judge.failures.append("the safetensors package is missing: run script/setup --judges and set WEFT_TEST_JUDGES")

    names = {"BOOL": ("bool", "bool"), "F4": ("fp4_e2m1", "float4_e2m1fn_x2"), "U8": ("u8", "uint8"), "I8": ("i8", "int8"), "F8_E5M2": ("fp8_e5m2", "float8_e5m2"),
             "F8_E4M3": ("fp8_e4m3", "float8_e4m3fn"), "I16": ("i16", "int16"), "U16": ("u16", "uint16"), "F16": ("f16", "float16"), "BF16": ("bf16", "bfloat16"),
             "I32": ("i32", "int32"), "U32": ("u32", "uint32"), "F32": ("f32", "float32"), "F64": ("f64", "float64"), "I64": ("i64", "int64"), "U64": ("u64", "uint64")}
    bits = {"F4": 4, "BOOL": 8}
    if not judge.on_cpu:
        names = {dtype: name for dtype, name in names.items() if not dtype.endswith("64")}
    random = np.random.default_rng(8)
    given = {}
    for dtype, (weft_name, package_name) in names.items():
        width = bits.get(dtype, int("".join(c for c in weft_name.split("_")[0] if c.isdigit()) or 8))
        raw = random.integers(0, 256, 256 * width // 8, np.uint8)
        if dtype == "BOOL":
            raw &= 1
        if dtype[0] in "IU" and width > 8:  # small numbers, which f32 holds
            raw = raw.reshape(256, -1)
            raw[:, 1:] = np.where(dtype[0] == "I", raw[:, :1] >> 7, 0) * 255
        if dtype in ("F32", "F64", "F16", "BF16"):
            raw = random.integers(-100, 100, 256).astype({"F64": np.float64, "F16": np.float16}.get(dtype, np.float32)).view(np.uint8)
            if dtype == "BF16":
                raw = raw.reshape(-1, 4)[:, 2:]
        given[weft_name] = (dtype, package_name, np.ascontiguousarray(raw).tobytes())
    steps = [{"op": "cast", "inputs": [name], "attributes": {"dtype": "f32"}, "output": f"{name}_read"} for name in given]
    steps += [{"op": "cast", "inputs": [f"{name}_read"], "attributes": {"dtype": name}, "output": f"{name}_written"} for name in given]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        kept = {name: np.frombuffer(raw, np.uint8) for name, (_, _, raw) in given.items()}
        package.serialize_file({name: package.TensorSpec(dtype=package_name, shape=[16, 8 if dtype == "F4" else 16], data_ptr=kept[name].ctypes.data,
                                                         data_len=len(raw)) for name, (dtype, package_name, raw) in given.items()}, str(folder / "in.safetensors"))
        (folder / "program.json").write_text(json.dumps({"steps": steps}))
        done = subprocess.run([judge.weft, "eval", folder / "program.json", "--inputs", folder / "in.safetensors", "--out", folder / "out.safetensors",
                               "--device", judge.device], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return judge.failures.append(f"every type of safetensors: {done.stderr.strip()}")
        written = dict(package.deserialize((folder / "out.safetensors").read_bytes()))
    for name, (dtype, _, raw) in given.items():
        wanted = decoded(dtype, raw)
        judge.compare(f"values of {dtype}", np.frombuffer(written[f"{name}_read"]["data"], np.float32), wanted, 0)
        entry = written[f"{name}_written"]
        judge.compare(f"{dtype} is written as {entry['dtype']}", np.array(entry["dtype"] == dtype), np.array(True), 0)
        judge.compare(f"values of written {dtype}", decoded(dtype, bytes(entry["data"])), wanted, 0)
    return None


SUBJECTS = [safetensors, every_type]
