"""PyTorch's reductions, scans and sorts in Weft's ops."""
import torch

from translated.program import TABLE, Value, axis_of, ints, need, number, op, scalar


# ---- Reductions ----

def reduced(weft, with_dtype=False):
    def translate(w, x, dim=None, keepdim=False, *, dtype=None, **kwargs):
        need(not kwargs, f"argument {', '.join(kwargs)}")
        need(dtype is None, "argument dtype")
        dims = [] if dim is None else ints(dim)
        need(not dims or x.rank > 0, "an axis of a scalar")
        need(dim is None or dims, "no axes, which PyTorch takes for all")
        return w(weft, x, axes=dims, keepdims=bool(keepdim))
    return translate


for name in "sum mean prod amax amin logsumexp count_nonzero nansum nanmean all any argmax argmin".split():
    TABLE[name] = reduced(name)


def moments_of(weft, count):
    def translate(w, x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = int(unbiased) if unbiased is not None else 1 if correction is None else int(correction)
        dims = [] if dim is None else ints(dim)
        need(not dims or x.rank > 0, "an axis of a scalar")
        results = w.many(weft, count, x, axes=dims, keepdims=bool(keepdim), correction=correction)
        return results if count > 1 else results[0]
    return translate


for name, count in {"var": 1, "std": 1, "var_mean": 2, "std_mean": 2}.items():
    TABLE[name] = moments_of(name, count)


@op("aminmax")
def aminmax(w, x, dim=None, keepdim=False):
    need(dim is None or x.rank > 0, "an axis of a scalar")
    return w.many("aminmax", 2, x, axes=[] if dim is None else ints(dim), keepdims=keepdim)


@op("max|reduction_no_dim")
def max_all(w, x):
    return w("amax", x)


@op("min|reduction_no_dim")
def min_all(w, x):
    return w("amin", x)


def extreme(weft):
    def translate(w, x, dim, keepdim=False):
        axis = [axis_of(x, dim)]
        return [w("a" + weft, x, axes=axis, keepdims=keepdim), w("arg" + weft, x, axes=axis, keepdims=keepdim)]
    return translate


TABLE["max|reduction_with_dim"], TABLE["min|reduction_with_dim"] = extreme("max"), extreme("min")


@op("linalg.vector_norm")
def vector_norm(w, x, ord=2, dim=None, keepdim=False, dtype=None):
    need(dtype is None, "argument dtype")
    need(dim is None or x.rank > 0, "an axis of a scalar")
    return w("vector_norm", x, p=float(ord), axes=[] if dim is None else ints(dim), keepdims=keepdim)


@op("nn.functional.normalize")
def normalize(w, x, p=2.0, dim=1, eps=1e-12, out=None):
    axis_of(x, dim)
    return w("div", x, w("clamp", w("vector_norm", x, p=float(p), axes=[dim], keepdims=True), min=eps))


@op("dist")
def dist(w, x, y, p=2):
    return w("dist", x, y, p=float(p))


@op("cdist")
def cdist(w, x, y, p=2.0, compute_mode=None):
    need(x.shape[-1] > 0 or p < float("inf"), "the largest of no coordinates")
    return w("cdist", x, y, p=float(p))


@op("nn.functional.pdist")
def pdist(w, x, p=2.0):
    return w("pdist", x, p=float(p))


@op("nn.functional.pairwise_distance")
def pairwise_distance(w, x, y, p=2.0, eps=1e-6, keepdim=False):
    return w("pairwise_distance", x, y, p=float(p), eps=eps, keepdims=keepdim)


@op("nn.functional.cosine_similarity")
def cosine_similarity(w, x, y, dim=1, eps=1e-8):
    need(x.rank > 0, "an axis of a scalar")
    return w("cosine_similarity", x, y, axis=dim, eps=eps)


@op("renorm")
def renorm(w, x, p, dim, maxnorm):
    return w("renorm", x, p=float(p), axis=dim, most=float(maxnorm))


def trapezoid_of(weft):
    def translate(w, y, x=None, *, dx=1.0, dim=-1):
        return w(weft, y, x, dx=float(dx), axis=dim) if x is not None else w(weft, y, dx=float(dx), axis=dim)
    return translate


TABLE["trapezoid"] = TABLE["trapz"] = trapezoid_of("trapezoid")
TABLE["cumulative_trapezoid"] = trapezoid_of("cumulative_trapezoid")


@op("gradient")
def gradient(w, x, spacing=None, dim=None, edge_order=1):
    axes = list(range(x.rank)) if dim is None else ints(dim)
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else []
    number_of_all = float(spacing) if isinstance(spacing, (int, float)) else 1.0
    need(x.dtype.is_floating_point or not spacings, "integers divided as PyTorch divides them")
    return w.many("gradient", len(axes), x, *[scalar(s) for s in spacings], spacing=number_of_all, axes=axes, edge_order=edge_order)


@op("segment_reduce|lengths", "segment_reduce|offsets")
def segment_reduce(w, x, reduce, *, lengths=None, offsets=None, axis=0, unsafe=False, initial=None):
    if offsets is not None:
        count = offsets.shape[-1] - 1
        lengths = w("sub", w("narrow", offsets, axis=-1, start=1, length=count), w("narrow", offsets, axis=-1, start=0, length=count))
    return w("segment_reduce", x, lengths, reduction=reduce, axis=axis, initial=None if initial is None else float(initial))

# ---- Order and scans ----

def scan_of(weft, count):
    def translate(w, x, dim, *, dtype=None):
        need(dtype is None, "argument dtype")
        results = w.many(weft, count, x, axis=axis_of(x, dim))
        return results if count > 1 else results[0]
    return translate


for name in "cumsum cumprod logcumsumexp".split():
    TABLE[name] = scan_of(name, 1)
for name in "cummax cummin".split():
    TABLE[name] = scan_of(name, 2)


@op("diff")
def diff(w, x, n=1, dim=-1, prepend=None, append=None):
    axis_of(x, dim)
    if n == 0:
        return w("positive", x)
    parts = [p for p in (prepend, x, append) if p is not None]
    return w("diff", w("concat", *parts, axis=dim) if len(parts) > 1 else x, order=n, axis=dim)


def has_few_values(x):
    """Types whose samples have many equal elements; PyTorch's sort of these keeps no order unless it is asked to."""
    return x.dtype in (torch.bool, torch.float16, torch.bfloat16)


@op("sort")
def sort(w, x, dim=-1, descending=False, stable=False):
    results = w.many("sort", 2, x, axis=axis_of(x, dim), descending=descending)
    return results if stable or not has_few_values(x) else [results[0], None]


@op("argsort")
def argsort(w, x, dim=-1, descending=False):
    need(not has_few_values(x), "an order of equal elements")
    return w("argsort", x, axis=axis_of(x, dim), descending=descending)


@op("msort")
def msort(w, x):
    return w("msort", x)


@op("histc")
def histc(w, x, bins=100, min=0, max=0):
    return w("histc", x, bins=bins, low=float(min), high=float(max))


@op("histogram")
def histogram(w, x, bins, *, range=None, weight=None, density=False):
    low, high = range or (0.0, 0.0)
    if isinstance(bins, Value):
        return w.many("histogram", 2, x, weight, bins, density=density)
    return w.many("histogram", 2, x, *([] if weight is None else [weight]), bins=bins, low=float(low), high=float(high), density=density)


@op("histogramdd")
def histogramdd(w, x, bins, *, range=None, weight=None, density=False):
    count = 1 + x.shape[-1]
    ranges = {} if range is None else {"low": [float(r) for r in range[0::2]], "high": [float(r) for r in range[1::2]]}
    if isinstance(bins[0], Value):
        return w.many("histogramdd", count, x, weight, *bins, density=density)
    return w.many("histogramdd", count, x, *([] if weight is None else [weight]), bins=ints(bins), density=density, **ranges)


def unique_of(weft):
    def translate(w, x, sorted=True, return_inverse=False, return_counts=False, dim=None):
        need(dim is None or (x.rank > 0 and all(x.shape)), "an axis of a scalar, or of nothing")
        need(weft == "unique_consecutive" or dim is None or dim % x.rank < 2, "an order of slices other than NumPy's")
        need(weft == "unique_consecutive" or sorted or dim is not None, "an order that PyTorch does not promise")
        values, inverse, counts = w.many(weft, 3, x, axis=dim)
        results = [values] + [inverse] * return_inverse + [counts] * return_counts
        return results if len(results) > 1 else values
    return translate


TABLE["unique"] = unique_of("unique")
TABLE["unique_consecutive"] = lambda w, x, **k: unique_of("unique_consecutive")(w, x, **k)


def by_rank(x, results):
    """Which of equal elements comes first is not defined in PyTorch, so positions count where elements are hardly ever equal."""
    return results if x.dtype in (torch.float32, torch.float64) else [results[0], None]


@op("topk")
def topk(w, x, k, dim=-1, largest=True, sorted=True):
    return by_rank(x, w.many("topk", 2, x, k=k, axis=axis_of(x, dim), largest=largest))


@op("kthvalue")
def kthvalue(w, x, k, dim=-1, keepdim=False):
    return by_rank(x, w.many("kthvalue", 2, x, k=k, axis=axis_of(x, dim), keepdims=keepdim))


@op("median")
def median(w, x, dim=None, keepdim=False):
    if dim is None:
        return w.many("median", 2, w("flatten", x, first=0, last=-1) if x.rank != 1 else x, axis=0)[0]
    return w.many("median", 2, x, axis=axis_of(x, dim), keepdims=keepdim)


@op("nanmedian")
def nanmedian(w, x, dim=None, keepdim=False):
    if dim is None:
        return w.many("nanmedian", 2, w("flatten", x, first=0, last=-1) if x.rank != 1 else x, axis=0)[0]
    return [w.many("nanmedian", 2, x, axis=axis_of(x, dim), keepdims=keepdim)[0], None]


@op("mode")
def mode(w, x, dim=-1, keepdim=False):
    return [w.many("mode", 2, x, axis=axis_of(x, dim), keepdims=keepdim)[0], None]


@op("quantile")
def quantile(w, x, q, dim=None, keepdim=False, interpolation="linear"):
    need(isinstance(q, float), "several quantiles at once")
    need(dim is not None and x.rank > 0, "a quantile of all")
    return w("quantile", x, q=q, axis=dim, keepdims=keepdim, interpolation=interpolation)


@op("nanquantile")
def nanquantile(w, x, q, dim=None, keepdim=False, interpolation="linear"):
    need(isinstance(q, float), "several quantiles at once")
    need(dim is not None and x.rank > 0, "a quantile of all")
    return w("nanquantile", x, q=q, axis=dim, keepdims=keepdim, interpolation=interpolation)


@op("searchsorted")
def searchsorted(w, x, values, out_int32=False, right=False, side=None, sorter=None):
    need(sorter is None and isinstance(values, Value), "a sorter, or a number")
    return w("searchsorted", x, values, right=right or side == "right")


@op("bucketize")
def bucketize(w, x, boundaries, out_int32=False, right=False):
    need(isinstance(x, Value), "a number")
    return w("bucketize", x, boundaries, right=right)


@op("isin")
def isin(w, x, elements, assume_unique=False, invert=False):
    return w("isin", x, elements, invert=invert)


@op("bincount")
def bincount(w, x, weights=None, minlength=0):
    return w("bincount", x, weights, minimum=minlength)


@op("cov")
def cov(w, x, correction=1, fweights=None, aweights=None):
    need(fweights is None and aweights is None and x.rank == 2 and x.shape[0] > 1, "weights of cov, or one variable")
    return w("cov", x, correction=correction)


@op("corrcoef")
def corrcoef(w, x):
    need(x.rank == 2 and x.shape[0] > 1, "corrcoef of one variable")
    return w("corrcoef", x)

# ---- Masked reductions: the mask gives the identity of the op ----

def masked(weft, identity):
    def translate(w, x, dim=None, *, keepdim=False, dtype=None, mask=None):
        need(dtype is None and x.rank > 0, "argument dtype, or scalars")
        need(x.dtype.is_floating_point, "integers")
        made = x if mask is None else w("masked_fill", x, w("logical_not", mask), value=number(identity))
        return w(weft, made, axes=[] if dim is None else ints(dim), keepdims=keepdim)
    return translate


for name, identity in {"sum": 0.0, "prod": 1.0, "amax": -float("inf"), "amin": float("inf"), "logsumexp": -float("inf")}.items():
    TABLE[f"masked.{name}"] = masked(name, identity)


def masked_softmax(weft, negative=False):
    def translate(w, x, dim, *, dtype=None, mask=None):
        need(dtype is None and x.rank > 0 and x.dtype.is_floating_point, "argument dtype, integers, or scalars")
        made = w("neg", x) if negative else x
        return w(weft, made if mask is None else w("masked_fill", made, w("logical_not", mask), value="-inf"), axis=dim)
    return translate


for name in ("softmax", "log_softmax", "softmin"):
    TABLE[f"masked.{name}"] = masked_softmax("log_softmax" if name == "log_softmax" else "softmax", name == "softmin")
