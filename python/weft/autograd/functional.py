"""Derivatives of functions with PyTorch's older names and order of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _transforms, func
from .._weft import Tensor


def jacobian(func_: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """All derivatives of the result for one input, or a tuple with those for each of several."""
    if isinstance(inputs, Tensor):
        return func.jacrev(func_)(inputs)
    return tuple(func.jacrev(func_, i)(*inputs) for i in range(len(inputs)))


def hessian(func_: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """All second derivatives of a number for one input."""
    if isinstance(inputs, Tensor):
        return func.hessian(func_)(inputs)
    return tuple(tuple(func.jacrev(func.grad(func_, i), j)(*inputs) for j in range(len(inputs))) for i in range(len(inputs)))


def jvp(func_: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(result, its change along v)."""
    return _transforms.jvp(func_, inputs, v)


def vjp(func_: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(result, the gradients of v * result)."""
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    result, pull = _transforms.vjp(func_, *given)
    seeds = v if isinstance(v, (tuple, list)) else (v,)
    if v is None:
        from .._tensor import ones_like
        seeds = (ones_like(result),)
    return result, pull(*seeds)
