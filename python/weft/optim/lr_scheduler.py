"""Schedules of learning rates that set the rate of an optimiser, with PyTorch's names. step() comes after the optimiser's step.
Inside a compiled function give the rate to optimizer.step(gradients, rate), with rate = scheduler.get_last_lr()[0] outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import _weft
from .._weft import Schedule, UsageError


def _rate_of(optimizer: Any) -> float:
    """The first group's rate, before it became an f32."""
    groups = getattr(optimizer, "param_groups", None)
    return float(groups[0]["lr"] if groups else optimizer.learning_rate)


def _rates_of(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups] if hasattr(optimizer, "param_groups") else [float(optimizer.learning_rate)]


def _momentum_name(title: str, optimizer: Any) -> str:
    """The option that a cycle of the momentum changes."""
    group = optimizer.param_groups[0]
    for name in ("momentum", "beta_1"):
        if name in group:
            return name
    raise UsageError(f"{title}: the optimiser has no momentum; give cycle_momentum=False")


class LRScheduler:
    """Base: override rate_at(step), which is a function of the step (from 0) and of base_rate, the optimiser's first rate."""

    _momentum_option = "momentum"

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        self.base_rate = _rate_of(optimizer)
        self.last_epoch = last_epoch
        self._momentum: Callable[[int], float] | None = getattr(self, "_momentum", None)
        self.step()

    def rate_at(self, step: int) -> float:
        raise NotImplementedError

    def step(self) -> None:
        self.last_epoch += 1
        self._apply()

    def _apply(self) -> None:
        self._rate = self.rate_at(self.last_epoch)
        self.optimizer.learning_rate = self._rate
        if self._momentum is not None:
            for group in self.optimizer.param_groups:
                group[self._momentum_option] = self._momentum(self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return _rates_of(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_rate": self.base_rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last_epoch, self.base_rate = int(state["last_epoch"]), float(state["base_rate"])
        self._apply()


class ScheduleLR(LRScheduler):
    """The rates of a weft.optim.Schedule."""

    def __init__(self, optimizer: Any, schedule: Schedule) -> None:
        self.schedule = schedule
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        return self.schedule.at(step)


class LambdaLR(LRScheduler):
    """base * lr_lambda(step)."""

    def __init__(self, optimizer: Any, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        return self.base_rate * float(self.lr_lambda(step))


class MultiplicativeLR(LRScheduler):
    """base * lr_lambda(1) * ... * lr_lambda(step)."""

    def __init__(self, optimizer: Any, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        return self.base_rate * math.prod(float(self.lr_lambda(i)) for i in range(1, step + 1))


class _Simple(LRScheduler):
    """A Schedule that is made for the optimiser's rate."""

    def __init__(self, optimizer: Any, make: Callable[[float], Schedule]) -> None:
        self._make = make
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        return self._make(self.base_rate).at(step)


class StepLR(_Simple):
    """base * gamma^floor(step / step_size)."""

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(optimizer, lambda base: Schedule.staircase(base, gamma, step_size))


class MultiStepLR(_Simple):
    """base * gamma^(milestones passed)."""

    def __init__(self, optimizer: Any, milestones: Sequence[int], gamma: float = 0.1) -> None:
        ascending = sorted(float(each) for each in milestones)
        super().__init__(optimizer, lambda base: Schedule.multi_step(base, gamma, ascending))


class ConstantLR(_Simple):
    """base * factor for total_iters steps, and then base."""

    def __init__(self, optimizer: Any, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(optimizer, lambda base: Schedule.constant(base * factor).then(total_iters, Schedule.constant(base))
                         if total_iters > 0 else Schedule.constant(base))


class LinearLR(_Simple):
    """A line from base * start_factor to base * end_factor."""

    def __init__(self, optimizer: Any, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5) -> None:
        super().__init__(optimizer, lambda base: Schedule.linear(base * start_factor, base * end_factor, total_iters))


class ExponentialLR(_Simple):
    """base * gamma^step."""

    def __init__(self, optimizer: Any, gamma: float) -> None:
        super().__init__(optimizer, lambda base: Schedule.exponential(base, gamma))


class PolynomialLR(_Simple):
    """base * (1 - step / total_iters)^power."""

    def __init__(self, optimizer: Any, total_iters: int = 5, power: float = 1.0) -> None:
        super().__init__(optimizer, lambda base: Schedule.polynomial(base, 0, total_iters, power))


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) * (1 + cos(pi step / T_max)) / 2, which rises again after T_max."""

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0) -> None:
        if T_max < 1:
            raise UsageError(f"CosineAnnealingLR: T_max is {T_max}; it must be at least 1")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate_at(self, step: int) -> float:
        return self.eta_min + (self.base_rate - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class CosineAnnealingWarmRestarts(_Simple):
    """Half cosines from base to eta_min, the first over T_0 steps, each T_mult times as long as the one before."""

    def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        super().__init__(optimizer, lambda base: Schedule.restarts(base, eta_min, T_0, T_mult))


class OneCycleLR(_Simple):
    """From max_lr / div_factor up to max_lr over pct_start of the steps, and down to max_lr / (div_factor * final_div_factor). With
    cycle_momentum the momentum (of Adam beta_1) falls from max_momentum to base_momentum and rises again; inside a compiled step leave
    it out, since a momentum is part of the plan. With three_phase the way down has two parts."""

    def __init__(self, optimizer: Any, max_lr: float | Sequence[float], total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
                 three_phase: bool = False, last_epoch: int = -1) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise UsageError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise UsageError(f'OneCycleLR: anneal_strategy is {anneal_strategy!r}; it must be "cos" or "linear"')
        if three_phase:
            raise UsageError("OneCycleLR: three_phase is left out; join weft.optim.Schedule.linear with then()")
        if not isinstance(max_lr, (int, float)):
            rates = [float(each) for each in max_lr]
            for group, rate in zip(optimizer.param_groups, rates):  # the ratios of the groups
                group["lr"] = rate
            max_lr = rates[0]
        peak, steps, first, straight = float(max_lr), total_steps, float(max_lr) / div_factor, anneal_strategy == "linear"
        if cycle_momentum:
            self._momentum_option = _momentum_name("OneCycleLR", optimizer)
            # As a rate that falls first: the distance to max_momentum.
            depth = Schedule.one_cycle(1.0, steps, pct_start * steps, 0.0, 0.0, straight)
            self._momentum = lambda step: max_momentum - (max_momentum - base_momentum) * depth.at(step)
        super().__init__(optimizer, lambda _: Schedule.one_cycle(peak, steps, pct_start * steps, first, first / final_div_factor, straight))


class CyclicLR(LRScheduler):
    """Lines between base_lr and max_lr. mode: "triangular", "triangular2" (each cycle half as high) or "exp_range" (gamma^step as
    high). With cycle_momentum the momentum (of Adam beta_1) goes the other way, between max_momentum and base_momentum."""

    def __init__(self, optimizer: Any, base_lr: float, max_lr: float, step_size_up: int = 2000, step_size_down: int | None = None,
                 mode: str = "triangular", gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None,
                 scale_mode: str = "cycle", cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9) -> None:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise UsageError(f'CyclicLR: mode is {mode!r}; it must be "triangular", "triangular2" or "exp_range"')
        self._total = step_size_up + (step_size_down or step_size_up)
        self._wave = Schedule.cyclic(0, 1, step_size_up, self._total - step_size_up)
        self._low, self._high, self._mode, self._gamma = base_lr, max_lr, mode, gamma
        self._scale, self._scale_by_cycle = scale_fn, scale_mode == "cycle"
        if cycle_momentum:
            self._momentum_option = _momentum_name("CyclicLR", optimizer)
            self._momentum = lambda step: max_momentum - (max_momentum - base_momentum) * self._height(step)
        super().__init__(optimizer)

    def _height(self, step: int) -> float:
        cycle = 1 + step // self._total
        if self._scale is not None:
            scale = self._scale(cycle if self._scale_by_cycle else step)
        elif self._mode == "triangular2":
            scale = 0.5 ** (cycle - 1)
        else:
            scale = self._gamma ** step if self._mode == "exp_range" else 1.0
        return self._wave.at(step) * scale

    def rate_at(self, step: int) -> float:
        return self._low + (self._high - self._low) * self._height(step)


class ChainedScheduler(LRScheduler):
    """The product of what several schedulers make of the optimiser's first rate."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None:
        if not schedulers:
            raise UsageError("ChainedScheduler: give at least one scheduler")
        self.schedulers = list(schedulers)
        first = self.schedulers[0]
        self._base = first.base_rate
        for each in self.schedulers:
            each.base_rate = self._base
        optimizer = optimizer or first.optimizer
        super().__init__(optimizer)
        self.base_rate = self._base

    def rate_at(self, step: int) -> float:
        return self._base * math.prod(each.rate_at(step) / self._base for each in self.schedulers)


class SequentialLR(LRScheduler):
    """One scheduler after another: each begins at its milestone, and counts its steps from there."""

    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise UsageError(f"SequentialLR: {len(schedulers)} schedulers need {len(schedulers) - 1} milestones, given {len(milestones)}")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        # Schedulers made after another one on the same optimiser saw the rate that it had set.
        self._base = self.schedulers[0].base_rate
        for each in self.schedulers:
            each.base_rate = self._base
        super().__init__(optimizer)
        self.base_rate = self._base

    def rate_at(self, step: int) -> float:
        index = sum(step >= each for each in self.milestones)
        return self.schedulers[index].rate_at(step - (self.milestones[index - 1] if index else 0))


class ReduceLROnPlateau:
    """The rate times `factor` when a measure, such as the loss of validation, has made no progress for `patience` epochs."""

    def __init__(self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0, eps: float = 1e-8) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise UsageError('ReduceLROnPlateau: mode is "min" or "max", and threshold_mode "rel" or "abs"')
        self.optimizer = optimizer
        self._native = _weft._Plateau(_rate_of(optimizer), mode == "max", factor, patience, threshold, threshold_mode == "abs",
                                      cooldown, min_lr, eps)

    def step(self, metrics: Any) -> None:
        self.optimizer.learning_rate = self._native.update(float(metrics))

    def get_last_lr(self) -> list[float]:
        return [self._native.state[0]]

    @property
    def best(self) -> float:
        return abs(float(self._native.state[1]))

    def state_dict(self) -> dict[str, Any]:
        return dict(zip(("rate", "best", "num_bad_epochs", "cooldown_counter"), self._native.state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._native.state = tuple(state[key] for key in ("rate", "best", "num_bad_epochs", "cooldown_counter"))
        self.optimizer.learning_rate = self._native.state[0]
