"""What differs from PyTorch's samples, and why. Keys: operator, stage, and a type if only that one differs.

A value says how many times wider the tolerance is, or "differs" for samples that are left out of the counts. The whole run fails
when an entry is no longer needed.
"""
BOOLS = "sums and products of bools are i32 in Weft, as in NumPy's sum; PyTorch's are bools"
POWERS = "a power of integers is a float in Weft; PyTorch rounds it to an integer"
TRIANGLE = "PyTorch gives the triangle that is not read a gradient"
NINE_DIGITS, SIX_DIGITS = "PyTorch's has nine digits", "PyTorch's has six digits"
ROUNDING = "the exact result is 0 or nearly so; both give what rounding leaves"

KNOWN = {
    **{(name, "forward", "bool"): ("differs", BOOLS) for name in ("add", "mul", "__radd__", "__rmul__")},
    **{("__rpow__", "forward", kind): ("differs", POWERS) for kind in ("i32", "i64")},
    **{("__rpow__", stage): ("differs", "PyTorch copies the base, so no gradient reaches it") for stage in ("backward", "second")},
    **{("byte", "forward", kind): ("differs", "a negative float becomes 0 in Weft, which saturates; PyTorch wraps") for kind in ("f32", "f64", "f16", "bf16")},
    ("index_put", "backward"): ("differs", "of several values for one place PyTorch gives a gradient to each; in Weft to the one that stays"),
    **{(f"nn.functional.max_unpool{rank}d", "backward"): ("differs", "of several values for one place PyTorch gives a gradient to each; in Weft to the one that stays")
       for rank in (1, 2, 3)},
    ("histogram", "forward"): ("differs", "some of PyTorch's samples have edges that are not in order"),
    ("histogramdd", "forward", "f64"): ("differs", "an element is on the edge of two bins"),
    ("as_strided_scatter", "backward"): ("differs", "PyTorch's gradient to x does not leave out what was written over"),
    ("nn.functional.cosine_similarity", "backward", "f32"): ("differs", ROUNDING),
    ("logcumsumexp", "backward", "f32"): (200, "e^(x - y) of numbers near 10,000: y is rounded to f32"),
    **{(name, stage): ("differs", "PyTorch reads one triangle and gives its gradient to both")
       for name in ("linalg.eigh", "linalg.eigvalsh") for stage in ("backward", "second")},
    **{("masked.prod", stage): ("differs", "PyTorch gives NaN where an element is 0") for stage in ("backward", "second")},
    **{("linalg.vector_norm", stage, "f64"): (1000, "PyTorch rounds the order to f32") for stage in ("forward", "backward", "second")},
    **{(name, stage): ("differs", TRIANGLE) for name in ("cholesky_inverse", "cholesky_solve") for stage in ("backward", "second")},
    ("linalg.norm", "second", "f64"): (1000, "PyTorch rounds the order to f32"),
    ("linalg.norm|subgradients_at_zero", "second"): ("differs", "PyTorch gives NaN at zeros"),
    **{(f"special.{name}", "forward", "f64"): (100_000, SIX_DIGITS) for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")},
    **{(name, "forward", "f64"): (1000, NINE_DIGITS)
       for name in (*[f"polygamma|polygamma_n_{n}" for n in range(5)], "special.polygamma|special_polygamma_n_0")},
    ("nn.functional.hardsigmoid", "backward", "f64"): (1000, "PyTorch's 1/6 is an f32"),
    ("div|trunc_rounding", "forward", "bf16"): ("differs", "the quotient is rounded to bf16, here to a whole number, before it is cut"),
    ("nn.functional.normalize", "second", "f64"): (100, ROUNDING),
    ("scatter_reduce|prod", "second", "f64"): (100, ROUNDING),
    ("native_layer_norm", "forward"): (1000, ROUNDING),
    ("native_layer_norm", "backward", "f64"): (1000, ROUNDING),
    ("nn.functional.layer_norm", "backward"): (1000, ROUNDING),
    **{(name, "backward", "f32"): (20, ROUNDING) for name in ("masked.softmax", "masked.softmin")},
    **{(name, "backward", "f32"): ("differs", ROUNDING) for name in ("corrcoef", "native_layer_norm", "nn.functional.group_norm", "nn.functional.normalize")},
    ("nn.functional.grid_sample", "forward", "bf16"): ("differs", "places of bf16 are on the border between two elements"),
}
