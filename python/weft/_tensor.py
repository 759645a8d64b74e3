"""Making tensors, devices, and the methods of Tensor that are written in Python."""

from __future__ import annotations

import builtins
import copyreg
import functools
import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload

from . import _weft
from ._types import ArrayLike, DeviceLike, DTypeLike
from ._weft import DTypeError, Tensor, UsageError, Variable


@overload
def tensor(data: ArrayLike, dtype: DTypeLike | None = ..., device: DeviceLike | None = ...) -> Tensor: ...
@overload
def tensor(data: ArrayLike, dtype: DTypeLike | None = ..., device: DeviceLike | None = ..., *, requires_grad: bool) -> Tensor: ...
def tensor(data: ArrayLike, dtype: DTypeLike | None = None, device: DeviceLike | None = None, *,
           requires_grad: bool = False) -> Tensor:
    """A tensor of numbers, nested lists or an array, whose elements are copied. Python's floats become f32, its integers i32, or
    i64 if they do not fit. With requires_grad it is a Variable."""
    if data is None:
        raise TypeError("tensor: expected a tensor, an array, a number or lists of numbers, got None")
    if isinstance(data, builtins.range):
        data = list(data)
    made: Tensor = _weft._tensor(data, dtype, device, True)
    return Variable(made) if requires_grad else made


def asarray(data: ArrayLike, dtype: DTypeLike | None = None, device: DeviceLike | None = None, *,
            copy: bool | None = None) -> Tensor:
    """Like tensor(), but shares the memory of an array on the CPU where that is possible; the array must stay as it is while
    the tensor is in use."""
    return _weft._tensor(data, dtype, device, bool(copy))


def from_numpy(array: Any) -> Tensor:
    """A tensor that shares the memory of a NumPy array, which must stay as it is while the tensor is in use."""
    if not hasattr(type(array), "__array_interface__"):
        raise TypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}")
    return _weft._tensor(array, None, "cpu", False)


def from_dlpack(array: Any) -> Tensor:
    """A tensor that shares the memory of another library's array (torch, jax, numpy), or of a DLPack capsule."""
    if isinstance(array, Tensor):
        return array
    if hasattr(type(array), "__array_interface__"):  # older versions of NumPy do not export what can only be read
        return _weft._tensor(array, None, "cpu", False)
    if not hasattr(type(array), "__dlpack__") and type(array).__name__ != "PyCapsule":
        raise TypeError(f"from_dlpack: {type(array).__name__} has no __dlpack__")
    capsule = array.__dlpack__() if hasattr(type(array), "__dlpack__") else array
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError("from_dlpack: __dlpack__ did not return a capsule")
    return _weft._tensor(capsule, None, "cpu", False)


def to_numpy(x: Tensor) -> Any:
    """The elements as a NumPy array, which shares the tensor's memory on the CPU and can only be read."""
    import numpy

    return numpy.asarray(x._elements())


