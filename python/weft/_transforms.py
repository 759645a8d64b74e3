"""Gradients, other transforms of functions, hooks, and the scopes that change how ops are recorded."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union, overload

from . import _weft
from ._tensor import tensor
from ._types import DTypeLike
from ._weft import Tensor, UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
Results = Union[Tensor, "tuple[Tensor, ...]"]


# ---- Gradients ----------------------------------------------------------------------------------------------------------


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
        x, given[argument] = x._value(), x._value()  # the function may change its own in place
        with keep_history():
            y = function(*given)
        return y, _weft._grad(y, [x], None)[0]

    return both


def backward(output: Tensor, seed: Tensor | None = None) -> None:
    """Adds the gradient of the output to .grad of every Variable that requires one and that it was made from."""
    output.backward(seed)


# ---- Transforms ---------------------------------------------------------------------------------------------------------


class _Listed:
    """A function of tensors that gives a tensor or several, as the binding calls it: from a list to a list."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        if not callable(function):
            raise TypeError(f"{what}: {type(function).__name__} is not a function")
        self.function, self.what, self.is_one = function, what, True

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        results = self.function(*inputs)
        self.is_one = isinstance(results, Tensor)
        if self.is_one:
            return [results]
        if not isinstance(results, (tuple, list)):
            raise TypeError(f"{self.what}: the function gives {type(results).__name__}, not a Tensor or a tuple of Tensors")
        return list(results)

    def formed(self, results: list[Tensor]) -> Any:
        """Results in the form that the function gave them."""
        return results[0] if self.is_one else tuple(results)


def _inputs(given: Sequence[Any]) -> list[Tensor]:
    return [(each if isinstance(each, Tensor) else tensor(each))._value() for each in given]


def vjp(function: Callable[..., Any], *inputs: Any) -> tuple[Any, Callable[..., Any]]:
    """(function(*inputs), pull): reverse mode. pull(*seeds) takes a seed for each result (None: none) to the gradients of the
    inputs, one Tensor or a tuple. Inputs that are not floats, and those that no result depends on, get zeros."""
    listed = _Listed(function, "vjp")
    results, gradients = _weft._vjp(listed, _inputs(inputs))

    def pull(*seeds: Tensor | None) -> Any:
        found = gradients(list(seeds))
        return found[0] if len(inputs) == 1 else tuple(found)

    return listed.formed(results), pull


def jvp(function: Callable[..., Any], inputs: Any, tangents: Any) -> tuple[Any, Any]:
    """(function(*inputs), its change along the tangents): forward mode. `inputs` and `tangents` are tensors, or tuples with one
    for each argument; a tangent of None is zero."""
    several = isinstance(inputs, (tuple, list))
    listed = _Listed(function, "jvp")
    along = tangents if several else (tangents,)
    results, changes = _weft._jvp(listed, _inputs(inputs if several else (inputs,)),
                                  [None if each is None else _inputs([each])[0] for each in along])
    return listed.formed(results), listed.formed(changes)


def vmap(function: Callable[..., Any], in_axes: int | None | Sequence[int | None] = 0, out_axis: int = 0) -> Callable[..., Any]:
    """The function applied to every example of a batch, as one computation. The function sees one example: its arguments lack the
    axis of `in_axes`, one for all arguments or one for each; None: every example gets the whole argument. `out_axis` counts
    examples in the results. Random numbers that the function draws are the same for all examples. It cannot ask for elements
    of an example (UsageError): use weft.where in place of `if`."""

    @functools.wraps(function)
    def mapped(*arguments: Any) -> Any:
        axes = [in_axes] * len(arguments) if in_axes is None or isinstance(in_axes, int) else list(in_axes)
        if len(axes) != len(arguments):
            raise UsageError(f"vmap: {len(axes)} in_axes for {len(arguments)} arguments")
        listed = _Listed(function, "vmap")
        return listed.formed(_weft._vmap(listed, _inputs(arguments), axes, out_axis))

    return mapped


def custom_gradient(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """forward, with `backward` in place of its gradient: backward(inputs, results, gradients) is given three lists, with None
    where no gradient flows, and returns a gradient or None for each input. What it computes is differentiated for second
    derivatives. No gradient flows to other values that `forward` reads."""
    listed = _Listed(forward, "custom_gradient")

    def gradient(inputs: list[Tensor], results: list[Tensor], gradients: list[Tensor | None]) -> Any:
        found = backward(inputs, results, gradients)
        return [found] if found is None or isinstance(found, Tensor) else found

    made = _weft._custom_gradient(listed, gradient)

    @functools.wraps(forward)
    def function(*inputs: Any) -> Any:
        return listed.formed(made(_inputs(inputs)))

    return function


@dataclass(frozen=True)
class GradcheckReport:
    """What gradcheck() found. True where derivatives agree."""

    agrees: bool
    worst: float  #: the largest difference between the two
    message: str  #: the first derivative that differs: its place, and both values

    def __bool__(self) -> bool:
        return self.agrees


def gradcheck(function: Callable[..., Any], *inputs: Any, step: float = 1e-5, relative: float = 1e-4, absolute: float = 1e-6,
              second_order: bool = False, forward: bool = True) -> GradcheckReport:
    """Compares the derivative of every element of the results, with respect to every element of the inputs that are f64, with
    central differences. `forward` also checks jvp, `second_order` the gradient of a gradient. Place inputs away from kinks."""
    return GradcheckReport(*_weft._gradcheck(_Listed(function, "gradcheck"), _inputs(inputs), step, relative, absolute,
                                             second_order, forward))


# ---- Scopes -------------------------------------------------------------------------------------------------------------


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
        return _weft._no_grad()


class keep_history(_Scope):
    """eval() inside does not release inputs, so gradients with respect to all values on the way can be taken."""

    def _make(self) -> Any:
        return _weft._keep_history()


class enable_grad(_Scope):
    """Gradients flow through what is made inside, also where a no_grad() is around."""

    def _make(self) -> Any:
        return _weft._enable_grad()


class inference_mode(_Scope):
    """no_grad(), under PyTorch's other name; mode=False does nothing."""

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def _make(self) -> Any:
        return _weft._no_grad() if self.mode else contextlib.nullcontext()


class set_grad_enabled(_Scope):
    """enable_grad() or no_grad(), by the argument. Unlike PyTorch's it takes effect in a `with` only."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def _make(self) -> Any:
        return _weft._enable_grad() if self.mode else _weft._no_grad()


class autocast(_Scope):
    """Products and attention compute in f16 or bf16, sums and norms in f32: autocast("f16"), or as in PyTorch
    autocast(device_type="cpu", dtype=weft.bfloat16, enabled=True). Without a dtype it is bf16."""

    def __init__(self, dtype_or_device: DTypeLike | None = None, dtype: DTypeLike | None = None, enabled: bool = True, *,
                 device_type: str | None = None, cache_enabled: bool | None = None) -> None:
        if dtype is None and dtype_or_device not in (None, "cpu", "cuda", "webgpu"):
            dtype = dtype_or_device
        self.dtype, self.enabled = _weft.dtype("bf16" if dtype is None else dtype), enabled

    def _make(self) -> Any:
        return _weft._autocast(self.dtype) if self.enabled else contextlib.nullcontext()


class detect_anomaly(_Scope):
    """Values that this thread evaluates inside are searched for NaN. An AnomalyError names the op that made the first one, and
    its operands. Compiled functions run as ordinary functions meanwhile. This is for debugging: it takes several times as long
    and keeps every intermediate value."""

    def _make(self) -> Any:
        return _weft._detect_anomaly()
