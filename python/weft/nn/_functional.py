"""Functions of networks whose arguments PyTorch has in another form than the table of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

from .. import _weft
from .._types import DTypeLike
from .._weft import ShapeError, Tensor, UsageError
from . import _losses
from ._losses import _reduced

_op: Any = _weft.op
Extents = Union[int, Sequence[int]]


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:  # noqa: A002
    """x / max(|x|_p, eps) along an axis."""
    return input / _op("maximum")(_op("vector_norm")(input, p, dim, True), eps)


# ---- Activations. `inplace` is taken and changes nothing.


def _activation(name: str, *options: str) -> Callable[..., Tensor]:
    function = _op(name)

    def activation(input: Tensor, *values: Any, inplace: bool = False, **named: Any) -> Tensor:  # noqa: A002
        if len(values) > len(options):  # PyTorch's last argument is inplace
            values = values[:len(options)]
        made: Tensor = function(input, **dict(zip(options, values)), **named)
        return made

    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = function.__doc__
    return activation


relu, relu6, selu, silu, mish, hardsigmoid, hardswish = (_activation(name) for name in (
    "relu", "relu6", "selu", "silu", "mish", "hardsigmoid", "hardswish"))
leaky_relu, celu, elu = _activation("leaky_relu", "negative_slope"), _activation("celu", "alpha"), _activation("elu", "alpha")
hardtanh, threshold = _activation("hardtanh", "min_val", "max_val"), _activation("threshold", "threshold", "value")


def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Tensor:  # noqa: A002
    """max(x, 0) + slope min(x, 0); in training each element draws its slope from [lower, upper], else it is their mean."""
    return _op("rrelu")(input, lower, upper, training=training)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    """x times the normal distribution at x; approximate="tanh": by tanh."""
    if approximate not in ("none", "tanh"):
        raise UsageError(f'gelu: approximate is {approximate!r}; it must be "none" or "tanh"')
    return _op("gelu" if approximate == "none" else "gelu_tanh")(input)


def _along(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None) -> Tensor:  # noqa: A002
        if dim is None:
            raise UsageError(f"{name}: give dim, the axis")
        made: Tensor = _op(name)(input if dtype is None else input.to(dtype), dim)
        return made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _op(name).__doc__
    return function


softmax, log_softmax, softmin = _along("softmax"), _along("log_softmax"), _along("softmin")


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + Gumbel noise) / tau), with `hard` as one-hot rows whose gradient is that of the soft ones."""
    return _op("gumbel_softmax")(logits, _op("rand")(logits.shape, device=logits.device), tau, hard, dim)


# ---- Dropout


def _dropping(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002
        if not 0 <= p <= 1:
            raise UsageError(f"dropout: probability {p} must be in [0, 1]")
        if not training or p == 0:
            return input
        made: Tensor = _op("zeros_like")(input) if p == 1 else _op(name)(input, p=p)
        return made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{_op(name).__doc__}\n\nWithout `training` x itself."
    return function


dropout, alpha_dropout, feature_alpha_dropout = (_dropping(name) for name in ("dropout", "alpha_dropout", "feature_alpha_dropout"))
dropout1d = dropout2d = dropout3d = _dropping("channel_dropout")


# ---- Tables, windows and sizes


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:  # noqa: A002
    """Rows of the table `weight`; no gradient flows to the row padding_idx."""
    rows: Tensor = _op("embedding")(weight, input)
    if padding_idx is None:
        return rows
    return _op("where")((input == padding_idx % weight.shape[0]).unsqueeze(-1), rows.detach(), rows)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, *, mode: str = "mean",  # noqa: A002
                  per_sample_weights: Tensor | None = None) -> Tensor:
    """Sums, means or maxima of rows for bags of indices: [N, B], or [M] with the begin of each bag in `offsets`."""
    if input.ndim == 2:
        offsets = _op("range")(0, input.size, input.shape[1], dtype="i32")
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape((-1,))
        input = input.reshape((-1,))  # noqa: A001
    return _op("embedding_bag")(weight, input, offsets, per_sample_weights, mode=mode)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integers as rows with one 1, of the indices' dtype; num_classes -1: one more than the largest, which is asked for."""
    classes = num_classes if num_classes >= 0 else int(tensor.max().item()) + 1
    return _op("one_hot")(tensor, classes, dtype=tensor.dtype)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:  # noqa: A002
    """Elements before and after each axis, the last axis first: (left, right, top, bottom). Negative numbers take elements away."""
    given = [int(n) for n in pad]
    if len(given) % 2 or len(given) > 2 * input.ndim:
        raise UsageError(f"pad: {len(given)} numbers for {input.ndim} axes; give two for each axis, the last axis first")
    if any(n < 0 for n in given):
        for i in range(0, len(given), 2):
            axis = input.ndim - 1 - i // 2
            before, after = max(-given[i], 0), max(-given[i + 1], 0)
            input = _op("narrow")(input, axis, before, input.shape[axis] - before - after)  # noqa: A001
        given = [max(n, 0) for n in given]
    pairs = [(given[i], given[i + 1]) for i in range(len(given) - 2, -1, -2)]
    return _op("pad")(input, [(0, 0)] * (input.ndim - len(pairs)) + pairs, mode=mode, value=0.0 if value is None else value)


