"""Changes in place. A value never changes: what changes is which value a Tensor object has. A view is another object that remembers
what it shows of which tensor, so a change of the view changes that tensor too; views that were made before a change keep the old
elements."""

from __future__ import annotations

import weakref
from typing import Any

from . import _weft
from ._types import ArrayLike
from ._weft import ShapeError, Tensor, UsageError

_op: Any = _weft.op
# Ops that only rename elements: the values of the view are those of the whole.
_WHOLE = {"reshape", "detach", "squeeze", "unsqueeze", "flatten", "unflatten"}


def _numbered(x: Tensor) -> Tensor:
    """1, 2, ... in the shape of x. An index outside of an axis reads 0."""
    return _op("reshape")(_op("range")(1, x.size + 1, 1, dtype="i32" if x.size < 2**31 - 1 else "i64", device=x.device), x.shape)


def _put(x: Tensor, numbers: Tensor, value: Tensor) -> Tensor:
    return _op("put")(x, _op("where")(numbers == 0, x.size, numbers - 1), value)


def replace(x: Tensor, value: Tensor) -> None:
    """Gives x another value of its shape and dtype, and what x is a view of."""
    while True:
        origin = x._origin
        x._set(value)
        if origin is None:
            return
        kept, op, arguments, names, part = origin
        base = kept() if isinstance(kept, weakref.ref) else kept
        if base is None:
            return  # nobody sees it
        if arguments == "grad" and op is None:
            base.grad = value
            return
        if op is not None and op.__name__ in _WHOLE:
            value = _op("reshape")(value, base.shape)
        else:
            places = _numbered(base)
            places = places[arguments] if op is None else op(places, *arguments, **(names or {}))
            value = _put(base._value(), places if part < 0 else places[part], value)
        x = base


def check_changeable(x: Tensor) -> None:
    """UsageError for a Variable whose gradient would be lost."""
    if _weft.is_grad_enabled() and first_of(x).requires_grad:
        raise UsageError("a Variable that requires gradients is changed in place; do that under weft.no_grad(), through "
                         ".data, or compute another value: x = weft.where(mask, value, x)")


def first_of(x: Tensor) -> Any:
    """The object that x is a view of, through views of views, unless it is gone; through detach nothing is left to check."""
    while x._origin is not None:
        kept, op, arguments, _, _ = x._origin
        base = kept() if isinstance(kept, weakref.ref) else kept
        if base is None or arguments == "grad" or (op is not None and op.__name__ == "detach"):
            break
        x = base
    return x


def set_item(self: Tensor, key: Any, value: ArrayLike) -> None:
    """x[key] = value: numbers and tensors that broadcast, with the keys of x[key]. The gradient flows to x and to the value. Of
    places that a key names twice, the last wins."""
    check_changeable(self)
    old = self._value()
    new: Tensor = value._value() if isinstance(value, Tensor) else _weft._tensor(value, old.dtype, old.device, True)
    new = new.to(old.dtype)
    if new.device != old.device:
        new = new.to(old.device)
    if isinstance(key, Tensor) and key.dtype == "bool" and key.ndim <= old.ndim and new.size == 1:  # sizes need not be known
        if key.shape != old.shape[:key.ndim]:
            raise IndexError(f"a mask {list(key.shape)} does not fit {list(old.shape)}")
        mask = _op("reshape")(key, (*key.shape, *[1] * (old.ndim - key.ndim)))
        replace(self, _op("where")(mask, new.reshape(()), old))
        return
    places = _numbered(old)[key]
    while new.ndim > places.ndim and new.shape[0] == 1:
        new = new[0]
    if places.size == 0:
        return
    try:
        new = _op("broadcast_to")(new, places.shape)
    except ShapeError:
        raise ShapeError(f"a value {list(new.shape)} does not fit x[...] {list(places.shape)}") from None
    replace(self, _put(old, places, new))


Tensor.__setitem__ = set_item  # type: ignore[method-assign, assignment]
