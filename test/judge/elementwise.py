"""Every elementwise row over its tested range: forward, first gradient, and second where the row claims it."""
import numpy as np
import torch
import torch.nn.functional as F

from door import Batch

# The row in PyTorch; inputs, then attributes by name.
REFERENCES = {
    "abs": torch.abs, "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh, "atan": torch.atan,
    "atanh": torch.atanh, "ceil": torch.ceil, "cos": torch.cos, "cosh": torch.cosh, "deg2rad": torch.deg2rad, "erf": torch.erf,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "floor": torch.floor, "frac": torch.frac, "isfinite": torch.isfinite,
    "isinf": torch.isinf, "isnan": torch.isnan, "log": torch.log, "log10": torch.log10, "log1p": torch.log1p, "log2": torch.log2,
    "logical_not": torch.logical_not, "logit": torch.logit, "nan_to_num": torch.nan_to_num, "neg": torch.neg,
    "positive": lambda x: x * 1, "rad2deg": torch.rad2deg, "reciprocal": torch.reciprocal, "round": torch.round,
    "rsqrt": torch.rsqrt, "sign": torch.sign, "signbit": torch.signbit, "sin": torch.sin, "sinc": torch.sinc, "sinh": torch.sinh,
    "sqrt": torch.sqrt, "square": torch.square, "tan": torch.tan, "tanh": torch.tanh, "trunc": torch.trunc, "clamp": torch.clamp,
    "celu": F.celu, "elu": F.elu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,  # that of PyTorch divides in f32
     "hardswish": F.hardswish, "leaky_relu": F.leaky_relu, "log_sigmoid": F.logsigmoid, "mish": F.mish,
    "relu": F.relu, "relu6": F.relu6, "selu": F.selu, "sigmoid": torch.sigmoid, "silu": F.silu, "softplus": F.softplus,
    "softsign": F.softsign,
    "add": lambda x, y, alpha: torch.add(x, y, alpha=alpha), "sub": lambda x, y, alpha: torch.sub(x, y, alpha=alpha),
    "mul": torch.mul, "div": torch.div, "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"), "fmod": torch.fmod,
    "remainder": torch.remainder, "pow": torch.pow, "atan2": torch.atan2, "copysign": torch.copysign, "hypot": torch.hypot,
    "ldexp": lambda x, y: x * torch.exp2(y), "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2, "xlogy": torch.xlogy,
    "maximum": torch.maximum, "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin,
    "squared_difference": lambda x, y: (x - y) ** 2, "heaviside": torch.heaviside,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor,
    "where": lambda c, x, y: torch.where(c != 0, x, y), "clamp_tensor": torch.clamp, "lerp": torch.lerp,
    "addcmul": lambda x, y, z, value: torch.addcmul(x, y, z, value=value),
    "addcdiv": lambda x, y, z, value: torch.addcdiv(x, y, z, value=value),
    "erfc": torch.erfc, "erfinv": torch.erfinv, "ndtr": lambda x: 0.5 * torch.erfc(-x * 0.5 ** 0.5), "ndtri": torch.special.ndtri,
    "log_ndtr": torch.special.log_ndtr, "entr": torch.special.entr, "lgamma": torch.lgamma, "digamma": torch.digamma,
    "polygamma": lambda x, n: torch.polygamma(int(n), x), "i0": torch.i0, "i0e": torch.special.i0e, "i1": torch.special.i1,
    "i1e": torch.special.i1e, "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3), "exp10": lambda x: 10 ** x,
    "hardshrink": lambda x, lambd: F.hardshrink(x, lambd), "softshrink": lambda x, lambd: F.softshrink(x, lambd),
    "tanhshrink": F.tanhshrink, "hardtanh": lambda x, min_val, max_val: F.hardtanh(x, min_val, max_val),
    "threshold": lambda x, threshold, value: F.threshold(x, threshold, value),
    "xlog1py": torch.special.xlog1py, "erfcx": torch.special.erfcx, "zeta": torch.special.zeta, "igamma": torch.igamma, "igammac": torch.igammac,
    "gamma_density": lambda a, x: torch.exp((a - 1) * torch.log(x) - x - torch.lgamma(a)),
    "spherical_bessel_j0": torch.special.spherical_bessel_j0, "airy_ai": torch.special.airy_ai,
    **{f"bessel_{kind}": getattr(torch.special, f"bessel_{kind}") for kind in ("j0", "j1", "y0", "y1")},
    **{f"{scaled}modified_bessel_{kind}": getattr(torch.special, f"{scaled}modified_bessel_{kind}") for scaled in ("", "scaled_") for kind in ("k0", "k1")},
    "isclose": lambda x, y, rtol, atol, equal_nan: torch.isclose(x, y, rtol, atol, bool(equal_nan)),
}
# PyTorch 1.13 has no gradient for these, or none of second order.
NO_GRADIENT = {"heaviside", "zeta", "igamma", "igammac", "spherical_bessel_j0", "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
               "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"}
