"""Layers without parameters that move, pad, pool or compare elements, and EmbeddingBag; lists of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from .. import _weft
from .._tensor import arange
from .._weft import ShapeError, Tensor, UsageError
from ._layers import _check
from ._module import Init, Module, Parameter

Extents = Union[int, Sequence[int]]
_op: Any = _weft.op


class _Pad(Module):
    _mode, _axes = "constant", 1

    def __init__(self, padding: Extents, value: float = 0.0) -> None:
        """padding: before and after each axis, the last axis first; one number for all of them."""
        given = [padding] * (2 * self._axes) if isinstance(padding, int) else [int(each) for each in padding]
        if len(given) != 2 * self._axes:
            raise UsageError(f"{type(self).__name__}: padding needs {2 * self._axes} numbers, given {len(given)}")
        self.padding, self.value = given, value

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < self._axes:
            raise ShapeError(f"{type(self).__name__}: x has rank {x.ndim}; it must be at least {self._axes}")
        pairs = [(self.padding[2 * i], self.padding[2 * i + 1]) for i in reversed(range(self._axes))]
        return _op("pad")(x, [(0, 0)] * (x.ndim - self._axes) + pairs, mode=self._mode, value=self.value)

    def describe(self) -> str:
        return f"{type(self).__name__} {self.padding}"


def _pad(name: str, mode: str, axes: int) -> type[_Pad]:
    return type(name, (_Pad,), {"_mode": mode, "_axes": axes, "__doc__": f"pad of the last {axes} axes, {mode}.", "__module__": __name__})


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_pad(f"ConstantPad{n}d", "constant", n) for n in (1, 2, 3))
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_pad(f"ZeroPad{n}d", "constant", n) for n in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_pad(f"ReflectionPad{n}d", "reflect", n) for n in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_pad(f"ReplicationPad{n}d", "replicate", n) for n in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (_pad(f"CircularPad{n}d", "circular", n) for n in (1, 2, 3))


class _OfOne(Module):
    """An op of one tensor, with the arguments of the module."""

    _op_name = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options

    def forward(self, x: Tensor) -> Tensor:
        return _op(self._op_name)(x, *self.arguments, **self.options)


class PixelShuffle(_OfOne):
    """pixel_shuffle by a factor."""

    _op_name = "pixel_shuffle"


class PixelUnshuffle(_OfOne):
    """pixel_unshuffle by a factor."""

    _op_name = "pixel_unshuffle"


class ChannelShuffle(_OfOne):
    """channel_shuffle of groups."""

    _op_name = "channel_shuffle"


class LocalResponseNorm(_OfOne):
    """local_response_norm over `size` channels."""

    _op_name = "local_response_norm"


class Unflatten(Module):
    """Divides an axis into several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        return _op("unflatten")(x, self.dim, self.unflattened_size)


class Unfold(Module):
    """The windows of x [N, C, H, W] as columns, [N, C * kernel, windows]."""

    def __init__(self, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0, stride: Extents = 1) -> None:
        self.kernel, self.options = kernel_size, {"stride": stride, "padding": padding, "dilation": dilation}

    def forward(self, x: Tensor) -> Tensor:
        return _op("im2col")(x, self.kernel, **self.options)


class Fold(Module):
    """The sum of windows, given as columns, in an image: the inverse of Unfold where windows do not overlap."""

    def __init__(self, output_size: Extents, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0, stride: Extents = 1) -> None:
        self.size, self.kernel = output_size, kernel_size
        self.options = {"stride": stride, "padding": padding, "dilation": dilation}

    def forward(self, x: Tensor) -> Tensor:
        return _op("fold")(x, self.size, self.kernel, **self.options)


