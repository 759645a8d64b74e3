#!/usr/bin/env python3
"""The peer of bench_recurrent. usage: torch_recurrent.py CELL STEPS SEQUENCES INPUTS WIDTH THREADS [DEVICE]

Prints two numbers: milliseconds of a forward pass, and of one with gradients of all weights and of the input."""
import sys

import torch
from torch_timing import best_ms

cell, steps, sequences, inputs, width, threads = sys.argv[1], *map(int, sys.argv[2:7])
device = sys.argv[7] if len(sys.argv) > 7 else "cpu"
torch.set_num_threads(threads)
layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](inputs, width).to(device)
x = torch.randn(steps, sequences, inputs, requires_grad=True, device=device)


def forward():
    with torch.no_grad():
        layer(x)


def both():
    torch.autograd.grad(layer(x)[0].sum(), [x, *layer.parameters()])


print(f"{best_ms(forward, device):.3f} {best_ms(both, device):.3f}")