def empty(*shape: int | Sequence[int], dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Zeros: tensors never change, so there is nothing to fill in later."""
    zeros: Any = _weft.op("zeros")
    return zeros(*shape, dtype=dtype, device=device)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None,
           device: DeviceLike | None = None) -> Tensor:
    """start, start + step, ... before stop; arange(n) counts from 0. Whole numbers give i32, others f32."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = "i32" if all(isinstance(each, int) for each in (start, stop, step)) else "f32"
    return _weft.op("range")(start, stop, step, dtype=dtype, device=device)


class ValuesAndIndices(NamedTuple):
    """What sort(), topk(), max(x, dim=...) and others give."""

    values: Tensor
    indices: Tensor


_set_pair_type: Any = _weft._set_pair_type
_set_pair_type(ValuesAndIndices)


def _extreme(name: str, positions: str) -> Callable[..., Any]:
    reduce, arg, pair = _weft.op(name), _weft.op(positions), _weft.op("maximum" if name == "amax" else "minimum")

    def extreme(x: ArrayLike, *arguments: Any, axis: Any = None, keepdims: bool | None = None, dim: Any = None, keepdim: bool | None = None,
                other: Any = None) -> Any:
        if len(arguments) > 2:
            raise TypeError(f"{name[1:]}() takes an axis and whether to keep it; {len(arguments)} arguments are given")
        first = arguments[0] if arguments else other
        if isinstance(first, Tensor) or hasattr(type(first), "__array_interface__"):
            return pair(x, first)
        if axis is not None or keepdims is not None or isinstance(first, (tuple, list)):  # NumPy's form
            along = axis if first is None else first
            return reduce(x, () if along is None else along, bool(keepdims or keepdim))
        if first is not None:
            dim = first
        if dim is None:
            return reduce(x, ())
        keep = bool(arguments[1] if len(arguments) > 1 else keepdim)
        places = arg(x, dim, keep)
        return ValuesAndIndices(reduce(x, dim, keep), places)

    largest = "largest" if name == "amax" else "smallest"
    extreme.__doc__ = (f"The {largest} element; of two tensors, element by element; along axis=... (NumPy's form) the {largest} values; along a dim "
                       f"(PyTorch's form, also by position) a pair, .values and .indices. a{name[1:]} gives values, {arg.__name__} positions.")
    extreme.__name__ = extreme.__qualname__ = name[1:]
    return extreme


max = _extreme("amax", "argmax")  # noqa: A001
min = _extreme("amin", "argmin")  # noqa: A001


def round(x: ArrayLike, decimals: int = 0) -> Tensor:  # noqa: A001
    """To the nearest whole number, or multiple of 10^-decimals; halves to the even one."""
    rounded = _weft.op("round")
    if decimals == 0:
        return rounded(x)
    factor = 10.0 ** decimals
    return rounded(_weft.op("mul")(x, factor)) / factor


def split(x: Tensor, size: int | Sequence[int], axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]:
    """Parts of `size` elements along the axis, the last one perhaps smaller; or parts of these sizes."""
    axis = axis if dim is None else dim
    if isinstance(size, int):
        if size < 1:
            raise ValueError(f"split: parts of {size} elements")
        extent = x.shape[axis]
        size = [builtins.min(size, extent - start) for start in builtins.range(0, extent, size)]
    return _weft.op("split")(x, list(size), axis)


def _cut(name: str, x: Tensor, where: int | Sequence[int], **axis: int) -> tuple[Tensor, ...]:
    chosen: Any = {"parts": where} if isinstance(where, int) else {"positions": list(where)}
    return _weft.op(name)(x, **chosen, **axis)


def tensor_split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]:
    """So many nearly equal parts along the axis, or the parts before and between positions."""
    return _cut("tensor_split", x, indices_or_sections, axis=axis if dim is None else dim)


def hsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 1 (of one axis: axis 0), or the parts before and between positions."""
    return _cut("hsplit", x, indices_or_sections)


def vsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 0, or the parts before and between positions."""
    return _cut("vsplit", x, indices_or_sections)


def dsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Equal parts along axis 2, or the parts before and between positions."""
    return _cut("dsplit", x, indices_or_sections)


def size(x: Tensor, axis: int | None = None) -> int:
    """Number of elements, or the extent of an axis."""
    return x.size if axis is None else x.shape[axis]


# ---- Gradients -----------------------------------------------------------------------------------------------------------


def default_device() -> _weft.device:
    """The device that new tensors are made on."""
    return _weft._default_device()


def set_default_device(device: DeviceLike) -> None:
    """Until it is called: WEFT_DEVICE, else the CPU."""
    _weft._set_default_device(device)


# Names of the array-API standard for what the table calls otherwise.


def bitwise_invert(x: ArrayLike) -> Tensor:
    """~x, bit by bit, or of a bool its opposite."""
    return _weft.op("bitwise_not")(x)


def permute_dims(x: ArrayLike, axes: Sequence[int]) -> Tensor:
    """The axes in another order."""
    return _weft.op("permute")(x, tuple(axes))


def matrix_transpose(x: ArrayLike) -> Tensor:
    """The last two axes swapped."""
    return _weft.op("transpose")(x)


def tensordot(x: ArrayLike, y: ArrayLike, axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products summed over axes of both: the last `axes` of x with the first of y, or the two lists of axes."""
    given: Tensor = _weft._tensor(x, None, None, True)
    if isinstance(axes, int):
        first, second = list(builtins.range(given.ndim - axes, given.ndim)), list(builtins.range(axes))
    else:
        first, second = ([each] if isinstance(each, int) else list(each) for each in axes)
    return _weft.op("tensordot")(given, y, first, second)


