"""Layers of images: convolutions, pools, and the norms that go with them. Images are [N, C, space...]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import _check, _check_eps
from ._module import Init, Module, Parameter

Extents = Union[int, Sequence[int]]
_op: Any = _weft.op


def _extents(value: Extents, axes: int) -> list[int]:
    return [value] * axes if isinstance(value, int) else list(value)


class _Conv(Module):
    _axes = 2
    _transposed = False

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Extents | str = 0,
                 dilation: Extents = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros") -> None:
        self._make(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, 0, padding_mode)

    def _make(self, inputs: int, outputs: int, kernel_size: Extents, stride: Extents, padding: Extents | str, dilation: Extents, groups: int,
              bias: bool, output_padding: Extents, padding_mode: str) -> None:
        layer = type(self).__name__
        inputs = self.in_channels = self.inputs = _check(layer, "channels", inputs)
        outputs = self.out_channels = self.outputs = _check(layer, "channels", outputs)
        if groups < 1 or inputs % groups or outputs % groups:
            raise ShapeError(f"{layer}: {groups} groups do not divide {inputs} and {outputs} channels")
        self.kernel_size = _extents(kernel_size, self._axes)
        self.options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if self._transposed:
            self.options["output_padding"] = output_padding
        if isinstance(padding, str):
            if padding not in ("same", "valid") or (padding == "same" and any(n != 1 for n in _extents(stride, self._axes))):
                raise UsageError(f'{layer}: padding is {padding!r}; it must be numbers, "valid", or without a stride "same"')
            del self.options["padding"]
            if padding == "same":
                self.options["same"] = True
        modes = {"zeros": None, "reflect": "reflect", "replicate": "replicate", "circular": "circular"}
        if padding_mode not in modes or (self._transposed and padding_mode != "zeros"):
            raise UsageError(f"{layer}: padding_mode is {padding_mode!r}; it must be {'zeros' if self._transposed else ', '.join(modes)}")
        self._pads: list[tuple[int, int]] = []
        if modes[padding_mode]:  # padded first
            self._pad_mode = modes[padding_mode]
            rest = [d * (k - 1) for d, k in zip(_extents(dilation, self._axes), self.kernel_size)]
            pads = [(n // 2, n - n // 2) for n in rest] if padding == "same" else [(n, n) for n in _extents(0 if isinstance(padding, str) else padding, self._axes)]
            self._pads = pads
            self.options.pop("same", None)
            self.options["padding"] = 0
        first, second = (inputs, outputs // groups) if self._transposed else (outputs, inputs // groups)
        init = Init.kaiming_uniform(second * math.prod(self.kernel_size))
        self.weight = Parameter((first, second, *self.kernel_size), init)
        self.bias = Parameter((outputs,), init) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        function = _op(f"conv{'_transpose' if self._transposed else ''}{self._axes}d")
        if self._pads:
            x = _op("pad")(x, [(0, 0)] * (x.ndim - self._axes) + self._pads, mode=self._pad_mode)
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


class _ConvTranspose(_Conv):
    _transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Extents = 0,
                 output_padding: Extents = 0, groups: int = 1, bias: bool = True, dilation: Extents = 1, padding_mode: str = "zeros") -> None:
        self._make(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, output_padding, padding_mode)


class ConvTranspose1d(_ConvTranspose):
    """conv_transpose1d with weight [inputs, outputs / groups, kernel]."""

    _axes = 1


class ConvTranspose2d(_ConvTranspose):
    """conv_transpose2d with weight [inputs, outputs / groups, kernel...]."""


class ConvTranspose3d(_ConvTranspose):
    """conv_transpose3d with weight [inputs, outputs / groups, kernel...]."""

    _axes = 3


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
    running_var; else by these. With momentum None these are the means over all batches. Without track_running_stats there are none,
    and the batch's are always used."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True) -> None:
        channels = self.num_features = self.channels = _check("batch norm", "channels", num_features)
        self.eps, self.momentum, self.track_running_stats, self._batches = _check_eps("batch norm", eps), momentum, track_running_stats, 0
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None
        self.register_buffer("running_mean", _op("zeros")((channels,)) if track_running_stats else None)
        self.register_buffer("running_var", _op("ones")((channels,)) if track_running_stats else None)

    @property
    def num_batches_tracked(self) -> Tensor:
        """Batches since the statistics began; not saved."""
        return _op("full")((), self._batches, dtype="i64")

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self._batches = 0
            self.running_mean.assign(_op("zeros")((self.channels,)))
            self.running_var.assign(_op("ones")((self.channels,)))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.reset_running_stats()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and self.track_running_stats:
            return _op("batch_norm")(x, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps)
        count = x.size // self.channels
        if count < 2:
            raise UsageError(f"batch norm: {count} values a channel have no variance; train with more, or call eval()")
        axes = [0, *range(2, x.ndim)]
        mean, var = _op("mean")(x, axes), _op("var")(x, axes)
        if not self.track_running_stats:
            return _op("batch_norm")(x, self.weight, self.bias, eps=self.eps)
        self._batches += 1
        m = 1 / self._batches if self.momentum is None else self.momentum
        self.running_mean.assign(_op("detach")(self.running_mean * (1 - m) + mean * m))
        self.running_var.assign(_op("detach")(self.running_var * (1 - m) + var * m))
        return _op("batch_norm")(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"BatchNorm {self.channels}"


class GroupNorm(Module):
    """Norm of groups of channels of each image."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        channels = self.num_channels = self.channels = _check("group norm", "channels", num_channels)
        self.num_groups = self.groups = _check("group norm", "the number of groups", num_groups)
        self.eps = _check_eps("group norm", eps)
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("group_norm")(x, self.weight, self.bias, groups=self.groups, eps=self.eps)

    def describe(self) -> str:
        return f"GroupNorm {self.groups}, {self.channels}"


