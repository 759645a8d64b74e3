#!/usr/bin/env python3
"""The peer of bench_delta_rule. usage: torch_delta_rule.py STEPS GROUPS KEYS HEADS WIDTH THREADS

Prints milliseconds of transformers' chunks and of its single steps; heads of a group have its keys."""
import sys

import torch
from torch_timing import best_ms
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule

steps, groups, keys, heads, width, threads = map(int, sys.argv[1:7])
torch.set_num_threads(threads)
torch.manual_seed(1)
q, k = (torch.nn.functional.normalize(torch.randn(1, steps, groups, keys), dim=-1).repeat_interleave(heads // groups, 2) for _ in range(2))
v, decay, beta = torch.randn(1, steps, heads, width), -torch.rand(1, steps, heads), torch.rand(1, steps, heads)


def run(function):
    with torch.no_grad():
        function(q, k, v, g=decay, beta=beta, initial_state=None, output_final_state=True)


times = [best_ms(lambda function=function: run(function), "cpu") for function in (torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule)]
print(" ".join(f"{each:.3f}" for each in times))
