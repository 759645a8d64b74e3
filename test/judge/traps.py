"""Where engines go wrong: overflow, ties, zeros, signs, rounding, special values, random numbers, and what must be refused."""
import math
import warnings

import numpy as np
import torch

from door import Batch

INF, NAN = np.inf, np.nan
SPECIALS = np.float32([0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, INF, -INF, NAN])


def numbers(judge):
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        ones = lambda *shape: np.ones(shape, np.float32)
        def case(name, op, arrays, reference, attributes=None, **more):
            arrays = [np.float32(a) for a in arrays]
            batch.case(name, op, arrays, reference, attributes, **more)

        case("logaddexp far out", "logaddexp", [[1000, -1000, 1000, 0], [1000, -1000, -1000, 0]], torch.logaddexp, relative=1e-6)
        case("logaddexp2 far out", "logaddexp2", [[1000, -1000, 1000], [1000, -1000, -1000]], torch.logaddexp2, relative=1e-6)
        case("logaddexp of infinities", "logaddexp", [[INF, -INF, INF], [INF, -INF, -INF]], torch.logaddexp, gradient=False)
        tiny = [1e-7, -1e-7, 1e-10, 1e-20, -1e-4, 1e-3]
        for name in ("expm1", "log1p", "sinh", "tanh", "atanh", "asinh", "erf", "tan"):
            case(f"{name} near 0", name, [tiny], getattr(torch, name), relative=1e-6, floor=0)
        case("hypot of large values", "hypot", [[3e30, 3e-30, 0], [4e30, 4e-30, 0]], torch.hypot, relative=1e-6, floor=0, gradient=False)
        case("copysign with zeros", "copysign", [[1, -1, 2, -2, 0.0], [0.0, -0.0, -0.0, 0.0, -0.0]], torch.copysign, relative=0, gradient=False)
        zeros = [[2, 3, 0, 4], [0, 3, 0, 4], [1, 2, 3, 4], [0, 0, 0, 0]]
        case("prod with zeros", "prod", [zeros], lambda x: x.prod(1), {"axis": 1})
        case("prod with zeros over 0", "prod", [zeros], lambda x: x.prod(0), {"axis": 0})
        case("pow of negatives", "pow", [[-2, -2, -2, -3, -1, -2], [2, 3, -1, 0, 5, 0.5]], torch.pow, relative=1e-6, gradient=False)
        case("pow at zero", "pow", [[0, 0, 0, 0, 1, 1], [0, 1, 2, -1, 0, NAN]], torch.pow, relative=1e-6, gradient=False)
        # d x^y / dx where y = 0 is 0 also at x = 0, and of x^1 and x^2 at 0 it is 1 and 0.
        batch.case("pow at zero, gradient", "pow", [np.float32([0, 0, 0, -2, -3]), np.float32([0, 1, 2, 2, 3])], torch.pow)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tie = [[1, 2, 2, -3], [1, 2, 1, -3]]
            for name in ("maximum", "minimum"):
                case(f"{name} on ties", name, tie, getattr(torch, name))
            for name in ("amax", "amin"):
                case(f"{name} on ties", name, [[[1, 3, 3], [2, 2, 2], [5, 1, 1]]], lambda x, n=name: getattr(torch, n)(x, 1), {"axis": 1})
        for name in ("relu", "abs", "sign", "leaky_relu", "elu", "silu", "softsign"):
            f = getattr(torch, name, None) or getattr(torch.nn.functional, name)
            case(f"{name} at 0", name, [[0, 0.5, -0.5]], f)
        case("clamp on its bounds", "clamp", [[-1, 0, 1, 2]], lambda x: x.clamp(-1, 1), {"min": -1, "max": 1})
        case("sqrt at 0", "sqrt", [[0, 4]], torch.sqrt)
        case("norm at 0", "norm", [[[0, 0], [3, 4]]], lambda x: torch.linalg.vector_norm(x, dim=1), {"axis": 1})
        case("xlogy at 0", "xlogy", [[0, 0, 2, 0], [0, 2, 3, 5]], torch.xlogy, gradient=False)
        case("sinc at 0", "sinc", [[0, 1e-4, 1e-3, 1, -0.1]], torch.sinc)
        # The quotient that PyTorch differentiates cancels near 0; the series does not.
        series = lambda x: sum((-1) ** k * (np.pi * x) ** (2 * k) / float(math.factorial(2 * k + 1)) for k in range(12))
        case("sinc near 0", "sinc", [[0, 1e-4, 0.05, -0.15, 0.1591, 0.16, 0.3]], series, second=True)
        case("round half to even", "round", [[0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 0.49999997, 8388609.0]], torch.round, relative=0)
        case("add with alpha", "add", [ones(3, 4), ones(4)], lambda x, y: torch.add(x, y, alpha=-2.5), {"alpha": -2.5})
        case("sub with alpha", "sub", [ones(3, 1), ones(4)], lambda x, y: torch.sub(x, y, alpha=3), {"alpha": 3})
        case("gelu far out", "gelu", [[-40, -10, -5, 5, 10, 40]], torch.nn.functional.gelu, relative=2e-6, floor=1)
        case("gelu_tanh far out", "gelu_tanh", [[-40, -10, 10, 40]], lambda x: torch.nn.functional.gelu(x, approximate="tanh"), relative=2e-6)
        case("softplus far out", "softplus", [[-100, -30, 19, 21, 100]], torch.nn.functional.softplus, relative=2e-6, floor=1e-3)
        case("sigmoid far out", "sigmoid", [[-80, -30, 30, 100, INF, -INF]], torch.sigmoid, relative=2e-6, gradient=False)
        case("tanh far out", "tanh", [[-100, -9, 9, 100, INF, -INF]], torch.tanh, relative=2e-6, gradient=False)
        case("exp far out", "exp", [[-200, -80, 80, INF, -INF]], torch.exp, relative=2e-6, floor=1e-30, gradient=False)
        case("sin of larger values", "sin", [[100, 1000, -5000, 31415.9]], torch.sin, relative=2e-6, floor=1)
        case("logsumexp of infinities", "logsumexp", [[[INF, 1, 2], [-INF, -INF, -INF], [-INF, 1, 2], [1e30, 0, 0]]], lambda x: x.logsumexp(1), {"axis": 1}, gradient=False)
        case("var of large values", "var", [10000 + np.arange(8)], lambda x: x.var(), relative=1e-5)
        case("mean of many", "mean", [np.full(100003, 0.1)], lambda x: x.mean(), relative=2e-6)
        case("argmax with NaN and ties", "argmax", [[[1, NAN, 3], [2, 2, 1], [NAN, 1, NAN]]], lambda x: torch.tensor([1, 0, 0]), {"axis": 1}, gradient=False)
        case("amax with NaN", "amax", [[[1, NAN, 3], [2, 2, 1]]], lambda x: x.amax(1), {"axis": 1}, gradient=False)
        case("remainder of signs", "remainder", [[5, -5, 5, -5], [3, 3, -3, -3]], torch.remainder, gradient=False)
        case("fmod of signs", "fmod", [[5, -5, 5, -5], [3, 3, -3, -3]], torch.fmod, gradient=False)
        case("nan_to_num by default", "nan_to_num", [[1, NAN, 3]], torch.nan_to_num, relative=0)
        every = np.float32([1, -1, 0, INF, NAN])
        batch.case("times a constant 0", [("mul", [0, 0.0], {})], [every], lambda x: x * 0, relative=0, gradient=False)
        batch.case("over a constant 0", [("div", [0, 0.0], {})], [every], lambda x: x / 0, relative=0, gradient=False)
        batch.case("0 over", [("mul", [0, 0.0], {}), ("div", ["_0", 0], {})], [every], lambda x: (x * 0) / x, relative=0, gradient=False)
        if judge.on_cpu:  # WGSL lets a driver take x - x for 0
            batch.case("less itself", [("sub", [0, 0], {})], [every], lambda x: x - x, relative=0, gradient=False)
        batch.case("over itself", [("div", [0, 0], {})], [every], lambda x: x / x, relative=0, gradient=False)
        batch.case("where keeps NaN out", "where", [np.array([True, False]), np.float32([1, NAN]), np.float32([NAN, 2])], torch.where, relative=0, gradient=False)
        batch.run()


