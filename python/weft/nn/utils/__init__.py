"""Gradients and parameters as a whole, and layers joined, with PyTorch's names."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any, Union

from ... import _weft
from ..._weft import ShapeError, Tensor, UsageError, Variable
from .._images import BatchNorm
from .._layers import Linear
from .._module import Module
from . import parametrizations as parametrizations, parametrize as parametrize, rnn as rnn
from .parametrizations import remove_spectral_norm as remove_spectral_norm, remove_weight_norm as remove_weight_norm
from .parametrizations import spectral_norm as spectral_norm, weight_norm as weight_norm

_op: Any = _weft.op
Variables = Union[Module, Variable, Iterable[Variable]]


def _variables(parameters: Variables) -> list[Variable]:
    if isinstance(parameters, Module):
        return parameters.parameters()
    return [parameters] if isinstance(parameters, Variable) else list(parameters)


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all elements together."""
    flat = [_op("reshape")(each, (each.size,)) for each in tensors]
    if not flat:
        return _op("zeros")(())
    return _op("vector_norm")(_op("concat")(flat), norm_type)


def clip_grad_norm_(parameters: Variables, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scales the gradients that backward() left so that their norm is at most max_norm. Gives the norm before."""
    if not max_norm > 0:
        raise UsageError(f"clip_grad_norm_: the largest norm is {max_norm}; it must be above 0")
    given = [each for each in _variables(parameters) if each.grad is not None]
    norm = get_total_norm([each.grad for each in given if each.grad is not None], norm_type)
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise UsageError("clip_grad_norm_: the norm of the gradients is not finite")
    factor = _op("minimum")(max_norm / (norm + 1e-6), 1.0)
    for each in given:
        each.grad = each.grad * factor  # type: ignore[operator]
    return norm


def clip_grad_value_(parameters: Variables, clip_value: float) -> None:
    """Moves the elements of gradients into [-clip_value, clip_value]."""
    if not clip_value >= 0:
        raise UsageError(f"clip_grad_value_: the largest value is {clip_value}; it must be at least 0")
    for each in _variables(parameters):
        if each.grad is not None:
            each.grad = _op("clamp")(each.grad, -clip_value, clip_value)


def parameters_to_vector(parameters: Variables) -> Tensor:
    """All elements, one parameter after another."""
    return _op("concat")([_op("reshape")(each.value, (each.size,)) for each in _variables(parameters)])


def vector_to_parameters(vector: Tensor, parameters: Variables) -> None:
    """Sets parameters to the parts of a vector."""
    variables = _variables(parameters)
    count = sum(each.size for each in variables)
    if vector.ndim != 1 or vector.shape[0] != count:
        raise ShapeError(f"vector_to_parameters: {count} elements are needed, given {list(vector.shape)}")
    offset = 0
    for each in variables:
        each.assign(_op("narrow")(vector, 0, offset, each.size).reshape(each.shape))
        offset += each.size


def fuse_conv_bn_weights(weight: Tensor, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float, scale: Tensor | None,
                         shift: Tensor | None, transpose: bool = False) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution with the batch norm behind it."""
    factor = _op("rsqrt")(variance + eps) * (1.0 if scale is None else scale)
    shape = [1] * weight.ndim
    shape[1 if transpose else 0] = -1
    moved = -mean if bias is None else bias - mean
    return weight * factor.reshape(tuple(shape)), moved * factor + (0.0 if shift is None else shift)


def fuse_linear_bn_weights(weight: Tensor, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float, scale: Tensor | None,
                           shift: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear layer with the batch norm behind it."""
    return fuse_conv_bn_weights(weight, bias, mean, variance, eps, scale, shift)


def _fused(layer: Any, norm: BatchNorm, transpose: bool) -> Any:
    if layer.training or norm.training:
        raise UsageError("fuse: call eval() first; in training, a batch norm depends on the batch")
    fused = copy.deepcopy(layer)
    weight, bias = fuse_conv_bn_weights(layer.weight.value, None if layer.bias is None else layer.bias.value, norm.running_mean.value,
                                        norm.running_var.value, norm.eps, None if norm.weight is None else norm.weight.value,
                                        None if norm.bias is None else norm.bias.value, transpose)
    fused.weight, fused.bias = Variable(weight, "weight"), Variable(bias, "bias")
    return fused


def fuse_conv_bn_eval(conv: Any, bn: BatchNorm, transpose: bool = False) -> Any:
    """A convolution that does what conv and then bn do, in evaluation."""
    return _fused(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Linear, bn: BatchNorm) -> Linear:
    """A linear layer that does what linear and then bn do, in evaluation."""
    fused: Linear = _fused(linear, bn, False)
    return fused
