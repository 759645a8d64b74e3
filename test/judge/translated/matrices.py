"""PyTorch's factors, norms and functions of matrices in Weft's ops."""

from translated.program import TABLE, Value, ints, need, op


def turned(w, a):
    return w("transpose", a, axis_a=-2, axis_b=-1)


def matrix(a):
    need(a.rank > 0, "a scalar")


@op("linalg.lu_factor", "lu")
def lu_factor(w, a, pivot=True, get_infos=False):
    matrix(a)
    need(pivot is True, "no exchange of rows")
    return w.many("lu_factor", 2, a) + [None] * bool(get_infos)


TABLE["linalg.lu_factor_ex"] = lambda w, a, pivot=True, check_errors=False: [*lu_factor(w, a, pivot), None]


@op("linalg.lu")
def lu(w, a, pivot=True):
    matrix(a)
    need(pivot, "no exchange of rows")
    return w.many("lu", 3, a)


@op("lu_unpack")
def lu_unpack(w, lu, pivots, unpack_data=True, unpack_pivots=True):
    matrix(lu)
    need(unpack_data and unpack_pivots, "a part of the factors")
    return w.many("lu_unpack", 3, lu, pivots)


@op("linalg.lu_solve")
def lu_solve(w, lu, pivots, b, left=True, adjoint=False):
    matrix(lu)
    matrix(b)
    return w("lu_solve", lu, pivots, b, left=left, adjoint=adjoint)


TABLE["lu_solve"] = lambda w, b, lu, pivots: lu_solve(w, lu, pivots, b)
TABLE["linalg.cholesky_ex"] = lambda w, a, upper=False, check_errors=False: [TABLE["linalg.cholesky"](w, a, upper), None]
TABLE["cholesky_inverse"] = lambda w, l, upper=False: (matrix(l), w("cholesky_inverse", l, upper=upper))[1]
TABLE["cholesky_solve"] = lambda w, b, l, upper=False: (matrix(l), matrix(b), w("cholesky_solve", b, l, upper=upper))[2]
TABLE["linalg.householder_product"] = lambda w, a, tau: (matrix(a), matrix(tau), w("householder_product", a, tau))[2]


@op("linalg.solve")
def solve(w, a, b, left=True):
    matrix(a)
    matrix(b)
    if b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1]):
        return w("squeeze", w("solve", a, w("unsqueeze", b, axis=-1)), axis=-1)
    return w("solve", a, b) if left else turned(w, w("solve", turned(w, a), turned(w, b)))


TABLE["linalg.solve_ex"] = lambda w, a, b, left=True, check_errors=False: [solve(w, a, b, left), None]


@op("linalg.solve_triangular")
def solve_triangular(w, a, b, upper, left=True, unitriangular=False):
    matrix(a)
    matrix(b)
    if left:
        return w("solve_triangular", a, b, upper=upper, unit=unitriangular)
    return turned(w, w("solve_triangular", turned(w, a), turned(w, b), upper=not upper, unit=unitriangular))


@op("triangular_solve")
def triangular_solve(w, b, a, upper=True, transpose=False, unitriangular=False):
    matrix(a)
    matrix(b)
    return [w("solve_triangular", turned(w, a) if transpose else a, b, upper=upper != transpose, unit=unitriangular), None]


TABLE["matrix_exp"] = lambda w, a: w("matrix_exp", a)
TABLE["linalg.svdvals"] = lambda w, a: (matrix(a), w("svdvals", a))[1]
TABLE["linalg.tensorinv"] = lambda w, a, ind=2: (matrix(a), w("tensorinv", a, ind=ind))[1]
TABLE["linalg.tensorsolve"] = lambda w, a, b, dims=None: w("tensorsolve", a, b, axes=[] if dims is None else ints(dims))
TABLE["linalg.multi_dot"] = lambda w, factors: w("multi_dot", *factors)
TABLE["linalg.vander"] = lambda w, x, N=None: need(x.rank > 0, "a scalar") or w("vander", x, n=-1 if N is None else N, increasing=True)
TABLE["linalg.vecdot"] = lambda w, a, b, dim=-1: w("vecdot", a, b, axis=dim)
TABLE["addr"] = lambda w, c, a, b, beta=1, alpha=1: w("addr", c, a, b, beta=float(beta), alpha=float(alpha))


def word_of(ord):
    return ord if isinstance(ord, str) else f"{float(ord):g}"


@op("linalg.cond")
def cond(w, a, p=None):
    matrix(a)
    return w("cond", a, ord=word_of(2 if p is None else p))


@op("linalg.matrix_norm")
def matrix_norm(w, a, ord="fro", dim=(-2, -1), keepdim=False, dtype=None):
    matrix(a)
    need(dtype is None, "argument dtype")
    return w("matrix_norm", a, ord=word_of(ord), axes=ints(dim), keepdims=keepdim)


@op("linalg.norm", "linalg.norm|subgradients_at_zero")
def norm(w, a, ord=None, dim=None, keepdim=False, dtype=None):
    matrix(a)
    need(dtype is None, "argument dtype")
    axes = [] if dim is None else ints(dim)
    if ord is None or len(axes) == 1 or (dim is None and a.rank < 2):
        return w("vector_norm", a, p=float(2 if ord is None else ord), axes=axes, keepdims=keepdim)
    return matrix_norm(w, a, ord, axes or (-2, -1), keepdim)


@op("norm", "norm|nuc", "norm|fro", "norm|inf")
def norm_of_any(w, x, p="fro", dim=None, keepdim=False, dtype=None):
    matrix(x)
    need(dtype is None, "argument dtype")
    axes = [] if dim is None else ints(dim)
    if p == "nuc":
        return matrix_norm(w, x, "nuc", axes or (-2, -1), keepdim)
    return w("vector_norm", x, p=2.0 if p in ("fro", None) else float(p), axes=axes, keepdims=keepdim)


@op("linalg.matrix_rank", "linalg.matrix_rank|hermitian")
def matrix_rank(w, a, tol=None, hermitian=False, *, atol=None, rtol=None):
    matrix(a)
    atol = tol if atol is None else atol
    need(not isinstance(atol, Value) and not isinstance(rtol, Value), "tolerances that are tensors")
    return w("matrix_rank", a, atol=float(atol or 0), rtol=-1.0 if rtol is None else float(rtol), hermitian=hermitian)
