"""Names of types for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union

from . import _weft


class SupportsArray(Protocol):
    """NumPy's arrays, and what becomes one."""

    def __array__(self) -> Any: ...


class SupportsDLPack(Protocol):
    """Arrays of other libraries."""

    def __dlpack__(self) -> Any: ...


Scalar = Union[bool, int, float]
#: What becomes a tensor: a tensor, an array, a number, nested lists of numbers.
ArrayLike = Union["_weft.Tensor", SupportsArray, SupportsDLPack, Scalar, Sequence[Any]]
#: An operand of an op. Numbers take the dtype of the tensors beside them.
Operand = ArrayLike
DTypeLike = Union["_weft.dtype", str, type, Any]
DeviceLike = Union["_weft.device", str]
