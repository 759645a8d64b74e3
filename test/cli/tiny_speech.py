"""A tiny Whisper of random weights, whose windows have a second, a sound for it, and a tiny voice."""
import json
import math
import pathlib
import random
import struct
import wave

import tiny_model

SPEECH = pathlib.Path(__file__).parents[1] / "speech"


def put_whisper(folder):
    """The configuration that test/speech/make.py asked transformers about, with other weights."""
    folder.mkdir()
    golden = json.loads((SPEECH / "whisper.json").read_text())
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    (folder / "generation_config.json").write_text(json.dumps(golden["generation_config"]))
    put_tokenizer(folder, golden["special"])
    put_weights(folder, golden["tensors"], lambda name, shape: 1.5 if name.endswith("decoder.embed_positions.weight") else None)
    return folder


def put_moonshine(folder, name="base"):
    """A configuration that test/speech/make_moonshine.py asked transformers about, with other weights."""
    folder.mkdir()
    golden = json.loads((SPEECH / "moonshine.json").read_text())
    (folder / "config.json").write_text(json.dumps(golden[name]["config"]))
    put_tokenizer(folder, golden["special"])
    put_weights(folder, golden[name]["tensors"], lambda key, shape: None)
    return folder


def put_tokenizer(folder, special):
    """Of bytes, with special tokens behind them."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": 256 + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, content in enumerate(special)]
    vocabulary = {character: byte for byte, character in tiny_model.byte_alphabet().items()}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def put_ctc(folder, name="wav2vec2 base"):
    """A recogniser by CTC whose configuration test/speech/make_ctc.py asked transformers about, with other weights."""
    folder.mkdir()
    golden = json.loads((SPEECH / "ctc.json").read_text())
    (folder / "config.json").write_text(json.dumps(golden[name]["config"]))
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(golden["pieces"])}))
    put_weights(folder, golden[name]["tensors"], lambda key, shape: 5 if key == "lm_head.weight" else None)
    return folder


def put_voice(folder, name="predicted"):
    """A configuration that test/speech/make_vits.py asked transformers about, with other weights."""
    folder.mkdir()
    golden = json.loads((SPEECH / "vits.json").read_text())[name]
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    (folder / "vocab.json").write_text(json.dumps(golden["vocabulary"]))
    put_weights(folder, golden["tensors"], lambda name, shape: 0.3 if name.endswith(("_g", "translate", "log_scale")) else None)
    return folder


def put_detector(path, factor=50.0):
    """A detector of speech in the layout of Silero's: its probability is a factor of the mean size of what it hears. As a file of ONNX."""
    def field(number, content):
        if isinstance(content, int):
            return varint(number << 3) + varint(content)
        return varint(number << 3 | 2) + varint(len(content)) + content

    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def port(name, kind, shape):
        extents = b"".join(field(1, field(1, extent)) for extent in shape)
        return field(1, name.encode()) + field(2, field(1, field(1, kind) + field(2, extents)))

    def node(kind, inputs, output, attributes=b""):
        return field(1, b"".join(field(1, name.encode()) for name in inputs) + field(2, output.encode()) + field(4, kind.encode()) + attributes)

    axes = field(5, field(1, b"axes") + field(8, 1) + field(20, 7))
    graph = (node("Abs", ["input"], "size") + node("ReduceMean", ["size"], "mean", axes) + node("Mul", ["mean", "factor"], "output") +
             node("Identity", ["state"], "stateN") + field(2, b"detector") +
             field(5, field(2, 1) + field(8, b"factor") + field(9, struct.pack("<f", factor))) +
             b"".join(field(11, port(*p)) for p in (("input", 1, [1, 576]), ("state", 1, [2, 1, 128]), ("sr", 7, []))) +
             b"".join(field(12, port(*p)) for p in (("output", 1, [1, 1]), ("stateN", 1, [2, 1, 128]))))
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13)))
    return path


def put_weights(folder, shapes, scale_of):
    draw, header, data = random.Random(1), {}, b""
    for name, shape in sorted(shapes.items()):
        count = math.prod(shape)
        is_factor = name.endswith("weight_g") or len(shape) == 1 and name.endswith(".weight")
        scale = scale_of(name, shape) or (0.3 if len(shape) == 1 else 1.7 / math.sqrt(count / shape[0]))
        values = [(1 if is_factor else 0) + scale * draw.uniform(-1, 1) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)


def put_sound(path, seconds=1.0, rate=16000, loudness=1.0):
    """A rising tone, as another program writes it."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        for t in range(int(seconds * rate)):
            s = t / rate
            value = int(16000 * loudness * math.sin(2 * math.pi * (200 * s + 900 * s * s)))
            file.writeframesraw(struct.pack("<hh", value, value))
    return path
