"""Averages of weights with PyTorch's names. weft.optim.AveragedWeights is the same without a copy of the model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from .._transforms import no_grad
from .._weft import Tensor, Variable
from ..nn import BatchNorm, Module
from .lr_scheduler import LRScheduler

Average = Callable[[Tensor, Tensor, int], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """average * decay + weight * (1 - decay)."""
    return lambda average, weight, _: average * decay + weight * (1 - decay)


def get_swa_avg_fn() -> Average:
    """The equal mean."""
    return lambda average, weight, count: average + (weight - average) / (count + 1)


class AveragedModel(Module):
    """A copy of a model whose weights are averages of the model's. update_parameters(model) takes its weights into the average."""

    def __init__(self, model: Module, avg_fn: Average | None = None, use_buffers: bool = False) -> None:
        self.module = copy.deepcopy(model)
        self.n_averaged = 0
        self._avg_fn = avg_fn or get_swa_avg_fn()
        self._use_buffers = use_buffers

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.module(*arguments, **named)

    def _pairs(self, model: Module) -> Iterable[tuple[Variable, Variable, bool]]:
        for (_, own), (_, other) in zip(self.module.named_parameters(), model.named_parameters()):
            yield own, other, True
        for (_, own), (_, other) in zip(self.module.named_buffers(), model.named_buffers()):
            yield own, other, self._use_buffers

    def update_parameters(self, model: Module) -> None:
        with no_grad():
            for own, other, is_averaged in self._pairs(model):
                new: Any = other.value
                if is_averaged and self.n_averaged > 0 and own.dtype.is_floating_point:
                    new = self._avg_fn(own.value, new, self.n_averaged)
                own.assign(new)
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module) -> None:
    """Sets the running statistics of the model's batch norms to the means over a loader's batches. A batch that is a list or tuple
    gives its first element to the model."""
    norms = [each for each in model.modules() if isinstance(each, BatchNorm)]
    if not norms:
        return
    before = [(each, each.momentum) for each in norms]
    was_training = model.training
    model.train()
    with no_grad():
        for i, batch in enumerate(loader):
            for each in norms:
                each.momentum = 1 / (i + 1)
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    for each, momentum in before:
        each.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the optimiser's rate to swa_lr over anneal_epochs steps, which then stays."""

    def __init__(self, optimizer: Any, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: str = "cos") -> None:
        self.swa_lr, self.anneal_epochs, self._line = swa_lr, anneal_epochs, anneal_strategy == "linear"
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        share = min(1.0, step / self.anneal_epochs) if self.anneal_epochs else 1.0
        moved = share if self._line else (1 - math.cos(math.pi * share)) / 2
        return self.base_rate + (self.swa_lr - self.base_rate) * moved