def take(x: ArrayLike, indices: ArrayLike, axis: int | None = None) -> Tensor:
    """Elements by place along an axis; without one, along the flattened tensor."""
    return _weft.op("take")(x, indices) if axis is None else _weft.op("index_select")(x, indices, axis)


def empty_like(x: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros: tensors never change, so there is nothing to fill in later."""
    return _weft.op("zeros_like")(x) if dtype is None else _weft.op("cast")(_weft.op("zeros_like")(x), dtype)


def register_kernel(name: str, inputs: Sequence[str], shape: Callable[..., Any], *,
                    cpu: Callable[..., None] | None = None, wgsl: str = "", workgroups: str = "", workgroup_size: int = 64,
                    gradient: Callable[..., Any] | None = None, attributes: Sequence[tuple[str, float]] = (),
                    doc: str = "") -> Callable[..., Any]:
    """Adds an op with kernels of your own; docs/add-an-op.md describes the WGSL.

    shape(inputs, attributes)                    pairs (dtype, shape) of the inputs -> those of the results
    cpu(inputs, outputs, attributes)             NumPy arrays; writes the outputs, which are uninitialised
    gradient(inputs, outputs, gradients, attributes)  tensors -> a gradient or None for each input
    """
    def kernel(given: list[Any], wanted: list[Any], values: dict[str, float]) -> None:
        import numpy

        assert cpu is not None
        cpu([numpy.asarray(each) for each in given], [numpy.asarray(each) for each in wanted], values)

    _weft._register_kernel(name, list(inputs), shape, kernel if cpu is not None else None, wgsl, workgroups, workgroup_size,
                           gradient, list(attributes), doc)
    function = _weft.op(name)

    def call(*tensors: ArrayLike, **values: float) -> Any:
        results = function(*tensors, **values)
        return results[0] if isinstance(results, tuple) and len(results) == 1 else results

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


# ---- Forms of PyTorch and NumPy that the table has under other names ------------------------------------------------------


def _given(x: ArrayLike) -> Tensor:
    """A tensor as the object that it is, so that views know what they are of."""
    return x if isinstance(x, Tensor) else _weft._tensor(x, None, None, True)


def squeeze(x: ArrayLike, axis: int | Sequence[int] | None = None, *, dim: int | Sequence[int] | None = None) -> Tensor:
    """Without axes of one element: all of them, or those that are named, which must have one."""
    given = _given(x)
    axis = dim if axis is None else axis
    if axis is None:
        return given.reshape(tuple(n for n in given.shape if n != 1)) if 1 in given.shape else given
    op = _weft.op("squeeze")
    if isinstance(axis, int):
        return op(given, axis)
    named = sorted(each % given.ndim if -given.ndim <= each < given.ndim else each for each in axis)
    for each in reversed(named):
        given = op(given, each)
    return given


def t(x: ArrayLike) -> Tensor:
    """The transpose of a matrix; a vector or a scalar as it is."""
    given = _given(x)
    if given.ndim > 2:
        raise _weft.ShapeError(f"t: x {list(given.shape)} has more than two axes; use permute or transpose")
    return given.transpose(0, 1) if given.ndim == 2 else given


def ravel(x: ArrayLike) -> Tensor:
    """The elements in one axis, row-major."""
    return _weft.op("reshape")(x, (-1,))


def expand(x: ArrayLike, *shape: int | Sequence[int]) -> Tensor:
    """x with axes of one element repeated, and new axes before; -1 keeps an extent."""
    given: Tensor = _weft._tensor(x, None, None, True)
    wanted = list(shape) if all(isinstance(each, int) for each in shape) else list(shape[0])  # type: ignore[arg-type]
    before = len(wanted) - given.ndim
    kept = [given.shape[i - before] if n == -1 and i >= before >= 0 else n for i, n in enumerate(wanted)]
    return _weft.op("expand")(given, kept)


def zeros_like(x: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros of the shape of x, and of its dtype unless another is given."""
    return _like("zeros_like", x, dtype)


def ones_like(x: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """Ones of the shape of x, and of its dtype unless another is given."""
    return _like("ones_like", x, dtype)


def full_like(x: ArrayLike, value: float, dtype: DTypeLike | None = None) -> Tensor:
    """One number everywhere in the shape of x, of its dtype unless another is given."""
    return _like("full_like", x, dtype, value)


def _like(name: str, x: ArrayLike, dtype: DTypeLike | None, *value: float) -> Tensor:
    given: Tensor = _weft._tensor(x, None, None, True)
    return _weft.op(name)(given if dtype is None else _weft.op("cast")(given, dtype), *value)


def clamp(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:  # noqa: A002
    """max(min, x), then min(max, that). Bounds are numbers or tensors that broadcast with x; None is no bound. Gradient: that of
    the result where x is within the bounds."""
    if isinstance(min, (int, float, type(None))) and isinstance(max, (int, float, type(None))):
        bounds: dict[str, Any] = {name: bound for name, bound in (("min", min), ("max", max)) if bound is not None}
        return _weft.op("clamp")(x, **bounds)
    given: Any = x
    if min is not None:
        given = _weft.op("maximum")(given, min)
    return given if max is None else _weft.op("minimum")(given, max)


clip = clamp


def scatter_add(x: Any, *arguments: Any, **named: Any) -> Tensor:
    """scatter_add(x, axis, indices, updates): x with updates added at their indices along an axis, as in PyTorch.
    scatter_add(indices, updates, rows): the sum of the rows of updates that have the same index, in `rows` rows."""
    names = dict(zip(("axis", "indices", "updates"), arguments))
    for name, value in named.items():
        names[{"dim": "axis", "index": "indices", "src": "updates"}.get(name, name)] = value
    if len(arguments) + len(named) == 3 and set(names) == {"axis", "indices", "updates"}:
        return _weft.op("scatter_reduce")(x, names["axis"], names["indices"], names["updates"], "sum")
    return _weft.op("scatter_add")(x, *arguments, **named)


def scatter(x: ArrayLike, *arguments: Any, **named: Any) -> Tensor:
    """scatter(x, axis, indices, updates): x with updates at their indices along an axis. Updates may be one number."""
    names = dict(zip(("axis", "indices", "updates"), arguments))
    for name, value in named.items():
        names[{"dim": "axis", "index": "indices", "src": "updates", "value": "updates"}.get(name, name)] = value
    if isinstance(names.get("updates"), (builtins.bool, builtins.int, builtins.float)) and isinstance(names.get("indices"), Tensor):
        given = _given(x)
        names["updates"] = _weft.op("full")(names["indices"].shape, names["updates"], dtype=given.dtype, device=given.device)
    return _weft.op("scatter")(x, **names)


# ---- Methods of Tensor ---------------------------------------------------------------------------------------------------


def _iterate(self: Tensor) -> Iterator[Tensor]:
    return (self[i] for i in builtins.range(len(self)))


def _repr(self: Tensor) -> str:
    if _weft.is_tracing():
        return f"<{type(self).__name__} {self.dtype.name} {list(self.shape)} while it is compiled>"
    text = self._text()
    return f"{type(self).__name__} {self.name!r} {text}" if isinstance(self, Variable) and self.name else text


def _format(self: Tensor, spec: str) -> str:
    return format(self.item(), spec) if spec else _repr(self)


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = to_numpy(self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _dlpack(self: Tensor, *, stream: object = None, max_version: tuple[int, int] | None = None,
            dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
    if stream is not None:
        raise BufferError("the CPU has no streams")
    if dl_device is not None and tuple(dl_device) != (1, 0):
        raise BufferError("tensors are exported to the CPU only, device (1, 0)")
    x = self
    if copy:  # a value of its own
        x = tensor(to_numpy(self))
    return x._dlpack(max_version is not None and max_version[0] >= 1)


def _tolist(self: Tensor) -> Any:
    if self.ndim == 0:
        return self.item()
    wide = self if self.dtype.name not in ("bf16",) and _numpy_has(self) else self.astype("f32")
    return to_numpy(wide).tolist()


def _numpy_has(self: Tensor) -> bool:
    return self.dtype.name in {"f32", "f64", "f16", "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}


def _to(self: Tensor, *targets: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None, non_blocking: bool = False,
        copy: bool = False) -> Tensor:
    for each in targets:
        if isinstance(each, Tensor):
            dtype, device = each.dtype, each.device
            continue
        if isinstance(each, builtins.bool):  # non_blocking
            continue
        try:
            dtype = _weft.dtype(each)
        except TypeError:
            device = each
    x = self if device is None or self.device == device else self._to_device(device)
    x = x._value() if copy else x
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def _reduce(self: Tensor) -> Any:
    name = self.dtype.name
    plain = self if _numpy_has(self) else self.astype("f32")
    array = to_numpy(plain)
    if isinstance(self, Variable):
        return _restore_variable, (array.tobytes(), str(array.dtype), self.shape, name, self.name, self.requires_grad)
    return _restore, (array.tobytes(), str(array.dtype), self.shape, name)


def _restore(data: bytes, numpy_type: str, shape: tuple[int, ...], name: str) -> Tensor:
    import numpy

    return tensor(numpy.frombuffer(data, numpy_type).reshape(shape), dtype=name)


def _restore_variable(data: bytes, numpy_type: str, shape: tuple[int, ...], name: str, label: str, requires_grad: bool) -> Tensor:
    return Variable(_restore(data, numpy_type, shape, name), label, requires_grad)


def _html(self: Tensor) -> str:
    """A table for notebooks."""
    head = f"{self.dtype.name} {list(self.shape)} on {self.device}"
    if self.ndim not in (1, 2) or self.size == 0 or not (_numpy_has(self) or self.dtype.name == "bf16"):
        return f"<pre>{html.escape(_repr(self))}</pre>"
    rows = self if self.ndim == 2 else self[None]
    high, wide = rows.shape
    down = list(builtins.range(high)) if high <= 20 else [*builtins.range(10), None, *builtins.range(high - 10, high)]
    across = list(builtins.range(wide)) if wide <= 12 else [*builtins.range(6), None, *builtins.range(wide - 6, wide)]
    values = _tolist(rows)
    lines = []
    for i in down:
        cells = ("&hellip;" if i is None or j is None else html.escape(f"{values[i][j]:.6g}"
                 if isinstance(values[i][j], float) else str(values[i][j])) for j in across)
        lines.append("<tr>" + "".join(f"<td style='text-align:right'>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table><small>{html.escape(head)}</small>"


def _divmod(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    return self // other, self % other


def _array_function(self: Tensor, function: Callable[..., Any], types: Any, arguments: Any, named: Any) -> Any:
    """Functions of NumPy get arrays, and give what they give for these. Those of the shape do not compute the elements."""
    if function.__name__ in ("shape", "ndim") and not named and len(arguments) == 1:
        return getattr(arguments[0], function.__name__)

    def arrays(value: Any) -> Any:
        if isinstance(value, Tensor):
            return to_numpy(value)
        if type(value) in (list, tuple):
            return type(value)(arrays(each) for each in value)
        return {key: arrays(each) for key, each in value.items()} if type(value) is dict else value

    return function(*arrays(arguments), **arrays(named))


def _requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Whether backward() leaves a gradient on it. A tensor becomes a Variable, without what it was made from."""
    if requires_grad or self._is_variable:
        self._become_variable()
        _native_requires_grad.fset(self, requires_grad)
    return self


_native_requires_grad: Any = Tensor.requires_grad


def _set_requires_grad(self: Tensor, on: bool) -> None:
    _requires_grad_(self, on)


def norm(x: ArrayLike, p: float | str | None = "fro", dim: int | Sequence[int] | None = None, keepdim: bool = False, *,
         axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """(sum |x_i|^p)^(1/p) over a dim, or over all elements. p may be inf; "fro" is 2."""
    order = 2.0 if p in ("fro", None) else math.inf if p == "inf" else p
    along = dim if axis is None else axis
    return _weft.op("vector_norm")(x, order, () if along is None else along, keepdim or keepdims)


def _cuda(self: Tensor, device: object = None) -> Tensor:
    raise UsageError('cuda: Weft reaches GPUs through WebGPU; write x.to("webgpu")')


def _type(self: Tensor, dtype: DTypeLike | None = None) -> Any:
    """The tensor in a dtype; without one, PyTorch's name of its type."""
    if dtype is None:
        names = {"f32": "Float", "f64": "Double", "f16": "Half", "bf16": "BFloat16", "i64": "Long", "i32": "Int", "i16": "Short", "i8": "Char", "u8": "Byte",
                 "bool": "Bool"}
        return f"weft.{names.get(self.dtype.name, self.dtype.name)}Tensor"
    return self.astype(dtype)


class Size(tuple[int, ...]):
    """A shape."""

    def numel(self) -> int:
        return math.prod(self)


class _Count(int):
    """x.size: the number of elements, as NumPy has it. Called, x.size() and x.size(dim), the shape and an extent, as PyTorch has it."""

    _shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return Size(self._shape) if dim is None else self._shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _size(self: Tensor) -> _Count:
    count = _Count(math.prod(self.shape))
    count._shape = self.shape
    return count



def _install() -> None:
    methods: dict[str, Any] = {
        "__iter__": _iterate, "__repr__": _repr, "__str__": _repr, "__format__": _format, "__array__": _array,
        "__dlpack__": _dlpack, "numpy": lambda self: to_numpy(self), "tolist": _tolist, "to": _to, "__reduce__": _reduce,
        "_repr_html_": _html, "requires_grad_": _requires_grad_, "size": property(_size), "type": _type, "cuda": _cuda, "norm": norm,
        "requires_grad": property(lambda self: _native_requires_grad.fget(self), lambda self, on: _set_requires_grad(self, on)),
        "is_cuda": property(lambda self: False), "split": split, "tensor_split": tensor_split, "hsplit": hsplit, "vsplit": vsplit, "dsplit": dsplit, "take": take, "max": max, "min": min, "round": round,
        "squeeze": squeeze, "t": t, "ravel": ravel, "expand": expand, "clamp": clamp, "clip": clip, "scatter_add": scatter_add, "scatter": scatter,
        "contiguous": lambda self: self, "__divmod__": _divmod, "__rdivmod__": lambda self, other: (other // self, other % self),
        "__array_function__": _array_function, "itemsize": property(lambda self: self.dtype.itemsize),
        "__array_priority__": 1000, "__round__": round, "__copy__": _value, "clone": _value,
        "float": lambda self: self.astype("f32"), "double": lambda self: self.astype("f64"),
        "half": lambda self: self.astype("f16"), "bfloat16": lambda self: self.astype("bf16"),
        "int": lambda self: self.astype("i32"), "long": lambda self: self.astype("i64"), "bool": lambda self: self.astype("bool"),
        "cpu": lambda self: self._to_device("cpu"), "dim": lambda self: self.ndim,
        "__contains__": lambda self, item: bool((self == item).any()),
        "__hash__": Tensor.__hash__,
    }
    for name, method in methods.items():
        if callable(method) and getattr(method, "__name__", "") == "<lambda>":
            method.__name__ = method.__qualname__ = name
        setattr(Tensor, name, method)


def _value(self: Tensor, memory_format: object = None) -> Tensor:
    """Another tensor of the same value, which changes of this one leave alone."""
    return self._value()


def _restore_device(name: str) -> _weft.device:
    return _weft.device(name)


copyreg.pickle(_weft.device, lambda device: (_restore_device, (str(device),)))  # type: ignore[arg-type]

_install()
__all__ = ["DTypeError"]
