#!/usr/bin/python3
"""GGUF files of language models, judged by llama.cpp: gguf_judge.py WEFT [NAME...]

Tiny random models of the configurations in transformers/, which weft convert makes of folders, read a text in Weft and in llama.cpp
(PyPI xllamacpp, script/setup --judges): the log-probabilities of the next token must agree.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.append(str(JUDGES))

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import xllamacpp as llama  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, decoders  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
CASES = ["olmoe", "dots1", "arcee", "bailing-1", "bailing-2", "seed-oss", "glm4-moe-groups", "hunyuan-moe", "ernie4_5-moe", "cohere2", "granite", "qwen2-moe", "qwen3-moe", "qwen2", "deepseek-v3", "bloom", "glm4", "olmo2", "baichuan-7b", "baichuan-13b", "ministral3", "apertus", "llama4", "gpt-oss", "gemma3n", "gemma4", "gemma4-keys-are-values", "gemma4-experts", "mamba", "mamba2", "jamba", "nemotron-h",
         "nemotron-h-moe", "lfm2", "lfm2-moe", "bamba", "granite-hybrid", "granite-moe-hybrid", "falcon-h1", "qwen3-next"]
BYTES, TEXT = sorted(pre_tokenizers.ByteLevel.alphabet()), "The whale, the whale! Up helm, up helm!"
draw = np.random.default_rng(5)


def put(case, folder):
    config, tensors = case["config"], {}
    before = config["vocab_size"]
    vocabulary = {piece: i for i, piece in enumerate([*BYTES, "<s>", "th"])}
    config["vocab_size"] = len(vocabulary)
    for name, shape in case["tensors"].items():
        shape = [len(vocabulary) if extent == before and axis == 0 and ("embed" in name or "lm_head" in name) else extent for axis, extent in enumerate(shape)]
        spread = 0.3 if len(shape) < 2 else 1.7 / math.sqrt(shape[1])
        offset = 1 if len(shape) < 2 and not name.endswith(".bias") else 0
        factor = next((by for part, by in case.get("factors", {}).items() if part in name), 1)
        tensors[name] = np.asarray(factor * (offset + spread * draw.uniform(-1, 1, shape)), np.float32)
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(folder / "tokenizer.json"))


def bailing(is_second):
    """Ling's models, which transformers does not have: a folder as inclusionAI publishes them. The first has no norms of heads and no sigmoids."""
    config = {"model_type": "bailing_moe", "vocab_size": 48, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu",
              "tie_word_embeddings": False, "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1, "moe_intermediate_size": 32,
              "norm_topk_prob": True, "first_k_dense_replace": 0}
    if is_second:
        config.update(score_function="sigmoid", n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1, partial_rotary_factor=0.5,
                      use_qk_norm=True, moe_router_enable_expert_bias=True)
    wide, rows = 64, (4 + 2 * 2) * 16
    tensors = {"model.word_embeddings.weight": [48, wide], "model.norm.weight": [wide], "lm_head.weight": [48, wide]}
    for layer in range(3):
        at = f"model.layers.{layer}."
        tensors.update({f"{at}{part}.weight": shape for part, shape in (
            ("input_layernorm", [wide]), ("post_attention_layernorm", [wide]), ("attention.query_key_value", [rows, wide]), ("attention.dense", [wide, 64]))})
        if is_second:
            tensors.update({f"{at}attention.{part}_layernorm.weight": [16] for part in ("query", "key")})
        mlps = [("mlp", 96)] if layer < config["first_k_dense_replace"] else [("mlp.shared_experts", 32), *((f"mlp.experts.{e}", 32) for e in range(8))]
        for mlp, width in mlps:
            tensors.update({f"{at}{mlp}.{part}_proj.weight": [width, wide] for part in ("gate", "up")})
            tensors[f"{at}{mlp}.down_proj.weight"] = [wide, width]
        if len(mlps) > 1:
            tensors[f"{at}mlp.gate.weight"] = [8, wide]
            if is_second:
                tensors[f"{at}mlp.gate.expert_bias"] = [8]
    return {"config": config, "tensors": tensors}


