"""Making tensors, gradients, and the methods of Tensor that are written in Python."""

from __future__ import annotations

import builtins
import functools
import html
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from . import _ops, _weft
from ._types import ArrayLike, DeviceLike, DTypeLike
from ._weft import DTypeError, Tensor, Variable

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def tensor(data: ArrayLike, dtype: DTypeLike | None = ..., device: DeviceLike | None = ...) -> Tensor: ...
@overload
def tensor(data: ArrayLike, dtype: DTypeLike | None = ..., device: DeviceLike | None = ..., *, requires_grad: bool) -> Tensor: ...
def tensor(data: ArrayLike, dtype: DTypeLike | None = None, device: DeviceLike | None = None, *,
           requires_grad: bool = False) -> Tensor:
    """A tensor of numbers, nested lists or an array, whose elements are copied. Python's floats become f32, its integers i32, or
    i64 if they do not fit. With requires_grad it is a Variable."""
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
    zeros: Any = _ops.zeros
    return zeros(*shape, dtype=dtype, device=device)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None,
           device: DeviceLike | None = None) -> Tensor:
    """start, start + step, ... before stop; arange(n) counts from 0. Whole numbers give i32, others f32."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = "i32" if all(isinstance(each, int) for each in (start, stop, step)) else "f32"
    return _ops.range(start, stop, step, dtype=dtype, device=device)


def _extreme(name: str, positions: str) -> Callable[..., Any]:
    reduce, arg, pair = _weft.op(name), _weft.op(positions), _weft.op("maximum" if name == "amax" else "minimum")

    def extreme(x: ArrayLike, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tensor:
        if isinstance(axis, Tensor) or hasattr(type(axis), "__array_interface__"):
            return pair(x, axis)
        axis = dim if axis is None else axis
        return reduce(x, () if axis is None else axis, keepdims or keepdim)

    extreme.__doc__ = f"The {'largest' if name == 'amax' else 'smallest'} elements along axes, or of two tensors, element by element. {arg.__name__} gives their positions."
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


def size(x: Tensor, axis: int | None = None) -> int:
    """Number of elements, or the extent of an axis."""
    return x.size if axis is None else x.shape[axis]


# ---- Gradients -----------------------------------------------------------------------------------------------------------


@overload
def grad(output: Tensor, inputs: Tensor, seed: Tensor | None = ...) -> Tensor: ...
@overload
def grad(output: Tensor, inputs: Sequence[Tensor], seed: Tensor | None = ...) -> list[Tensor]: ...
@overload
def grad(output: Callable[..., Tensor], inputs: int = ..., seed: None = ...) -> Callable[..., Tensor]: ...
def grad(output: Any, inputs: Any = 0, seed: Tensor | None = None) -> Any:
    """d sum(seed * output) / d input: of a value, for one input or a list of them, or for all parameters of a module. Of a
    function: the function that gives its gradient for its argument number `inputs`."""
    if callable(output) and not isinstance(output, Tensor):
        def gradient(*arguments: Any) -> Tensor:
            return value_and_grad(output, inputs)(*arguments)[1]
        return functools.wraps(output)(gradient) if hasattr(output, "__name__") else gradient
    if isinstance(inputs, Tensor):
        return _weft._grad(output, [inputs], seed)[0]
    if hasattr(inputs, "named_parameters"):
        inputs = inputs.parameters()
    return _weft._grad(output, list(inputs), seed)


def value_and_grad(function: Callable[..., Tensor], argument: int = 0) -> Callable[..., tuple[Tensor, Tensor]]:
    """The function that gives a function's value and its gradient for one argument."""

    def both(*arguments: Any) -> tuple[Tensor, Tensor]:
        given = list(arguments)
        x = given[argument] if isinstance(given[argument], Tensor) else tensor(given[argument])
        given[argument] = x = x.value if isinstance(x, Variable) else x
        y = function(*given)
        return y, _weft._grad(y, [x], None)[0]

    return both


def backward(output: Tensor, seed: Tensor | None = None) -> None:
    """Adds the gradient of the output to .grad of every Variable that requires one and that it was made from."""
    output.backward(seed)


class _Scope:
    """A context manager that is a decorator too."""

    def _make(self) -> Any:
        raise NotImplementedError

    def __enter__(self) -> _Scope:
        self._inside = getattr(self, "_inside", [])
        entered = self._make()
        entered.__enter__()
        self._inside.append(entered)
        return self

    def __exit__(self, *error: object) -> None:
        self._inside.pop().__exit__(*error)

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def inside(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)
        return inside  # type: ignore[return-value]


class no_grad(_Scope):
    """No gradient flows through what is made inside, and Variables may be changed in place."""

    def _make(self) -> Any:
        return _weft._NoGrad()


class enable_grad(_Scope):
    """Does nothing: gradients flow unless a no_grad() is around."""

    def _make(self) -> Any:
        import contextlib

        return contextlib.nullcontext()


class autocast(_Scope):
    """Products and attention compute in f16 or bf16, sums and norms in f32."""

    def __init__(self, dtype: DTypeLike = "bf16") -> None:
        self.dtype = _weft.dtype(dtype)

    def _make(self) -> Any:
        return _weft._Autocast(self.dtype)


def default_device() -> _weft.device:
    """The device that new tensors are made on."""
    return _weft._default_device()


def set_default_device(device: DeviceLike) -> None:
    """Until it is called: WEFT_DEVICE, else the CPU."""
    _weft._set_default_device(device)


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


def _to(self: Tensor, *targets: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    for each in targets:
        try:
            dtype = _weft.dtype(each)
        except TypeError:
            device = each
    x = self if device is None else self._to_device(device)
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


def _requires_grad_(self: Tensor, on: bool = True) -> Tensor:
    if isinstance(self, Variable):
        self.requires_grad = on
        return self
    return Variable(self, requires_grad=on)



def _install() -> None:
    methods: dict[str, Any] = {
        "__iter__": _iterate, "__repr__": _repr, "__str__": _repr, "__format__": _format, "__array__": _array,
        "__dlpack__": _dlpack, "numpy": lambda self: to_numpy(self), "tolist": _tolist, "to": _to, "__reduce__": _reduce,
        "_repr_html_": _html, "requires_grad_": _requires_grad_, "split": split, "max": max, "min": min, "round": round,
        "__array_priority__": 1000, "__round__": round, "__copy__": lambda self: self, "clone": lambda self: _value(self),
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


def _value(self: Tensor) -> Tensor:
    return self.value if isinstance(self, Variable) else self


_install()
__all__ = ["DTypeError"]