# PyTorch's derivatives of digamma have nine digits.
GRADIENT_IN_F64 = {"lgamma": 1e-8, "digamma": 1e-8, "gamma_density": 1e-8}
# PyTorch's values of these have this many digits.
VALUE_IN_F64 = {"igamma": 1e-8, "igammac": 1e-8, "airy_ai": 2e-5, **{f"bessel_{kind}": 2e-6 for kind in ("j0", "j1", "y0", "y1")}}
NO_SECOND = {"heaviside", "clamp_tensor", "hardswish", "abs"}

INTEGER_REFERENCES = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "square": np.square, "positive": np.positive, "bitwise_not": np.invert,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floor_divide": np.floor_divide, "fmod": np.fmod, "remainder": np.remainder,
    "maximum": np.maximum, "minimum": np.minimum, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logical_not": np.logical_not,
    "div": np.true_divide, "exp": lambda x: np.exp(x.astype(np.float32)), "relu": lambda x: np.maximum(x, 0),
    "squared_difference": lambda x, y: (x - y) ** 2, "isnan": np.isnan, "signbit": np.signbit,
    "gcd": np.gcd, "lcm": np.lcm,
}
BOOL_REFERENCES = {
    "bitwise_not": np.invert, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "logical_not": np.logical_not, "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "eq": np.equal, "ne": np.not_equal, "maximum": np.maximum, "minimum": np.minimum,
    "add": lambda x, y: x.astype(np.int32) + y, "mul": lambda x, y: x.astype(np.int32) * y,
}


def rows(judge):
    floats = {name: op for name, op in judge.ops.items() if op["family"] in ("unary", "binary", "ternary") and "f32" in op["dtypes"]}
    for name in sorted(floats.keys() - REFERENCES.keys()):
        judge.failures.append(f"{name}: the judge has no reference for this row")
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for name, op in floats.items():
            if name not in REFERENCES:
                continue
            arrays = [batch.array((7, 9), lo, hi) for lo, hi in op["tested"]]
            if name == "where":
                arrays[0] = np.round(arrays[0])
            # Attributes in f32, so that both sides compute with the same number.
            attributes = {a: float(np.float32(value)) for a, value in op["tested_attributes"].items()}
            ulp = 2.0 ** -23 * op["max_ulp"] * (1 if judge.on_cpu else 4)
            reference = REFERENCES[name]
            batch.case(name, name, arrays, lambda *x, f=reference, a=attributes: f(*x, **a), attributes,
                       relative=max(ulp if dtype == np.float32 else 1e-12, VALUE_IN_F64.get(name, 0)), floor=op["ulp_floor"],
                       gradient_relative=None if dtype == np.float32 else GRADIENT_IN_F64.get(name),
                       gradient=op["differentiable"] and name not in NO_GRADIENT, second=op["second_order"] and name not in NO_SECOND)
        batch.run()


def integers(judge):
    batch = Batch(judge)
    for name, reference in INTEGER_REFERENCES.items():
        inputs = len(judge.ops[name]["inputs"])
        arrays = [batch.random.integers(-90, 90, (5, 8), dtype=np.int32) for _ in range(inputs)]
        if inputs == 2:
            arrays[1] = np.where(arrays[1] == 0, 3, arrays[1]).astype(np.int32)
        if name.endswith("shift"):
            arrays[1] = np.abs(arrays[1]) % 8
        batch.case(f"{name} of i32", name, arrays, lambda *x, f=reference: f(*[t.numpy() for t in x]), relative=2e-7)
    for name, reference in BOOL_REFERENCES.items():
        arrays = [batch.random.integers(0, 2, (5, 8)).astype(bool) for _ in judge.ops[name]["inputs"]]
        batch.case(f"{name} of bool", name, arrays, lambda *x, f=reference: f(*[t.numpy() for t in x]), relative=0)
    batch.run()


def broadcasting(judge):
    """Gradients have their operands' shapes: the repeats are summed."""
    shapes = [((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 5), (3, 1)), ((), (2, 3)), ((1,), (4, 1, 2)), ((2, 3, 4, 5), (3, 1, 5)), ((5, 1, 1, 1, 2), (3, 1, 4, 1)),
              ((0, 3), (1, 3))]
    for dtype in judge.dtypes():
        batch = Batch(judge, dtype)
        for a, b in shapes:
            for name in ("add", "sub", "mul", "div", "maximum", "atan2"):
                f = {"add": lambda x, y: x + 2 * y, "sub": lambda x, y: x - 2 * y}.get(name, REFERENCES[name])
                batch.case(f"{name} of {a} and {b}", name, [batch.array(a), batch.array(b, 0.5, 3)], f, {"alpha": 2} if name in ("add", "sub") else {})
        batch.case("where broadcast", "where", [batch.random.integers(0, 2, (3, 1)).astype(bool), batch.array((4,)), batch.array((2, 1, 1))], torch.where)
        batch.case("self times self", [("mul", [0, 0], {})], [batch.array((3, 4))], lambda x: x * x, second=True)
        batch.run()


SUBJECTS = [rows, integers, broadcasting]