class CosineSimilarity(Module):
    """x . y / max(|x| |y|, eps) along an axis."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return _op("cosine_similarity")(x, y, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x - y + eps along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return _op("pairwise_distance")(x, y, self.p, self.eps, self.keepdim)


class _Windows(Module):
    _op_name, _axes = "", 2

    def _run(self, x: Tensor, *inputs: Any, **options: Any) -> Any:
        if x.ndim != self._axes + 2:
            raise ShapeError(f"{type(self).__name__}: x has rank {x.ndim}; it is [N, C, space...] with {self._axes} axes of space")
        return _op(f"{self._op_name}{self._axes}d")(x, *inputs, **options)


class LPPool2d(_Windows):
    """The p-norm of each window."""

    _op_name = "lp_pool"

    def __init__(self, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False) -> None:
        self.options = {"p": norm_type, "ceil_mode": ceil_mode, **({} if stride is None else {"stride": stride})}
        self.kernel = kernel_size

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x, kernel=self.kernel, **self.options)


class LPPool1d(LPPool2d):
    """The p-norm of each window."""

    _axes = 1


class MaxUnpool2d(_Windows):
    """Puts each element of x where max_pool_positions says, and zeros elsewhere."""

    _op_name = "max_unpool"

    def __init__(self, kernel_size: Extents, stride: Extents | None = None, padding: Extents = 0) -> None:
        self.kernel, self.options = kernel_size, {"padding": padding, **({} if stride is None else {"stride": stride})}

    def forward(self, x: Tensor, positions: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        size = {} if output_size is None else {"size": list(output_size)[-self._axes:]}
        return self._run(x, positions, kernel=self.kernel, **self.options, **size)


class MaxUnpool1d(MaxUnpool2d):
    """As MaxUnpool2d."""

    _axes = 1


class MaxUnpool3d(MaxUnpool2d):
    """As MaxUnpool2d."""

    _axes = 3


class FractionalMaxPool2d(_Windows):
    """The greatest elements of windows at places that are drawn, for outputs of a size or of a ratio of the input's."""

    _op_name = "fractional_max_pool"

    def __init__(self, kernel_size: Extents, output_size: Extents | None = None, output_ratio: float | Sequence[float] | None = None,
                 return_indices: bool = False) -> None:
        if (output_size is None) == (output_ratio is None):
            raise UsageError(f"{type(self).__name__}: give output_size or output_ratio")
        if output_size is not None:
            self.options: dict[str, Any] = {"size": output_size}
        else:
            ratios = [output_ratio] * self._axes if isinstance(output_ratio, (int, float)) else output_ratio
            self.options = {"ratio": list(ratios or [])}
        self.kernel, self.return_indices = kernel_size, return_indices

    def forward(self, x: Tensor) -> Any:
        y, positions = self._run(x, kernel=self.kernel, **self.options)
        return (y, positions) if self.return_indices else y


class FractionalMaxPool3d(FractionalMaxPool2d):
    """As FractionalMaxPool2d."""

    _axes = 3


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table, for bags of indices: [N, B], or [M] with the begin of each bag in `offsets`."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, mode: str = "mean") -> None:
        rows, width = num_embeddings, embedding_dim
        if mode not in ("sum", "mean", "max"):
            raise UsageError(f'EmbeddingBag: mode is {mode!r}; it must be "sum", "mean" or "max"')
        self.rows, self.width, self.mode = _check("embedding bag", "the number of rows", rows), _check("embedding bag", "the width", width), mode
        self.weight = Parameter((rows, width), Init.normal(1))

    def forward(self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if indices.ndim == 2:
            if offsets is not None:
                raise UsageError("EmbeddingBag: indices [N, B] are bags of B; leave offsets out")
            offsets = arange(0, indices.size, indices.shape[1], dtype="i32")
            indices = _op("reshape")(indices, (indices.size,))
            if per_sample_weights is not None:
                per_sample_weights = _op("reshape")(per_sample_weights, (indices.size,))
        return _op("embedding_bag")(self.weight, indices, offsets, per_sample_weights, mode=self.mode)

    def describe(self) -> str:
        return f"EmbeddingBag {self.rows} x {self.width}, {self.mode}"


class ParameterList(Module):
    """Parameters named by their positions."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._count = 0
        self.extend(values)

    def extend(self, values: Iterable[Any]) -> ParameterList:
        for value in list(values):
            self.append(value)
        return self

    __iadd__ = extend

    def append(self, value: Any) -> ParameterList:
        setattr(self, str(self._count), value if _is_parameter(value) else Parameter(value))
        self._count += 1
        return self

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if not -self._count <= index < self._count:
            raise IndexError(f"ParameterList of {self._count}: there is no parameter {index}")
        return getattr(self, str(index % self._count))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._count))


class ParameterDict(Module):
    """Parameters by names."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        for name, value in (values or {}).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._parameters and hasattr(self, name):
            raise UsageError(f"ParameterDict: {name!r} is an attribute of every module; choose another name")
        setattr(self, name, value if _is_parameter(value) else Parameter(value))

    def __getitem__(self, name: str) -> Any:
        if name not in self._parameters:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def keys(self) -> list[str]:
        return list(self._parameters)

    def items(self) -> list[tuple[str, Any]]:
        return [(name, self[name]) for name in self._parameters]


def _is_parameter(value: Any) -> bool:
    from ._module import _Parameter
    return isinstance(value, (_Parameter, _weft.Variable))
