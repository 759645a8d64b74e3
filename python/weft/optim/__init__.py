"""Optimisers, whose updates of all parameters are a few kernels; clipping; averages; schedules of learning rates.

Options may have PyTorch's names too: lr, betas, eps, ... Options of PyTorch that only say how an update is computed (foreach, fused,
capturable, differentiable) are taken and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union, overload

from .. import _weft
from . import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from .._tensor import tensor
from .._weft import LossScale, Schedule, Tensor, UsageError, Variable
from ..nn import Module
from ..nn._module import clear_gradients

__all__ = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Lion", "Adafactor",
           "LAMB", "Muon", "LBFGS", "AveragedWeights", "GradientSum", "LossScale", "Optimizer", "Schedule", "clip_grad_norm",
           "lr_scheduler", "swa_utils"]

Parameters = Union[Module, Iterable[Variable], Iterable[Mapping[str, Any]]]


def _entries(parameters: Parameters) -> list[tuple[str, Variable, bool]]:
    if isinstance(parameters, Module):
        return parameters._trained()
    entries: list[tuple[str, Any, bool]] = []
    for i, each in enumerate(parameters):
        if isinstance(each, tuple) and len(each) == 2:
            name, each = each  # of named_parameters()
        else:
            name = ""
        if not (isinstance(each, Tensor) and each._is_variable):
            raise TypeError(f"an optimiser trains a module or Variables; got {type(each).__name__}")
        entries.append((name or getattr(each, "name", "") or f"parameter_{i}", each, each.ndim >= 2))
    return entries


# PyTorch's names of options. A pair of names takes a pair of values.
_TORCH_NAMES: dict[str, str | tuple[str, str]] = {
    "lr": "learning_rate", "eps": "epsilon", "betas": ("beta_1", "beta_2"), "lr_decay": "rate_decay", "t0": "averaging_start",
    "initial_accumulator_value": "initial_accumulator", "etas": ("shrink", "grow"), "step_sizes": ("least_step", "largest_step"),
    "decoupled_weight_decay": "decoupled", "beta2_decay": "beta_2_decay", "d": "clip_threshold", "ns_steps": "iterations"}
_ONLY_SPEED = {"foreach", "fused", "capturable", "differentiable"}
_rules: Any = _weft._optimizer_rules  # not in the stubs
_RULES: dict[str, dict[str, Any]] = {rule[1]: rule[3] for rule in _rules()}


def _translated(title: str, given: Mapping[str, Any]) -> dict[str, Any]:
    known, options = _RULES[title], {}
    for key, value in given.items():
        if key in known:
            options[key] = value
            continue
        if key in _ONLY_SPEED:
            continue
        name = _TORCH_NAMES.get(key)
        if title == "Adafactor" and key == "eps":
            name, value = ("epsilon_1", "epsilon_2"), (value[0] or 0, value[1])
        if isinstance(name, tuple) and all(each in known for each in name):
            if len(value) != 2:
                raise UsageError(f"{title}: {key} must be a pair")
            options.update(zip(name, value))
        elif isinstance(name, str) and name in known:
            options[name] = value
        else:
            raise TypeError(f"{title}: there is no option {key!r}; there are {', '.join(known)}")
    return {key: float(value.item()) if isinstance(value, Tensor) else value for key, value in options.items()}


class _Updates:
    """What all methods that update parameters have."""

    _native: Any
    _entries: list[tuple[str, Variable, bool]]

    @property
    def parameters(self) -> list[Variable]:
        return [variable for _, variable, _ in self._entries]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients that backward() left, or with set_to_none=False makes them zero."""
        clear_gradients(self.parameters, set_to_none)

    @property
    def learning_rate(self) -> float:
        return float(self._native.learning_rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._native.learning_rate = rate

    @property
    def step_count(self) -> int:
        """Updates, or iterations of LBFGS, made so far."""
        return int(self._native.step_count)

    def _left_gradients(self, title: str, advice: str) -> list[Tensor]:
        """Those that backward() left; zeros where it left none."""
        if all(variable.grad is None for variable in self.parameters):
            raise UsageError(f"{title}: no parameter has a gradient; {advice}")
        return [_weft.op("zeros_like")(variable._value()) if variable.grad is None else variable.grad for variable in self.parameters]


class ParameterGroup(dict[str, Any]):
    """A group of an optimiser's parameters. It is a dictionary whose options, under Weft's names and PyTorch's, can be set."""

    def __init__(self, optimizer: Optimizer, number: int, parameters: list[Variable], options: Mapping[str, Any]) -> None:
        super().__init__({"params": parameters, **options})
        self._optimizer, self._number = optimizer, number
        self._aliases()

    def _aliases(self) -> None:
        """PyTorch's names of what there is."""
        for theirs, mine in _TORCH_NAMES.items():
            if isinstance(mine, tuple):
                if all(name in self for name in mine):
                    super().__setitem__(theirs, tuple(super(ParameterGroup, self).__getitem__(name) for name in mine))
            elif mine in self:
                super().__setitem__(theirs, super().__getitem__(mine))

    def __setitem__(self, key: str, value: Any) -> None:
        title = self._optimizer._title
        if key == "params":
            raise UsageError(f"{title}: the parameters of a group stay; make another optimiser")
        if key not in _RULES[title] and key not in _TORCH_NAMES and key not in _ONLY_SPEED:
            super().__setitem__(key, value)  # a note of the user's own
            return
        for name, number in _translated(title, {key: value}).items():
            self._optimizer._native._set_group_option(self._number, name, number)
            super().__setitem__(name, number)
        self._aliases()

    def update(self, *given: Any, **named: Any) -> None:
        for key, value in dict(*given, **named).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def _see_rate(self, rate: float) -> None:
        super().__setitem__("learning_rate", rate)
        self._aliases()


class Optimizer(_Updates):
    """Base of optimisers. step(gradients) takes gradients in the order of `parameters`; step() those that backward() left.

    The parameters are a module, Variables, or groups with options of their own: [{"params": net.head, "lr": 1e-2}, {"params":
    net.body}]. The learning rate is that of the first group; the others keep their ratio to it."""

    def __init__(self, title: str, parameters: Parameters, learning_rate: float, options: Mapping[str, Any],
                 torch: Mapping[str, Any] | None = None, matrices: Callable[[str], bool] | None = None) -> None:
        given = _translated(title, {"learning_rate": learning_rate, **options, **(torch or {})})
        groups = []
        parts = parameters if isinstance(parameters, Module) else list(parameters)
        if isinstance(parts, list) and parts and all(isinstance(part, Mapping) for part in parts):
            for part in parts:
                if "params" not in part:
                    raise UsageError(f'{title}: a group of parameters is a dictionary with "params"')
                members = part["params"]
                own = _translated(title, {key: value for key, value in part.items() if key != "params"})
                groups.append((_entries([members] if isinstance(members, Variable) else members), {**given, **own}))
            self._entries = self._named(groups)
        else:
            self._entries = _entries(parts)  # type: ignore[arg-type]
            groups.append((self._entries, given))
        self.defaults = {**given, "lr": given["learning_rate"]}
        names = None if matrices is None else [name for name, _, _ in self._entries if matrices(name)]
        self._native = _weft._make_optimizer(title, groups, names)
        self._title = title
        self._groups = [ParameterGroup(self, i, [variable for _, variable, _ in entries], options) for i, (entries, options) in enumerate(groups)]

    @property
    def param_groups(self) -> list[ParameterGroup]:
        """The groups as dictionaries with "params" and options: group["lr"] = 0.1 changes the rate of this group, also of compiled steps
        that were not given one; other options change for later steps, and functions that are compiled later."""
        return self._groups

    @property
    def state(self) -> dict[str, Tensor]:
        """state_dict(), to look at."""
        return self.state_dict()

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        raise UsageError(f"{self._title}: the groups of an optimiser stay; make another one with all of them, and load_state_dict()")

    @staticmethod
    def _named(groups: list[tuple[list[tuple[str, Variable, bool]], dict[str, Any]]]) -> list[tuple[str, Variable, bool]]:
        """All parameters, where names of different groups differ."""
        taken: set[str] = set()
        everything = []
        for entries, _ in groups:
            for i, (name, variable, decay) in enumerate(entries):
                if name in taken:
                    name = f"{name}_{len(taken)}"
                taken.add(name)
                entries[i] = (name, variable, decay)
            everything += entries
        return everything

    @overload
    def step(self, gradients: Sequence[Tensor] | None = ..., learning_rate: Tensor | float | None = ..., *, scale: LossScale | None = ...) -> Tensor: ...
    @overload
    def step(self, gradients: Callable[[], Any]) -> Any: ...
    def step(self, gradients: Any = None, learning_rate: Tensor | float | None = None, *, scale: LossScale | None = None) -> Any:
        """One update. Gives the norm of the gradients before clipping. A learning rate of rank 0 may change from call to call of
        a compiled function. With a `scale`, gradients are those of scale.apply(loss); a step whose gradients are not finite changes
        nothing but the scale. A function in place of gradients computes the loss and calls backward(); the step gives its loss."""
        if callable(gradients):
            loss = gradients()
            self.step()
            return loss
        kept: list[tuple[Variable, Tensor]] = []
        if gradients is None:
            gradients = self._left_gradients("step", "call backward() first, or pass gradients")
            kept = [(variable, variable._value()) for variable in self.parameters if variable.grad is None]
        norm: Tensor = self._native._step(list(gradients), learning_rate, scale)
        for variable, value in kept:  # no weight decay either
            variable._set(value)
        return norm

    @property
    def learning_rate(self) -> float:
        """That of the first group. Setting it keeps the ratios of the other groups' rates to it."""
        return float(self._native.learning_rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        before = [group["lr"] for group in self._groups]
        self._native.learning_rate = rate
        self._groups[0]._see_rate(float(rate))
        for group, old in zip(self._groups[1:], before[1:]):
            group._see_rate(rate * old / before[0] if before[0] else self._native._group_rate(group._number))

    def reset(self) -> None:
        """Forgets the moments and the number of updates. The parameters and the learning rate stay, and so do compiled steps."""
        self._native.reset()

    def state_dict(self) -> dict[str, Tensor]:
        """State by parameter, with PyTorch's names: "step", "learning_rate", "exp_avg.blocks.0.mlp.up.weight", ..."""
        return dict(self._native.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of state_dict(), or of an optimiser of PyTorch with the same parameters in the same order."""
        self._native.load_state_dict(self._of_torch(state) if "param_groups" in state else dict(state))
        for i, group in enumerate(self._groups):
            rate = float(self._native._group_rate(i))
            if abs(rate - group["lr"]) > 1e-7 * abs(rate):  # else the number that was given, before it became an f32
                group._see_rate(rate)

    def _of_torch(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        names = [name for name, _, _ in self._entries]
        expected = self.state_dict()
        order = [index for group in state["param_groups"] for index in group["params"]]
        if len(order) != len(names):
            raise UsageError(f"load_state_dict: the state is of {len(order)} parameters, and the optimiser has {len(names)}")
        result: dict[str, Tensor] = {"step": tensor(0).to(expected["step"].dtype)}
        for i in range(len(self._groups)):
            rate = state["param_groups"][min(i, len(state["param_groups"]) - 1)]["lr"]
            result[f"learning_rate.{i}" if i else "learning_rate"] = tensor(rate, dtype=expected["learning_rate"].dtype)
        for name, index in zip(names, order):
            for key, value in state["state"].get(index, {}).items():
                if value is None:
                    continue
                if key == "momentum_buffer" and "step" not in state["state"][index]:
                    result["step"] = tensor(1).to(expected["step"].dtype)  # SGD does not count, and has a direction after its first step
                entry = "step" if key == "step" else f"{key}.{name}"
                if entry in expected:
                    wanted = expected[entry]
                    array = value if isinstance(value, (int, float)) else value.detach().cpu().numpy()
                    result[entry] = tensor(array).to(wanted.dtype).reshape(wanted.shape)
        return result


class SGD(Optimizer):
    """p = p - rate * (gradient, or its momentum)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, momentum: float = 0,
                 dampening: float = 0, weight_decay: float = 0, nesterov: bool = False,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("SGD", parameters, learning_rate, {
            "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "clip_norm": clip_norm}, torch)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014); weight decay is added to the gradient."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Adam", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "clip_norm": clip_norm}, torch)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01,
                 amsgrad: bool = False, maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("AdamW", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "clip_norm": clip_norm}, torch)


class RMSprop(Optimizer):
    """Gradients over the root of their mean square (Tieleman and Hinton 2012)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, alpha: float = 0.99,
                 epsilon: float = 1e-8, weight_decay: float = 0, momentum: float = 0, centered: bool = False,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("RMSprop", parameters, learning_rate, {
            "alpha": alpha, "epsilon": epsilon, "weight_decay": weight_decay, "momentum": momentum,
            "centered": centered, "maximize": maximize, "clip_norm": clip_norm}, torch)


class Adagrad(Optimizer):
    """Gradients over the root of the sum of all their squares (Duchi, Hazan and Singer 2011)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, rate_decay: float = 0,
                 weight_decay: float = 0, initial_accumulator: float = 0, epsilon: float = 1e-10,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Adagrad", parameters, learning_rate, {
            "rate_decay": rate_decay, "weight_decay": weight_decay, "initial_accumulator": initial_accumulator,
            "epsilon": epsilon, "maximize": maximize, "clip_norm": clip_norm}, torch)


class Adadelta(Optimizer):
    """Gradients in the units of the parameters (Zeiler 2012)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1, *, rho: float = 0.9,
                 epsilon: float = 1e-6, weight_decay: float = 0, maximize: bool = False,
                 clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Adadelta", parameters, learning_rate, {
            "rho": rho, "epsilon": epsilon, "weight_decay": weight_decay, "maximize": maximize,
            "clip_norm": clip_norm}, torch)


class Adamax(Optimizer):
    """Adam with a decaying maximum in place of the mean square (Kingma and Ba 2014)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 2e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Adamax", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "maximize": maximize, "clip_norm": clip_norm}, torch)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 2e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0,
                 momentum_decay: float = 4e-3, decoupled: bool = False, maximize: bool = False,
                 clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("NAdam", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled": decoupled, "maximize": maximize,
            "clip_norm": clip_norm}, torch)


class RAdam(Optimizer):
    """Adam with a rectified rate in the first steps (Liu et al. 2019)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0,
                 decoupled: bool = False, maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("RAdam", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "decoupled": decoupled, "maximize": maximize, "clip_norm": clip_norm}, torch)


class ASGD(Optimizer):
    """Stochastic gradient descent with the mean of the last parameters in its state, "ax" (Polyak and Juditsky 1992)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, lambd: float = 1e-4,
                 alpha: float = 0.75, averaging_start: float = 1e6, weight_decay: float = 0,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("ASGD", parameters, learning_rate, {
            "lambd": lambd, "alpha": alpha, "averaging_start": averaging_start, "weight_decay": weight_decay,
            "maximize": maximize, "clip_norm": clip_norm}, torch)


class Rprop(Optimizer):
    """Steps by the signs of gradients of whole batches (Riedmiller and Braun 1993)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, shrink: float = 0.5,
                 grow: float = 1.2, least_step: float = 1e-6, largest_step: float = 50,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Rprop", parameters, learning_rate, {
            "shrink": shrink, "grow": grow, "least_step": least_step, "largest_step": largest_step,
            "maximize": maximize, "clip_norm": clip_norm}, torch)


class Lion(Optimizer):
    """Steps by the sign of the momentum (Chen et al. 2023)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-4, *, beta_1: float = 0.9,
                 beta_2: float = 0.99, weight_decay: float = 0, maximize: bool = False, clip_norm: float = 0,
                 **torch: Any) -> None:
        super().__init__("Lion", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "weight_decay": weight_decay, "maximize": maximize,
            "clip_norm": clip_norm}, torch)