class InstanceNorm(Module):
    """Norm of each channel of each image."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False) -> None:
        if track_running_stats:
            raise UsageError("instance norm: there are no running statistics; leave track_running_stats out")
        channels = self.num_features = self.channels = _check("instance norm", "channels", num_features)
        self.eps = _check_eps("instance norm", eps)
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("instance_norm")(x, self.weight, self.bias, eps=self.eps)


class ChannelDropout(Module):
    """In training, each channel of each image is kept with probability 1-p and divided by 1-p, or else becomes 0."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p < 1:
            raise UsageError(f"dropout: probability {p} must be in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return _op("channel_dropout")(x, p=self.p) if self.training and self.p > 0 else x

    def describe(self) -> str:
        return f"Dropout of channels {self.p:g}"


class Upsample(Module):
    """interpolate() to a size, or to scale_factor times the extents of the axes of space. Modes: nearest, linear, cubic, and PyTorch's
    names bilinear, trilinear, bicubic."""

    def __init__(self, size: Extents | None = None, scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                 align_corners: bool | None = None) -> None:
        if (size is None) == (scale_factor is None):
            raise UsageError("upsample: give size or scale_factor")
        factors: Any = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor]
        if scale_factor is not None and any(each <= 0 for each in factors):
            raise UsageError(f"upsample: scale_factor is {scale_factor}; it must be above 0")
        self._size, self.scale_factor, self._factors = size, scale_factor, factors
        self.mode = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        self.align_corners = bool(align_corners)

    def forward(self, x: Tensor) -> Tensor:
        if not 3 <= x.ndim <= 5:
            raise ShapeError(f"upsample: x has rank {x.ndim}; it is [N, C, space...] with one to three axes of space")
        axes = x.ndim - 2
        if self._size is not None:
            size = _extents(self._size, axes)
        else:
            factors = self._factors * axes if len(self._factors) == 1 else self._factors
            size = [int(extent * factor) for extent, factor in zip(x.shape[2:], factors)]
        return _op("interpolate")(x, size, mode=self.mode, align_corners=self.align_corners)

    def describe(self) -> str:
        return f"Upsample {self._size if self.scale_factor is None else self.scale_factor}"


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
