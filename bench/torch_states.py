#!/usr/bin/env python3
"""The peer of bench_llm for models with states. usage: torch_states.py FOLDER PROMPT TOKENS

FOLDER has the config.json; the weights are random, in f32. Prints milliseconds of a prompt, and of a token after it."""
import json
import pathlib
import sys
import time

import torch
import transformers

folder, prompt, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
fields = json.loads((folder / "config.json").read_text())
config = transformers.AutoConfig.for_model(**fields)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
tokens = (torch.arange(prompt) * 7919 + 13).remainder(config.vocab_size)[None]


def best_ms(run, least):
    run()
    best, begin = float("inf"), time.perf_counter()
    for i in range(10):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin > 4 and i + 1 >= least:
            break
    return best * 1e3


with torch.no_grad():
    first = best_ms(lambda: model(tokens, use_cache=True, logits_to_keep=1), 2)
    state = model(tokens, use_cache=True, logits_to_keep=1)
    name = "cache_params" if "cache_params" in state else "past_key_values"

    def decode():
        for _ in range(count):
            model(tokens[:, :1], use_cache=True, **{name: state[name]})

    each = best_ms(decode, 2) / count
print(f"PyTorch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}: {first:.2f} ms prompt, {each:.3f} ms a token")
