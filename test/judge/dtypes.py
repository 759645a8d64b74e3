"""Element types: casts, promotion, wrapping and rounding against NumPy; bf16 against PyTorch."""
import itertools
import warnings

import numpy as np
import torch

NAMES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
         "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "bool": np.bool_}
ON_GPU = ["f32", "f16", "i32", "i16", "i8", "u32", "u16", "u8", "bool"]
SPECIALS = [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 127, 128, -129, 255.5, 256, 32768, -32769, 65504, 65519, 65520, 1e-8, 6e-8, 2**31 - 1, -2.0**31,
            2**32 - 1, 1e30, -1e30, np.inf, -np.inf, np.nan]


def types_of(judge):
    return list(NAMES) if judge.on_cpu else ON_GPU


def values_in(name, random):
    """Numbers of a type, its extremes among them."""
    dtype = np.dtype(NAMES[name])
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.concatenate([np.array(SPECIALS), random.uniform(-300, 300, 40)]).astype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    limits = np.iinfo(dtype)
    return np.concatenate([np.array([limits.min, limits.max, 0, 1, limits.max // 2 + 1], dtype), random.integers(limits.min, limits.max, 40, dtype, endpoint=True)])


def cast_by_numpy(x, to):
    """Floats truncate and saturate, NaN is 0; integers keep the low bits; everything else is NumPy's."""
    to = np.dtype(to)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if x.dtype.kind == "f" and to.kind in "iu":
            limits = np.iinfo(to)
            return np.array([0 if np.isnan(v) else limits.min if v <= limits.min else limits.max if v >= limits.max else int(v) for v in x.tolist()], to)
        if to.kind == "f" and to.itemsize < 4 and x.dtype.kind in "iu":
            return x.astype(np.float64).astype(to)
        return x.astype(to)


def same_bits(judge, name, got, wanted):
    judge.comparisons += 1
    wanted = np.asarray(wanted)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return judge.failures.append(f"{name}: {got.dtype} {got.shape} instead of {wanted.dtype} {wanted.shape}")
    same = got == wanted
    if got.dtype.kind == "f":
        same = np.where(np.isnan(wanted), np.isnan(got), same & (np.signbit(got) == np.signbit(wanted)))
    if not same.all():
        at = int(np.argmin(same))
        judge.failures.append(f"{name}: {got[at]!r} instead of {wanted[at]!r} at {at}")
    return None


def run(judge, steps, inputs):
    outputs = judge.run({"steps": steps}, inputs)
    if isinstance(outputs, str):
        judge.failures.append(f"dtypes: {outputs}")
        return {}
    return outputs


def casts(judge):
    random = np.random.default_rng(3)
    inputs = {name: values_in(name, random) for name in types_of(judge)}
    if not judge.on_cpu:  # a GPU may take denormals of f32 as 0
        inputs["f32"] = np.where(np.abs(inputs["f32"]) < 1e-30, 0, inputs["f32"])
    pairs = list(itertools.product(inputs, inputs))
    got = run(judge, [{"op": "cast", "inputs": [a], "attributes": {"dtype": b}, "output": f"{a}_{b}"} for a, b in pairs], inputs)
    for a, b in pairs:
        if got:
            same_bits(judge, f"cast of {a} to {b}", got[f"{a}_{b}"], cast_by_numpy(inputs[a], NAMES[b]))


def promotion(judge):
    """The pairs that the array-API standard defines."""
    kinds = [[n for n in types_of(judge) if n[0] in kind and n != "bool"] for kind in ("iu", "f")]
    pairs = [(a, b) for kind in kinds for a, b in itertools.product(kind, kind) if {a[0], b[0]} != {"i", "u"} or "u64" not in (a, b)]
    if not judge.on_cpu:  # i32 with u32 is i64, which a GPU does not hold
        pairs = [(a, b) for a, b in pairs if np.result_type(NAMES[a], NAMES[b]).itemsize < 8]
    inputs = {name: np.ones(3, NAMES[name]) for name in types_of(judge)}
    got = run(judge, [{"op": "add", "inputs": [a, b], "output": f"{a}_{b}"} for a, b in pairs], inputs)
    for a, b in pairs:
        if got:
            same_bits(judge, f"{a} + {b}", got[f"{a}_{b}"], inputs[a] + inputs[b])


def arithmetic(judge):
    """Narrow types wrap or round once, as in NumPy."""
    random = np.random.default_rng(4)
    inputs, steps, wanted = {}, [], {}
    ops = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
    for name in types_of(judge):
        if name in ("bool", "f32", "f64"):
            continue
        x, y = (values_in(name, random) for _ in range(2))
        if name == "f16":
            # Which zero is the larger one is left open.
            x, y = (np.where(np.isfinite(v) & (v != 0), v, 1).astype(np.float16) for v in (x, y))
        y = random.permutation(y)
        inputs[f"x_{name}"], inputs[f"y_{name}"] = x, y
        with np.errstate(over="ignore"):
            for op, f in ops.items():
                steps.append({"op": op, "inputs": [f"x_{name}", f"y_{name}"], "output": f"{op}_{name}"})
                wanted[f"{op}_{name}"] = f(x, y)
            if name != "f16":
                for op, f in (("bitwise_and", np.bitwise_and), ("bitwise_xor", np.bitwise_xor)):
                    steps.append({"op": op, "inputs": [f"x_{name}", f"y_{name}"], "output": f"{op}_{name}"})
                    wanted[f"{op}_{name}"] = f(x, y)
                counted = np.dtype(NAMES[name]) if name.endswith("64") else np.dtype(np.int32 if name[0] == "i" else np.uint32)
                steps.append({"op": "sum", "inputs": [f"x_{name}"], "attributes": {"keepdims": True}, "output": f"sum_{name}"})
                wanted[f"sum_{name}"] = x.sum(dtype=counted, keepdims=True)
            for op, f in (("lt", np.less), ("eq", np.equal)):
                steps.append({"op": op, "inputs": [f"x_{name}", f"y_{name}"], "output": f"{op}_{name}"})
                wanted[f"{op}_{name}"] = f(x, y)
    got = run(judge, steps, inputs)
    for name in wanted if got else []:
        same_bits(judge, name, got[name], wanted[name])


def brain_floats(judge):
    """bf16 has no NumPy type: it is made and read back on the device."""
    random = np.random.default_rng(5)
    x = np.concatenate([random.uniform(-4, 4, 200), np.array([1e38, 3.4e38, 1.00390625, 1.01171875, -1.00390625, np.inf])]).astype(np.float32)
    y = random.permutation(x)
    steps = [{"op": "cast", "inputs": ["x"], "attributes": {"dtype": "bf16"}, "output": "a"}, {"op": "cast", "inputs": ["y"], "attributes": {"dtype": "bf16"}, "output": "b"},
             {"op": "mul", "inputs": ["a", "b"], "output": "product"}, {"op": "add", "inputs": ["a", "b"], "output": "total"}]
    names = ["a", "product", "total"]
    steps += [{"op": "cast", "inputs": [n], "attributes": {"dtype": "f32"}, "output": f"{n}_f32"} for n in names]
    got = judge.run({"steps": steps, "outputs": [f"{n}_f32" for n in names]}, {"x": x, "y": y})
    if isinstance(got, str):
        return judge.failures.append(f"bf16: {got}")
    a, b = (torch.from_numpy(v).bfloat16() for v in (x, y))
    for n, wanted in zip(names, (a, a * b, a + b)):
        same_bits(judge, f"bf16 {n}", got[f"{n}_f32"], wanted.float().numpy())
    return None


def products(judge):
    random = np.random.default_rng(6)
    a, b = random.uniform(-1, 1, (20, 50)).astype(np.float16), random.uniform(-1, 1, (50, 30)).astype(np.float16)
    got = run(judge, [{"op": "matmul", "inputs": ["a", "b"], "output": "c"}, {"op": "softmax", "inputs": ["a"], "attributes": {"axis": -1}, "output": "p"}], {"a": a, "b": b})
    if got:
        judge.compare("matmul of f16", got["c"], a.astype(np.float64) @ b.astype(np.float64), 1e-3)
        wide = torch.from_numpy(a).double()
        judge.compare("softmax of f16", got["p"], torch.softmax(wide, -1).numpy(), 1e-3)


SUBJECTS = [casts, promotion, arithmetic, brain_floats, products]
