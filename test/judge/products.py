"""Matrix products, gathers and views."""
import numpy as np
import torch
import torch.nn.functional as F

from door import Batch


def matmul(judge):
    shapes = [((4, 5), (5, 3)), ((1, 1), (1, 1)), ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 4, 5), (5, 3)), ((2, 4, 5), (2, 5, 3)),
              ((4, 5), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 2)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 3, 4, 5), (5,)), ((5,), (2, 3, 5, 4)),
              ((2, 1, 3, 2, 4), (2, 1, 4, 3)), ((64, 64), (64, 64)), ((65, 129), (129, 33)), ((17, 300), (300, 130)), ((0, 4), (4, 3)), ((3, 0), (0, 2)),
              ((3, 4), (4, 0)), ((0, 3, 4), (4, 2)), ((130, 2), (2, 257)), ((1, 512), (512, 1)), ((2, 70, 40), (2, 40, 50))]
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for a, b in shapes:
            batch.case(f"matmul {a} {b}", "matmul", [batch.array(a), batch.array(b)], torch.matmul, second=max(*a, *b) < 10 and 0 not in a + b)
        for a, b, m, n, k in (("T", "", 4, 3, 5), ("", "T", 4, 3, 5), ("T", "T", 33, 65, 40), ("T", "", 70, 130, 66), ("", "T", 129, 64, 31)):
            for lead in ((), (2,), (2, 3)):
                x = batch.array(lead + ((k, m) if a else (m, k)))
                y = batch.array(lead + ((n, k) if b else (k, n)))
                steps = [("transpose", [0], {}), ("transpose", [1], {}), ("matmul", ["_0" if a else 0, "_1" if b else 1], {})]
                batch.case(f"matmul {m} {k} {n} {a}-{b} {lead}", steps, [x, y],
                           lambda p, q, a=a, b=b: (p.transpose(-1, -2) if a else p) @ (q.transpose(-1, -2) if b else q))
        for with_bias in (True, False):
            arrays = [batch.array((3, 4, 10)), batch.array((7, 10)), batch.array((7,))][: 3 if with_bias else 2]
            batch.case(f"linear {with_bias}", "linear", arrays, lambda *t: F.linear(*t), second=True)
        batch.case("a matrix times itself", [("matmul", [0, 0], {})], [batch.array((4, 4))], lambda x: x @ x, second=True)
        # Products that land inside a larger array, as gradients in a flat one do.
        for m, k, n in ((16, 64, 1), (1, 64, 16), (5, 7, 3), (64, 64, 64)):
            batch.case(f"products {m} {k} {n} side by side", [("matmul", [0, 1], {}), ("flatten", ["_0"], {}), ("matmul", [2, 1], {}), ("flatten", ["_2"], {}),
                                                              ("concat", ["_1", "_3", "_1"], {"axis": 0})],
                       [batch.array((m, k)), batch.array((k, n)), batch.array((m, k))], lambda a, b, c: torch.cat([(a @ b).flatten(), (c @ b).flatten(), (a @ b).flatten()]))
        batch.case("gram matrix", [("transpose", [0], {}), ("matmul", ["_0", 0], {})], [batch.array((6, 4))], lambda x: x.T @ x, second=True)
        batch.case("product, bias, activation", [("matmul", [0, 1], {}), ("add", ["_0", 2], {}), ("gelu", ["_1"], {}), ("add", ["_2", 3], {})],
                   [batch.array((20, 30)), batch.array((30, 40), -.3, .3), batch.array((40,)), batch.array((20, 40))],
                   lambda x, w, b, r: F.gelu(x @ w + b) + r, second=True)
        batch.run()
    batch = Batch(judge)
    for m, k, n in ((3, 4, 5), (33, 70, 17)):
        a, b = (batch.random.integers(-9, 9, s, dtype=np.int32) for s in ((m, k), (k, n)))
        batch.case(f"matmul of i32 {m} {k} {n}", "matmul", [a, b], lambda x, y: x.numpy() @ y.numpy(), relative=0)
    batch.run()