class Adafactor(Optimizer):
    """Adam without a mean, with the rows and columns of the mean square (Shazeer and Stern 2018). epsilon_1 = 0: by the dtype."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-2, *, beta_2_decay: float = -0.8,
                 epsilon_1: float = 0, epsilon_2: float = 1e-3, clip_threshold: float = 1,
                 weight_decay: float = 0, maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("Adafactor", parameters, learning_rate, {
            "beta_2_decay": beta_2_decay, "epsilon_1": epsilon_1, "epsilon_2": epsilon_2,
            "clip_threshold": clip_threshold, "weight_decay": weight_decay, "maximize": maximize,
            "clip_norm": clip_norm}, torch)


class LAMB(Optimizer):
    """Adam with steps in proportion to each parameter's norm, for large batches (You et al. 2019)."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, beta_1: float = 0.9,
                 beta_2: float = 0.999, epsilon: float = 1e-6, weight_decay: float = 0.01,
                 maximize: bool = False, clip_norm: float = 0, **torch: Any) -> None:
        super().__init__("LAMB", parameters, learning_rate, {
            "beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "weight_decay": weight_decay,
            "maximize": maximize, "clip_norm": clip_norm}, torch)


class Muon(Optimizer):
    """Matrices move along the nearest orthogonal matrix of their momentum, other parameters by AdamW (Jordan et al. 2024). `matrices`
    chooses by name among parameters of rank 2 and above; embeddings and heads are better left to AdamW."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1e-3, *, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, epsilon: float = 1e-7, iterations: int = 5, match_adamw: bool = True, beta_1: float = 0.9,
                 beta_2: float = 0.95, adam_epsilon: float = 1e-8, maximize: bool = False, clip_norm: float = 0,
                 matrices: Callable[[str], bool] | None = None, **torch: Any) -> None:
        super().__init__("Muon", parameters, learning_rate, {
            "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "epsilon": epsilon, "iterations": iterations,
            "match_adamw": match_adamw, "beta_1": beta_1, "beta_2": beta_2, "adam_epsilon": adam_epsilon, "maximize": maximize,
            "clip_norm": clip_norm}, torch, matrices)


class LBFGS(_Updates):
    """A method of second order for smooth losses of whole batches (Liu and Nocedal 1989). step(closure) evaluates the loss several
    times: the closure returns it, with gradients by backward(), or the pair (loss, gradients). Options may have PyTorch's names."""

    def __init__(self, parameters: Parameters, learning_rate: float = 1, *, iterations: int = 20, evaluations: int = 0,
                 gradient_tolerance: float = 1e-7, change_tolerance: float = 1e-9, history: int = 100,
                 line_search: str | None = None, **torch: Any) -> None:
        names = {"lr": "learning_rate", "max_iter": "iterations", "max_eval": "evaluations", "tolerance_grad": "gradient_tolerance",
                 "tolerance_change": "change_tolerance", "history_size": "history", "line_search_fn": "line_search"}
        options: dict[str, Any] = {"learning_rate": learning_rate, "iterations": iterations, "evaluations": evaluations,
                                   "gradient_tolerance": gradient_tolerance, "change_tolerance": change_tolerance, "history": history,
                                   "line_search": line_search}
        for key, value in torch.items():
            if key not in names:
                raise TypeError(f"LBFGS: there is no option {key!r}; there are {', '.join(options)}")
            options[names[key]] = 0 if key == "max_eval" and value is None else value
        search = options.pop("line_search")
        if search not in (None, "strong_wolfe"):
            raise UsageError(f'LBFGS: line_search is {search!r}; it must be "strong_wolfe" or None')
        self._entries = _entries(parameters)
        self._native = _weft._LBFGS(self._entries, *options.values(), search is not None)

    def step(self, closure: Callable[[], Any]) -> float:
        """Gives the loss before the step."""

        def evaluate() -> tuple[float, list[Tensor]]:
            found = closure()
            if isinstance(found, tuple):
                loss, gradients = found
                return float(loss), list(gradients)
            return float(found), self._left_gradients("LBFGS", "call backward() in the closure, or return (loss, gradients)")

        return float(self._native.step(evaluate))

    @property
    def evaluation_count(self) -> int:
        """Evaluations of the loss so far."""
        return int(self._native.evaluation_count)

    def reset(self) -> None:
        """Forgets the curvature."""
        self._native.reset()

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._native.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._native.load_state_dict(dict(state))


class AveragedWeights:
    """Weights that are averaged over training: average = decay * average + (1 - decay) * weight, or with decay 0 the equal mean of all
    updates. update() may be part of a compiled function; swap() exchanges the averages with the weights, and back."""

    def __init__(self, parameters: Parameters, decay: float = 0) -> None:
        self._native = _weft._AveragedWeights(_entries(parameters), decay)

    def update(self) -> None:
        self._native.update()

    def swap(self) -> None:
        self._native.swap()

    def values(self) -> list[Tensor]:
        """The average of each parameter, in their order."""
        return list(self._native.values())

    @property
    def update_count(self) -> int:
        return int(self._native.update_count)

    def state_dict(self) -> dict[str, Tensor]:
        """ "n_averaged", and the averages by the names of parameters."""
        return dict(self._native.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._native.load_state_dict(dict(state))


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
