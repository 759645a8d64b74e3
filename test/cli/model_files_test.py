#!/usr/bin/python3
"""weft inspect, weft quantize, weft convert: model_files_test.py WEFT [unittest arguments]. What they tell, write and refuse."""
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import tiny_model

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE = 0, 2, 3
F32 = 0
U16, U32, STRING, ARRAY = 2, 4, 8, 9


def weft(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    return subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=300, env=environment)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind in (U16, U32):
        return struct.pack("<H" if kind == U16 else "<I", v)
    if kind == STRING:
        return text(v)
    element, items = v
    return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)


def gguf(metadata, tensors):
    """metadata: key -> (type, value); tensors: name -> (type, row-major shape, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + struct.pack("<I", kind) + value(kind, v) for key, (kind, v) in metadata.items())
    offset, data = 0, b""
    for name, (kind, shape, raw) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, offset)
        data += raw + bytes(-len(raw) % 32)
        offset = len(data)
    return head + bytes(-len(head) % 32) + data


def floats(count, seed=1):
    r = random.Random(seed)
    return struct.pack(f"<{count}f", *(r.gauss(0, 0.02) for _ in range(count)))


def safetensors(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    return {n: (e["dtype"], e["shape"], raw[8 + length:][slice(*e["data_offsets"])]) for n, e in header.items()}, metadata


def write_safetensors(path, tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


TOKENS = [f"token {i}" for i in range(40)]
METADATA = {"general.architecture": (STRING, "llama"), "llama.block_count": (U32, 1), "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)),
            "a.long": (STRING, "x" * 500), "a.bytes": (STRING, b"\xff\x1b[2J")}
TENSORS = {"token_embd.weight": (F32, (16, 256), floats(16 * 256)), "output.weight": (F32, (16, 256), floats(16 * 256, 2)),
           "blk.0.attn_v.weight": (F32, (8, 256), floats(8 * 256, 3)), "blk.0.ffn_up.weight": (F32, (8, 96), floats(8 * 96, 4)),
           "blk.0.norm.weight": (F32, (256,), floats(256, 5))}


class ModelFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-models-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.folder / "m.gguf"
        self.model.write_bytes(gguf(METADATA, TENSORS))

    def run_ok(self, *arguments):
        done = weft(*arguments)
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stdout

    def refused(self, code, said, *arguments):
        done = weft(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(said, done.stderr)
        return done

    def inspect(self, path, *arguments):
        return json.loads(self.run_ok("inspect", path, "--json", *arguments))


class Inspect(ModelFiles):
    def test_gguf_for_people(self):
        said = self.run_ok("inspect", self.model)
        self.assertIn("GGUF version 3", said)
        self.assertRegex(said, r"general\.architecture +string +\"llama\"")
        self.assertRegex(said, r"tokenizer\.ggml\.tokens +array of 40 string +\"token 0\", \"token 1\".*, \.\.\.\n")
        self.assertRegex(said, r"blk\.0\.attn_v\.weight +\[8, 256\] +F32 +8,192\n")
        self.assertRegex(said, r"F32 +5 tensors +11,264 elements +45,056 bytes +32\.00 bits")
        self.assertNotIn("x" * 100, said)
        self.assertNotIn("\x1b", said)  # no file may send terminal codes
        self.assertIn("x" * 500, self.run_ok("inspect", self.model, "--full"))

    def test_gguf_for_machines(self):
        seen = self.inspect(self.model)
        self.assertEqual([t["name"] for t in seen["tensors"]], list(TENSORS))
        self.assertEqual(seen["tensors"][2], {"name": "blk.0.attn_v.weight", "shape": [8, 256], "type": "F32", "bytes": 8192})
        self.assertEqual(seen["metadata"]["llama.block_count"], 1)
        self.assertEqual(seen["metadata"]["tokenizer.ggml.tokens"], {"type": "string", "count": 40, "first": TOKENS[:8]})
        self.assertEqual(self.inspect(self.model, "--full")["metadata"]["tokenizer.ggml.tokens"]["elements"], TOKENS)
        self.assertEqual(seen["totals"]["by_type"]["F32"], {"tensors": 5, "elements": 11264, "bytes": 45056, "bits": 32})
        self.assertEqual(seen["file_bytes"], self.model.stat().st_size)

    def test_safetensors_folders_and_checkpoints(self):
        tensors = {"a": ("BF16", [2, 3], bytes(12)), "b": ("U8", [4], bytes(4))}
        single = self.folder / "x.safetensors"
        write_safetensors(single, tensors, {"k": "v"})
        seen = self.inspect(single)
        self.assertEqual((seen["format"], seen["metadata"], seen["totals"]["bytes"]), ("safetensors", {"k": "v"}, 16))
        self.assertEqual(seen["tensors"][1], {"name": "b", "shape": [4], "type": "U8", "bytes": 4})

        model = self.folder / "hf"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
        write_safetensors(model / "model-00001-of-00002.safetensors", {"a": tensors["a"]})
        write_safetensors(model / "model-00002-of-00002.safetensors", {"b": tensors["b"]})
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
        seen = self.inspect(model)
        self.assertEqual((seen["format"], seen["metadata"]["model_type"], len(seen["tensors"])), ("Hugging Face folder", "llama", 2))

        run = self.folder / "run"
        run.mkdir()
        write_safetensors(run / "best.safetensors", tensors, {"format": "weft-checkpoint-1", "step": "7"})
        seen = self.inspect(run)
        self.assertEqual((seen["format"], seen["metadata"]["step"]), ("Weft checkpoint (safetensors)", "7"))

    def test_split_files_are_one(self):
        for part, name in enumerate(TENSORS):
            about = {"split.no": (U16, part), "split.count": (U16, len(TENSORS))}
            (self.folder / f"s-{part + 1:05}-of-{len(TENSORS):05}.gguf").write_bytes(gguf(about, {name: TENSORS[name]}))
        seen = self.inspect(self.folder / "s-00003-of-00005.gguf")
        self.assertEqual((seen["parts"], [t["name"] for t in seen["tensors"]]), (5, list(TENSORS)))
        (self.folder / "s-00002-of-00005.gguf").unlink()
        self.refused(FILE, "part 2 of 5 is missing", "inspect", self.folder / "s-00003-of-00005.gguf")

    def test_refusals(self):
        self.refused(FILE, "there is no such file", "inspect", self.folder / "none")
        self.refused(FILE, "holds neither model.safetensors", "inspect", self.folder)
        self.refused(USAGE, "model", "inspect")
        for name, raw, said in [("cut", self.model.read_bytes()[:100], "the file is damaged or cut off"), ("other", b"PK\3\4 more than nine", "neither GGUF nor safetensors"),
                                ("short", self.model.read_bytes()[:-1000], "the file is cut off: fetch it again")]:
            (self.folder / name).write_bytes(raw)
            self.refused(FILE, said, "inspect", self.folder / name)
        bad = dict(TENSORS, **{"bad.weight": (F32, (4,), struct.pack("<4f", 1, float("nan"), 1, 1))})
        self.model.write_bytes(gguf(METADATA, bad))
        self.run_ok("inspect", self.model)
        self.refused(FILE, 'tensor "bad.weight": element 1 is NaN or infinite', "inspect", self.model, "--check")


class Quantize(ModelFiles):
    def types(self, *arguments):
        out = self.folder / "out.gguf"
        self.said = self.run_ok("quantize", self.model, out, *arguments)
        return {t["name"]: t["type"] for t in self.inspect(out, "--check")["tensors"]}

    def test_types_follow_names_rows_and_rules(self):
        self.assertEqual(self.types("--type", "q4_k_s"), {"token_embd.weight": "Q4_K", "output.weight": "Q6_K", "blk.0.attn_v.weight": "Q5_K",
                                                        "blk.0.ffn_up.weight": "Q5_0", "blk.0.norm.weight": "F32"})
        self.assertIn("its rows do not divide", self.said)
        self.assertEqual(self.inspect(self.folder / "out.gguf")["metadata"]["general.file_type"], 14)
        self.assertEqual(self.types("--type", "Q3_K_M")["blk.0.attn_v.weight"], "Q5_K")
        self.assertIn("where rounding hurts most", self.said)
        self.assertEqual(self.inspect(self.folder / "out.gguf")["metadata"]["general.file_type"], 12)
        got = self.types("--type", "Q4_K", "--pure", "--tensor-type", "blk.?.attn_v.*=Q8_0", "--tensor-type", "*ffn*=F16")
        self.assertEqual((got["output.weight"], got["blk.0.attn_v.weight"], got["blk.0.ffn_up.weight"]), ("Q4_K", "Q8_0", "F16"))

    def test_a_model_in_blocks_is_rounded_twice_with_a_warning(self):
        self.types("--type", "Q8_0")
        done = weft("quantize", self.folder / "out.gguf", self.folder / "again.gguf", "--type", "Q4_0")
        self.assertEqual(done.returncode, OK)
        self.assertIn("warning: 4 tensors were in blocks before and are rounded twice", done.stderr)
        # Over itself: the data is read from the old file to the end.
        self.run_ok("quantize", self.model, self.model, "--type", "Q8_0")
        self.assertEqual(self.model.read_bytes(), (self.folder / "out.gguf").read_bytes())

    def test_refusals(self):
        out = self.folder / "out.gguf"
        quantize = lambda code, said, *arguments, model=self.model: self.refused(code, said, "quantize", model, out, *arguments)
        quantize(USAGE, "--type is required")
        quantize(USAGE, 'there is no such type to quantize to; choose one of F32, F16', "--type", "Q4_X")
        quantize(USAGE, "there is no such type to quantize to", "--type", "I32")
        quantize(USAGE, "write PATTERN=TYPE", "--type", "Q4_K", "--tensor-type", "Q8_0")
        quantize(USAGE, 'the pattern "*none*" matches no tensor', "--type", "Q4_K", "--tensor-type", "*none*=Q8_0")
        write_safetensors(self.folder / "x.safetensors", {"a": ("F32", [1], bytes(4))})
        quantize(FILE, "not a GGUF file; convert it first: weft convert", "--type", "Q4_K", model=self.folder / "x.safetensors")
        self.refused(FILE, "does not exist; create it first", "quantize", self.model, self.folder / "no" / "out.gguf", "--type", "Q4_K")
        self.model.write_bytes(gguf(METADATA, {"w.weight": (F32, (2, 32), struct.pack("<f", float("inf")) * 64)}))
        quantize(FILE, 'tensor "w.weight": element 0 is NaN or infinite', "--type", "Q4_0")
        self.assertEqual([p.name for p in self.folder.iterdir() if "out" in p.name or ".tmp" in p.name], [])


class Convert(ModelFiles):
    def setUp(self):
        super().setUp()
        self.metadata = {k: v for k, v in METADATA.items() if k != "a.bytes"}
        self.model.write_bytes(gguf(self.metadata, TENSORS))

    def test_there_and_back(self):
        middle, back = self.folder / "m.safetensors", self.folder / "back.gguf"
        self.run_ok("convert", self.model, middle)
        tensors, metadata = safetensors(middle)
        self.assertEqual({name: (tuple(shape), raw) for name, (_, shape, raw) in tensors.items()}, {name: (shape, raw) for name, (_, shape, raw) in TENSORS.items()})
        self.assertEqual((metadata["general.architecture"], metadata["llama.block_count"]), ("llama", "1"))
        self.assertEqual(json.loads(metadata["tokenizer.ggml.tokens"]), TOKENS)
        self.run_ok("convert", middle, back)
        a, b = self.inspect(self.model, "--full"), self.inspect(back, "--full")
        self.assertEqual(a["metadata"], b["metadata"])
        key = lambda t: t["name"]
        self.assertEqual(sorted(a["tensors"], key=key), sorted(b["tensors"], key=key))

    def test_types_and_metadata(self):
        out = self.folder / "half.safetensors"
        self.run_ok("convert", self.model, out, "--type", "f16", "--no-metadata")
        tensors, metadata = safetensors(out)
        self.assertEqual(({dtype for dtype, _, _ in tensors.values()}, metadata), ({"F16"}, {}))
        self.run_ok("quantize", self.model, self.folder / "q.gguf", "--type", "Q8_0")
        self.run_ok("convert", self.folder / "q.gguf", out)
        self.assertEqual({dtype for dtype, _, _ in safetensors(out)[0].values()}, {"F32"})

    def test_folders(self):
        """A model of one layer to GGUF and back; the library tests every family."""
        config = {"model_type": "llama", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        shapes = {"model.embed_tokens.weight": [8, 4], "model.norm.weight": [4], "lm_head.weight": [8, 4]}
        layer = {"input_layernorm": [4], "post_attention_layernorm": [4], "mlp.gate_proj": [8, 4], "mlp.up_proj": [8, 4], "mlp.down_proj": [4, 8]}
        layer |= {f"self_attn.{x}_proj": [4, 4] for x in "qkvo"}
        shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
        tensors = {name: ("F32", shape, b"".join(struct.pack("<f", i / 7) for i in range(math.prod(shape)))) for name, shape in shapes.items()}
        there, back = self.folder / "there", self.folder / "back"
        there.mkdir()
        write_safetensors(there / "model.safetensors", tensors)
        (there / "config.json").write_text(json.dumps(config))
        words = {f"w{i}": i for i in range(8)}
        (there / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}))
        done = weft("convert", there, self.folder / "m.gguf")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("note: GGUF has no keys for this tokenizer", done.stderr)
        self.assertIn("12 tensors: ", done.stdout)
        names = {t["name"] for t in self.inspect(self.folder / "m.gguf")["tensors"]}
        self.assertTrue({"token_embd.weight", "blk.0.attn_q.weight", "output.weight"} <= names)
        self.run_ok("convert", self.folder / "m.gguf", str(back) + "/")
        self.assertEqual({n: (d, s, r) for n, (d, s, r) in safetensors(back / "model.safetensors")[0].items()}, tensors)
        (back / "chat_template.jinja").write_text("of another model")
        self.refused(FILE, 'taken for parts of this model: "chat_template.jinja"; remove them, or choose another folder', "convert", self.folder / "m.gguf", back)
        done = weft("convert", self.folder / "m.gguf", back, "--no-tokenizer")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn('note: the folder keeps its tokenizer: "chat_template.jinja", ', done.stderr)
        (there / "tokenizer.json").unlink()
        self.refused(FILE, "no tokenizer.json; put it there, or give --no-tokenizer", "convert", there, self.folder / "n.gguf")

    def test_refusals(self):
        out = self.folder / "out.safetensors"
        self.refused(USAGE, "let it end in .gguf or .safetensors", "convert", self.model, self.folder / "out.bin")
        self.refused(USAGE, "not to Q4_0; weft quantize", "convert", self.model, out, "--type", "Q4_0")
        self.refused(USAGE, "there is no such type", "convert", self.model, out, "--type", "F31")
        self.model.write_bytes(gguf(METADATA, TENSORS))
        self.refused(FILE, 'metadata "a.bytes": the text is not UTF-8; --no-metadata', "convert", self.model, out)
        write_safetensors(self.folder / "u8.safetensors", {"u": ("U8", [4], bytes(4))})
        self.refused(FILE, 'tensor "u" is U8, which is not converted', "convert", self.folder / "u8.safetensors", self.folder / "out.gguf")
        write_safetensors(self.folder / "long.safetensors", {"n" * 64: ("F32", [1], bytes(4))})
        self.refused(USAGE, "the name has more than 63 bytes", "convert", self.folder / "long.safetensors", self.folder / "out.gguf")
        self.assertFalse(out.exists() or (self.folder / "out.gguf").exists())

    # ---- memory

    def test_what_a_model_would_take(self):
        model = tiny_model.put_model(self.folder / "language", context=4096)
        report = json.loads(self.run_ok("inspect", model, "--fit", "--json", "--device", "cpu"))
        self.assertEqual(report["total"], sum(report[part] for part in ("weights", "cache", "states", "passes")))
        self.assertEqual(report["cache"], 2 * 2 * 16 * 4096 * 4)  # layers, keys and values, width, positions, f32
        self.assertTrue(report["fits"])
        half = json.loads(self.run_ok("inspect", model, "--fit", "--json", "--device", "cpu", "--cache", "f16", "--sequences", "3"))
        self.assertEqual(half["cache"], 3 * report["cache"] // 2)
        text = self.run_ok("inspect", model, "--fit", "--device", "cpu", "--device-memory", "600k")
        self.assertIn("the model does not fit", text)
        self.assertRegex(text, r"fits with .*--context \d+")
        divided = json.loads(self.run_ok("inspect", model, "--fit", "--json", "--device", "cpu,cpu", "--layers", "1"))
        self.assertEqual([(part["first_layer"], part["layers"]) for part in divided["parts"]], [(0, 1), (1, 1)])
        for name in ("weights", "cache", "states", "passes"):
            self.assertEqual(sum(part[name] for part in divided["parts"]), divided[name])
        self.assertEqual(divided["cache"], report["cache"])
        self.assertIn("layers 1-1", self.run_ok("inspect", model, "--fit", "--device", "cpu,cpu"))
        self.refused(USAGE, "3 devices for a model of 2 layers", "inspect", model, "--fit", "--device", "cpu,cpu,cpu")
        self.refused(USAGE, "--split requires --fit", "inspect", model, "--split", "1,1")
        self.refused(USAGE, "--context requires --fit", "inspect", model, "--context", "5")
        self.refused(USAGE, "give f32, f16 or q8", "inspect", model, "--fit", "--cache", "f8")
        self.refused(USAGE, "--fit can be combined with --json only", "inspect", model, "--fit", "--full")
        self.refused(FILE, "neither GGUF nor safetensors", "inspect", model / "config.json", "--fit")

    # ---- configurations of encoders

    def guess(self, shapes, *arguments):
        path = self.folder / "encoder.safetensors"
        write_safetensors(path, {name: ("F32", list(shape), bytes(4 * math.prod(shape))) for name, shape in shapes.items()})
        return json.loads(self.run_ok("inspect", path, "--guess", *arguments)), path

    def test_encoders_without_a_configuration(self):
        whisper = {"model.encoder.conv1.weight": (128, 80, 3), "model.encoder.embed_positions.weight": (30, 128),
                   "model.decoder.embed_tokens.weight": (50, 128), "model.decoder.embed_positions.weight": (20, 128)}
        whisper |= {f"model.{part}.layers.{i}.fc1.weight": (96, 128) for part, count in (("encoder", 3), ("decoder", 2)) for i in range(count)}
        seen, _ = self.guess(whisper)
        self.assertEqual({key: seen[key] for key in ("model_type", "d_model", "num_mel_bins", "encoder_layers", "decoder_layers", "encoder_attention_heads",
                                                     "decoder_ffn_dim", "vocab_size", "max_source_positions", "max_target_positions")},
                         {"model_type": "whisper", "d_model": 128, "num_mel_bins": 80, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 2,
                          "decoder_ffn_dim": 96, "vocab_size": 50, "max_source_positions": 30, "max_target_positions": 20})
        self.assertEqual(self.guess(whisper, "--heads", 8)[0]["decoder_attention_heads"], 8)
        self.refused(USAGE, "7 heads do not divide the width 128", "inspect", self.folder / "encoder.safetensors", "--guess", "--heads", 7)
        clip = {"vision_model.embeddings.patch_embedding.weight": (128, 3, 16, 16), "vision_model.embeddings.position_embedding.weight": (50, 128),
                "vision_model.encoder.layers.0.mlp.fc1.weight": (96, 128), "text_model.encoder.layers.0.mlp.fc1.weight": (40, 64),
                "text_model.encoder.layers.1.mlp.fc1.weight": (40, 64), "text_model.embeddings.token_embedding.weight": (99, 64),
                "text_model.embeddings.position_embedding.weight": (12, 64), "text_projection.weight": (32, 64)}
        seen, path = self.guess(clip)
        self.assertEqual((seen["model_type"], seen["projection_dim"]), ("clip", 32))
        self.assertEqual((seen["vision_config"]["image_size"], seen["vision_config"]["patch_size"], seen["vision_config"]["num_attention_heads"]), (112, 16, 2))
        self.assertEqual((seen["text_config"]["num_hidden_layers"], seen["text_config"]["vocab_size"], seen["text_config"]["max_position_embeddings"]), (2, 99, 12))
        del clip["text_model.embeddings.position_embedding.weight"]
        write_safetensors(path, {name: ("F32", list(shape), bytes(4 * math.prod(shape))) for name, shape in clip.items()})
        self.refused(FILE, "without the tensor text_model.embeddings.position_embedding.weight", "inspect", path, "--guess")
        bert = {"bert.embeddings.word_embeddings.weight": (90, 128), "bert.embeddings.position_embeddings.weight": (64, 128),
                "bert.embeddings.token_type_embeddings.weight": (2, 128), "bert.encoder.layer.0.attention.self.query.weight": (128, 128),
                "bert.encoder.layer.0.intermediate.dense.weight": (300, 128)}
        seen, _ = self.guess(bert)
        self.assertEqual((seen["model_type"], seen["hidden_size"], seen["intermediate_size"], seen["num_hidden_layers"]), ("bert", 128, 300, 1))

    # ---- models on the disk

    def test_models_are_listed_and_removed(self):
        shelf, cache = self.folder / "shelf", self.folder / "cache"
        (shelf / "deep").mkdir(parents=True)
        tiny = tiny_model.put_model(shelf / "deep" / "tiny", context=256)
        (shelf / "bad.gguf").write_bytes(b"GGUF" + bytes(40))
        (shelf / "part-00002-of-00002.gguf").write_bytes(b"GGUF")
        os.symlink(shelf, shelf / "deep" / "loop")
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}, "WEFT_CACHE_DIR": str(cache), "WEFT_MODELS": str(shelf)}

        def models(*arguments, code=OK):
            done = subprocess.run([WEFT, "models", *map(str, arguments)], capture_output=True, text=True, timeout=300, env=environment, cwd=self.folder)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stdout if code == OK else done.stdout + done.stderr

        bad, good = json.loads(models("list", "--json"))
        self.assertEqual((bad["name"], good["name"]), ("bad", "tiny"))
        self.assertIn("bad.gguf", bad["problem"])
        self.assertEqual((good["family"], good["format"], good["context"], good["problem"]), ("llama", "folder", 256, None))
        self.assertEqual(good["bytes"], sum(file.stat().st_size for file in tiny.iterdir()))
        fit = json.loads(models("list", shelf / "deep", "--json", "--fit", "--device", "cpu"))
        self.assertEqual([each["fits"] for each in fit], [True])
        self.assertIn("does not fit", models("list", "--fit", "--device", "cpu", "--device-memory", "20k"))
        self.assertIn("2 models", models("list"))
        # Packed weights of a model that is gone.
        (cache / "packed").mkdir(parents=True, mode=0o700)
        (cache / "packed" / "x.packed").write_text("weft packed weights 2\nmodel /nowhere/m.gguf\n" + " " * 100)
        os.chmod(cache, 0o700)
        status = json.loads(models("storage", "--json"))
        self.assertEqual((status["models"], status["orphans"], status["packed_files"]), (2, 1, 1))
        self.assertGreater(status["disk_free"], 0)
        self.assertIn("removed 0.0 MB", models("remove", "--orphans"))
        self.assertFalse((cache / "packed" / "x.packed").exists())
        # Nothing goes without --yes.
        said = models("remove", "ti", code=1)
        self.assertIn(str(tiny / "config.json"), said)
        self.assertTrue(tiny.exists())
        self.assertIn("is not a model", models("remove", "bad", "--yes", code=USAGE))
        self.assertIn("there is no model", models("remove", "none", code=USAGE))
        self.assertIn("name one of them", models("remove", shelf, "--yes", code=USAGE))
        models("remove", "tiny", "--yes")
        self.assertFalse(tiny.exists())
        self.assertTrue((shelf / "bad.gguf").exists())
        self.assertIn("there is no such folder", models("list", self.folder / "none", code=FILE))

    def test_models_of_other_kinds_are_not_broken(self):
        shelf = self.folder / "senses"
        for kind in ("whisper", "vits", "clip", "siglip", "vit", "nonsense"):
            (shelf / kind).mkdir(parents=True)
            (shelf / kind / "config.json").write_text(json.dumps({"model_type": kind}))
            write_safetensors(shelf / kind / "model.safetensors", {"w": ("F32", [2], floats(2))})
        models = {m["name"]: m for m in json.loads(self.run_ok("models", "list", shelf, "--json", "--fit"))}
        self.assertEqual({name: m["family"] for name, m in models.items() if m["problem"] is None},
                         {kind: kind for kind in ("whisper", "vits", "clip", "siglip", "vit")})
        self.assertIsNotNone(models["nonsense"]["problem"])
        self.assertNotIn("missing", self.run_ok("models", "list", shelf / "whisper"))

    def test_models_are_found_by_name(self):
        (self.folder / "shelf").mkdir()
        tiny_model.put_model(self.folder / "shelf" / "tiny-one", context=64)
        tiny_model.put_model(self.folder / "shelf" / "tiny-two", context=64)
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}, "WEFT_MODELS": str(self.folder / "shelf")}
        run = lambda name: subprocess.run([WEFT, "generate", name, "--prompt", "w1", "--max-tokens", "2", "--device", "cpu"], capture_output=True, text=True,
                                          timeout=300, env=environment, cwd=self.folder)
        self.assertEqual(run("tiny-two").returncode, OK)
        several = run("tiny")
        self.assertEqual(several.returncode, USAGE)
        self.assertIn("several models begin with", several.stderr)

    # ---- metatensor

    def test_metatensor_keeps_every_type(self):
        self.run_ok("quantize", self.model, self.folder / "q.gguf", "--type", "Q4_K", "--pure")
        out = self.folder / "m.metatensor"
        self.run_ok("convert", self.folder / "q.gguf", out)
        seen = self.inspect(out)
        self.assertEqual(seen["format"], "metatensor")
        types = {t["name"]: (t["type"], t["shape"]) for t in seen["tensors"]}
        self.assertEqual(types["output.weight"], ("Q4_K", [16, 256]))
        self.assertEqual(types["blk.0.norm.weight"], ("F32", [256]))
        self.assertIn("no rule", self.run_ok("inspect", out, "--validate"))
        stored, metadata = safetensors(out)
        self.assertEqual(stored["output.weight"][0], "U8")
        self.assertIn("metatensor", metadata)
        write_safetensors(self.folder / "b.safetensors", {"mask": ("BOOL", [2], b"\0\1"), "e": ("F8_E4M3", [1], b"\1")})
        self.run_ok("convert", self.folder / "b.safetensors", self.folder / "b.metatensor")
        self.assertEqual({t["type"] for t in self.inspect(self.folder / "b.metatensor")["tensors"]}, {"BOOL", "F8_E4M3"})
        self.run_ok("convert", out, self.folder / "back.safetensors")
        self.assertEqual(safetensors(self.folder / "back.safetensors")[0]["output.weight"][0], "F32")
        self.refused(USAGE, "not to Q4_0", "convert", self.model, out, "--type", "Q4_0")

    def test_validate_lists_all_that_is_wrong(self):
        path = self.folder / "bad.safetensors"
        head = (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},'
                b'"c":{"dtype":"F99","shape":[1],"data_offsets":[4,5]}}')
        path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(5))
        done = weft("inspect", path, "--validate", "--json")
        self.assertEqual(done.returncode, FILE)
        self.assertEqual([(v["code"], v["name"]) for v in json.loads(done.stdout)["violations"]],
                         [("UNKNOWN_DTYPE", "c"), ("SIZE_MISMATCH", "a"), ("OVERLAP", "b")])
        self.assertIn("OVERLAP", weft("inspect", path, "--validate").stdout)
        self.refused(USAGE, "--validate can be combined with --json only", "inspect", path, "--validate", "--full")


if __name__ == "__main__":
    unittest.main()