def unfold(input: Tensor, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0, stride: Extents = 1) -> Tensor:  # noqa: A002
    """The windows of x [N, C, H, W] as columns, [N, C * kernel, windows]."""
    return _op("im2col")(input, kernel_size, stride=stride, padding=padding, dilation=dilation)


def fold(input: Tensor, output_size: Extents, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0,  # noqa: A002
         stride: Extents = 1) -> Tensor:
    """Columns added up to images: the gradient of unfold."""
    return _op("fold")(input, output_size, kernel_size, stride=stride, padding=padding, dilation=dilation)


def interpolate(input: Tensor, size: Extents | None = None, scale_factor: Any = None, mode: str = "nearest",  # noqa: A002
                align_corners: bool | None = None) -> Tensor:
    """x [N, C, space...] with another extent of space. Modes: nearest, linear, cubic, and PyTorch's bilinear, trilinear, bicubic."""
    axes = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise UsageError("interpolate: give size or scale_factor")
    if size is None:
        factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * axes
        size = [int(extent * factor) for extent, factor in zip(input.shape[2:], factors)]
    wanted = [size] * axes if isinstance(size, int) else list(size)
    names = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    return _op("interpolate")(input, wanted, mode=names.get(mode, mode), align_corners=bool(align_corners))


upsample = interpolate


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",  # noqa: A002
                align_corners: bool | None = None) -> Tensor:
    """x at the places of a grid in [-1, 1]."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return _op("grid_sample")(input, grid, mode=names.get(mode, mode), padding=padding_mode, align_corners=bool(align_corners))


def _max_pool(axes: int) -> Callable[..., Any]:
    def function(input: Tensor, kernel_size: Extents, stride: Extents | None = None, padding: Extents = 0, dilation: Extents = 1,  # noqa: A002
                 ceil_mode: bool = False, return_indices: bool = False) -> Any:
        options = {"stride": kernel_size if stride is None else stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        values = _op(f"max_pool{axes}d")(input, kernel_size, **options)
        return (values, _op(f"max_pool_positions{axes}d")(input, kernel_size, **options)) if return_indices else values

    function.__name__ = function.__qualname__ = f"max_pool{axes}d"
    function.__doc__ = "The greatest element of each window; with return_indices also its place in the plane."
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(axes) for axes in (1, 2, 3))


def _lp_pool(axes: int) -> Callable[..., Tensor]:
    def function(input: Tensor, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False) -> Tensor:  # noqa: A002
        made: Tensor = _op(f"lp_pool{axes}d")(input, kernel=kernel_size, p=norm_type, stride=kernel_size if stride is None else stride, ceil_mode=ceil_mode)
        return made

    function.__name__ = function.__qualname__ = f"lp_pool{axes}d"
    function.__doc__ = "(sum |x|^p)^(1/p) of each window."
    return function


lp_pool1d, lp_pool2d = _lp_pool(1), _lp_pool(2)


# ---- Norms


def layer_norm(input: Tensor, normalized_shape: Extents, weight: Tensor | None = None, bias: Tensor | None = None,  # noqa: A002
               eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes, which normalized_shape names."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if input.shape[input.ndim - len(shape):] != shape:
        raise ShapeError(f"layer_norm: the last axes of x {list(input.shape)} are not {list(shape)}")
    flat = input.reshape((*input.shape[:input.ndim - len(shape)], -1))
    parts = [None if each is None else each.reshape((-1,)) for each in (weight, bias)]
    return _op("layer_norm")(flat, *parts, eps=eps).reshape(input.shape)


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:  # noqa: A002
    return _op("group_norm")(input, weight, bias, groups=num_groups, eps=eps)


def instance_norm(input: Tensor, running_mean: None = None, running_var: None = None, weight: Tensor | None = None,  # noqa: A002
                  bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Norm of each channel of each image, by its own statistics."""
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise UsageError("instance_norm: there are no running statistics; use batch_norm for given means and variances")
    return _op("instance_norm")(input, weight, bias, eps=eps)