# Where PyTorch, NumPy and Weft each have a convention of their own, or PyTorch's value at infinity is an accident.
OTHER_CONVENTIONS = {"celu", "copysign", "floor_divide", "fmod", "gelu", "gelu_tanh", "hardswish", "heaviside", "i0", "i1", "ldexp", "log_sigmoid", "logaddexp2", "mish",
                     "nan_to_num", "polygamma", "remainder", "signbit", "softshrink", "silu", "sinc", "softsign", "squared_difference", "xlogy",
                     "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "zeta", "gamma_density"}


def specials(judge):
    """NaN, infinities and signed zeros through every float row of one or two inputs that NumPy or PyTorch has."""
    from elementwise import REFERENCES
    left, right = (a.reshape(-1).copy() for a in np.meshgrid(SPECIALS, SPECIALS))
    batch = Batch(judge)
    for name, op in judge.ops.items():
        count = len(op["inputs"])
        if op["family"] not in ("unary", "binary") or name not in REFERENCES or name in OTHER_CONVENTIONS:
            continue
        attributes = {a["name"]: a["default"] for a in op["attributes"] if not isinstance(a["default"], str) and name in ("add", "sub")}
        reference = (lambda x: np.sign(x.numpy())) if name == "sign" else REFERENCES[name]  # PyTorch's sign of NaN is 0
        if name in ("hardshrink", "softshrink", "hardtanh", "threshold", "isclose"):
            attributes = op["tested_attributes"]
        if name == "clamp":
            attributes = {"min": -1, "max": 2}
        arrays = [SPECIALS] if count == 1 else [left, right]
        batch.case(f"{name} of special values", name, arrays, lambda *x, f=reference, a=attributes: f(*x, **a), attributes, relative=5e-6, floor=1, gradient=False)
    batch.run()


def random_numbers(judge):
    program = {"steps": [{"op": "rand", "attributes": {"shape": [100000], "seed": 3, "low": -1, "high": 3}, "output": "u"},
                         {"op": "randn", "attributes": {"shape": [100000], "mean": 2, "deviation": 3}, "output": "n"},
                         {"op": "rand", "attributes": {"shape": [100000], "seed": 3, "low": -1, "high": 3}, "output": "again"},
                         {"op": "dropout", "inputs": ["x"], "attributes": {"p": 0.25}, "output": "d"}],
               "gradients": [{"of": "d", "with_respect_to": ["x"], "outputs": ["dx"]}]}
    got = judge.run(program, {"x": np.full(100000, 3, np.float32)})
    if isinstance(got, str):
        return judge.failures.append(f"random numbers: {got}")
    judge.compare("same seed, same numbers", got["again"], got["u"], 0)
    judge.compare("mean of rand", got["u"].mean(), 1.0, 0.02)
    judge.compare("range of rand", np.array([got["u"].min() >= -1, got["u"].max() < 3]), np.array([True, True]), 0)
    judge.compare("mean of randn", got["n"].mean(), 2.0, 0.02)
    judge.compare("deviation of randn", got["n"].std(), 3.0, 0.02)
    judge.compare("dropout keeps the mean", got["d"].mean(), 3.0, 0.02)
    judge.compare("values of dropout", np.unique(got["d"]), np.float32([0, 4]), 1e-6)
    judge.compare("gradient of dropout", got["dx"], got["d"] / 3, 1e-6)
    return None


def higher_orders(judge):
    """Third and fourth derivatives by gradients of gradients."""
    for dtype in judge.dtypes():
        for name, f in (("sin", torch.sin), ("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("gelu", torch.nn.functional.gelu), ("log", torch.log),
                        ("square", torch.square), ("softmax", lambda x: torch.softmax(x, -1)), ("logsumexp", lambda x: x.logsumexp(-1)), ("rms_norm", None), ("prod", lambda x: x.prod())):
            if f is None:
                from composites import rms_reference as f
            x = np.random.default_rng(5).uniform(0.3, 1.5, 4).astype(np.float32)
            gradients = [{"of": "y" if i == 0 else f"d{i}", "weight": "w", "with_respect_to": ["x"], "outputs": [f"d{i + 1}"]} for i in range(4)]
            w = np.float32([1, 2, -1, 0.5])
            first = dict(gradients[0])
            if name in ("logsumexp", "prod"):
                first.pop("weight")
            got = judge.run({"steps": [{"op": name, "inputs": ["x"], "output": "y"}], "gradients": [first, *gradients[1:]]}, {"x": x.astype(dtype), "w": w.astype(dtype)})
            if isinstance(got, str):
                judge.failures.append(f"derivatives of {name}: {got}")
                continue
            t, weight = torch.tensor(x.astype(np.float64), requires_grad=True), torch.tensor(w.astype(np.float64))
            d = f(t)
            for i in range(4):
                seed = weight if d.dim() else torch.ones_like(d)
                d = torch.autograd.grad(d, t, seed, create_graph=True, allow_unused=True)[0] if d.requires_grad else None
                d = torch.zeros_like(t) if d is None else d
                judge.compare(f"derivative {i + 1} of {name} {np.dtype(dtype).name}", got[f"d{i + 1}"], d.detach().numpy(), 2e-4 if dtype == np.float32 else 1e-9,
                              max(1.0, float(d.abs().max())) if dtype == np.float32 else None)


SUBJECTS = [numbers, specials, random_numbers, higher_orders]
