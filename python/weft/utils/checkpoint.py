"""checkpoint(): values inside a function are computed again for the gradient, and take no memory meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _weft
from .._weft import Tensor

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *inputs: Any, use_reentrant: bool | None = None) -> Any:
    """function(*inputs), as weft.checkpoint(function, inputs); what is not a tensor among the inputs is passed as it is."""
    tensors = [each for each in inputs if isinstance(each, Tensor)]

    def called(*given: Tensor) -> Any:
        values = iter(given)
        return function(*(next(values) if isinstance(each, Tensor) else each for each in inputs))

    make: Any = _weft.checkpoint
    return make(called, *tensors)
