"""What PyTorch has under names of its own, as functions and as methods of Tensor. Complex numbers are left out, so that `real` and
`adjoint` are what they are for real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _weft
from ._changes import check_changeable, replace
from ._tensor import clamp, scatter, scatter_add, split, tensor
from ._transforms import no_grad
from ._types import ArrayLike, DTypeLike, Operand
from ._weft import DTypeError, ShapeError, Tensor, UsageError, Variable

_op: Any = _weft.op


def is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


def is_floating_point(x: Tensor) -> bool:
    return x.dtype.is_floating_point


def is_same_size(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape


def is_nonzero(x: Tensor) -> bool:
    """Whether the only element is not 0."""
    if x.size != 1:
        raise UsageError(f"is_nonzero: x {list(x.shape)} has {x.size} elements; it must have one")
    return bool(x.item() != 0)


def numel(x: Tensor) -> int:
    return x.size


def clone(x: Tensor) -> Tensor:
    """Another tensor of the same value, which changes of x leave alone."""
    return x._value()


def as_tensor(data: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """As tensor(), but a tensor of that dtype stays itself."""
    return data.to(data.dtype if dtype is None else dtype) if isinstance(data, Tensor) else tensor(data, dtype=dtype)


def scalar_tensor(value: float, dtype: DTypeLike = "f32") -> Tensor:
    return tensor(value, dtype=dtype)


def isposinf(x: Operand) -> Tensor:
    """x == inf."""
    return _op("equal")(x, math.inf)


def isneginf(x: Operand) -> Tensor:
    """x == -inf."""
    return _op("equal")(x, -math.inf)


def isreal(x: Tensor) -> Tensor:
    """True for every element."""
    return _op("ones")(x.shape, dtype="bool", device=x.device)


def real(x: Tensor) -> Tensor:
    """x itself."""
    return x


def sgn(x: Operand) -> Tensor:
    """sign(x)."""
    return _op("sign")(x)


def adjoint(x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    return _op("transpose")(x)


def swapdims(x: Tensor, dim0: int, dim1: int) -> Tensor:
    return _op("transpose")(x, dim0, dim1)


def pinverse(x: Tensor, rcond: float = 1e-15) -> Tensor:
    """pinv(x)."""
    return _op("pinv")(x, rcond)


def rsub(x: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """other - alpha * x."""
    return other - x * alpha


def clamp_min(x: Tensor, min: ArrayLike) -> Tensor:
    return clamp(x, min)


def clamp_max(x: Tensor, max: ArrayLike) -> Tensor:
    return clamp(x, None, max)


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """take_along_axis(); without dim of all elements in order."""
    if dim is None:
        return _op("take_along_axis")(x.reshape((x.size,)), indices.reshape((indices.size,)), 0)
    return _op("take_along_axis")(x, indices, dim)


def row_stack(tensors: Sequence[Tensor]) -> Tensor:
    """vstack(tensors)."""
    return _op("vstack")(list(tensors))


def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    return split(x, list(split_sizes), dim)


def randint_like(x: Tensor, low: int, high: int | None = None) -> Tensor:
    """Integers from [low, high), or [0, low), in the shape and dtype of x."""
    low, high = (0, low) if high is None else (low, high)
    return _op("randint")(low, high, x.shape).to(x.dtype)


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape that tensors of these shapes have together."""
    lists = [(each,) if isinstance(each, int) else tuple(each) for each in shapes]
    rank = max((len(each) for each in lists), default=0)
    result = [1] * rank
    for each in lists:
        for i, extent in enumerate(each, rank - len(each)):
            if extent != 1 and result[i] not in (1, extent):
                raise ShapeError(f"broadcast_shapes: {', '.join(str(list(s)) for s in lists)} do not fit each other at axis {i}")
            result[i] = extent if extent != 1 else result[i]
    return tuple(result)


def _sum_to_size(self: Tensor, *size: int | Sequence[int]) -> Tensor:
    """The sum over the axes that broadcasting from `size` to this shape would add or repeat."""
    given: Any = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    shape = tuple(int(n) for n in given)
    if broadcast_shapes(shape, self.shape) != self.shape:
        raise ShapeError(f"sum_to_size: {list(shape)} does not broadcast to {list(self.shape)}")
    first = self.ndim - len(shape)
    axes = [i for i in range(self.ndim) if i < first or (shape[i - first] == 1 and self.shape[i] != 1)]
    return (_op("sum")(self, axes, True) if axes else self).reshape(shape)


def _new(make: str) -> Callable[..., Tensor]:
    def new(self: Tensor, *size: Any, dtype: DTypeLike | None = None) -> Tensor:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return _op(make)(tuple(shape), dtype=dtype or self.dtype.name, device=self.device)
    return new


def _new_full(self: Tensor, size: Sequence[int], fill_value: float, dtype: DTypeLike | None = None) -> Tensor:
    return _op("full")(tuple(size), fill_value, dtype=dtype or self.dtype.name, device=self.device)


def _data(self: Tensor) -> Tensor:
    """The value without its gradient. What changes it changes x too."""
    return _op("detach")(self)


def _set_data(self: Tensor, value: ArrayLike) -> None:
    new = as_tensor(value)
    if self._is_variable and (new.shape != self.shape or new.dtype != self.dtype or new.device != self.device):
        self._set_variable(new)
    else:
        self._set(new)


FUNCTIONS: list[Callable[..., Any]] = [
    is_tensor, is_floating_point, is_same_size, is_nonzero, numel, clone, as_tensor, scalar_tensor, isposinf, isneginf, isreal, real, sgn, adjoint, swapdims,
    pinverse, rsub, clamp_min, clamp_max, take_along_dim, row_stack, split_with_sizes, randint_like, broadcast_shapes]
