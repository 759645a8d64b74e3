"""Reductions over every set of axes up to rank 4, with gradients."""
import itertools

import numpy as np
import torch

from door import Batch


def over(x, axes, f):
    """f over one axis that holds all of `axes`."""
    axes = [a % max(x.dim(), 1) for a in axes]
    rest = [a for a in range(x.dim()) if a not in axes]
    return f(x.permute(*rest, *axes).reshape([x.shape[a] for a in rest] + [-1]))


def reference(name, correction=1):
    return {
        "sum": lambda x: x.sum(-1), "mean": lambda x: x.mean(-1), "prod": lambda x: x.prod(-1), "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
        "amax": lambda x: x.amax(-1), "amin": lambda x: x.amin(-1), "logsumexp": lambda x: x.logsumexp(-1),
        "var": lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / (x.shape[-1] - correction),
        "std": lambda x: (((x - x.mean(-1, keepdim=True)) ** 2).sum(-1) / (x.shape[-1] - correction)).sqrt(),
        "all": lambda x: (x != 0).all(-1), "any": lambda x: (x != 0).any(-1), "count_nonzero": lambda x: (x != 0).sum(-1).to(torch.int32),
        "argmax": lambda x: x.argmax(-1).to(torch.int32), "argmin": lambda x: x.argmin(-1).to(torch.int32),
    }[name]


def every_axis(judge):
    shapes = [(5,), (3, 4), (2, 3, 4), (3, 2, 4, 3)]
    names = [name for name, op in judge.ops.items() if op["family"] == "reduction"]
    for dtype in judge.dtypes():
        for name in names:
            op = judge.ops[name]
            batch = Batch(judge, dtype)
            # A software GPU compiles each kernel for long: rank 4 of two reductions represents all.
            for shape in shapes if judge.on_cpu or name in ("sum", "argmax") else shapes[:3]:
                for count in range(len(shape) + 1):
                    for axes in itertools.combinations(range(len(shape)), count):
                        if name.startswith("arg") and count > 1:
                            continue
                        x = batch.array(shape, *op["tested"][0])
                        if name in ("all", "any", "count_nonzero"):
                            x = np.where(np.abs(x) < 2, 0, x).astype(np.float32)
                        given = [a if a % 2 else a - len(shape) for a in axes]  # half of them from the end
                        used = axes or tuple(range(len(shape)))
                        if name in ("var", "std") and np.prod([shape[a] for a in used]) < 2:
                            continue
                        batch.case(f"{name} of {shape} over {axes or 'all'}", name, [x], lambda t, u=used: over(t, u, reference(name)), {"axes": given},
                                   gradient=op["differentiable"])
            x = batch.array((2, 3, 4), *op["tested"][0])
            if op["differentiable"]:
                batch.case(f"{name}, axes kept", name, [x], lambda t: over(t, (1,), reference(name)).unsqueeze(1), {"axis": 1, "keepdims": True}, second=True)
                if name in ("var", "std"):
                    batch.case(f"{name}, population", name, [x], lambda t: over(t, (0, 2), reference(name, 0)), {"axes": [0, 2], "correction": 0}, second=True)
            batch.run()


def edges(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        empty = np.zeros((2, 0, 3), np.float32)
        for name, value in (("sum", 0.0), ("prod", 1.0), ("mean", np.nan), ("norm", 0.0)):
            batch.case(f"{name} of nothing", name, [empty], lambda t, v=value: np.full((2, 3), v), {"axes": 1}, gradient=False)
        batch.case("all of nothing", "all", [empty], lambda t: np.full((2, 3), True), {"axes": 1}, gradient=False)
        batch.case("any of nothing", "any", [empty], lambda t: np.full((2, 3), False), {"axes": 1}, gradient=False)
        scalar = np.float32(3.5)
        for name in ("sum", "mean", "prod", "norm", "amax", "logsumexp"):
            batch.case(f"{name} of a scalar", name, [scalar], lambda t, n=name: reference(n)(t.reshape(1)))
        long = batch.array((3, 70001))
        for name in ("sum", "mean", "amax", "argmin", "logsumexp", "var", "norm"):
            for axes in ([1], []):
                if not (name == "argmin" and not axes):
                    batch.case(f"{name} of {long.shape} over {axes}", name, [long], lambda t, n=name, a=axes: over(t, a or (0, 1), reference(n)), {"axes": axes},
                               gradient=judge.ops[name]["differentiable"])
        tall = batch.array((5003, 7))
        for name in ("sum", "amax", "prod", "std"):
            batch.case(f"{name} of {tall.shape} over 0", name, [tall / 40 + 1 if name == "prod" else tall],
                       lambda t, n=name: over(t, (0,), reference(n)), {"axes": [0]}, gradient=name != "prod", relative=2e-4 if name == "prod" else None)
        batch.run()
    batch = Batch(judge)
    whole = batch.random.integers(-50, 50, (4, 6), dtype=np.int32)
    flags = batch.random.integers(0, 2, (4, 6)).astype(bool)
    for name, f in (("sum", np.sum), ("prod", lambda x, axis: np.prod(x, axis, dtype=np.int32)), ("amax", np.max), ("amin", np.min), ("mean", np.mean),
                    ("argmax", np.argmax), ("any", np.any), ("all", np.all), ("count_nonzero", np.count_nonzero)):
        batch.case(f"{name} of i32", name, [whole], lambda t, f=f: f(t.numpy(), axis=1), {"axes": 1}, relative=1e-6)
        if name not in ("prod", "argmax"):
            batch.case(f"{name} of bool", name, [flags], lambda t, f=f: f(t.numpy(), axis=1), {"axes": 1}, relative=1e-6)
    batch.run()


SUBJECTS = [every_axis, edges]
