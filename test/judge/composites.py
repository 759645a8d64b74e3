"""Softmax, norms, losses, rope, attention, updates, recurrences."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from door import Batch


def attention_reference(q, k, v, causal=True, scale=0, window=0):
    """Plain scores; key heads repeated for grouped queries; the last query sees every key."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    t, s = scores.shape[-2:]
    ahead = torch.arange(s)[None, :] - torch.arange(t)[:, None] - (s - t)
    hidden = (ahead > 0) & causal | (ahead.abs() >= (window or max(s, t)))
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v


def rope_reference(x, base=10000, offset=0):
    half = x.shape[-1] // 2
    angle = (torch.arange(x.shape[-2], dtype=x.dtype) + offset)[:, None] * base ** (-torch.arange(half, dtype=x.dtype) / half)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)


def rms_reference(x, weight=None, eps=1e-6):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def softmax_and_norms(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for shape in ((7,), (3, 5), (2, 3, 65), (4, 1), (2, 1000)):
            for axis in range(-len(shape), 0):
                x = batch.array(shape, -5, 5)
                batch.case(f"softmax {shape} {axis}", "softmax", [x], lambda t, a=axis: torch.softmax(t, a), {"axis": axis}, second=np.prod(shape) < 100)
                batch.case(f"log_softmax {shape} {axis}", "log_softmax", [x], lambda t, a=axis: torch.log_softmax(t, a), {"axis": axis}, second=np.prod(shape) < 100)
        batch.case("softmax of large values", "softmax", [np.float32([[1000, 1001, 999], [-1000, -1000, -1001]])], lambda t: torch.softmax(t, -1))
        batch.case("log_softmax of large values", "log_softmax", [np.float32([[1000, 0, -1000]])], lambda t: torch.log_softmax(t, -1))
        for shape in ((6,), (3, 8), (2, 3, 50), (4, 1000)):
            x, w, b = batch.array(shape), batch.array(shape[-1:]), batch.array(shape[-1:])
            n = shape[-1:]
            small = np.prod(shape) < 100
            batch.case(f"layer_norm {shape}", "layer_norm", [x, w, b], lambda t, w, b, n=n: F.layer_norm(t, n, w, b), second=small)
            batch.case(f"layer_norm {shape} bare", "layer_norm", [x], lambda t, n=n: F.layer_norm(t, n, eps=1e-3), {"eps": 1e-3}, second=small)
            batch.case(f"layer_norm {shape} without weight", "layer_norm", [x, None, b], lambda t, w, b, n=n: F.layer_norm(t, n, None, b))
            batch.case(f"rms_norm {shape}", "rms_norm", [x, w], rms_reference, second=small)
            batch.case(f"rms_norm {shape} bare", "rms_norm", [x], lambda t: rms_reference(t, eps=1e-2), {"eps": 1e-2})
        for shape in ((5, 6), (2, 3, 7, 8)):
            batch.case(f"rope {shape}", "rope", [batch.array(shape)], rope_reference, second=True)
            batch.case(f"rope {shape} further on", "rope", [batch.array(shape)], lambda t: rope_reference(t, 500, 11), {"base": 500, "offset": 11})
        batch.case("swiglu", "swiglu", [batch.array((4, 9)), batch.array((4, 9))], lambda g, u: F.silu(g) * u, second=True)
        batch.run()


def losses(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for shape in ((5, 7), (2, 3, 65), (40, 300), (4,)):
            targets = batch.random.integers(0, shape[-1], shape[:-1], dtype=np.int32)
            reference = lambda x, t, i=-100: F.cross_entropy(x.reshape(-1, x.shape[-1]), t.reshape(-1).long(), ignore_index=i)
            batch.case(f"cross_entropy {shape}", "cross_entropy", [batch.array(shape, -5, 5), targets], reference, second=np.prod(shape) < 500)
            if len(shape) > 1:
                targets = targets.copy()
                targets.reshape(-1)[::3] = -100
                batch.case(f"cross_entropy {shape}, some ignored", "cross_entropy", [batch.array(shape, -5, 5), targets], reference, second=np.prod(shape) < 500)
                batch.case(f"cross_entropy {shape}, a class ignored", "cross_entropy", [batch.array(shape, -5, 5), np.maximum(targets, 0)],
                           lambda x, t: F.cross_entropy(x.reshape(-1, x.shape[-1]), t.reshape(-1).long(), ignore_index=0), {"ignore_index": 0})
        batch.case("cross_entropy of large values", "cross_entropy", [np.float32([[1000, 0], [0, 1000]]), np.int32([0, 0])], lambda x, t: F.cross_entropy(x, t.long()))
        pairs = {"mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "huber_loss": F.huber_loss, "binary_cross_entropy": F.binary_cross_entropy_with_logits}
        for name, f in pairs.items():
            for reduction in ("mean", "sum", "none"):
                lo, hi = (0.05, 0.95) if name.startswith("binary") else (-2, 2)
                batch.case(f"{name} {reduction}", name, [batch.array((6, 5)), batch.array((6, 5), lo, hi)], lambda x, y, f=f, r=reduction: f(x, y, reduction=r),
                           {"reduction": reduction}, second=name == "mse_loss")
        targets = batch.random.integers(0, 9, (6,), dtype=np.int32)
        batch.case("nll_loss", "nll_loss", [batch.array((6, 9)), targets], lambda x, t: F.nll_loss(x, t.long()))
        batch.run()


def attention(judge):
    cases = [((2, 3, 5, 4), 3, 5), ((1, 4, 16, 8), 2, 16), ((1, 6, 7, 8), 1, 7), ((2, 2, 3, 8), 2, 9), ((1, 1, 1, 2), 1, 1), ((2, 2, 33, 16), 2, 33), ((1, 2, 70, 32), 1, 70),
             ((1, 2, 130, 64), 2, 130), ((1, 2, 64, 24), 2, 100)]
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for (b, h, t, d), kv_heads, s in cases:
            for causal in (True, False):
                arrays = [batch.array((b, h, t, d)), batch.array((b, kv_heads, s, d)), batch.array((b, kv_heads, s, d))]
                batch.case(f"attention {b} {h}/{kv_heads} {t}/{s} {d} causal {causal}", "attention", arrays, lambda q, k, v, c=causal: attention_reference(q, k, v, c),
                           {"causal": causal}, second=t * s < 100)
        for window in (1, 3, 40):
            for causal in (True, False):
                batch.case(f"attention, window {window} causal {causal}", "attention", [batch.array((2, 4, 9, 4)), batch.array((2, 2, 12, 4)), batch.array((2, 2, 12, 4))],
                           lambda q, k, v, c=causal, w=window: attention_reference(q, k, v, c, window=w), {"causal": causal, "window": window}, gradient=window > 1, second=window > 1)  # of one key: 0 but for rounding
        x = batch.array((1, 2, 6, 4))
        batch.case("attention, given scale", "attention", [x, batch.array(x.shape), batch.array(x.shape)], lambda q, k, v: attention_reference(q, k, v, True, 0.3), {"scale": 0.3})
        batch.case("attention of one value", [("attention", [0, 0, 0], {})], [x], lambda q: attention_reference(q, q, q), second=True)
        batch.case("attention of slices", [("slice", [0], {"axis": 3, "stop": 4}), ("slice", [0], {"axis": 3, "start": 4, "stop": 8}), ("slice", [0], {"axis": 3, "start": 8}),
                                           ("attention", ["_0", "_1", "_2"], {})], [batch.array((2, 2, 9, 12))],
                   lambda z: attention_reference(z[..., :4], z[..., 4:8], z[..., 8:]), second=True)
        batch.run()


def updates(judge):
    settings = [("sgd", torch.optim.SGD, {}, {}), ("sgd", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}, {}),
                ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, {}), ("sgd", torch.optim.SGD, {"momentum": 0.8, "dampening": 0.3, "maximize": True}, {}),
                ("adam", torch.optim.Adam, {"weight_decay": 0.1}, {}), ("adam", torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}, {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}),
                ("adamw", torch.optim.AdamW, {"weight_decay": 0.1}, {}), ("adamw", torch.optim.AdamW, {"weight_decay": 0, "amsgrad": True}, {}),
                ("rmsprop", torch.optim.RMSprop, {"momentum": 0.9, "weight_decay": 0.1, "alpha": 0.8}, {}),
                ("adagrad", torch.optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.5}, {"rate_decay": 0.1, "initial_accumulator": 0.5}),
                ("adadelta", torch.optim.Adadelta, {"rho": 0.7, "weight_decay": 0.1}, {}), ("adamax", torch.optim.Adamax, {"weight_decay": 0.1}, {}),
                ("radam", torch.optim.RAdam, {"betas": (0.8, 0.9)}, {"beta_1": 0.8, "beta_2": 0.9}),
                ("asgd", torch.optim.ASGD, {"lambd": 0.1, "weight_decay": 0.1}, {}),
                ("rprop", torch.optim.Rprop, {"etas": (0.4, 1.5)}, {"shrink": 0.4, "grow": 1.5})]
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for name, optimizer, theirs, ours in settings:
            for steps in (1, 7):
                def reference(p, g, optimizer=optimizer, theirs=theirs, steps=steps):
                    p = p.clone().requires_grad_()
                    p.grad = g
                    made = optimizer([p], lr=0.05, **theirs)
                    for _ in range(steps):
                        made.step()
                    return p.detach()
                batch.case(f"{name} {theirs} {steps}", name, [batch.array((5, 6)), batch.array((5, 6))], reference,
                           {"learning_rate": 0.05, "steps": steps, **(ours or theirs)}, gradient=False, relative=2e-6 if dtype == np.float32 else 1e-7)
        batch.run()