_METHODS: dict[str, Any] = {
    **{function.__name__: function for function in FUNCTIONS
       if function.__name__ not in ("is_tensor", "as_tensor", "scalar_tensor", "row_stack", "broadcast_shapes", "real", "rsub", "clone")},
    "nelement": numel, "ndimension": lambda self: self.ndim, "element_size": lambda self: self.dtype.itemsize, "byte": lambda self: self.astype("u8"),
    "char": lambda self: self.astype("i8"), "short": lambda self: self.astype("i16"), "type_as": lambda self, other: self.to(other.dtype),
    "where": lambda self, condition, other: _op("where")(condition, self, other), "is_contiguous": lambda self: True,
    "expand_as": lambda self, other: _op("broadcast_to")(self, other.shape), "view_as": lambda self, other: self.reshape(other.shape),
    "reshape_as": lambda self, other: self.reshape(other.shape), "sum_to_size": _sum_to_size, "new_zeros": _new("zeros"), "new_ones": _new("ones"),
    "new_empty": _new("zeros"), "new_full": _new_full, "new_tensor": lambda self, data: tensor(data, dtype=self.dtype),
    "register_hook": lambda self, hook: _weft.register_hook(self, hook), "real": property(real), "H": property(adjoint), "mH": property(adjoint),
    "data": property(_data, _set_data), "is_leaf": property(lambda self: self._is_variable)}


# ---- Methods that end in _. The object gets another value.


def _in_place(name: str, method: Callable[..., Any]) -> Callable[..., Tensor]:
    def change(self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        value = method(self._value(), *arguments, **named)
        if value.shape != self.shape:
            raise ShapeError(f"{name}_: the result {list(value.shape)} is larger than x {list(self.shape)}, which is changed in place")
        if value.dtype != self.dtype:
            if value.dtype.is_floating_point and not self.dtype.is_floating_point:
                raise DTypeError(f"{name}_: the result is {value.dtype.name}, and x, which is changed in place, {self.dtype.name}; "
                                 f"write x = x.{name}(...), or cast x")
            value = value.to(self.dtype)
        if self._is_variable:  # an assignment, without a gradient
            with no_grad():
                self._set(value)
        else:
            check_changeable(self)
            replace(self, value)
        return self

    change.__name__ = change.__qualname__ = f"{name}_"
    change.__doc__ = f"Gives x the value of x.{name}(...), and returns x."
    return change


def _added(x: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return x + (other if alpha == 1 else other * alpha)


def _subtracted(x: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return x - (other if alpha == 1 else other * alpha)


def _copied(x: Tensor, other: Tensor) -> Tensor:
    return _op("broadcast_to")(other.to(x.dtype), x.shape)


def _filled(x: Tensor, value: float) -> Tensor:
    return _op("full")(x.shape, value, dtype=x.dtype, device=x.device)


def _diagonal_filled(x: Tensor, value: float) -> Tensor:
    if x.ndim != 2:
        raise ShapeError(f"fill_diagonal_: x {list(x.shape)} is not a matrix")
    return _op("where")(_op("eye")(x.shape[0], x.shape[1]) == 1, value, x)


def _drawn(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *arguments, **named: draw(x, *arguments, **named).to(x.dtype)


_OF_VARIABLES: dict[str, Callable[..., Tensor]] = {
    "add": _added, "sub": _subtracted, "mul": lambda x, y: x * y, "div": lambda x, y: x / y, "pow": lambda x, y: x ** y, "copy": _copied, "fill": _filled,
    "zero": lambda x: _filled(x, 0), "clamp": clamp, "clip": clamp, "clamp_min": clamp_min, "clamp_max": clamp_max,
    "uniform": _drawn(lambda x, low=0.0, high=1.0: _op("rand")(x.shape) * (high - low) + low),
    "normal": _drawn(lambda x, mean=0.0, std=1.0: _op("randn")(x.shape) * std + mean),
    **{name: (lambda function: lambda x, *arguments, **named: function(x, *arguments, **named))(_op(name)) for name in (
        "abs", "ceil", "cos", "exp", "floor", "log", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tanh", "trunc",
        "lerp", "masked_fill", "addcmul", "addcdiv", "index_fill", "index_add", "index_copy", "tril", "triu", "nan_to_num", "erf", "expm1",
        "log1p", "remainder", "maximum", "minimum", "scatter_reduce", "round", "bitwise_not", "logical_not", "cumsum", "square", "index_put",
        "masked_scatter")},
    "detach": lambda x: x, "scatter": scatter, "scatter_add": scatter_add, "fill_diagonal": _diagonal_filled, "exponential": _drawn(lambda x, lambd=1.0: _op("exponential")(x.shape, lambd)),
    "bernoulli": _drawn(lambda x, p=0.5: _op("bernoulli")(_op("full")(x.shape, p)))}
IN_PLACE = [f"{name}_" for name in _OF_VARIABLES]


def _install() -> None:
    for name, method in _METHODS.items():
        if not hasattr(Tensor, name):
            if callable(method) and getattr(method, "__name__", "") in ("<lambda>", "new"):
                method.__name__ = method.__qualname__ = name
            setattr(Tensor, name, method)
    for name, function in _OF_VARIABLES.items():
        if not hasattr(Tensor, f"{name}_"):
            setattr(Tensor, f"{name}_", _in_place(name, function))


_install()
__all__ = [function.__name__ for function in FUNCTIONS]
