"""PyTorch's gathers and scatters in Weft's ops."""
import torch

from translated.program import TABLE, Value, need, number, op


def shapes_fit(x, index, dim):
    need(x.rank > 0 and index.rank == x.rank, "scalars, or an index of another rank")


def gather_of(w, x, dim, index, sparse_grad=False):
    shapes_fit(x, index, dim)
    return w("gather", x, index, axis=dim)


TABLE["gather"] = gather_of


def take_along(w, x, indices, dim=None):
    need(dim is not None, "an axis of a flat value")
    shapes_fit(x, indices, dim)
    need(all(a == b or i == dim % x.rank for i, (a, b) in enumerate(zip(x.shape, indices.shape))), "broadcast indices")
    return w("take_along_axis", x, indices, axis=dim)


TABLE["take_along_dim"] = take_along


@op("scatter")
def scatter(w, x, dim, index, src, reduce=None):
    shapes_fit(x, index, dim)
    need(reduce is None and isinstance(src, Value) and src.shape == index.shape, "a number, a reduction, or a larger source")
    return w("scatter", x, index, src, axis=dim)


@op("scatter_add")
def scatter_add(w, x, dim, index, src):
    shapes_fit(x, index, dim)
    need(src.shape == index.shape, "a larger source")
    return w("scatter_reduce", x, index, src, axis=dim, reduction="sum")


@op(*[f"scatter_reduce|{r}" for r in ("sum", "prod", "mean", "amin", "amax")])
def scatter_reduce(w, x, dim, index, src, reduce, include_self=True):
    shapes_fit(x, index, dim)
    need(src.shape == index.shape, "a larger source")
    return w("scatter_reduce", x, index, src, axis=dim, reduction=reduce, include_self=include_self)


def vector_index(x, index):
    need(x.rank > 0 and index.rank == 1, "scalars")


@op("index_select")
def index_select(w, x, dim, index):
    vector_index(x, index)
    return w("index_select", x, index, axis=dim)


@op("index_add")
def index_add(w, x, dim, index, source, alpha=1):
    vector_index(x, index)
    return w("index_add", x, index, source, axis=dim, scale=float(alpha))


@op("index_reduce")
def index_reduce(w, x, dim, index, source, reduce, *, include_self=True):
    vector_index(x, index)
    return w("index_reduce", x, index, source, axis=dim, reduction=reduce, include_self=include_self)


@op("index_copy")
def index_copy(w, x, dim, index, source):
    vector_index(x, index)
    return w("index_copy", x, index, source, axis=dim)


@op("index_fill")
def index_fill(w, x, dim, index, value):
    vector_index(x, index)
    need(not isinstance(value, Value), "a value that is a tensor")
    return w("index_fill", x, index, axis=dim, value=float(value))


@op("index_put")
def index_put(w, x, indices, values, accumulate=False):
    need(all(i is not None and i.dtype != torch.bool for i in indices), "a mask")
    return w("index_put", x, values, *indices, accumulate=bool(accumulate))


@op("take")
def take(w, x, index):
    return w("take", x, index)


@op("put")
def put(w, x, index, source, accumulate=False):
    need(source.shape == index.shape, "a source of another shape")
    return w("put", x, index, source, accumulate=accumulate)


@op("masked_fill")
def masked_fill(w, x, mask, value):
    need(torch.broadcast_shapes(x.shape, mask.shape) == x.shape, "a mask with more elements than x")
    return w("where", mask, value, x) if isinstance(value, Value) else w("masked_fill", x, mask, value=number(float(value)))


@op("masked_select")
def masked_select(w, x, mask):
    need(mask.shape == x.shape, "a mask that broadcasts")
    return w("masked_select", x, mask)


@op("masked_scatter")
def masked_scatter(w, x, mask, source):
    need(mask.shape == x.shape, "a mask that broadcasts")
    return w("masked_scatter", x, mask, source)


@op("nonzero", "argwhere")
def nonzero(w, x, as_tuple=False):
    need(not as_tuple and x.rank > 0, "scalars, or a tuple")
    return w("nonzero", x)


@op("nn.functional.one_hot")
def one_hot(w, x, num_classes=-1):
    need(num_classes > 0, "classes that are not given")
    return w("one_hot", x, classes=num_classes)