def cell_reference(kind, reverse):
    def reference(x, *operands):
        states, weights = operands[:-4], operands[-4:]
        first = tuple(s[None] for s in states) if kind == "lstm" else states[0][None]
        function = {"rnn": torch._VF.rnn_tanh, "gru": torch._VF.gru, "lstm": torch._VF.lstm}[kind]
        y, *last = function(x.flip(0) if reverse else x, first, list(weights), True, 1, 0.0, False, False, False)
        return (y.flip(0) if reverse else y, *(s[0] for s in last))
    return reference


def recurrences(judge):
    """Widths for one workgroup of a GPU and for several, and alignments with more places than it has threads."""
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for kind, gates, width in (("rnn", 1, 24), ("rnn", 1, 140), ("gru", 3, 33), ("gru", 3, 80), ("lstm", 4, 48), ("lstm", 4, 72)):
            for reverse in (False, True):
                steps, sequences, inputs, bound = 9, 5, 7, width ** -0.5
                arrays = [batch.array((steps, sequences, inputs)), *(batch.array((sequences, width), -1, 1) for _ in range(2 if kind == "lstm" else 1)),
                          *(batch.array(shape, -bound, bound) for shape in ((gates * width, inputs), (gates * width, width), (gates * width,), (gates * width,)))]
                batch.case(f"{kind} of {width}, reverse {reverse}", kind, arrays, cell_reference(kind, reverse), {"reverse": reverse})
        for labels, steps in ((4, 11), (150, 310)):
            targets = batch.random.integers(1, 6, (3, labels), dtype=np.int32)
            lengths = np.int32([steps, steps - 3, steps]), np.int32([labels, labels // 2, 0])
            batch.case(f"ctc_loss of {labels} labels", [("log_softmax", [0], {"axis": -1}), ("ctc_loss", ["_0", 1, 2, 3], {})],
                       [batch.array((steps, 3, 6)), targets, *lengths],
                       lambda x, t, n, m: F.ctc_loss(torch.log_softmax(x, -1), t.long(), n.long(), m.long()),
                       gradient_relative=1e-4 if dtype == np.float32 else None)  # sums of 310 logarithms
        batch.run()


def large_decompositions(judge):
    """Matrices that are not decomposed by rotations of pairs alone; only the CPU has these ops."""
    if judge.device != "cpu":
        return
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for shape in ((200, 200), (230, 90), (70, 190)):
            batch.case(f"svdvals {shape}", "svdvals", [batch.array(shape)], torch.linalg.svdvals)
        batch.case("eigvalsh of 200 rows", "eigvalsh", [batch.array((200, 200))], lambda t: torch.linalg.eigvalsh((t + t.T) / 2))
        batch.run()


SUBJECTS = [softmax_and_norms, large_decompositions, losses, attention, updates, recurrences]
