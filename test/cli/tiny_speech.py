"""A tiny Whisper of random weights, whose windows have a second, and a sound for it."""
import json
import math
import pathlib
import random
import struct
import wave

import tiny_model

GOLDEN = pathlib.Path(__file__).parents[1] / "speech" / "whisper.json"


def put_whisper(folder):
    """The configuration that test/speech/make.py asked transformers about, with other weights."""
    folder.mkdir()
    golden = json.loads(GOLDEN.read_text())
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    (folder / "generation_config.json").write_text(json.dumps(golden["generation_config"]))
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": 256 + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, content in enumerate(golden["special"])]
    vocabulary = {character: byte for byte, character in tiny_model.byte_alphabet().items()}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    draw, header, data = random.Random(1), {}, b""
    for name, shape in sorted(golden["tensors"].items()):
        count = math.prod(shape)
        is_norm = len(shape) == 1 and name.endswith(".weight")
        scale = 1.5 if name.endswith("decoder.embed_positions.weight") else 0.3 if len(shape) == 1 else 1.7 / math.sqrt(count / shape[0])
        values = [(1 if is_norm else 0) + scale * draw.uniform(-1, 1) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    return folder


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
