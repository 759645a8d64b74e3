"""What the peft library makes of tiny random models and adapters: make.py [FOLDER] [--check].

Writes a file an adapter: its config as the library saves it, the shapes of its matrices, logits of the model with it, the losses of some
steps of training, and one matrix behind them. peft_test.cpp compares Weft with them. The models are those of
../../llm/transformers/make.py. With --check the files are compared with what the library gives now, and stay as they are.
Made with peft 0.21.2, transformers 5.24.0 and torch 2.15.0.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import peft
import torch
import transformers
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "llm" / "transformers"))
import make as models  # noqa: E402

TEXTS = [(24, 0), (10, 4), (12, 6)]  # tokens, and how many of the first do not count
STEPS, RATE = 6, 3e-3

# name, model of CASES, settings of the adapter
CASES = [
    ("llama", "llama", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}),
    ("llama-by-root", "llama-biases", {"r": 9, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "up_proj"],
                                       "layers_to_transform": [0, 2]}),
    ("llama-patterns", "llama", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "lm_head"],
                                 "rank_pattern": {"v_proj": 2}, "alpha_pattern": {"v_proj": 6, "layers.1.self_attn.q_proj": 3}}),
    ("llama-tied", "llama-llama3", {"r": 2, "lora_alpha": 4, "target_modules": ["o_proj", "lm_head"]}),
    ("gpt2", "gpt2", {"r": 3, "lora_alpha": 6, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    ("falcon", "falcon-groups", {"r": 4, "lora_alpha": 4, "target_modules": ["query_key_value", "dense"]}),
    ("phi3", "phi3", {"r": 2, "lora_alpha": 8, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]}),
    ("gemma2", "gemma2", {"r": 2, "lora_alpha": 2, "target_modules": ["q_proj", "v_proj", "down_proj"]}),
    ("qwen3", "qwen3", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj"]}),
    ("llama-dora", "llama-biases", {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"]}),
    ("gpt2-dora", "gpt2", {"r": 3, "lora_alpha": 6, "use_dora": True, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
    ("phi3-dora", "phi3", {"r": 2, "lora_alpha": 8, "use_dora": True, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]}),
    ("mamba", "mamba", {"r": 2, "lora_alpha": 4, "target_modules": ["in_proj", "x_proj"]}),
    ("mamba2", "mamba2", {"r": 2, "lora_alpha": 4, "target_modules": ["in_proj"]}),
    ("bamba", "bamba", {"r": 2, "lora_alpha": 4, "target_modules": ["in_proj", "q_proj", "v_proj", "up_proj"]}),
    ("lfm2", "lfm2", {"r": 2, "lora_alpha": 4, "target_modules": ["in_proj", "q_proj", "w1"]}),
    ("llama-saved", "llama", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head", "norm"]}),
    ("llama-biases-saved", "llama-biases", {"r": 2, "target_modules": ["q_proj"], "bias": "all"}),
    ("llama-table", "llama", {"r": 4, "target_modules": ["v_proj", "embed_tokens"]}),
    ("tied-saved", "llama-llama3", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    ("tied-table", "llama-llama3", {"r": 2, "target_modules": ["embed_tokens"]}),
    ("tied-head", "llama-llama3", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    ("gpt2-saved", "gpt2", {"r": 2, "target_modules": ["c_attn"], "modules_to_save": ["wte"], "fan_in_fan_out": True}),
    ("bloom", "bloom", {"r": 2, "lora_alpha": 4, "target_modules": ["query_key_value", "dense_h_to_4h"]}),
    ("mixtral-experts", "mixtral", {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
                                    "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    ("mixtral-apart", "mixtral", {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "w1", "w2", "w3"]}),
    ("qwen3-moe-downs", "qwen3-moe", {"r": 3, "lora_alpha": 3, "use_rslora": True, "target_modules": [], "target_parameters": ["experts.down_proj"],
                                      "rank_pattern": {"layers.1.mlp.experts.down_proj": 2}}),
    ("gpt-oss-experts", "gpt-oss", {"r": 2, "lora_alpha": 4, "target_modules": ["o_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
    ("llama4-experts", "llama4", {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}),
    ("deepseek-v3-experts", "deepseek-v3", {"r": 2, "lora_alpha": 2, "target_modules": ["o_proj"], "target_parameters": ["experts.gate_up_proj"],
                                            "alpha_pattern": {"layers.2.mlp.experts.gate_up_proj": 5}}),
]


def expert_tensors(tensors):
    """The matrices of an adapter as they were before experts became one module: each expert's apart."""
    apart = {}
    for key, value in tensors.items():
        layer, _, rest = key.partition(".mlp.experts.")
        if not rest:
            apart[key] = value
            continue
        if "base_layer" in key:
            continue
        matrix = rest.removesuffix(".weight")  # lora_A or lora_B
        for expert in range(4):
            for name, wide, narrow in (("w1", 64, 32), ("w3", 64, 32), ("w2", 32, 64)):
                apart[f"{layer}.block_sparse_moe.experts.{expert}.{name}.{matrix}.weight"] = np.zeros((2, narrow) if matrix == "lora_A" else (wide, 2), np.float32)
    return apart


