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


SUBJECTS = [safetensors]
