"""PyTorch's products and decompositions in Weft's ops."""

from translated.program import TABLE, ints, need, op


for name in ("matmul", "mm", "bmm", "mv", "__matmul__"):
    TABLE[name] = lambda w, a, b: w("matmul", a, b)
TABLE["__rmatmul__"] = lambda w, a, b: w("matmul", b, a)
TABLE["dot"] = TABLE["vdot"] = lambda w, a, b: w("dot", a, b)
TABLE["outer"] = lambda w, a, b: w("outer", a, b)
TABLE["inner"] = lambda w, a, b: (need(a.rank > 0 and b.rank > 0, "scalars"), w("inner", a, b))[1]
TABLE["kron"] = lambda w, a, b: w("kron", a, b)
TABLE["trace"] = lambda w, a: w("trace", a)
for name, weft in {"addmm": "addmm", "addmm|decomposed": "addmm", "baddbmm": "baddbmm", "addmv": "addmv", "addbmm": "addbmm"}.items():
    TABLE[name] = lambda w, c, a, b, weft=weft, beta=1, alpha=1: w(weft, c, a, b, beta=float(beta), alpha=float(alpha))


@op("cross", "linalg.cross")
def cross(w, a, b, dim=None):
    need(a.rank == b.rank and a.shape == b.shape, "shapes that broadcast")
    axis = dim if dim is not None else next((i for i, e in enumerate(a.shape) if e == 3), -1)
    return w("cross", a, b, axis=axis)


TABLE["linalg.cross"] = lambda w, a, b, dim=-1: cross(w, a, b, dim=dim)


@op("tensordot")
def tensordot(w, a, b, dims=2):
    if isinstance(dims, int):
        dims = (list(range(a.rank - dims, a.rank)), list(range(dims)))
    return w("tensordot", a, b, axes_a=ints(dims[0]), axes_b=ints(dims[1]))


@op("einsum")
def einsum(w, operands, equation):
    need("." not in equation, "an ellipsis")
    left, _, right = equation.replace(" ", "").partition("->")
    labels = [ord(c) for part in left.split(",") for c in part]
    if "->" not in equation:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    letters = {c: i for i, c in enumerate(dict.fromkeys(labels))}
    return w("einsum", *operands, labels=[letters[c] for c in labels], output=[letters[ord(c)] for c in right])


@op("nn.functional.linear")
def linear(w, x, weight, bias=None):
    need(weight.rank == 2, "a weight of one axis")
    return w("linear", x, weight, bias)


@op("nn.functional.bilinear")
def bilinear(w, a, b, weight, bias=None):
    return w("bilinear", a, b, weight, *([] if bias is None else [bias]))


def square(a):
    need(a.rank >= 2 and all(e > 0 for e in a.shape), "empty matrices")


for name, weft in {"linalg.inv": "inverse", "linalg.det": "det", "logdet": "logdet"}.items():
    TABLE[name] = lambda w, a, weft=weft: (square(a), w(weft, a))[1]
TABLE["linalg.slogdet"] = lambda w, a: (square(a), w.many("slogdet", 2, a))[1]
TABLE["linalg.cholesky"] = lambda w, a, upper=False: (square(a), w("transpose", w("cholesky", a), axis_a=-2, axis_b=-1) if upper else w("cholesky", a))[1]
TABLE["cholesky"] = TABLE["linalg.cholesky"]
TABLE["linalg.matrix_power"] = TABLE["matrix_power"] = lambda w, a, n: (square(a), w("matrix_power", a, n=n))[1]


@op("linalg.eigvalsh")
def eigvalsh(w, a, UPLO="L"):
    """PyTorch reads one triangle, Weft both."""
    square(a)
    lower = a if UPLO == "L" else w("transpose", a, axis_a=-2, axis_b=-1)
    under = w("transpose", w("tril", lower, diagonal=-1), axis_a=-2, axis_b=-1)
    return w.many("eigh", 2, w("add", w("tril", lower), under))[0]


TABLE["linalg.inv_ex"] = lambda w, a, check_errors=False: (square(a), [w("inverse", a), None])[1]
TABLE["linalg.pinv"] = TABLE["pinverse"] = lambda w, a, **k: (square(a), need(not k, "tolerances"), w("pinv", a))[2]


# Vectors have signs of their own in each library; the numbers are the same.
TABLE["linalg.eigh"] = lambda w, a, UPLO="L": [TABLE["linalg.eigvalsh"](w, a, UPLO), None]
TABLE["linalg.svd"] = lambda w, a, full_matrices=True: [None, (square(a), w("svdvals", a))[1], None]
