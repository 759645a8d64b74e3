"""Parameters that are computed from others whenever they are read. The others are the module's parametrizations.NAME.original, or
original0, original1, ..., and it is these that train and are saved, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from ..._weft import UsageError, Variable
from .._module import Module, Parameter


class ParametrizationList(Module):
    """The originals of a parameter, and the modules that make it of them, one after another."""

    def __init__(self, first: Module, value: Variable, decay: bool) -> None:
        parts = first.right_inverse(value) if hasattr(first, "right_inverse") else value
        self._several = isinstance(parts, (tuple, list))
        for name, part in ([(f"original{i}", each) for i, each in enumerate(parts)] if self._several else [("original", parts)]):
            setattr(self, name, Parameter(Variable(part, name, value.requires_grad), decay=decay))
        self._names = [name for name in self._parameters]
        self._steps = 0
        self.append(first)

    def append(self, step: Module) -> None:
        setattr(self, str(self._steps), step)
        self._steps += 1

    def forward(self) -> Any:
        value: Any = [getattr(self, name) for name in self._names]
        value = self._children["0"](*value)
        for i in range(1, self._steps):
            value = self._children[str(i)](value)
        return value


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    table = module.__dict__.get("_parametrized", {})
    return bool(table) if tensor_name is None else tensor_name in table


def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """The parameter is parametrization(original) from now on. With right_inverse(value), originals are what that gives."""
    if is_parametrized(module, tensor_name):
        module._parametrized[tensor_name].append(parametrization)
        return module
    if tensor_name not in module._parameters:
        raise UsageError(f"parametrize: {type(module).__name__} has no parameter {tensor_name!r}")
    value, decay = module._variable(tensor_name), module._parameters[tensor_name].decay
    made = ParametrizationList(parametrization, value, decay)
    del module._parameters[tensor_name]
    if "parametrizations" not in module._children:
        module.parametrizations = Module()
    setattr(module._children["parametrizations"], tensor_name, made)
    module.__dict__.setdefault("_parametrized", {})[tensor_name] = made
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """The parameter is one of its own again, with the value that it had, or with the original's."""
    if not is_parametrized(module, tensor_name):
        raise UsageError(f"parametrize: {tensor_name!r} of {type(module).__name__} has no parametrization")
    made = module._parametrized.pop(tensor_name)
    if not leave_parametrized and made._several:
        raise UsageError(f"parametrize: {tensor_name!r} has several originals; leave_parametrized must be True")
    value = made().eval() if leave_parametrized else made.original.value
    first = made._parameters[made._names[0]]
    table = module._children["parametrizations"]
    delattr(table, tensor_name)
    if not table._children:
        del module._children["parametrizations"]
    setattr(module, tensor_name, Parameter(Variable(value, tensor_name, first.requires_grad), decay=first.decay))
    return module
