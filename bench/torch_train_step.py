#!/usr/bin/env python3
"""The peer of bench_train_step: one PyTorch training step of a Weft preset, on the same shapes.

usage: torch_train_step.py [DEVICE [PRESET [SECONDS [PRECISION [compiled|graphs]]]]]
DEVICE: cpu or cuda; PRESET: tiny, small, char-gpt or gpt2; PRECISION: f32, bf16 or f16 (torch.autocast)

Forward, backward, clipping by norm 1 and AdamW (fused where this PyTorch has it), random tokens; eager, through torch.compile,
or through torch.compile with graphs of CUDA (reduce-overhead). Prints one line: mean and best milliseconds a step, and the peak resident memory of this process.
"""
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

PRESETS = {  # layers, width, heads, context, batch
    "tiny": (2, 64, 2, 32, 8),
    "small": (4, 128, 4, 64, 16),
    "char-gpt": (6, 384, 6, 256, 64),
    "gpt2": (12, 768, 12, 1024, 8),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # PyTorch before 2.0
            scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5)
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            y = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T  # tied


def main():
    defaults = ["cpu", "small", "10", "f32", "eager"]
    device, preset, seconds, precision, mode = (sys.argv[1:] + defaults[len(sys.argv) - 1:])[:5]
    layers, width, heads, context, batch = PRESETS[preset]
    vocabulary = 50257 if preset == "gpt2" else 83  # the characters of a text
    torch.manual_seed(0)
    model = GPT(vocabulary, layers, width, heads, context).to(device)
    if mode != "eager":
        model = torch.compile(model, mode="reduce-overhead" if mode == "graphs" else None)
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(precision)
    options = {"fused": True} if device != "cpu" or torch.__version__ >= "2.4" else {}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    ids = torch.randint(0, vocabulary, (batch, context + 1), device=device)
    synchronise = torch.cuda.synchronize if device != "cpu" else lambda: None

    def step():
        with torch.autocast(device, dtype=narrow or torch.bfloat16, enabled=narrow is not None):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, vocabulary), ids[:, 1:].reshape(-1))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss

    for _ in range(5):
        step()
    synchronise()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < float(seconds):
        start = time.perf_counter()
        step()
        synchronise()
        times.append((time.perf_counter() - start) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"PyTorch {torch.__version__} {device} {preset} {precision} {mode}: {sum(times) / len(times):.3f} ms a step "
          f"(best {min(times):.3f}), {torch.get_num_threads()} threads, peak memory {peak:.0f} MB")


main()
