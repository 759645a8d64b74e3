#!/usr/bin/python3
"""Quantised Hugging Face folders, judged by NumPy, ml_dtypes and MLX: quantised_judge.py WEFT

A tiny Llama is quantised as GPTQ, AWQ and MLX lay out their files, and to FP8: here by NumPy, from the published layouts, with the
FP8 of ml_dtypes, and by MLX's own functions (PyPI mlx, script/setup --judges). Weft's values must be those of the layout, and its
greedy text that of the model whose matrices were unpacked before.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.append(str(JUDGES))

import numpy as np  # noqa: E402
import ml_dtypes  # noqa: E402
import mlx.core as mx  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
HIDDEN, WIDE, WORDS, LAYERS = 64, 128, 96, 2
CONFIG = {"model_type": "llama", "vocab_size": WORDS, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
          "num_key_value_heads": 4, "intermediate_size": WIDE, "max_position_embeddings": 96, "rms_norm_eps": 1e-5,
          "tie_word_embeddings": False, "hidden_act": "silu"}
TOKENIZER = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
             "post_processor": None, "decoder": None,
             "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(WORDS)}, "unk_token": "w0"}}
draw = np.random.default_rng(3)


def weft(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def matrices():
    """Names of the layers to quantise, with their shapes."""
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o"):
            yield f"model.layers.{i}.self_attn.{name}_proj", (HIDDEN, HIDDEN)
        yield f"model.layers.{i}.mlp.gate_proj", (WIDE, HIDDEN)
        yield f"model.layers.{i}.mlp.up_proj", (WIDE, HIDDEN)
        yield f"model.layers.{i}.mlp.down_proj", (HIDDEN, WIDE)


def rest():
    tensors = {"model.embed_tokens.weight": draw.normal(0, 1, (WORDS, HIDDEN)), "lm_head.weight": draw.normal(0, 0.3, (WORDS, HIDDEN)),
               "model.norm.weight": np.ones(HIDDEN)}
    for i in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = np.ones(HIDDEN)
    return {name: value.astype(np.float32) for name, value in tensors.items()}


def stream(values, bits, axis):
    """Integers as a little-endian stream of bits in words of 32, along an axis."""
    values = np.moveaxis(values, axis, -1)
    ones = (values[..., None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32)) & 1
    words = np.packbits(ones.reshape(*values.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little").view(np.uint32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def integers(shape, bits, group, symmetric):
    rows, columns = shape
    groups = columns // group
    most = 2**bits - 1
    q = draw.integers(0, most + 1, shape)
    scale = draw.uniform(0.2, 0.6, (rows, groups)).astype(np.float16) / np.float16(most)
    middle = 2**(bits - 1)
    zero = np.full((rows, groups), middle) if symmetric else np.clip(draw.integers(middle - 2, middle + 3, (rows, groups)), 0, most)
    return q, scale, zero


def gptq(form, bits, group, symmetric, act_order):
    """The tensors of a layer, and its values."""
    def layer(name, shape):
        q, scale, zero = integers(shape, bits, group, symmetric)
        of_input = np.arange(shape[1]) // group
        if act_order:
            of_input = draw.permutation(of_input)
        # The first convention stores one less.
        stored = zero if form == "gptq_v2" else (zero - 1) % 2**bits
        values = scale[:, of_input].astype(np.float32) * (q - zero[:, of_input]).astype(np.float32)
        return {f"{name}.qweight": stream(q.T, bits, 0), f"{name}.qzeros": stream(stored.T, bits, 1),
                f"{name}.scales": np.ascontiguousarray(scale.T), f"{name}.g_idx": of_input.astype(np.int32)}, values
    return layer, {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order,
                                           "sym": symmetric, "checkpoint_format": form}}


def awq(group, symmetric):
    def packed(values):  # [rows, outputs]: the places of a word, from the lowest, hold these outputs
        words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
        for place, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            words |= values[:, output::8].astype(np.uint32) << np.uint32(4 * place)
        return words.view(np.int32)

    def layer(name, shape):
        q, scale, zero = integers(shape, 4, group, symmetric)
        values = np.repeat(scale, group, 1).astype(np.float32) * (q - np.repeat(zero, group, 1)).astype(np.float32)
        return {f"{name}.qweight": packed(q.T), f"{name}.qzeros": packed(zero.T), f"{name}.scales": np.ascontiguousarray(scale.T)}, values
    return layer, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}}


def mlx(bits, group, mode="affine"):
    def layer(name, shape):
        # Scales of f16, as files have them; MLX's own values are rounded to that type, those asked of it here are not.
        weight = mx.array(draw.normal(0, 0.2, shape).astype(np.float16))
        made = mx.quantize(weight, group_size=group, bits=bits, mode=mode)
        exact = made if mode == "mxfp4" else (made[0], made[1].astype(mx.float32), made[2].astype(mx.float32))
        values = np.array(mx.dequantize(*exact, group_size=group, bits=bits, mode=mode).astype(mx.float32))
        return {f"{name}.{key}": np.array(value) for key, value in zip(("weight", "scales", "biases"), made)}, values
    return layer, {"quantization": {"bits": bits, "group_size": group, "mode": mode}}


def fp8(config, rows, columns, ending, kind, largest=0.4, shape_of_scales=None):
    """Every code but the two NaNs, and a scale for each tile; 0: all rows or columns. `largest` is about that of the values."""
    def layer(name, shape):
        tile = (rows or shape[0], columns or shape[1])
        count = [-(-size // side) for size, side in zip(shape, tile)]
        scale = (draw.uniform(0.3, 1, count) * largest / 448).astype(np.float32)
        if kind == ml_dtypes.float8_e8m0fnu:
            scale = np.exp2(np.floor(np.log2(scale)))
        scale = scale.astype(kind)
        codes = np.concatenate([np.delete(np.arange(256), [127, 255]), draw.choice(np.delete(np.arange(256), [127, 255]), shape[0] * shape[1] - 254)])
        weight = draw.permutation(codes).astype(np.uint8).reshape(shape).view(ml_dtypes.float8_e4m3fn)
        values = weight.astype(np.float32) * np.repeat(np.repeat(scale.astype(np.float32), tile[0], 0), tile[1], 1)[:shape[0], :shape[1]]
        stored = scale if shape_of_scales is None else scale.reshape(shape_of_scales)
        return {f"{name}.weight": weight, f"{name}.weight{ending}": stored, f"{name}.input_scale": np.ones(1, np.float32)}, values
    return layer, {"quantization_config": config}


def compressed(**weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "symmetric": True, **weights}}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def put(folder, tensors, changes=()):
    folder.mkdir()
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**CONFIG, **dict(changes)}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


def greedy(model):
    out = weft("generate", model, "--prompt", "w5 w17 w3 w60", "--max-tokens", "24", "--temperature", "0", "--json", "--exact",
               "--device", "cpu", "--no-packed-file").stdout
    return [token["id"] for token in json.loads(out)["tokens"]]


def check(name, made, is_exact, rounded=np.float16):
    layer, changes = made
    packed, plain = rest(), None
    plain = dict(packed)
    for matrix, shape in matrices():
        tensors, values = layer(matrix, shape)
        packed.update(tensors)
        plain[matrix + ".weight"] = values
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder, unpacked = put(scratch / "packed", packed, changes), put(scratch / "plain", plain)
        weft("convert", folder, scratch / "values.safetensors", "--type", "F32")
        found = load_file(scratch / "values.safetensors")
        assert found.keys() == plain.keys(), found.keys() ^ plain.keys()
        quantised = {matrix + ".weight" for matrix, _ in matrices()}
        for key, wanted in plain.items():
            if key in quantised and not is_exact:
                wanted = wanted.astype(rounded).astype(np.float32)
            # MLX adds s q and b in one rounding, which may be the other one of two halves.
            near = (2e-7 if is_exact else 1e-3) if "mlx" in name else 0
            assert np.allclose(found[key], wanted, rtol=near, atol=near / 10), (name, key, np.abs(found[key] - wanted).max())
        note = f"are unpacked to {'F16' if rounded == np.float16 else 'BF16'}" in weft("convert", folder, scratch / "model.gguf", "--no-tokenizer").stderr
        assert note != is_exact, (name, "note", note)
        texts = [greedy(model) for model in (folder, unpacked)]
        assert texts[0] == texts[1], (name, texts)
        assert len(set(texts[0])) > 3, (name, texts)  # a text that could differ
    print(f"{name}: ok")


def main():
    mx.set_default_device(mx.cpu)
    mx.random.seed(1)
    check("gptq, 4 bits", gptq("gptq", 4, 32, True, False), True)
    check("gptq, any zero points", gptq("gptq", 4, 64, False, False), True)
    check("gptq v2", gptq("gptq_v2", 4, 64, False, False), True)
    check("gptq, act-order", gptq("gptq", 4, 32, True, True), False)
    check("gptq, 8 bits", gptq("gptq", 8, 64, True, False), True)
    check("gptq, 3 bits", gptq("gptq", 3, 32, False, False), True)
    check("awq", awq(64, False), True)
    check("awq, one zero point", awq(32, True), True)
    for bits, group in ((2, 64), (3, 32), (4, 32), (4, 64), (5, 64), (6, 32), (8, 64)):
        check(f"mlx, {bits} bits, groups of {group}", mlx(bits, group), bits <= 5)
    check("mlx, mxfp4", mlx(4, 32, "mxfp4"), True)
    blocks = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [48, 40]}
    check("fp8, blocks", fp8(blocks, 48, 40, "_scale_inv", np.float32), False)
    check("fp8, blocks larger than the matrices", fp8({**blocks, "weight_block_size": [256, 256]}, 256, 256, "_scale_inv", np.float32), False)
    check("fp8, blocks of e8m0", fp8(blocks, 48, 40, "_scale_inv", ml_dtypes.float8_e8m0fnu), False)
    check("fp8, a scale for all", fp8({**blocks, "weight_block_size": None}, 0, 0, "_scale_inv", ml_dtypes.bfloat16, shape_of_scales=()), False)
    check("fp8, scales that F16 would lose", fp8(blocks, 48, 40, "_scale_inv", np.float32, largest=2e-5), False, ml_dtypes.bfloat16)
    check("fbgemm_fp8", fp8({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, 1, 0, "_scale", np.float32), False)
    check("compressed-tensors, channels", fp8(compressed(strategy="channel"), 1, 0, "_scale", ml_dtypes.bfloat16), False)
    check("compressed-tensors, tensors", fp8(compressed(strategy="tensor"), 0, 0, "_scale", np.float32, shape_of_scales=(1,)), False)
    check("compressed-tensors, blocks", fp8(compressed(strategy="block", block_structure=[32, 128]), 32, 128, "_scale", np.float32), False)
    check("modelopt", fp8({"quant_method": "modelopt", "quant_algo": "FP8"}, 0, 0, "_scale", np.float32, shape_of_scales=()), False)


main()
