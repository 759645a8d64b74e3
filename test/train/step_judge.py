#!/usr/bin/python3
"""Compares training steps of a GPT with PyTorch in f64: step_judge.py STEP_DUMP DEVICE"""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

HEADS, LAYERS = 3, 2


def read(path):
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    kinds = {"F32": numpy.float32, "I32": numpy.int32}
    return {name: torch.from_numpy(numpy.frombuffer(raw[8 + length:][slice(*e["data_offsets"])], kinds[e["dtype"]]).reshape(e["shape"]).copy())
            for name, e in header.items()}


def loss_of(p, batch):
    x, y = batch[:, :-1], batch[:, 1:]
    rows, positions = x.shape
    width = p["token_embedding.weight"].shape[1]

    def linear(h, name):
        return F.linear(h, p[name + ".weight"], p[name + ".bias"])

    def norm(h, name):
        return F.layer_norm(h, (width,), p[name + ".weight"], p[name + ".bias"])

    h = p["token_embedding.weight"][x] + p["position_embedding.weight"][:positions]
    future = torch.triu(torch.ones(positions, positions, dtype=torch.bool), 1)
    for layer in range(LAYERS):
        block = f"blocks.{layer}."
        q, k, v = linear(norm(h, block + "norm_1"), block + "attention.qkv").view(rows, positions, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)).masked_fill(future, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, positions, width)
        h = h + linear(mixed, block + "attention.output")
        h = h + linear(F.gelu(linear(norm(h, block + "norm_2"), block + "mlp.up"), approximate="tanh"), block + "mlp.down")
    return F.cross_entropy(F.linear(norm(h, "norm"), p["token_embedding.weight"]).flatten(0, 1), y.flatten())


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "step.safetensors"
        subprocess.run([sys.argv[1], sys.argv[2], path], check=True)
        given = read(path)
    batch = given["batch"].long()
    parameters = {name[7:]: value.double().requires_grad_() for name, value in given.items() if name.startswith("before.")}
    failures = 0

    def check(name, error, limit):
        nonlocal failures
        if not error <= limit:
            failures += 1
            print(f"{name}: differs by {error:.2e}, at most {limit:.0e} is allowed")

    gradients = torch.autograd.grad(loss_of(parameters, batch), list(parameters.values()))
    for (name, _), expected in zip(parameters.items(), gradients):
        check("gradient of " + name, ((given["grad." + name] - expected).norm() / expected.norm()).item(), 1e-5)

    optimizer = torch.optim.AdamW([{"params": [v for v in parameters.values() if v.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [v for v in parameters.values() if v.dim() < 2], "weight_decay": 0.0}], lr=4e-3, betas=(0.9, 0.99))
    step = 0
    while f"loss.{step}" in given:
        optimizer.zero_grad()
        loss = loss_of(parameters, batch)
        check(f"loss of step {step}", abs(loss.item() - given[f"loss.{step}"].item()), 2e-5)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimizer.step()
        step += 1
    # Adam turns the rounding of gradients near 0 into whole steps, so elements are compared in the mean; the biases of keys
    # have no gradient but rounding, since softmax does not see them.
    for name, expected in parameters.items():
        limit = 1e-3 if name.endswith("qkv.bias") else 2e-5
        check("weights after the steps, " + name, (given["after." + name] - expected).abs().mean().item(), limit)
    print(f"{len(parameters)} parameters, {step} steps: {failures} differences")
    return 1 if failures or not step else 0


sys.exit(main())
