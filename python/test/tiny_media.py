"""The tiny models and files that transformers, Pillow and FFmpeg were asked about, for the tests beside this file."""
import json
import math
import pathlib
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2] / "test"
sys.path.insert(0, str(TESTS / "cli"))
import tiny_model  # noqa: E402
import tiny_speech  # noqa: E402
import vision_model  # noqa: E402


def cases(path):
    return json.loads((TESTS / path).read_text())


def put_weights(folder, shapes, scale_of, drawn_as=None):
    """The weights that the library was asked about: scale_of(name, shape) gives (scale, offset). `drawn_as`: other names for draws."""
    header, data = {}, []
    at = 0
    for name, shape in sorted(shapes.items()):
        stream = 0xCBF29CE484222325
        for byte in (drawn_as or {}).get(name, name).encode():
            stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        scale, offset = scale_of(name, shape)
        count = math.prod(shape)
        values = [offset + scale * (2.0 * ((vision_model.philox(stream, i) >> 8) * 2.0**-24) - 1) for i in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
        data.append(struct.pack(f"<{count}f", *values))
        at += 4 * count
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data))


def put_whisper(folder):
    """The folder of test/speech/make.py; returns what the library says."""
    golden = cases("speech/whisper.json")
    tiny_speech.put_whisper(folder)

    def scale_of(name, shape):
        if len(shape) == 1:
            return 0.3, 1.0 if name.endswith(".weight") else 0.0
        return 1.5 if name.endswith("decoder.embed_positions.weight") else 1.7 / math.sqrt(math.prod(shape[1:])), 0.0

    put_weights(folder, golden["tensors"], scale_of)
    return golden


def put_ctc(folder, name):
    """A folder of test/speech/make_ctc.py; returns what the library says."""
    golden = cases("speech/ctc.json")[name]
    tiny_speech.put_ctc(folder, name)
    (folder / "tokenizer_config.json").write_text(json.dumps(golden["tokenizer"]))
    head = "lm_head.weight"

    def scale_of(key, shape):
        if len(shape) == 1:
            return 0.3, 1.0 if key.endswith(".weight") else 0.0
        return 1.7 / math.sqrt(math.prod(shape[1:])) * (4 if key == head else 1), 0.0

    put_weights(folder, golden["tensors"], scale_of, {head: golden["head"] + head})
    return golden


def put_moonshine(folder, name):
    """A folder of test/speech/make_moonshine.py; returns what the library says."""
    golden = cases("speech/moonshine.json")[name]
    tiny_speech.put_moonshine(folder, name)
    of_tokens = [key for key in golden["tensors"] if key.endswith("embed_tokens.weight") or key == "proj_out.weight"]

    def scale_of(key, shape):
        if len(shape) == 1:
            return 0.3, 1.0 if key.endswith(".weight") else 0.0
        return 1.7 / math.sqrt(math.prod(shape[1:])) * (golden["scale"] if key in of_tokens else 1), 0.0

    put_weights(folder, golden["tensors"], scale_of, {key: golden["table"] + key for key in of_tokens})
    return golden


def put_voice(folder, name):
    """A folder of test/speech/make_vits.py; returns what the library says."""
    golden = cases("speech/vits.json")[name]
    tiny_speech.put_voice(folder, name)

    def scale_of(key, shape):
        is_factor = key.endswith("weight_g") or len(shape) == 1 and key.endswith(".weight")
        is_small = len(shape) == 1 or is_factor or key.endswith(("translate", "log_scale"))
        return 0.3 if is_small else 1.7 / math.sqrt(math.prod(shape[1:])), 1.0 if is_factor else 0.0

    put_weights(folder, golden["tensors"], scale_of)
    return golden


def chirp():
    """One second at 16 kHz, as test/audio/make.py makes it."""
    state, x = 1, []
    for t in range(16000):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        s = t / 16000
        x.append(0.5 * math.sin(2 * math.pi * (200 * s + 900 * s * s)) + 0.01 * ((state >> 8) / (1 << 23) - 1))
    return x


put_model, put_vision_model, text_of = tiny_model.put_model, vision_model.put_vision_model, vision_model.text_of