def case_of(name):
    """Of Baichuan there are no folders here: a Llama of as many layers, whose keys GGUF files of it have under another name."""
    if name.startswith("bailing"):
        return bailing(name.endswith("2"))
    case = json.loads((pathlib.Path(__file__).parent / "transformers" / f"{'llama' if name.startswith('baichuan') else name}.json").read_text())
    if name.startswith("baichuan"):
        config, layers = case["config"], 40 if name.endswith("13b") else 32
        config.update(num_hidden_layers=layers, num_key_value_heads=config["num_attention_heads"])
        wide, tensors = [config["hidden_size"]] * 2, {}
        for key, shape in case["tensors"].items():
            shape = wide if key.endswith(("k_proj.weight", "v_proj.weight")) else shape
            for layer in range(layers if ".layers.0." in key else 0 if ".layers." in key else 1):
                tensors[key.replace(".layers.0.", f".layers.{layer}.")] = shape
        case["tensors"] = tensors
    if name in ("olmoe", "dots1"):  # llama.cpp wants keys for all heads
        case["config"]["num_key_value_heads"] = case["config"]["num_attention_heads"]
        for key, shape in case["tensors"].items():
            if key.endswith(("k_proj.weight", "v_proj.weight")) or (name == "olmoe" and key.endswith("k_norm.weight")):
                shape[0] = case["config"]["hidden_size"]
    if name == "llama4":  # what GGUF has no keys for is as Meta's models have it
        case["config"].update(attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1)
    if name == "gpt-oss":
        # llama.cpp rounds the ends of the ramp of slowed positions to whole pairs, and the model of transformers does not. These ends
        # are whole already, so both compute the same.
        rope, width = case["config"]["rope_parameters"], case["config"]["head_dim"]
        for beta, pair in (("beta_fast", 2.0001), ("beta_slow", 9.9999)):
            rope[beta] = rope["original_max_position_embeddings"] / (2 * math.pi * rope["rope_theta"] ** (2 * pair / width))
    if name == "gemma3n":
        # llama.cpp has the numbers of the published models: 20 layers have keys, ten are sparse, and some widths. It divides a variance
        # by n - 1, which wide layers hide. Small norms keep the differences of half precision from growing through the layers.
        layers, wide, own = 22, 4096, 256
        case["config"].update(num_hidden_layers=layers, num_kv_shared_layers=2, activation_sparsity_pattern=[0.95] * 10 + [0.0] * 12,
                              layer_types=["full_attention" if (i + 1) % 5 == 0 else "sliding_attention" for i in range(layers)],
                              intermediate_size=wide, vocab_size_per_layer_input=258, hidden_size_per_layer_input=own)
        tensors = {key: shape for key, shape in case["tensors"].items() if ".layers." not in key}
        tensors.update({"model.embed_tokens_per_layer.weight": [48, layers * own], "model.per_layer_model_projection.weight": [layers * own, 32],
                        "model.per_layer_projection_norm.weight": [own]})
        for key, shape in case["tensors"].items():
            for i in range(layers if ".layers.0." in key else 0):
                if i < 20 or not key.endswith(("k_proj.weight", "v_proj.weight", "k_norm.weight")):
                    widths = {8: own} if "per_layer" in key else {64: wide} if ".mlp." in key else {}
                    tensors[key.replace(".layers.0.", f".layers.{i}.")] = [widths.get(extent, extent) for extent in shape]
        case["tensors"] = tensors
        case["factors"] = {"q_norm": 0.2, "post_": 0.2}
    if name == "falcon-h1":
        case["config"]["mamba_norm_before_gate"] = False
    if name == "qwen3-next":  # llama.cpp wants keys and values of one width
        case["config"]["linear_value_head_dim"] = 8
        widths = {"in_proj_qkvz.weight": [96, 32], "conv1d.weight": [64, 1, 4], "linear_attn.norm.weight": [8], "out_proj.weight": [32, 32]}
        for key in case["tensors"]:
            case["tensors"][key] = next((shape for part, shape in widths.items() if key.endswith(part)), case["tensors"][key])
    if name == "gemma4":
        case["config"]["vocab_size_per_layer_input"] = 258
    if name == "nemotron-h-moe":  # llama.cpp wants experts in all layers that are an MLP alone
        case["config"]["layers_block_type"].pop()
        case["tensors"] = {key: shape for key, shape in case["tensors"].items() if ".layers.4." not in key}
    if name == "apertus":  # GGUF files of it have no biases
        case["config"]["attention_bias"] = False
        case["tensors"] = {key: shape for key, shape in case["tensors"].items() if not key.endswith(".bias")}
    return case


def rename(path, architecture):
    """Writes a GGUF file of a Llama again, as one of another architecture."""
    read = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_suffix(".new"), architecture)
    for key, field in read.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kinds = [*field.types[:1], field.types[1] if len(field.types) > 1 else None]
        writer.add_key_value(key.replace("llama.", architecture + ".", 1), field.contents(), *kinds)
    for tensor in read.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path.with_suffix(".new"), path)


def weft_answer(model):
    out = subprocess.run([WEFT, "generate", model, "--prompt", TEXT, "--max-tokens", "1", "--temperature", "0", "--json", "--top-logprobs", "20",
                          "--exact", "--device", "cpu", "--no-packed-file"], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return {each["id"]: each["log_probability"] for each in json.loads(out.stdout)["tokens"][0]["top"]}


def llama_answer(model):
    """A letter is written, because half a character has no probabilities here. The bias does not change those."""
    params = llama.CommonParams()
    params.model.path = str(model)
    params.n_ctx = 256
    params.warmup = False
    for key, field in gguf.GGUFReader(model).fields.items():  # llama.cpp does not read these two from the file
        if key.endswith(("yarn_beta_fast", "yarn_beta_slow")):
            setattr(params, key.split(".")[-1], field.contents())
    answer = llama.Server(params).handle_completions({"prompt": TEXT, "max_tokens": 1, "temperature": 0, "logprobs": 20,
                                                      "logit_bias": [[BYTES.index("A"), 1000]]})
    assert "choices" in answer, answer
    return {each["id"]: each["logprob"] for each in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}


def main():
    failures = 0
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            put(case_of(name), folder / "hf")
            subprocess.run([WEFT, "convert", folder / "hf", folder / "model.gguf"], check=True, capture_output=True)
            if name.startswith("baichuan"):
                rename(folder / "model.gguf", "baichuan")
            ours, theirs = weft_answer(folder / "model.gguf"), llama_answer(folder / "model.gguf")
            both = ours.keys() & theirs.keys()
            apart = max((abs(ours[token] - theirs[token]) for token in both), default=math.inf)
            good = len(both) >= 18 and apart < 0.02
            failures += not good
            print(f"{name}: {len(both)} probabilities compared, {apart:.4f} apart{'' if good else '  FAILED'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