def gathers(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        indices = np.array([[3, 0, 3], [6, 3, 1]], np.int32)
        batch.case("embedding", "embedding", [batch.array((7, 5)), indices], lambda t, i: F.embedding(i.long(), t), second=True)
        many = batch.random.integers(0, 50, (400,), dtype=np.int32)
        batch.case("embedding, many", "embedding", [batch.array((50, 33)), many], lambda t, i: F.embedding(i.long(), t))
        for axis in (0, 1, -1):
            shape = [4, 5, 6]
            shape[axis] = 8
            at = batch.random.integers(0, (4, 5, 6)[axis], shape, dtype=np.int32)
            batch.case(f"take_along_axis {axis}", "take_along_axis", [batch.array((4, 5, 6)), at], lambda x, i, a=axis: torch.gather(x, a, i.long()), {"axis": axis},
                       second=True)
        for tail in ((), (3,), (2, 5)):
            at = batch.random.integers(0, 6, (20,), dtype=np.int32)
            batch.case(f"scatter_add {tail}", "scatter_add", [at, batch.array((20, *tail))],
                       lambda i, u, t=tail: torch.zeros((6, *t), dtype=u.dtype).index_add(0, i.long(), u), {"rows": 6}, second=True)
        batch.case("one_hot", "one_hot", [indices], lambda i: F.one_hot(i.long(), 7).double(), {"classes": 7})
        batch.run()


VIEWS = [
    ("reshape", {"shape": [6, -1]}, lambda x: x.reshape(6, -1)), ("reshape", {"shape": [2, 2, 3, 10]}, lambda x: x.reshape(2, 2, 3, 10)),
    ("permute", {"order": [2, 0, 1]}, lambda x: x.permute(2, 0, 1)), ("permute", {"order": [-1, 1, 0]}, lambda x: x.permute(2, 1, 0)),
    ("transpose", {}, lambda x: x.transpose(-1, -2)), ("transpose", {"axis_a": 0, "axis_b": 2}, lambda x: x.transpose(0, 2)),
    ("expand", {"shape": [2, 4, 6, 5]}, lambda x: x.expand(2, 4, 6, 5)), ("unsqueeze", {"axis": -2}, lambda x: x.unsqueeze(-2)),
    ("slice", {"axis": 1, "start": 1, "stop": 5}, lambda x: x[:, 1:5]), ("slice", {"axis": 1, "start": -4, "step": 2}, lambda x: x[:, -4::2]),
    ("slice", {"axis": 2, "stop": -1}, lambda x: x[:, :, :-1]), ("slice", {"axis": 0, "start": 2, "stop": 100}, lambda x: x[2:100]),
    ("slice", {"axis": 0, "start": 3, "stop": 1}, lambda x: x[3:1]), ("slice", {"axis": 1, "start": -1, "stop": -6, "step": -2}, lambda x: x.flip(1)[:, 0:5:2]),
    ("slice", {"axis": 1, "start": 4, "step": -1}, lambda x: x[:, :5].flip(1)), ("slice", {"axis": 2, "start": 1, "step": 3}, lambda x: x[:, :, 1::3]),
    ("narrow", {"axis": 1, "start": 2, "length": 3}, lambda x: x.narrow(1, 2, 3)), ("select", {"axis": 1, "index": -2}, lambda x: x.select(1, -2)),
    ("flip", {"axes": [0, 2]}, lambda x: x.flip(0, 2)), ("pad", {"padding": [[1, 2], [0, 0], [0, 3]]}, lambda x: F.pad(x, (0, 3, 0, 0, 1, 2))),
    ("flatten", {}, lambda x: x.flatten()), ("flatten", {"first": 1}, lambda x: x.flatten(1)),
    ("tril", {}, torch.tril), ("tril", {"diagonal": 2}, lambda x: x.tril(2)), ("triu", {"diagonal": -1}, lambda x: x.triu(-1)),
    ("triu", {"diagonal": 9}, lambda x: x.triu(9)), ("cast", {"dtype": "i32"}, lambda x: x.detach().to(torch.int32)), ("cast", {"dtype": "bool"}, lambda x: x.detach() != 0),
]


def views(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for name, attributes, f in VIEWS:
            batch.case(f"{name} {attributes}", name, [batch.array((4, 6, 5))], f, attributes, relative=0, gradient=name != "cast")
            # A view read by a kernel, and one of a computed value.
            batch.case(f"{name} {attributes} between kernels", [("sin", [0], {}), (name, ["_0"], attributes), ("square", ["_1"], {})] if name != "cast" else name,
                       [batch.array((4, 6, 5))], (lambda x, f=f: f(x.sin()) ** 2) if name != "cast" else f, attributes, gradient=name != "cast")
        batch.case("squeeze", "squeeze", [batch.array((4, 1, 5))], lambda x: x.squeeze(1), {"axis": 1})
        for axis in (0, 1, -1):
            shapes = [[4, 6, 5] for _ in range(3)]
            shapes[1][axis], shapes[2][axis] = 2, 0
            batch.case(f"concat {axis}", "concat", [batch.array(s) for s in shapes], lambda *t, a=axis: torch.cat(t, a), {"axis": axis}, second=True)
            batch.case(f"stack {axis}", "stack", [batch.array((4, 5)) for _ in range(3)], lambda *t, a=axis: torch.stack(t, a), {"axis": axis})
        batch.case("views of views", [("permute", [0], {"order": [1, 2, 0]}), ("slice", ["_0"], {"axis": 0, "start": -1, "step": -2}), ("reshape", ["_1"], {"shape": [-1, 4]}),
                                      ("pad", ["_2"], {"padding": [[1, 0], [0, 1]]}), ("expand", ["_3"], {"shape": [2, 16, 5]}), ("flip", ["_4"], {"axes": [1]}), ("exp", ["_5"], {})],
                   [batch.array((4, 6, 5))], lambda x: F.pad(x.permute(1, 2, 0).flip(0)[::2].reshape(-1, 4), (0, 1, 1, 0)).expand(2, 16, 5).flip(1).exp(), second=True)
        batch.run()
        x = batch.array((5, 7))
        name = np.dtype(dtype).name
        got = judge.run({"steps": [{"op": "split", "inputs": ["x"], "attributes": {"lengths": [2, 0, 5], "axis": 1}, "output": ["a", "b", "c"]}]}, {"x": x.astype(dtype)})
        for output, wanted in zip("abc", (x[:, :2], x[:, 2:2], x[:, 2:])):
            judge.compare(f"split {output} {name}", got[output], wanted, 0)
    types = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": bool, **({"f64": np.float64} if judge.on_cpu else {})}
    steps = [{"op": "full", "attributes": {"shape": [2, 3], "value": 1, "dtype": t}, "output": f"full_{t}"} for t in types]
    steps += [{"op": "arange", "attributes": {"n": 9, "dtype": t}, "output": f"arange_{t}"} for t in types if t != "bool"]
    steps += [{"op": "cast", "inputs": [f"full_{a}"], "attributes": {"dtype": b}, "output": f"cast_{a}_{b}"} for a in types for b in types]
    got = judge.run({"steps": steps}, {})
    for a, np_a in types.items():
        judge.compare(f"full {a}", got[f"full_{a}"], np.ones((2, 3), np_a), 0)
        if a != "bool":
            judge.compare(f"arange {a}", got[f"arange_{a}"], np.arange(9, dtype=np_a), 0)
        for b, np_b in types.items():
            judge.compare(f"cast {a} {b}", got[f"cast_{a}_{b}"], np.ones((2, 3), np_b), 0)


SUBJECTS = [matmul, gathers, views]
