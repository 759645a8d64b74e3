"""Layers of images: convolutions, pools, and the norms that go with them. Images are [N, C, space...]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import _check
from ._module import Init, Module, Parameter

Extents = Union[int, Sequence[int]]
_op: Any = _weft.op


def _extents(value: Extents, axes: int) -> list[int]:
    return [value] * axes if isinstance(value, int) else list(value)


class _Conv(Module):
    _axes = 2
    _transposed = False

    def __init__(self, inputs: int, outputs: int, kernel_size: Extents, stride: Extents = 1, padding: Extents = 0,
                 dilation: Extents = 1, groups: int = 1, bias: bool = True, output_padding: Extents = 0) -> None:
        layer = type(self).__name__
        self.inputs, self.outputs = _check(layer, "channels", inputs), _check(layer, "channels", outputs)
        if groups < 1 or inputs % groups or outputs % groups:
            raise ShapeError(f"{layer}: {groups} groups do not divide {inputs} and {outputs} channels")
        self.kernel_size = _extents(kernel_size, self._axes)
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if self._transposed:
            self.options["output_padding"] = output_padding
        first, second = (inputs, outputs // groups) if self._transposed else (outputs, inputs // groups)
        init = Init.kaiming_uniform(second * math.prod(self.kernel_size))
        self.weight = Parameter((first, second, *self.kernel_size), init)
        self.bias = Parameter((outputs,), init) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        function = _op(f"conv{'_transpose' if self._transposed else ''}{self._axes}d")
        return function(x, self.weight, self.bias, **self.options)

    def describe(self) -> str:
        return f"{type(self).__name__} {self.inputs} -> {self.outputs}, {' x '.join(map(str, self.kernel_size))}"


class Conv1d(_Conv):
    """conv1d with weight [outputs, inputs / groups, kernel] and bias [outputs]."""

    _axes = 1


class Conv2d(_Conv):
    """conv2d with weight [outputs, inputs / groups, kernel...] and bias [outputs]."""


class Conv3d(_Conv):
    """conv3d with weight [outputs, inputs / groups, kernel...] and bias [outputs]."""

    _axes = 3


class ConvTranspose1d(_Conv):
    """conv_transpose1d with weight [inputs, outputs / groups, kernel]."""

    _axes, _transposed = 1, True


class ConvTranspose2d(_Conv):
    """conv_transpose2d with weight [inputs, outputs / groups, kernel...]."""

    _transposed = True


class ConvTranspose3d(_Conv):
    """conv_transpose3d with weight [inputs, outputs / groups, kernel...]."""

    _axes, _transposed = 3, True


class _Pool(Module):
    _op_name = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options

    def forward(self, x: Tensor) -> Tensor:
        if not 3 <= x.ndim <= 5:
            raise ShapeError(f"{type(self).__name__}: x has rank {x.ndim}; it is [N, C, space...] with one to three axes of space")
        return _op(f"{self._op_name}{x.ndim - 2}d")(x, *self.arguments, **self.options)


class MaxPool(_Pool):
    """The greatest element of each window: MaxPool(kernel_size, stride=..., padding=...)."""

    _op_name = "max_pool"


class AvgPool(_Pool):
    """The mean of each window."""

    _op_name = "avg_pool"


class AdaptiveAvgPool(_Pool):
    """The mean of `size` windows that cover x."""

    _op_name = "adaptive_avg_pool"


class AdaptiveMaxPool(_Pool):
    """The greatest element of `size` windows that cover x."""

    _op_name = "adaptive_max_pool"


class BatchNorm(Module):
    """Norm of each channel over images and places. In training by the statistics of the batch, which move running_mean and
    running_var; else by these."""

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        self.channels, self.eps, self.momentum = _check("batch norm", "channels", channels), eps, momentum
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None
        self.register_buffer("running_mean", _op("zeros")((channels,)))
        self.register_buffer("running_var", _op("ones")((channels,)))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return _op("batch_norm")(x, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps)
        count = x.size // self.channels
        if count < 2:
            raise UsageError(f"batch norm: {count} values a channel have no variance; train with more, or call eval()")
        axes = [0, *range(2, x.ndim)]
        mean, var = _op("mean")(x, axes), _op("var")(x, axes)
        m = self.momentum
        self.running_mean.assign(_op("detach")(self.running_mean * (1 - m) + mean * m))
        self.running_var.assign(_op("detach")(self.running_var * (1 - m) + var * m))
        return _op("batch_norm")(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"BatchNorm {self.channels}"


class GroupNorm(Module):
    """Norm of groups of channels of each image."""

    def __init__(self, groups: int, channels: int, affine: bool = True, eps: float = 1e-5) -> None:
        self.groups, self.channels, self.eps = groups, channels, eps
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("group_norm")(x, self.weight, self.bias, groups=self.groups, eps=self.eps)

    def describe(self) -> str:
        return f"GroupNorm {self.groups}, {self.channels}"


class InstanceNorm(Module):
    """Norm of each channel of each image."""

    def __init__(self, channels: int, affine: bool = False, eps: float = 1e-5) -> None:
        self.channels, self.eps = channels, eps
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("instance_norm")(x, self.weight, self.bias, eps=self.eps)


class ChannelDropout(Module):
    """In training, each channel of each image is kept with probability 1-p and divided by 1-p, or else becomes 0."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise UsageError(f"dropout: probability {p} must be in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return _op("channel_dropout")(x, p=self.p) if self.training and self.p > 0 else x

    def describe(self) -> str:
        return f"Dropout of channels {self.p:g}"


class Upsample(Module):
    """interpolate() to `scale` times the extents of the axes of space. Modes: nearest, linear, cubic."""

    def __init__(self, scale: int, mode: str = "nearest", align_corners: bool = False) -> None:
        if scale < 1:
            raise UsageError(f"upsample: the scale is {scale}; it must be at least 1")
        self.scale, self.mode, self.align_corners = scale, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        if not 3 <= x.ndim <= 5:
            raise ShapeError(f"upsample: x has rank {x.ndim}; it is [N, C, space...] with one to three axes of space")
        size = [extent * self.scale for extent in x.shape[2:]]
        return _op("interpolate")(x, size, mode=self.mode, align_corners=self.align_corners)

    def describe(self) -> str:
        return f"Upsample {self.scale}"


class UpsamplingNearest2d(Module):
    """interpolate() of images [N, C, H, W] to a size, or to a multiple of theirs."""

    _mode, _align_corners = "nearest", False

    def __init__(self, size: Extents | None = None, scale_factor: int | None = None) -> None:
        if (size is None) == (scale_factor is None):
            raise UsageError(f"{type(self).__name__}: give size or scale_factor")
        self.size, self.scale_factor = size, scale_factor

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise ShapeError(f"{type(self).__name__}: x has rank {x.ndim}; it is [N, C, H, W]")
        size = [n * self.scale_factor for n in x.shape[2:]] if self.scale_factor else _extents(self.size or 1, 2)
        return _op("interpolate")(x, size, mode=self._mode, align_corners=self._align_corners)


class UpsamplingBilinear2d(UpsamplingNearest2d):
    """The same, bilinear, where corners stay corners."""

    _mode, _align_corners = "linear", True
