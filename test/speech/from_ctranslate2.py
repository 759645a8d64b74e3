"""A Whisper model in CTranslate2's format as a Hugging Face folder: from_ctranslate2.py FOLDER OUT.

FOLDER holds model.bin, config.json and tokenizer.json. The file is a list of named arrays behind a short header; layers have the parts
self_attention, attention and ffn, whose matrices are numbered, with queries, keys and values in one. Needs nothing but Python.
"""
import json
import pathlib
import struct
import sys

DTYPES = {0: ("F32", 4), 4: ("F16", 2), 5: ("BF16", 2)}  # of CTranslate2: safetensors' name, bytes


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def take(self, count):
        if self.at + count > len(self.data):
            raise SystemExit("model.bin is truncated")
        self.at += count
        return self.data[self.at - count:self.at]

    def text(self):
        return bytes(self.take(self.number("H"))).rstrip(b"\0").decode()


def arrays_of(path):
    """name -> (dtype, shape, bytes), of floats; name -> int of the rest."""
    reader = Reader(memoryview(path.read_bytes()))
    version, kind, _ = reader.number("I"), reader.text(), reader.number("I")
    if version != 6 or kind != "WhisperSpec":
        raise SystemExit(f"{path}: version {version} of {kind}; version 6 of WhisperSpec is read")
    arrays, numbers = {}, {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = [reader.number("I") for _ in range(reader.number("B"))]
        dtype, data = reader.number("B"), reader.take(reader.number("I"))
        if dtype in DTYPES:
            arrays[name] = (dtype, shape, data)
        elif not shape:
            numbers[name] = int.from_bytes(data, "little", signed=True)
    return arrays, numbers


def cut(array, parts):
    """Equal parts along the first axis."""
    dtype, (rows, *rest), data = array
    step = len(data) // parts
    return [(dtype, [rows // parts, *rest], data[i * step:(i + 1) * step]) for i in range(parts)]


def renamed(arrays):
    """The arrays under the names of the transformers library."""
    out = {}

    def projections(name, target, prefix, parts):
        for kind in ("weight", "bias"):
            for part, array in zip(parts, cut(arrays[f"{name}/{kind}"], len(parts))):
                if not (kind == "bias" and part == "k"):  # zeros
                    out[f"{target}.{prefix}.{part}_proj.{kind}"] = array

    def norm(name, target):
        out[target + ".weight"], out[target + ".bias"] = arrays[name + "/gamma"], arrays[name + "/beta"]

    for side in ("encoder", "decoder"):
        target = "model." + side
        out[target + ".embed_positions.weight"] = arrays[side + "/position_encodings/encodings"]
        norm(side + "/layer_norm", target + ".layer_norm")
        layer = 0
        while f"{side}/layer_{layer}/ffn/linear_0/weight" in arrays:
            name, to = f"{side}/layer_{layer}", f"{target}.layers.{layer}"
            projections(name + "/self_attention/linear_0", to, "self_attn", "qkv")
            projections(name + "/self_attention/linear_1", to, "self_attn", ["out"])
            norm(name + "/self_attention/layer_norm", to + ".self_attn_layer_norm")
            if side == "decoder":
                projections(name + "/attention/linear_0", to, "encoder_attn", "q")
                projections(name + "/attention/linear_1", to, "encoder_attn", "kv")
                projections(name + "/attention/linear_2", to, "encoder_attn", ["out"])
                norm(name + "/attention/layer_norm", to + ".encoder_attn_layer_norm")
            for i in range(2):
                for kind in ("weight", "bias"):
                    out[f"{to}.fc{i + 1}.{kind}"] = arrays[f"{name}/ffn/linear_{i}/{kind}"]
            norm(name + "/ffn/layer_norm", to + ".final_layer_norm")
            layer += 1
    for i in (1, 2):
        for kind in ("weight", "bias"):
            out[f"model.encoder.conv{i}.{kind}"] = arrays[f"encoder/conv{i}/{kind}"]
    out["model.decoder.embed_tokens.weight"] = arrays["decoder/embeddings/weight"]
    return out


def write_safetensors(path, arrays):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in sorted(arrays.items()):
        header[name] = {"dtype": DTYPES[dtype][0], "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, (_, _, data) in sorted(arrays.items()):
            file.write(data)


def main(folder, out):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    arrays, numbers = arrays_of(folder / "model.bin")
    tensors = renamed(arrays)
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "model.safetensors", tensors)
    settings = json.loads((folder / "config.json").read_text())
    tokenizer = (folder / "tokenizer.json").read_text()
    ids = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}

    def layers(side):
        return sum(name.startswith(f"model.{side}.layers.") and name.endswith(".fc1.bias") for name in tensors)

    shape = {name: tensors[name][1] for name in tensors}
    end = ids["<|endoftext|>"]
    special = {"decoder_start_token_id": ids["<|startoftranscript|>"], "eos_token_id": end, "bos_token_id": end, "pad_token_id": end}
    config = {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "activation_function": "gelu",
              "vocab_size": shape["model.decoder.embed_tokens.weight"][0], "d_model": shape["model.encoder.conv1.weight"][0],
              "num_mel_bins": shape["model.encoder.conv1.weight"][1], "encoder_layers": layers("encoder"), "decoder_layers": layers("decoder"),
              "encoder_attention_heads": numbers["encoder/num_heads"], "decoder_attention_heads": numbers["decoder/num_heads"],
              "encoder_ffn_dim": shape["model.encoder.layers.0.fc1.weight"][0], "decoder_ffn_dim": shape["model.decoder.layers.0.fc1.weight"][0],
              "max_source_positions": shape["model.encoder.embed_positions.weight"][0],
              "max_target_positions": shape["model.decoder.embed_positions.weight"][0], **special}
    multilingual = config["vocab_size"] >= 51865
    generation = {"is_multilingual": multilingual, "no_timestamps_token_id": ids["<|notimestamps|>"], "max_initial_timestamp_index": 50,
                  "suppress_tokens": settings["suppress_ids"], "begin_suppress_tokens": settings["suppress_ids_begin"],
                  "max_length": config["max_target_positions"], **special}
    if settings.get("alignment_heads"):
        generation["alignment_heads"] = settings["alignment_heads"]
    if multilingual:
        generation["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
        generation["lang_to_id"] = {name: id for name, id in ids.items() if id in settings["lang_ids"]}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(json.dumps(generation, indent=1))
    (out / "tokenizer.json").write_text(tokenizer)


if __name__ == "__main__":
    main(*sys.argv[1:])
