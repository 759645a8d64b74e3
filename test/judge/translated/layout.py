"""PyTorch's views and layouts in Weft's ops."""

from translated.program import TABLE, Value, axis_of, ints, need, op


@op("reshape", "view")
def reshape(w, x, *shape):
    shape = ints(shape[0] if len(shape) == 1 else shape)
    return w("reshape", x, shape=shape)


@op("reshape_as", "view_as")
def reshape_as(w, x, other):
    return w("reshape", x, shape=list(other.shape))


@op("expand", "broadcast_to")
def expand(w, x, *shape):
    shape = ints(shape[0] if len(shape) == 1 else shape)
    own = [None] * (len(shape) - x.rank) + list(x.shape)
    return w("expand", x, shape=[o if s == -1 else s for s, o in zip(shape, own)])


@op("expand_as")
def expand_as(w, x, other):
    return w("expand", x, shape=list(other.shape))


@op("flatten", "ravel")
def flatten(w, x, start_dim=0, end_dim=-1):
    need(x.rank > 0, "an axis of a scalar")
    return w("flatten", x, first=start_dim, last=end_dim)


@op("unflatten")
def unflatten(w, x, dim, sizes):
    return w("unflatten", x, axis=dim, shape=ints(sizes))


@op("permute")
def permute(w, x, *dims):
    return w("permute", x, order=ints(dims[0] if len(dims) == 1 else dims))


@op("transpose")
def transpose(w, x, a, b):
    axis_of(x, a)
    return w("transpose", x, axis_a=a, axis_b=b)


@op("t", "T", "H", "mT", "mH")
def turned(w, x):
    need(x.rank >= 2, "an axis of a scalar")
    return w("transpose", x, axis_a=-2, axis_b=-1)


@op("movedim")
def movedim(w, x, source, destination):
    axis_of(x, 0)
    return w("movedim", x, source=ints(source), destination=ints(destination))


@op("squeeze")
def squeeze(w, x, dim=None):
    if dim is None:
        return w("reshape", x, shape=[s for s in x.shape if s != 1])
    axis_of(x, dim)
    return w("squeeze", x, axis=dim) if x.shape[dim] == 1 else w("positive", x)


@op("unsqueeze")
def unsqueeze(w, x, dim):
    return w("unsqueeze", x, axis=dim)


@op("flip")
def flip(w, x, dims):
    need(dims, "no axes")
    return w("flip", x, axes=ints(dims))


TABLE["fliplr"] = lambda w, x: w("fliplr", x)
TABLE["flipud"] = lambda w, x: w("flipud", x)


@op("roll")
def roll(w, x, shifts, dims=()):
    dims = ints(dims)
    if dims:
        return w("roll", x, shifts=ints(shifts), axes=dims)
    return w("reshape", w("roll", w("reshape", x, shape=[-1]), shifts=ints(shifts), axes=[0]), shape=list(x.shape))


@op("rot90")
def rot90(w, x, k=1, dims=(0, 1)):
    return w("rot90", x, times=k, origin=dims[0], to=dims[1])


@op("tile", "repeat")
def tile(w, x, *dims):
    return w("tile", x, repeats=ints(dims[0] if len(dims) == 1 else dims))


@op("repeat_interleave")
def repeat_interleave(w, x, repeats, dim=None):
    need(isinstance(repeats, int) and dim is not None and x.rank > 0, "repeats by a tensor, or of all")
    return w("repeat_interleave", x, repeats=repeats, axis=dim)


