#!/usr/bin/env python3
"""The peer of bench_mixture. usage: torch_mixture.py ROWS WIDTH HIDDEN EXPERTS USED THREADS [DEVICE]

Prints two numbers: milliseconds of a forward pass, and of one with gradients of all weights and of the input, of a layer as
transformers writes it: a loop over the experts, each with the rows that chose it."""
import sys

import torch
import torch.nn.functional as F
from torch_timing import best_ms

rows, width, hidden, experts, used, threads = map(int, sys.argv[1:7])
device = sys.argv[7] if len(sys.argv) > 7 else "cpu"
torch.set_num_threads(threads)
router = torch.randn(experts, width, device=device).mul_(width**-0.5).requires_grad_()
gates, ups = (torch.randn(experts, hidden, width, device=device).mul_(width**-0.5).requires_grad_() for _ in range(2))
downs = torch.randn(experts, width, hidden, device=device).mul_(hidden**-0.5).requires_grad_()
x = torch.randn(rows, width, requires_grad=True, device=device)


def layer():
    weights, numbers = torch.topk(x @ router.T, used)
    weights = weights.softmax(-1)
    y = torch.zeros_like(x)
    for e in range(experts):
        row, place = torch.where(numbers == e)
        mine = x[row]
        out = (F.silu(mine @ gates[e].T) * (mine @ ups[e].T)) @ downs[e].T
        y = y.index_add(0, row, out * weights[row, place, None])
    return y


def forward():
    with torch.no_grad():
        layer()


def both():
    torch.autograd.grad(layer().sum(), [x, router, gates, ups, downs])


print(f"{best_ms(forward, device):.3f} {best_ms(both, device):.3f}")
