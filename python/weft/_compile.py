"""Compiled functions: traced once for the shapes of their arguments, then replayed as a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from . import _weft
from ._weft import Tensor

P = ParamSpec("P")
R = TypeVar("R")


_TENSOR = ("tensor",)


def _flatten(value: Any) -> Any:
    """The structure of nested lists, tuples and dictionaries, without the tensors. _weft._key takes these out in the same order,
    and has checked the depth."""
    if isinstance(value, (Tensor, float)) or hasattr(type(value), "__array_interface__"):
        return _TENSOR
    if type(value) is list or type(value) is tuple:
        return (type(value).__name__, *(_flatten(each) for each in value))
    if type(value) is dict:
        return ("dict", *((key, _flatten(each)) for key, each in value.items()))
    return ("value", type(value), value)


def _restore(structure: Any, tensors: Any) -> Any:
    kind = structure[0]
    if kind == "tensor":
        return next(tensors)
    if kind == "list":
        return [_restore(each, tensors) for each in structure[1:]]
    if kind == "tuple":
        return tuple(_restore(each, tensors) for each in structure[1:])
    if kind == "dict":
        return {key: _restore(each, tensors) for key, each in structure[1:]}
    return structure[2]


class _Trace:
    """One structure of arguments."""

    def __init__(self, function: Callable[..., Any], structure: Any) -> None:
        result: list[Any] = [None]
        self.result = result

        def traced(arguments: list[Tensor]) -> list[Tensor]:
            positional, named = _restore(structure, iter(arguments))
            tensors: list[Tensor] = []
            result[0] = _flatten_result(function(*positional, **named), tensors)
            return tensors

        self.compiled = _weft._Compiled(traced)


def _flatten_result(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return _TENSOR
    if type(value) is list or type(value) is tuple:
        return (type(value).__name__, *(_flatten_result(each, tensors) for each in value))
    if type(value) is dict:
        return ("dict", *((key, _flatten_result(each, tensors)) for key, each in value.items()))
    return ("value", type(value), value)


class Compiled(Generic[P, R]):
    """A function traced for each structure, shape and dtype of its arguments, whose plan is replayed from then on. Updates of
    Variables inside are part of the plan. Python's floats among the arguments may change from call to call; other values that
    are not tensors belong to the structure."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        self._traces: dict[Any, _Trace] = {}
        self._last: _Trace | None = None
        functools.update_wrapper(self, function)

    def _trace(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[_Trace, list[Tensor]]:
        key, tensors = _weft._key(arguments, named)
        try:
            trace = self._traces.get(key)
        except TypeError as error:
            raise TypeError(f"compile: arguments are tensors, numbers, and values that can be hashed: {error}") from None
        if trace is None:
            trace = _Trace(self._function, _flatten((arguments, named)))
            if len(self._traces) >= 256:
                self._traces.pop(next(iter(self._traces)))
            self._traces[key] = trace
        self._last = trace
        return trace, tensors

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        trace, tensors = self._trace(arguments, named)
        results = trace.compiled(tensors)
        structure = trace.result[0]
        return results[0] if structure is _TENSOR else _restore(structure, iter(results))  # type: ignore[return-value]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)  # type: ignore[arg-type]

    def explain(self, source: bool = False) -> str:
        """Kernels, shapes, bytes and FLOPs of the last plan; with `source` the text of the programs."""
        if self._last is None:
            raise _weft.UsageError("compile: call the function once before asking for its plan")
        return self._last.compiled.explain(source)

    def profile(self, *arguments: P.args, **named: P.kwargs) -> str:
        """Runs twice with these arguments, the second time timing each kernel."""
        trace, tensors = self._trace(arguments, named)
        return trace.compiled.profile(tensors)

    @property
    def trace_count(self) -> int:
        """Number of traces made so far."""
        return sum(trace.compiled.trace_count for trace in self._traces.values())


@overload
def compile(function: Callable[P, R]) -> Compiled[P, R]: ...
@overload
def compile(function: None = ...) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(function: Callable[..., Any] | None = None) -> Any:  # noqa: A001
    """A decorator: the function is traced at its first call, and its plan replayed from then on."""
    return Compiled if function is None else Compiled(function)
