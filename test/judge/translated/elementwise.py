"""PyTorch's elementwise operators in Weft's ops."""

from translated.program import TABLE, Value, need, op, scalar


def elementwise(torch_name, weft_name, count, *attributes, **defaults):
    """An operator whose tensors or numbers come first, then attributes by position or keyword."""
    def translate(w, *args, **kwargs):
        need(not kwargs.get("out"), "out")
        given = dict(zip(attributes, args[count:]))
        given.update({k: v for k, v in kwargs.items() if k in attributes})
        extra = set(kwargs) - set(attributes)
        need(not extra, f"argument {', '.join(sorted(extra))}")
        need(len(args) >= count and len(args) - count <= len(attributes), "other arguments")
        need(all(not isinstance(v, Value) for v in given.values()), "an attribute that is a tensor")
        need(any(isinstance(a, Value) for a in args[:count]), "numbers alone")
        given = {k: int(v) if isinstance(v, bool) else v for k, v in given.items() if v is not None}
        return w(weft_name, *[scalar(a) for a in args[:count]], **{**defaults, **given})
    TABLE[torch_name] = translate


for name in ("abs acos acosh asin asinh atan ceil cos cosh deg2rad exp exp2 expm1 floor frac isfinite isinf isnan log log10 log1p log2 logical_not neg "
             "positive rad2deg reciprocal rsqrt sign sin sinc sinh sqrt square tan tanh trunc sigmoid digamma erf erfc erfinv lgamma i0 bitwise_not signbit").split():
    elementwise(name, name, 1)
for name, weft in {"atanh": "atanh", "round": "round", "round|decimals_0": None, "sgn": "sign", "special.i0e": "i0e", "special.i1": "i1", "special.i1e": "i1e", "special.ndtr": "ndtr",
                   "special.ndtri": "ndtri", "special.log_ndtr": "log_ndtr", "special.entr": "entr", "nn.functional.relu": "relu", "nn.functional.relu6": "relu6",
                   "nn.functional.hardswish": "hardswish", "nn.functional.hardsigmoid": "hardsigmoid", "nn.functional.selu": "selu", "nn.functional.silu": "silu",
                   "nn.functional.logsigmoid": "log_sigmoid", "nn.functional.mish": "mish", "nn.functional.softsign": "softsign", "nn.functional.tanhshrink": "tanhshrink"}.items():
    if weft:
        elementwise(name, weft, 1)
        base = TABLE[name]
        TABLE[name] = lambda w, x, inplace=False, base=base: base(w, x)
elementwise("nan_to_num", "nan_to_num", 1, "nan", "posinf", "neginf")
elementwise("nn.functional.leaky_relu", "leaky_relu", 1, "negative_slope")
elementwise("nn.functional.elu", "elu", 1, "alpha")
elementwise("nn.functional.celu", "celu", 1, "alpha")
elementwise("nn.functional.hardshrink", "hardshrink", 1, "lambd")
elementwise("nn.functional.softshrink", "softshrink", 1, "lambd")
elementwise("nn.functional.hardtanh", "hardtanh", 1, "min_val", "max_val")
elementwise("nn.functional.threshold", "threshold", 1, "threshold", "value")
elementwise("nn.functional.softplus", "softplus", 1, "beta", "threshold")
for name in "add sub".split():
    elementwise(name, name, 2, "alpha")
for name in ("mul atan2 copysign hypot ldexp logaddexp logaddexp2 xlogy maximum minimum fmax fmin heaviside eq ne lt le gt ge logical_and logical_or "
             "logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift fmod remainder pow gcd lcm floor_divide nextafter").split():
    elementwise(name, name, 2)
for name, weft in {"special.xlog1py": "xlog1py", "float_power": "pow", "true_divide": "div", "div|no_rounding_mode": "div", "max|binary": "maximum", "min|binary": "minimum",
                   "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor"}.items():
    elementwise(name, weft, 2)
elementwise("isclose", "isclose", 2, "rtol", "atol", "equal_nan")
elementwise("lerp", "lerp", 3)


for name, weft in {"__radd__": "add", "__rmul__": "mul", "__rsub__": "sub", "__rdiv__": "div", "__rmod__": "remainder", "__rpow__": "pow"}.items():
    TABLE[name] = lambda w, x, other, weft=weft: w(weft, scalar(other), x)


@op("rsub")
def rsub(w, x, other, alpha=1):
    return w("sub", scalar(other), x, alpha=alpha)


@op("div|trunc_rounding", "div|floor_rounding")
def div_rounded(w, x, y, rounding_mode=None):
    if rounding_mode == "floor":
        return w("floor_divide", x, scalar(y))
    need(x.dtype.is_floating_point, "division of integers towards zero")
    return w("trunc", w("div", x, scalar(y)))


TABLE["addcmul"] = lambda w, x, a, b, value=1: w("addcmul", x, a, b, value=value)
TABLE["addcdiv"] = lambda w, x, a, b, value=1: w("addcdiv", x, a, b, value=value)


@op("clamp", "clamp_min", "clamp_max")
def clamp(w, x, low=None, high=None, *, min=None, max=None):
    low, high = min if low is None else low, max if high is None else high
    if isinstance(low, Value) or isinstance(high, Value):
        if low is None or high is None:
            return w("minimum" if low is None else "maximum", x, high if low is None else low)
        return w("minimum", w("maximum", x, scalar(low)), scalar(high))
    return w("clamp", x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None})


TABLE["clamp_min"] = lambda w, x, low: clamp(w, x, low)
TABLE["clamp_max"] = lambda w, x, high: clamp(w, x, None, high)


@op("nn.functional.gelu")
def gelu(w, x, approximate="none"):
    return w("gelu" if approximate == "none" else "gelu_tanh", x)


@op("round|decimals_0", "round|decimals_3", "round|decimals_neg_3")
def round_decimals(w, x, decimals=0):
    return w("round_decimals", x, decimals=decimals)


@op("logit")
def logit(w, x, eps=None):
    return w("logit", x if eps is None else w("clamp", x, min=eps, max=1 - eps))


for key in ["polygamma", *[f"polygamma|polygamma_n_{n}" for n in range(5)], "special.polygamma|special_polygamma_n_0"]:
    TABLE[key] = lambda w, a, b: w("polygamma", *([a] if isinstance(a, Value) else [b]), n=int(b if isinstance(a, Value) else a))


@op("where")
def where(w, x, mask, y):
    return w("where", mask, x, y)


@op("nn.functional.prelu")
def prelu(w, x, weight):
    need(x.rank >= 2 or weight.shape in ((), (1,)), "channels of one axis")
    return w("prelu", x, weight if weight.rank else w("reshape", weight, shape=[1]))


for name, side in {"isposinf": "gt", "isneginf": "lt"}.items():
    TABLE[name] = lambda w, x, side=side: w("logical_and", w("isinf", x), w(side, x, 0))
