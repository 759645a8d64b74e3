"""Weights by direction and length, and of norm 1."""

from __future__ import annotations

from typing import Any

from ... import _weft
from ..._transforms import no_grad
from ..._weft import ShapeError, Tensor, UsageError
from .._module import Module
from .parametrize import register_parametrization, remove_parametrizations

_op: Any = _weft.op


class _WeightNorm(Module):
    """g v / |v|, with a norm for each index of axis dim."""

    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def _norm(self, v: Tensor) -> Tensor:
        axes = [i for i in range(v.ndim) if self.dim is None or i != self.dim % v.ndim]
        return _op("vector_norm")(v, 2.0, axes, True)

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / self._norm(v))

    def right_inverse(self, weight: Any) -> tuple[Tensor, Tensor]:
        return self._norm(weight.value).eval(), weight.value


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The weight is original0 * original1 / |original1|: length and direction train apart. dim: the axis with a length for each
    index; None: one length. Source: Salimans and Kingma 2016, arXiv:1602.07868."""
    return register_parametrization(module, name, _WeightNorm(dim))


class _SpectralNorm(Module):
    """weight / (u W v), where u and v come nearer to the first singular vectors at each read in training."""

    def __init__(self, weight: Tensor, iterations: int, dim: int, eps: float) -> None:
        self.iterations, self.dim, self.eps = iterations, dim, eps
        matrix = self._matrix(weight)
        self.register_buffer("_u", self._unit(_op("randn")((matrix.shape[0],))))
        self.register_buffer("_v", self._unit(_op("randn")((matrix.shape[1],))))
        with no_grad():
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        moved = _op("moveaxis")(weight, self.dim, 0) if self.dim else weight
        return _op("reshape")(moved, (moved.shape[0], moved.size // moved.shape[0]))

    def _unit(self, x: Tensor) -> Tensor:
        return x / _op("maximum")(_op("vector_norm")(x), self.eps)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        u, v = self._u.value, self._v.value
        for _ in range(count):
            u = self._unit(_op("matmul")(matrix, v))
            v = self._unit(_op("matmul")(_op("transpose")(matrix), u))
        self._u.assign(_op("detach")(u))
        self._v.assign(_op("detach")(v))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(_op("detach")(matrix), self.iterations)
        return weight / _op("sum")(self._u.value * _op("matmul")(matrix, self._v.value))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """The weight, as a matrix whose rows are axis dim, is divided by its largest singular value, which is followed by
    n_power_iterations at each read in training. Source: Miyato et al. 2018, arXiv:1802.05957."""
    if n_power_iterations < 1:
        raise UsageError(f"spectral_norm: n_power_iterations is {n_power_iterations}; it must be at least 1")
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ShapeError(f"spectral_norm: {name} has rank {weight.ndim}; it must be at least 2")
    axis = (1 if type(module).__name__.startswith("ConvTranspose") else 0) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight.value, n_power_iterations, axis, eps))


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """The weight is a parameter of its own again, with its value."""
    return remove_parametrizations(module, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """The weight is a parameter of its own again, with its value."""
    return remove_parametrizations(module, name)
