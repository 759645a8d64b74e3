"""Gradients with PyTorch's names: Function, grad, and functional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _transforms, _weft
from .._making import _op
from .._transforms import detect_anomaly as detect_anomaly
from .._transforms import enable_grad as enable_grad
from .._transforms import gradcheck as gradcheck
from .._transforms import inference_mode as inference_mode
from .._transforms import no_grad as no_grad
from .._transforms import set_grad_enabled as set_grad_enabled
from .._weft import Tensor, UsageError
from .._weft import Variable as Variable
from . import functional as functional

__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "gradcheck", "inference_mode", "no_grad",
           "set_grad_enabled"]

def backward(tensors: Tensor | Sequence[Tensor], grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
    """Adds the gradients of the sum of all tensors to .grad of Variables. Nothing is freed, so retain_graph changes nothing."""
    outputs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    seeds = [None] * len(outputs) if grad_tensors is None else [grad_tensors] if isinstance(grad_tensors, Tensor) else list(grad_tensors)
    for output, seed in zip(outputs, seeds):
        output.backward(seed)

def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
         allow_unused: bool | None = None, materialize_grads: bool = False, only_inputs: bool = True) -> tuple[Tensor, ...]:
    """The gradients of the sum of outputs for each input, as a tuple. They can be differentiated again, and nothing is freed, so
    create_graph and retain_graph change nothing. An input that no output depends on gets zeros."""
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    made = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    seeds = [None] * len(made) if grad_outputs is None else [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(seeds) != len(made):
        raise UsageError(f"grad: {len(seeds)} grad_outputs for {len(made)} outputs")
    for each, seed in zip(made, seeds):
        if seed is None and each.size != 1:
            raise UsageError(f"grad: the output {list(each.shape)} has several elements; give grad_outputs, such as weft.ones_like(output)")
    total = None
    for each, seed in zip(made, seeds):
        part = _op("sum")(each if seed is None else each * seed.detach())
        total = part if total is None else total + part
    return tuple(_weft._grad(total, wanted, None))

class _Context:
    """What forward() leaves for backward()."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """No gradient comes to these anyway."""

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value

    def mark_dirty(self, *inputs: Tensor) -> None:
        raise UsageError("Function: an input is not changed in place; return another tensor in its place")

class Function:
    """An operation with a gradient of its own: static methods forward(ctx, *inputs) and backward(ctx, *gradients), which gives a
    gradient or None for each input. Call it by apply(). With setup_context(ctx, inputs, output), forward has no ctx. The gradient is
    made of ordinary ops, so it can be differentiated."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        raise NotImplementedError("a Function needs forward()")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("a Function needs backward()")

    @classmethod
    def apply(cls, *inputs: Any) -> Any:
        tensors = [i for i, each in enumerate(inputs) if isinstance(each, Tensor)]
        ctx = _Context(tuple(isinstance(each, Tensor) and each.dtype.is_floating_point for each in inputs))
        setup: Any = getattr(cls, "setup_context", None)

        def forward(*given: Tensor) -> Any:
            values = dict(zip(tensors, given))
            arguments = tuple(values.get(i, each) for i, each in enumerate(inputs))
            if setup is None:
                return cls.forward(ctx, *arguments)
            output = cls.forward(*arguments)
            setup(ctx, arguments, output)
            return output

        def backward(given: list[Tensor], results: list[Tensor], gradients: list[Any]) -> list[Any]:
            whole = [_op("zeros_like")(result) if gradient is None and getattr(ctx, "materialize", True) else gradient
                     for result, gradient in zip(results, gradients)]
            ctx.saved_tensors = tuple(_now(each, inside, [*given, *results]) for each in ctx.saved_tensors)
            found = cls.backward(ctx, *whole)
            found = found if isinstance(found, (tuple, list)) else (found,)
            if len(found) != len(inputs):
                raise UsageError(f"{cls.__name__}: backward gives {len(found)} gradients for {len(inputs)} inputs; give None where there is none")
            return [_fitting(found[i], inputs[i]) for i in tensors]

        inside: list[Tensor] = []

        def watched(*given: Tensor) -> Any:
            result = forward(*given)
            inside[:] = [*given, *(result if isinstance(result, (tuple, list)) else [result])]
            return result

        return _transforms.custom_gradient(watched, backward)(*(inputs[i] for i in tensors))

def _now(saved: Any, inside: list[Tensor], outside: list[Tensor]) -> Any:
    """A saved input or result as the gradient sees it, so that second derivatives flow through it."""
    for mine, given in zip(inside, outside):
        if saved is mine:
            return given
    return saved

def _fitting(gradient: Any, x: Tensor) -> Any:
    if gradient is None or gradient.shape == x.shape:
        return gradient
    return gradient.sum_to_size(x.shape) if gradient.ndim >= x.ndim else _op("broadcast_to")(gradient, x.shape)