def chunks(extent, count):
    size = -(-extent // count)
    return -(-extent // size)


@op("chunk")
def chunk(w, x, n, dim=0):
    return w.many("chunk", chunks(x.shape[dim], n), x, parts=n, axis=dim)


@op("unbind")
def unbind(w, x, dim=0):
    return w.many("unbind", x.shape[dim], x, axis=dim)


@op("split", "split|list_args", "split_with_sizes")
def split(w, x, sizes, dim=0):
    if isinstance(sizes, int):
        extent = x.shape[dim]
        sizes = [min(sizes, extent - i) for i in range(0, extent, sizes)] if extent else [0]
    return w.many("split", len(sizes), x, lengths=ints(sizes), axis=dim)


def split_of(name):
    def translate(w, x, sections, dim=0):
        need(not isinstance(sections, Value), "sections by a tensor")
        axis = {"tensor_split": dim, "hsplit": 0 if x.rank == 1 else 1, "vsplit": 0, "dsplit": 2}[name]
        attributes = {"parts": sections} if isinstance(sections, int) else {"positions": ints(sections)}
        if name == "tensor_split":
            attributes["axis"] = axis
        return w.many(name, sections if isinstance(sections, int) else len(sections) + 1, x, **attributes)
    return translate


for name in ("tensor_split", "hsplit", "vsplit", "dsplit"):
    TABLE[name] = split_of(name)


@op("cat")
def cat(w, parts, dim=0):
    need(all(p.shape != (0,) or parts[0].rank == 1 for p in parts), "an empty part of another rank")
    return w("concat", *parts, axis=dim)


@op("stack")
def stack(w, parts, dim=0):
    return w("stack", *parts, axis=dim)


for name in ("hstack", "vstack", "dstack", "column_stack"):
    TABLE[name] = lambda w, parts, name=name: w(name, *parts)


for rank in (1, 2, 3):
    def atleast(w, *parts, rank=rank):
        parts = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
        made = [w(f"atleast_{rank}d", p) for p in parts]
        return made if len(made) > 1 else made[0]
    TABLE[f"atleast_{rank}d"] = atleast


TABLE["block_diag"] = lambda w, *parts: w("block_diag", *parts)
TABLE["cartesian_prod"] = lambda w, *parts: w("cartesian_prod", *parts)
TABLE["broadcast_tensors"] = lambda w, *parts: w.many("broadcast_tensors", len(parts), *parts)
TABLE["combinations"] = lambda w, x, r=2, with_replacement=False: w("combinations", x, r=r, repeats=with_replacement)


@op("select_scatter")
def select_scatter(w, x, values, dim, index):
    return w("select_scatter", x, values, axis=dim, index=index)


@op("slice_scatter")
def slice_scatter(w, x, values, dim=0, start=None, end=None, step=1):
    return w("slice_scatter", x, values, axis=dim, start=start, stop=end, step=step)


@op("diagonal_scatter")
def diagonal_scatter(w, x, values, offset=0, dim1=0, dim2=1):
    return w("diagonal_scatter", x, values, offset=offset, axis_a=dim1, axis_b=dim2)


@op("as_strided_scatter")
def as_strided_scatter(w, x, values, size, stride, storage_offset=0):
    return w("as_strided_scatter", x, values, shape=ints(size), strides=ints(stride), offset=storage_offset)


@op("select")
def select(w, x, dim, index):
    return w("select", x, axis=dim, index=index)


@op("narrow", "narrow_copy")
def narrow(w, x, dim, start, length):
    need(not isinstance(start, Value), "a start that is a tensor")
    return w("narrow", x, axis=dim, start=start if start >= 0 else start + x.shape[dim], length=length)


@op("slice")
def slice_of(w, x, dim=0, start=None, end=None, step=1):
    return w("slice", x, axis=dim, start=start, stop=end, step=step)


TABLE["tril"] = lambda w, x, diagonal=0: w("tril", x, diagonal=diagonal)
TABLE["triu"] = lambda w, x, diagonal=0: w("triu", x, diagonal=diagonal)


@op("diagonal")
def diagonal(w, x, offset=0, dim1=0, dim2=1):
    return w("diagonal", x, offset=offset, axis_a=dim1, axis_b=dim2)


@op("diag_embed")
def diag_embed(w, x, offset=0, dim1=-2, dim2=-1):
    return w("diag_embed", x, offset=offset, axis_a=dim1, axis_b=dim2)


TABLE["diag"] = lambda w, x, diagonal=0: w("diag", x, offset=diagonal)
TABLE["diagflat"] = lambda w, x, offset=0: w("diagflat", x, offset=offset)


@op("as_strided")
def as_strided(w, x, size, stride, storage_offset=None):
    return w("as_strided", x, shape=ints(size), strides=ints(stride), offset=storage_offset or 0)


@op("unfold")
def unfold(w, x, dim, size, step):
    need(x.rank > 0, "an axis of a scalar")
    return w("unfold", x, axis=dim, size=size, step=step)


TABLE["nn.functional.pixel_shuffle"] = lambda w, x, upscale_factor: w("pixel_shuffle", x, factor=upscale_factor)
TABLE["nn.functional.pixel_unshuffle"] = lambda w, x, downscale_factor: w("pixel_unshuffle", x, factor=downscale_factor)


@op("meshgrid|variadic_tensors", "meshgrid|list_of_tensors")
def meshgrid(w, *parts, indexing="ij"):
    parts = parts[0] if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
    need(all(p.rank == 1 for p in parts), "a grid of scalars")
    results = w.many("meshgrid", len(parts), *parts, xy=indexing == "xy")
    return results if len(results) > 1 else results


@op("constant_pad_nd", *[f"nn.functional.pad|{m}" for m in ("constant", "reflect", "replicate", "circular")])
def pad(w, x, pads, mode="constant", value=None):
    if not isinstance(mode, str):
        mode, value = "constant", mode
    pairs = [[0, 0] for _ in range(x.rank)]
    for i in range(0, len(pads), 2):
        pairs[x.rank - 1 - i // 2] = [int(pads[i]), int(pads[i + 1])]
    need(all(p >= 0 for pair in pairs for p in pair), "negative padding")
    return w("pad", x, padding=pairs, mode=mode, value=float(value or 0) if mode == "constant" else None)


@op("clone", "contiguous", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real", "fill_of")
def same(w, x, *args, **kwargs):
    return w("positive", x)


TABLE["zeros_like"] = lambda w, x, **k: (need(not k, "arguments"), w("zeros_like", x))[1]
TABLE["ones_like"] = lambda w, x, **k: (need(not k, "arguments"), w("ones_like", x))[1]


@op("full_like")
def full_like(w, x, value, **kwargs):
    need(not kwargs, "arguments")
    return w("full_like", x, value=float(value))


@op("fill")
def fill(w, x, value):
    need(not isinstance(value, Value), "a value that is a tensor")
    return w("full_like", x, value=float(value))


@op("__getitem__")
def getitem(w, x, index):
    index = list(index) if isinstance(index, tuple) else [index]
    need(all(isinstance(i, (int, slice)) and not isinstance(i, bool) or i is Ellipsis for i in index), "indices that are tensors")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index[at:at + 1] = [slice(None)] * (x.rank - len(index) + 1)
    made, axis = x, 0
    for i in index:
        if isinstance(i, slice):
            made = w("slice", made, axis=axis, start=i.start, stop=i.stop, step=1 if i.step is None else i.step)
            axis += 1
        else:
            made = w("select", made, axis=axis, index=i)
    return made if made is not x else w("positive", x)


for name, kind in {"float": "f32", "double": "f64", "int": "i32", "long": "i64", "bool": "bool", "half": "f16", "bfloat16": "bf16", "short": "i16", "char": "i8", "byte": "u8"}.items():
    TABLE[name] = lambda w, x, kind=kind, **k: (need(not k, "arguments"), w("cast", x, dtype=kind))[1]
