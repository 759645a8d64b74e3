"""Initial values for parameters that exist, with PyTorch's names: init.kaiming_normal_(layer.weight). They draw from the generator that
weft.manual_seed sets. Init (weft.nn.Init) describes values that a parameter gets when it is first read."""

from __future__ import annotations

import math
from typing import Any

from .. import _weft
from .._changes import replace
from .._weft import ShapeError, Tensor, UsageError

_op: Any = _weft.op

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4,
          **{f"conv{'_transpose' if transposed else ''}{n}d": 1.0 for n in (1, 2, 3) for transposed in (False, True)}}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the size of values through an activation."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise UsageError(f"calculate_gain: {nonlinearity!r} is unknown; there are {', '.join([*_GAINS, 'leaky_relu'])}")
    return _GAINS[nonlinearity]


def _fans(variable: Tensor, name: str) -> tuple[int, int]:
    if variable.ndim < 2:
        raise ShapeError(f"{name}: the parameter has rank {variable.ndim}; inputs and outputs are the first two axes")
    field = math.prod(variable.shape[2:])
    return variable.shape[1] * field, variable.shape[0] * field


def _set(variable: Tensor, value: Tensor) -> Tensor:
    if not isinstance(variable, Tensor):
        raise TypeError(f"init: {type(variable).__name__} is not a tensor; give a parameter, such as layer.weight")
    replace(variable, value.to(variable.dtype).to(variable.device))
    return variable


def constant_(variable: Tensor, val: float) -> Tensor:
    return _set(variable, _op("full")(variable.shape, val))


def zeros_(variable: Tensor) -> Tensor:
    return constant_(variable, 0)


def ones_(variable: Tensor) -> Tensor:
    return constant_(variable, 1)


def uniform_(variable: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    return _set(variable, _op("rand")(variable.shape) * (b - a) + a)


def normal_(variable: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _set(variable, _op("randn")(variable.shape) * std + mean)


def trunc_normal_(variable: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    return _set(variable, _op("truncated_normal")(variable.shape, mean, std, a, b))


def xavier_uniform_(variable: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform in +-gain sqrt(6 / (inputs + outputs)). Source: Glorot and Bengio 2010."""
    bound = gain * math.sqrt(6 / sum(_fans(variable, "xavier_uniform_")))
    return uniform_(variable, -bound, bound)


def xavier_normal_(variable: Tensor, gain: float = 1.0) -> Tensor:
    return normal_(variable, 0, gain * math.sqrt(2 / sum(_fans(variable, "xavier_normal_"))))


def _kaiming(variable: Tensor, a: float, mode: str, nonlinearity: str, name: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise UsageError(f'{name}: mode is {mode!r}; it must be "fan_in" or "fan_out"')
    return calculate_gain(nonlinearity, a) / math.sqrt(_fans(variable, name)[mode == "fan_out"])


def kaiming_uniform_(variable: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Uniform in +-gain sqrt(3 / fan). Source: He et al. 2015, arXiv:1502.01852."""
    bound = math.sqrt(3) * _kaiming(variable, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(variable, -bound, bound)


def kaiming_normal_(variable: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    return normal_(variable, 0, _kaiming(variable, a, mode, nonlinearity, "kaiming_normal_"))


def eye_(variable: Tensor) -> Tensor:
    if variable.ndim != 2:
        raise ShapeError(f"eye_: the parameter has rank {variable.ndim}; it must be 2")
    return _set(variable, _op("eye")(*variable.shape))


def orthogonal_(variable: Tensor, gain: float = 1.0) -> Tensor:
    """Rows or columns of length gain that are orthogonal to each other; axes after the first are one. Computed on the CPU.
    Source: Saxe et al. 2013, arXiv:1312.6120."""
    rows = variable.shape[0] if variable.ndim >= 2 else 0
    if rows == 0:
        raise ShapeError(f"orthogonal_: a parameter {list(variable.shape)} is not a matrix")
    columns = variable.size // rows
    drawn = _op("randn")((max(rows, columns), min(rows, columns)), device="cpu")
    q, r = _op("qr")(drawn)
    q = q * _op("sign")(_op("diagonal")(r))
    return _set(variable, (_op("transpose")(q) if rows < columns else q).reshape(variable.shape) * gain)


def dirac_(variable: Tensor, groups: int = 1) -> Tensor:
    """Weights of a convolution that keeps its input."""
    if not 3 <= variable.ndim <= 5 or groups < 1 or variable.shape[0] % groups:
        raise ShapeError(f"dirac_: {list(variable.shape)} is not the weight of a convolution of {groups} groups")
    outputs, inputs = variable.shape[:2]
    own, middle = outputs // groups, [n // 2 for n in variable.shape[2:]]
    rows = _op("concat")([_op("eye")(own, inputs)] * groups)
    values = rows.reshape((outputs, inputs, *([1] * len(middle))))
    padding = [(0, 0), (0, 0), *((m, n - m - 1) for m, n in zip(middle, variable.shape[2:]))]
    return _set(variable, _op("pad")(values, padding))


def sparse_(variable: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normal, with a share of zeros in each column."""
    if variable.ndim != 2:
        raise ShapeError(f"sparse_: the parameter has rank {variable.ndim}; it must be 2")
    rows = variable.shape[0]
    order = _op("argsort")(_op("argsort")(_op("rand")(variable.shape), 0), 0)  # the rank of each in its column
    return _set(variable, _op("where")(order < math.ceil(sparsity * rows), 0.0, _op("randn")(variable.shape) * std))
