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


def put_sound(path, seconds=1.0, rate=16000):
    """A rising tone, as another program writes it."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        for t in range(int(seconds * rate)):
            s = t / rate
            value = int(16000 * math.sin(2 * math.pi * (200 * s + 900 * s * s)))
            file.writeframesraw(struct.pack("<hh", value, value))
    return path