def batch_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Tensor | None = None, bias: Tensor | None = None,  # noqa: A002
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Norm of each channel, in training by the statistics of the batch, which move running_mean and running_var in place."""
    if not training:
        if running_mean is None or running_var is None:
            raise UsageError("batch_norm: without training give running_mean and running_var")
        return _op("batch_norm")(input, weight, bias, running_mean, running_var, eps=eps)
    axes = [0, *range(2, input.ndim)]
    for running, now in ((running_mean, _op("mean")(input, axes)), (running_var, _op("var")(input, axes))):
        if running is not None:
            running.data.mul_(1 - momentum).add_(now.detach() * momentum)
    return _op("batch_norm")(input, weight, bias, eps=eps)


# ---- Attention


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None) -> Tensor:
    """softmax(q k^T scale + mask) v. A mask of bool says what is seen, one of floats is added."""
    return _op("scaled_dot_product_attention")(query, key, value, attn_mask, causal=is_causal, scale=0.0 if scale is None else scale, dropout=dropout_p)


# ---- Losses


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean",  # noqa: A002
                  label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of logits [N, C, ...] and classes [N, ...], or probabilities of the shape of the logits."""
    return _losses.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing)(input, target)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> Tensor:  # noqa: A002
    """-weight_t x_t of log-probabilities [N, C, ...] and classes [N, ...]."""
    return _losses.NLLLoss(weight, ignore_index, reduction)(input, target)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean") -> Tensor:  # noqa: A002
    """Of probabilities; weft.nn.binary_cross_entropy takes logits."""
    return _losses.BCELoss(weight, reduction)(input, target)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean",  # noqa: A002
                                     pos_weight: Tensor | None = None) -> Tensor:
    return _losses.BCEWithLogitsLoss(weight, reduction, pos_weight)(input, target)


def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:  # noqa: A002
    """Of log-probabilities; reduction also "batchmean"."""
    return _losses.KLDivLoss(reduction, log_target)(input, target)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:  # noqa: A002
    return _op("huber_loss")(input, target, delta=delta, reduction=reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:  # noqa: A002
    return _op("smooth_l1_loss")(input, target, beta=beta, reduction=reduction) if beta else _op("l1_loss")(input, target, reduction=reduction)


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
             zero_infinity: bool = False) -> Tensor:
    return _losses.CTCLoss(blank, reduction, zero_infinity)(log_probs, targets, input_lengths, target_lengths)


def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean") -> Tensor:  # noqa: A002
    if weight is None:
        return _op("multilabel_soft_margin_loss")(input, target, reduction=reduction)
    return _reduced(binary_cross_entropy_with_logits(input, target, weight, reduction="none").mean(-1), reduction)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, **options: Any) -> Tensor:
    return _losses.TripletMarginWithDistanceLoss(**options)(anchor, positive, negative)
