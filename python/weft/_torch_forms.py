"""Ops of the table whose arguments or results PyTorch and NumPy have in another form: as functions, and as methods of Tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _weft
from ._types import ArrayLike, Operand
from ._weft import Tensor, UsageError

_op: Any = _weft.op


def where(condition: ArrayLike, x: Operand | None = None, y: Operand | None = None, *, input: Operand | None = None,  # noqa: A002
          other: Operand | None = None) -> Any:
    """x where the condition holds, else y. Without x and y: nonzero(condition, as_tuple=True)."""
    x, y = x if input is None else input, y if other is None else other
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise TypeError("where() takes a condition alone, or with two values")
    return _op("where")(condition, x, y)


def nonzero(x: ArrayLike, size: int = -1, *, as_tuple: bool = False) -> Any:
    """The places of elements that are not 0: [n, rank], or with as_tuple one vector for each axis. `size` fixes n inside
    weft.compile."""
    places: Tensor = _op("nonzero")(x, size)
    return tuple(places[:, i] for i in range(places.shape[1])) if as_tuple else places


def _spread(name: str) -> Callable[..., Any]:
    function = _op(name)

    def spread(x: ArrayLike, *arguments: Any, unbiased: bool | None = None, **named: Any) -> Any:
        given = list(arguments)
        if given and isinstance(given[0], bool):  # var(unbiased)
            unbiased = given.pop(0)
        elif len(given) > 1 and isinstance(given[1], bool) and (len(given) == 3 or "keepdim" in named or "keepdims" in named):
            unbiased = given.pop(1)  # var(dim, unbiased, keepdim)
        if unbiased is not None:
            if "correction" in named:
                raise TypeError(f"{name}() takes unbiased or correction, not both")
            named["correction"] = int(unbiased)
        if len(given) > 1 and isinstance(given[1], bool):  # var(dim, keepdim)
            named["keepdims"] = given.pop(1)
        return function(x, *given, **named)

    spread.__name__ = spread.__qualname__ = name
    spread.__doc__ = f"{function.__doc__}\n\nunbiased=False is correction=0."
    return spread


var, std, var_mean, std_mean = _spread("var"), _spread("std"), _spread("var_mean"), _spread("std_mean")


def _middle(name: str) -> Callable[..., Any]:
    function = _op(name)

    def middle(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False) -> Any:
        along = dim if axis is None else axis
        if along is None:
            return function(_op("reshape")(x, (-1,)), 0).values
        return function(x, along, keepdim or keepdims)

    middle.__name__ = middle.__qualname__ = name
    middle.__doc__ = f"{function.__doc__}\n\nAlong an axis a pair, .values and .indices; without one the value over all elements."
    return middle


median, nanmedian = _middle("median"), _middle("nanmedian")


def unique(x: ArrayLike, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *,  # noqa: A002
           axis: int | None = None, size: int = -1) -> Any:
    """The elements that differ, in ascending order, or with an axis the parts along it; as asked for also the index of each element's
    value, and how often each is there. `size` fixes their number inside weft.compile."""
    along = dim if axis is None else axis
    results = _op("unique")(x, size, along) if along is not None else _op("unique")(x, size)
    return _asked(results, return_inverse, return_counts)


def unique_consecutive(x: ArrayLike, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, axis: int | None = None,
                       size: int = -1) -> Any:
    """The same of neighbours only, in their order."""
    along = dim if axis is None else axis
    results = _op("unique_consecutive")(x, size, along) if along is not None else _op("unique_consecutive")(x, size)
    return _asked(results, return_inverse, return_counts)


def _asked(results: tuple[Tensor, ...], inverse: bool, counts: bool) -> Any:
    values, places, numbers = results
    found = (values, *((places,) if inverse else ()), *((numbers,) if counts else ()))
    return found if len(found) > 1 else values


def meshgrid(*coordinates: Any, indexing: str = "ij", xy: bool = False) -> tuple[Tensor, ...]:
    """The coordinates of a grid. indexing "ij": the first axis is that of the first input; "xy": the second."""
    if indexing not in ("ij", "xy"):
        raise UsageError(f'meshgrid: indexing is {indexing!r}; it must be "ij" or "xy"')
    given: Sequence[Any] = coordinates[0] if len(coordinates) == 1 and isinstance(coordinates[0], (list, tuple)) else coordinates
    return tuple(_op("meshgrid")(*given, xy=xy or indexing == "xy"))


def _retain_grad(self: Tensor) -> None:
    if not self._is_variable:
        raise UsageError("retain_grad: only Variables keep gradients; use weft.autograd.grad(loss, x), or weft.with_gradient_hook")


def _install() -> None:
    for function in (nonzero, var, std, var_mean, std_mean, median, nanmedian, unique, unique_consecutive):
        setattr(Tensor, function.__name__, function)
    setattr(Tensor, "retain_grad", _retain_grad)


_install()
