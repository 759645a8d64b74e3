#!/usr/bin/env python3
"""The peer of bench_eager: what eager PyTorch costs on one core, in microseconds of processor time."""
import time

import torch

torch.set_num_threads(1)
COUNT = 1000


def report(what, count, action, rounds=20):
    action()
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        action()
        best = min(best, time.thread_time() - start)
    print(f"{what}: {best / count * 1e6:.3f} us")


x = torch.tensor([1.0, 2.0, 3.0, 4.0])
grid = torch.randn(32, 32)


def chain():
    y = x
    for _ in range(COUNT):
        y = y * x


def two_ops():
    for _ in range(COUNT):
        x * 3.0 + 1.0


def changing():
    for i in range(COUNT):
        x * (1.0 / (i + 1)) + 1.0


def elements():
    for i in range(COUNT):
        grid[i // 32][i % 32].item()


def logistic_regression(steps):
    inputs, labels = torch.randn(64, 10), (torch.randn(64) > 0).float()
    w, b = torch.zeros(10, requires_grad=True), torch.zeros((), requires_grad=True)
    total = torch.zeros(())
    for _ in range(steps):
        z = (inputs * w).sum(1) + b
        loss = (torch.nn.functional.softplus(z) - z * labels).mean()
        w.grad = b.grad = None
        loss.backward()
        with torch.no_grad():
            w -= w.grad * 0.1
            b -= b.grad * 0.1
        total = total + loss.detach()
    total.item()


print(f"PyTorch {torch.__version__}")
report("building a node", COUNT, chain)
report("two small ops, built and evaluated", COUNT, two_ops)
report("the same with a number that changes", COUNT, changing)
report("reading an element", COUNT, elements)
report("a step of logistic regression", 2000, lambda: logistic_regression(2000), 2)
rows = [torch.tensor([float(i), 1.0, 2.0, 3.0]) for i in range(10000)]
start = time.thread_time()
torch.stack(rows)
print(f"stacking 10000 rows for the first time: {(time.thread_time() - start) * 1e6:.3f} us")
