#!/usr/bin/env python3
"""The peers of bench_order: PyTorch and NumPy, in milliseconds, the best of several rounds. usage: torch_order.py [cpu|cuda]"""
import sys
import time

import numpy as np
import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
COUNT = 1 << 24


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def report(what, action, rounds=2):
    best = float("inf")
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        action()
        wait()
        best = min(best, time.perf_counter() - start)
    print(f"{what}: {best * 1e3:.2f} ms")


x = torch.randn(COUNT, device=DEVICE)
rows = x.reshape(-1, 1024)
a, matrix = x.cpu().numpy(), rows.cpu().numpy()

print(f"PyTorch {torch.__version__}")
report("sort, 16 M", lambda: torch.sort(x))
report("argsort, 16 M", lambda: torch.argsort(x))
report("top 100 of 16 M", lambda: torch.topk(x, 100))
report("element in the middle of 16 M", lambda: torch.kthvalue(x, COUNT // 2))
report("sort, 16 K rows of 1024", lambda: torch.sort(rows))
report("top 10 of 16 K rows of 1024", lambda: torch.topk(rows, 10))
report("cumsum, 16 K rows of 1024", lambda: torch.cumsum(rows, -1))
report("cumprod, 16 K rows of 1024", lambda: torch.cumprod(rows, -1))
report("cummax, 16 K rows of 1024", lambda: torch.cummax(rows, -1))
report("logcumsumexp, 16 K rows of 1024", lambda: torch.logcumsumexp(rows, -1))
if DEVICE == "cpu":
    print(f"NumPy {np.__version__}")
    report("sort, 16 M", lambda: np.sort(a))
    report("argsort, 16 M", lambda: np.argsort(a), 1)
    report("top 100 of 16 M", lambda: np.partition(a, COUNT - 100))
    report("element in the middle of 16 M", lambda: np.partition(a, COUNT // 2))
    report("sort, 16 K rows of 1024", lambda: np.sort(matrix))
    report("cumsum, 16 K rows of 1024", lambda: np.cumsum(matrix, -1))
