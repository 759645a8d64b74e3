"""What the transformers library makes of training all weights: make.py [FOLDER] [--check].

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

spec = util.spec_from_file_location("peft_make", pathlib.Path(__file__).parents[1] / "peft" / "make.py")
adapters = util.module_from_spec(spec)
spec.loader.exec_module(adapters)

STEPS, RATE, DECAY = 5, 1e-3, 0.1
# name: a model of ../../llm/transformers/make.py; a matrix whose values behind the steps are kept
CASES = {"llama-llama3": "model.embed_tokens.weight", "llama-biases": "model.layers.0.self_attn.q_proj.weight",
         "gpt2": "transformer.h.1.attn.c_attn.weight", "phi3": "model.layers.1.self_attn.qkv_proj.weight",
         "falcon-groups": "transformer.h.0.self_attention.query_key_value.weight",
         "gemma2": "model.layers.0.input_layernorm.weight", "mamba2": "backbone.layers.0.mixer.in_proj.weight"}


def result_of(name, key):
    with tempfile.TemporaryDirectory() as folder:
        model = adapters.model_of(name, pathlib.Path(folder))
    texts = adapters.texts_of()
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    losses = []
    for _ in range(STEPS):
        loss = adapters.loss_of(model, texts)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        last = model(torch.tensor([texts[0][:-1]])).logits[0].numpy()[[23]]
    number = lambda x: float(f"{x:.6f}")  # noqa: E731
    after = dict(model.named_parameters())[key].detach().numpy().flatten()
    return {"model": name, "texts": texts, "skipped": [s for _, s in adapters.TEXTS], "rate": RATE, "decay": DECAY,
            "losses": [float(f"{x:.7f}") for x in losses], "after_key": key, "after": [number(x) for x in after[:96]],
            "last": [number(x) for x in last[0]]}


def main(*arguments):
    check = "--check" in arguments
    folder = pathlib.Path(next((a for a in arguments if not a.startswith("--")), pathlib.Path(__file__).parent))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failures = 0
    for name, key in CASES.items():
        result, path = result_of(name, key), folder / f"{name}.json"
        if not check:
            path.write_text("{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
            print(f"{name}: losses {result['losses'][0]:.4f} to {result['losses'][-1]:.4f}")
            continue
        kept = json.loads(path.read_text())
        difference = max(np.abs(np.subtract(kept[key], result[key])).max() for key in ("losses", "after", "last"))
        failures += not difference < 5e-6
        print(f"{name}: differs by {difference:.1e}")
    print(f"{len(CASES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
