"""The tiny vision models of test/vision/make.py as folders, with the weights that the transformers library was asked about."""
import json
import pathlib
import struct
import zlib

HERE = pathlib.Path(__file__).resolve().parent
CASES = {"clip": HERE.parent / "vision" / "cases" / "clip.json", "vit": HERE.parent / "vision" / "cases" / "vit.json",
         **{name: HERE.parent / "llm" / "images" / f"{name}.json" for name in ("llava", "idefics3", "qwen2-5-vl", "qwen3-vl", "gemma3-images", "mistral3",
                                                                                                    "qwen2-vl", "pixtral")}}


def philox(key, counter):
    """First word of Philox 4x32-10."""
    k0, k1, c0, c1, c2, c3 = key & 0xFFFFFFFF, key >> 32, counter, 0, 0, 0
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0


def random_values(name, shape):
    """As test/vision/vision_cases.hpp makes them."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    count, width = 1, 1
    for i, extent in enumerate(shape):
        count, width = count * extent, width * (extent if i else 1)
    scale, offset = (0.3, 0.0) if name.endswith("bias") else (0.3, 1.0) if len(shape) < 2 else (1.7 / width**0.5, 0.0)
    return [offset + scale * (2.0 * ((philox(stream, i) >> 8) * 2.0**-24) - 1) for i in range(count)]


def put_vision_model(name, folder):
    """Writes the folder, and returns the case."""
    case = json.loads(CASES[name].read_text())
    put_case(case, folder)
    return case


def put_case(case, folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(case["config"]))
    (folder / "preprocessor_config.json").write_text(json.dumps(case["processor"]))
    if "tokenizer" in case:
        (folder / "tokenizer.json").write_text(json.dumps(case["tokenizer"]))
    if "chat_template" in case:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": case["chat_template"]}))
    header, data = {}, []
    at = 0
    for key, shape in sorted(case["tensors"].items()):
        values = random_values(key, shape)
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        data.append(struct.pack(f"<{len(values)}f", *values))
        at += 4 * len(values)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data))


def png_of(image):
    """A PNG file of an image of a case."""
    pixels, row = bytes.fromhex(image["pixels"]), 3 * image["width"]
    rows = b"".join(b"\0" + pixels[at:at + row] for at in range(0, len(pixels), row))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", image["width"], image["height"], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def text_of(case, tokens):
    """What the byte-level tokenizer of the talking models makes of tokens; special ones are left out."""
    letters = {i: c for c, i in case["tokenizer"]["model"]["vocab"].items()}
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    byte_of = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
    return bytes(byte_of[letters[t]] for t in tokens if t < 256).decode("utf-8", "replace")
