"""Activations as modules, with PyTorch's names and options."""

from __future__ import annotations

from typing import Any

from .. import _weft
from .._weft import Tensor, UsageError
from ._module import Init, Module, Parameter

_op: Any = _weft.op


class _Activation(Module):
    """An op of one tensor. `_names` are the options that may be given by position, under PyTorch's name and the op's."""

    _op_name = ""
    _names: tuple[tuple[str, str], ...] = ()

    def __init__(self, *values: Any, inplace: bool = False, **options: Any) -> None:
        if len(values) == len(self._names) + 1 and isinstance(values[-1], bool):
            values = values[:-1]  # inplace
        if len(values) > len(self._names):
            raise TypeError(f"{type(self).__name__} takes {len(self._names)} options by position, given {len(values)}")
        renamed = dict(self._names)
        self.options = {name: value for (_, name), value in zip(self._names, values)}
        self.options.update({renamed.get(name, name): value for name, value in options.items()})

    def forward(self, x: Tensor) -> Tensor:
        return _op(self._op_name)(x, **self.options)


def _activation(name: str, op: str, *names: tuple[str, str]) -> type[_Activation]:
    return type(name, (_Activation,), {"_op_name": op, "_names": names, "__doc__": f"weft.{op}.", "__module__": __name__})


_ALPHA, _LAMBDA, _DIM = ("alpha", "alpha"), ("lambd", "lambd"), ("dim", "axis")
ReLU, SiLU, Tanh, Sigmoid, ReLU6, SELU, Mish, Softsign, Tanhshrink, LogSigmoid, Hardswish, Hardsigmoid = (
    _activation(name, op) for name, op in (
        ("ReLU", "relu"), ("SiLU", "silu"), ("Tanh", "tanh"), ("Sigmoid", "sigmoid"), ("ReLU6", "relu6"), ("SELU", "selu"), ("Mish", "mish"),
        ("Softsign", "softsign"), ("Tanhshrink", "tanhshrink"), ("LogSigmoid", "log_sigmoid"), ("Hardswish", "hardswish"),
        ("Hardsigmoid", "hardsigmoid")))
ELU, CELU = _activation("ELU", "elu", _ALPHA), _activation("CELU", "celu", _ALPHA)
LeakyReLU = _activation("LeakyReLU", "leaky_relu", ("negative_slope", "negative_slope"))
Hardshrink, Softshrink = _activation("Hardshrink", "hardshrink", _LAMBDA), _activation("Softshrink", "softshrink", _LAMBDA)
Hardtanh = _activation("Hardtanh", "hardtanh", ("min_val", "min_val"), ("max_val", "max_val"))
Softplus = _activation("Softplus", "softplus", ("beta", "beta"), ("threshold", "threshold"))
Threshold = _activation("Threshold", "threshold", ("threshold", "threshold"), ("value", "value"))
GLU, Softmin = _activation("GLU", "glu", _DIM), _activation("Softmin", "softmin", _DIM)
Softmax, LogSoftmax = _activation("Softmax", "softmax", _DIM), _activation("LogSoftmax", "log_softmax", _DIM)


class GELU(Module):
    """x P(X <= x) of a standard normal X; approximate="tanh" gives gelu_tanh."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise UsageError(f'GELU: approximate is {approximate!r}; it must be "none" or "tanh"')
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return _op("gelu_tanh" if self.approximate == "tanh" else "gelu")(x)


class Softmax2d(Module):
    """Softmax over the channels of x [N, C, H, W] or [C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return _op("softmax")(x, -3)


class RReLU(Module):
    """In training the slope of each negative element is drawn from [lower, upper); else it is their mean."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        return _op("rrelu")(x, lower=self.lower, upper=self.upper, training=self.training)


class PReLU(Module):
    """max(x, 0) + weight min(x, 0)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Parameter((num_parameters,), Init.constant(init))

    def forward(self, x: Tensor) -> Tensor:
        return _op("prelu")(x, self.weight)
