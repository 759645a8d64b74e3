"""Optimisers, whose updates of all parameters are a few kernels; clipping; schedules of learning rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Union

from . import _weft
from ._weft import LossScale, Schedule, Tensor, Variable
from .nn import Module

__all__ = ["SGD", "Adam", "AdamW", "GradientSum", "LossScale", "Optimizer", "Schedule", "clip_grad_norm"]

Parameters = Union[Module, Iterable[Variable]]


def _entries(parameters: Parameters) -> list[tuple[str, Variable, bool]]:
    if isinstance(parameters, Module):
        return parameters._trained()
    entries = []
    for i, each in enumerate(parameters):
        if not isinstance(each, Variable):
            raise TypeError(f"an optimiser trains a module or Variables; got {type(each).__name__}")
        entries.append((each.name or f"parameter_{i}", each, each.ndim >= 2))
    return entries


class Optimizer:
    """Base of optimisers. step(gradients) takes gradients in the order of `parameters`; step() those that backward() left."""

    _native: Any

    def __init__(self, parameters: Parameters) -> None:
        self._entries = _entries(parameters)

    @property
    def parameters(self) -> list[Variable]:
        return [variable for _, variable, _ in self._entries]

    def step(self, gradients: Sequence[Tensor] | None = None, learning_rate: Tensor | float | None = None, *,
             scale: LossScale | None = None) -> Tensor:
        """One update. Gives the norm of the gradients before clipping. A learning rate of rank 0 may change from call to call of
        a compiled function. With a `scale`, gradients are those of scale.apply(loss); a step whose gradients are not finite changes
        nothing but the scale. Inside a compiled function, give the learning rate too."""
        if gradients is None:
            gradients = []
            for name, variable, _ in self._entries:
                if variable.grad is None:
                    raise _weft.UsageError(f"step: parameter {name!r} has no gradient; call backward() first, or pass gradients")
                gradients.append(variable.grad)
        norm: Tensor = self._native._step(list(gradients), learning_rate, scale)
        return norm

    def zero_grad(self) -> None:
        for variable in self.parameters:
            variable.zero_grad()

    @property
    def learning_rate(self) -> float:
        return float(self._native.learning_rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._native.learning_rate = rate

    @property
    def step_count(self) -> int:
        """Updates made so far."""
        return int(self._native.step_count)

    def reset(self) -> None:
        """Forgets the moments and the number of updates. The parameters and the learning rate stay, and so do compiled steps."""
        self._native.reset()

    def state_dict(self) -> dict[str, Tensor]:
        """State by parameter: "step", "learning_rate", "moment_1.blocks.0.mlp.up.weight", ..."""
        return dict(self._native.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._native.load_state_dict(dict(state))


class SGD(Optimizer):
    """p = p - rate * (gradient, or its momentum)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, momentum: float = 0, dampening: float = 0,
                 nesterov: bool = False, weight_decay: float = 0, maximize: bool = False, clip_norm: float = 0) -> None:
        super().__init__(parameters)
        self._native = _weft._SGD(self._entries, learning_rate, momentum, dampening, nesterov, weight_decay, maximize, clip_norm)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014); weight decay is added to the gradient."""

    _class: Any = _weft._Adam

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-8, weight_decay: float = 0, clip_norm: float = 0) -> None:
        super().__init__(parameters)
        self._native = self._class(self._entries, learning_rate, beta_1, beta_2, epsilon, weight_decay, clip_norm)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    _class = _weft._AdamW

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9, beta_2: float = 0.999,
                 epsilon: float = 1e-8, weight_decay: float = 0.01, clip_norm: float = 0) -> None:
        super().__init__(parameters, learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, weight_decay=weight_decay,
                         clip_norm=clip_norm)


class GradientSum:
    """Sums gradients until an update takes their mean, so that a batch may be larger than memory allows. Both calls may be parts
    of compiled functions."""

    def __init__(self, parameters: Parameters) -> None:
        self._native = _weft._gradient_sum(_entries(parameters))

    def add(self, gradients: Sequence[Tensor]) -> None:
        """Adds one gradient for each parameter, in their order."""
        self._native.add(list(gradients))

    def take_mean(self) -> list[Tensor]:
        """The sums divided by the number of calls of add() since the last take; the sum begins anew."""
        return list(self._native.take_mean())


def clip_grad_norm(gradients: Sequence[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    """All gradients times min(1, max_norm / norm), with one norm over all of them; and that norm."""
    return _weft._clip_grad_norm(list(gradients), max_norm)
