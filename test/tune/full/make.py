"""What the transformers library makes of training all weights: make.py [FOLDER] [--check] [--only=CASE...].

Writes a file a model: texts, the losses of some steps of AdamW on all weights, one matrix and logits behind them. Models and texts are
those of ../peft/make.py. full_test.cpp compares Weft with them. With --check the files are compared with what the library gives now,
and stay as they are. Made with transformers 5.24.0 and torch 2.15.0.
"""
import json
import pathlib
import sys
import tempfile
from importlib import util

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

spec = util.spec_from_file_location("peft_make", pathlib.Path(__file__).parents[1] / "peft" / "make.py")
adapters = util.module_from_spec(spec)
spec.loader.exec_module(adapters)

STEPS, RATE, DECAY = 5, 1e-3, 0.1
# name: a model of ../../llm/transformers/make.py; a tensor of its files whose values behind the steps are kept
CASES = {"llama-llama3": "model.embed_tokens.weight", "llama-biases": "model.layers.0.self_attn.q_proj.weight",
         "gpt2": "transformer.h.1.attn.c_attn.weight", "phi3": "model.layers.1.self_attn.qkv_proj.weight",
         "falcon-groups": "transformer.h.0.self_attention.query_key_value.weight",
         "gemma2": "model.layers.0.input_layernorm.weight", "mamba2": "backbone.layers.0.mixer.in_proj.weight",
         "mixtral": "model.layers.0.block_sparse_moe.experts.1.w2.weight",
         "qwen2-moe": "model.layers.2.mlp.experts.4.up_proj.weight", "gpt-oss": "model.layers.1.mlp.experts.gate_up_proj",
         "deepseek-v3": "model.layers.2.mlp.gate.weight", "llama4": "model.layers.3.feed_forward.experts.down_proj"}
# name: a case that trains with the loss that balances experts, times this factor; it reads only logits of routers
BALANCED = {"mixtral": 0.3, "qwen2-moe": 0.05}
# A case that trains by another rule: its name in Weft, the class of torch, its options there and in Weft, and the rate.
RULES = {"sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, ["momentum=0.9", "nesterov=true"], 1e-2),
         "rmsprop": (torch.optim.RMSprop, {"alpha": 0.95, "momentum": 0.5}, ["alpha=0.95", "momentum=0.5"], 1e-3),
         "nadam": (torch.optim.NAdam, {}, [], 1e-3)}


def balance_of(model, texts):
    """The library's auxiliary loss over the tokens of all texts."""
    logits = [model(torch.tensor([text[:-1]]), output_router_logits=True).router_logits for text in texts]
    experts, used = model.config.num_experts if hasattr(model.config, "num_experts") else model.config.num_local_experts, model.config.num_experts_per_tok
    return load_balancing_loss_func(tuple(torch.cat(layer) for layer in zip(*logits)), experts, used)


def result_of(name, key, balance, rule=None):
    with tempfile.TemporaryDirectory() as folder:
        model = adapters.model_of(name, pathlib.Path(folder))
    texts = adapters.texts_of()
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}]
    kind, options, of_weft, rate = RULES[rule] if rule else (torch.optim.AdamW, {}, [], RATE)
    optimizer = kind(groups, lr=rate, **options)
    losses, balances = [], []
    for _ in range(STEPS):
        loss = adapters.loss_of(model, texts)
        total = loss
        if balance:
            total = loss + balance * balance_of(model, texts)
            balances.append(((total - loss) / balance).item())
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        last = model(torch.tensor([texts[0][:-1]])).logits[0].numpy()[[23]]
    number = lambda x: float(f"{x:.6f}")  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:  # as its files name it
        model.save_pretrained(folder)
        after = load_file(pathlib.Path(folder) / "model.safetensors")[key].flatten()
    return {"model": name, "texts": texts, "skipped": [s for _, s in adapters.TEXTS], "rate": rate, "decay": DECAY,
            **({"optimizer": rule, "optimizer_options": of_weft} if rule else {}),
            "losses": [float(f"{x:.7f}") for x in losses], **({"balance": balance, "balances": [float(f"{x:.7f}") for x in balances]} if balance else {}),
            "after_key": key, "after": [number(x) for x in after[:96]],
            "last": [number(x) for x in last[0]]}


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), pathlib.Path(__file__).parent))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    cases = [(name, name, key, 0, None) for name, key in CASES.items()]
    cases += [(f"{name}-balanced", name, CASES[name], balance, None) for name, balance in BALANCED.items()]
    cases += [(f"llama-biases-{rule}", "llama-biases", CASES["llama-biases"], 0, rule) for rule in RULES]
    only = [a.removeprefix("--only=") for a in arguments if a.startswith("--only=")]
    cases = [case for case in cases if not only or case[0] in only]
    for case, name, key, balance, rule in cases:
        result, path = result_of(name, key, balance, rule), folder / f"{case}.json"
        if not check:
            path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
            print(f"{case}: losses {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}")
            continue
        kept = json.loads(path.read_text())
        difference = max(np.abs(np.subtract(kept[key], result[key])).max() for key in ("losses", "after", "last", "balances") if key in kept)
        failures += not difference < 5e-6
        print(f"{case}: differs by {difference:.1e}")
    print(f"{len(cases) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
