"""What PyTorch makes of attention with sinks and slopes: make_attention.py [--check] writes attention.json for attention_test.cpp.

softmax(scale q k^T + mask - slopes |i - j|) v, written out, where a column of sinks stands beside the scores and is dropped behind the
softmax. In f64, with gradients. Made with torch 2.15.
"""
import json
import math
import pathlib
import sys

import torch

PATH = pathlib.Path(__file__).with_name("attention.json")
# (name, batch, heads, key heads, queries, keys, width, causal, window, has sinks, has slopes, lengths)
CASES = [
    ("sinks", 2, 4, 2, 9, 9, 8, True, 0, True, False, None),
    ("sinks in a window", 1, 2, 2, 12, 12, 8, True, 4, True, False, None),
    ("slopes", 2, 3, 3, 7, 11, 6, True, 0, False, True, None),
    ("slopes to both sides", 1, 2, 1, 6, 9, 8, False, 0, False, True, None),
    ("sinks and slopes", 1, 4, 2, 10, 17, 16, True, 5, True, True, None),
    ("sinks and slopes to both sides", 1, 2, 2, 8, 8, 8, False, 0, True, True, None),
    ("sinks and slopes of several sequences", 2, 2, 2, 12, 12, 8, True, 0, True, True, [[5, 0, 6], [2, 9, 1]]),
]


def wave(shape, phase):
    """As attention_test.cpp makes it."""
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) * 1.7 + phase)


def result(name, batch, heads, kv_heads, queries, keys, width, causal, window, has_sinks, has_slopes, lengths):
    q, k, v = wave((batch, heads, queries, width), 0), wave((batch, kv_heads, keys, width), 1), wave((batch, kv_heads, keys, width), 2)
    inputs = [q, k, v] + ([wave((heads,), 3)] if has_sinks else []) + ([wave((heads,), 4) ** 2] if has_slopes else [])
    inputs = [x.requires_grad_() for x in inputs]
    group = heads // kv_heads
    scores = inputs[0] @ inputs[1].repeat_interleave(group, 1).transpose(-1, -2) / math.sqrt(width)
    position = torch.arange(queries)[:, None] + keys - queries
    column = torch.arange(keys)[None, :]
    seen = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    if causal:
        seen &= column <= position
    if window:
        seen &= (position - column).abs() < window
    if lengths:
        sequence = torch.full((batch, queries), -1)
        for row, each in enumerate(lengths):
            at = 0
            for number, length in enumerate(each):
                sequence[row, at:at + length] = number
                at += length
        seen &= ((sequence[:, :, None] == sequence[:, None, :]) & (sequence[:, :, None] >= 0))[:, None]
    if has_slopes:
        scores = scores - inputs[-1].reshape(1, heads, 1, 1) * (position - column).abs()
    scores = scores.masked_fill(~seen, -torch.inf)
    if has_sinks:
        scores = torch.cat([scores, inputs[3].reshape(1, heads, 1, 1).expand(batch, heads, queries, 1)], -1)
    y = scores.softmax(-1)[..., :keys] @ inputs[2].repeat_interleave(group, 1)
    weights = wave(y.shape, 5)
    gradients = torch.autograd.grad((y * y * weights).sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in gradients), inputs)

    def numbers(x):
        """About 40 elements, evenly spread."""
        values = x.detach().reshape(-1).tolist()
        return [float(f"{value:.6g}") for value in values[::max(1, len(values) // 40)]]

    return {"name": name, "batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys, "width": width, "causal": causal, "window": window,
            "sinks": has_sinks, "slopes": has_slopes, "lengths": lengths, "y": numbers(y), "gradients": [numbers(g) for g in gradients], "second": [numbers(g) for g in second]}


def main(check):
    text = "[\n" + ",\n".join(json.dumps(result(*case)) for case in CASES) + "\n]\n"
    if check:
        print("the same" if PATH.read_text() == text else "DIFFERS")
        return PATH.read_text() != text
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
