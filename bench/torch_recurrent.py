#!/usr/bin/env python3
"""The peer of bench_recurrent. usage: torch_recurrent.py CELL STEPS SEQUENCES INPUTS WIDTH THREADS [DEVICE]

Prints two numbers: milliseconds of a forward pass, and of one with gradients of all weights and of the input."""
import sys
import time

import torch

cell, steps, sequences, inputs, width, threads = sys.argv[1], *map(int, sys.argv[2:7])
device = sys.argv[7] if len(sys.argv) > 7 else "cpu"
torch.set_num_threads(threads)
layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](inputs, width).to(device)
x = torch.randn(steps, sequences, inputs, requires_grad=True, device=device)


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def best_ms(run):
    run()
    wait()
    best, begin = float("inf"), time.perf_counter()
    for i in range(30):
        start = time.perf_counter()
        run()
        wait()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin > 1.5 and i >= 2:
            break
    return best * 1e3


def forward():
    with torch.no_grad():
        layer(x)


def both():
    torch.autograd.grad(layer(x)[0].sum(), [x, *layer.parameters()])


print(f"{best_ms(forward):.3f} {best_ms(both):.3f}")