def model_of(name, folder):
    _, kind, changes = next(case for case in models.CASES if case[0] == name)
    saved = json.loads((pathlib.Path(models.__file__).parent / f"{name}.json").read_text())
    tensors = {key: models.random_values(key, tuple(shape), "gemma" not in name) for key, shape in saved["tensors"].items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(saved["config"]))
    plain = {"experts_implementation": "eager"} if "experts" in json.dumps(saved["config"]) else {}  # which has f64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **plain)
    return model.double().eval()


def adapter_values(key, shape):
    """A as PEFT draws it, by size; B is as large, so that both have gradients. Magnitudes and norms are near 1."""
    if len(shape) == 1:
        return models.random_values("adapter " + key, shape, True)
    return models.random_values("adapter " + key, shape, False) * 0.3


def texts_of():
    """Tokens by a rule, as rows have them: a text's last token is only a target."""
    return [[(i * 17 + 5 * t + 3 * (i % 4)) % models.VOCABULARY for i in range(length + 1)] for t, (length, _) in enumerate(TEXTS)]


def loss_of(model, texts):
    total, count = 0.0, 0
    for text, (_, skipped) in zip(texts, TEXTS):
        logits = model(torch.tensor([text[:-1]])).logits[0]
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(text[1:]), reduction="none")[skipped:]
        total, count = total + losses.sum(), count + len(losses)
    return total / count


def result_of(name, base, settings):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        plain = model_of(base, folder)
        model = peft.get_peft_model(plain, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
        model.save_pretrained(folder / "adapter")
        tensors = {key: value for key, value in load_file(folder / "adapter" / "adapter_model.safetensors").items()
                   if not key.endswith(("base_layer.weight", "base_layer.bias"))}  # a copy of the model's own matrix
        if name.endswith("-apart"):
            tensors = expert_tensors(tensors)
        tensors = {key: adapter_values(key, value.shape) for key, value in tensors.items()}
        save_file(tensors, folder / "adapter" / "adapter_model.safetensors", {"format": "pt"})
        config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        if name.endswith("-apart"):  # as it was then, which the library reads into its own form
            config.update(settings, target_parameters=None, rank_pattern={}, alpha_pattern={})
            (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
        model = peft.PeftModel.from_pretrained(model_of(base, folder), folder / "adapter", is_trainable=True).double().eval()
        texts = texts_of()
        with torch.no_grad():
            logits = model(torch.tensor([texts[0][:-1]])).logits[0].numpy()[[3, 11, 23]]
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0)
        losses = []
        for _ in range(STEPS):
            loss = loss_of(model, texts)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.save_pretrained(folder / "after")
        after = load_file(folder / "after" / "adapter_model.safetensors")
        key = sorted(key for key in after if not key.endswith(("base_layer.weight", "base_layer.bias")))[0]
        merged = model.merge_and_unload()
        with torch.no_grad():
            last = merged(torch.tensor([texts[0][:-1]])).logits[0].numpy()[[23]]
    number = lambda x: float(f"{x:.6f}")  # noqa: E731
    return {"model": base, "adapter": {k: sorted(v) if isinstance(v, list) and k == "target_modules" else v for k, v in sorted(config.items())},
            "tensors": {k: list(v.shape) for k, v in sorted(tensors.items())}, "texts": texts, "skipped": [s for _, s in TEXTS],
            "rate": RATE, "losses": [float(f"{x:.7f}") for x in losses], "after_key": key, "after": [number(x) for x in after[key].flatten()[:64]],
            "logits": [[number(x) for x in row] for row in logits], "last": [number(x) for x in last[0]]}


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), pathlib.Path(__file__).parent))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    for name, base, settings in CASES:
        result, path = result_of(name, base, settings), folder / f"{name}.json"
        if not check:
            path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
            print(f"{name}: losses {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}")
            continue
        kept = json.loads(path.read_text())
        difference = max(np.abs(np.subtract(kept[key], result[key])).max() for key in ("logits", "losses", "after", "last"))
        failures += not difference < 5e-6
        print(f"{name}: differs by {difference:.1e}")
    print(f"{len(CASES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
