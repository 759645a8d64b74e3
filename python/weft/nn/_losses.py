"""Losses as modules, with PyTorch's names and options. Reductions: "mean", "sum", "none"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._module import Module

_op: Any = _weft.op


def _reduced(values: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise UsageError(f'reduction is {reduction!r}; it must be "mean", "sum" or "none"')
    return values if reduction == "none" else _op(reduction)(values)


class _Loss(Module):
    """An op of the table. Options are those of the op."""

    _op_name = ""
    _names: tuple[str, ...] = ()

    def __init__(self, *values: Any, reduction: str = "mean", **options: Any) -> None:
        self.reduction = reduction
        if len(values) > len(self._names):
            raise TypeError(f"{type(self).__name__} takes {len(self._names)} options by position, given {len(values)}")
        self.options = {**dict(zip(self._names, values)), **options}

    def forward(self, *inputs: Tensor) -> Tensor:
        return _op(self._op_name)(*inputs, **self.options, reduction=self.reduction)


def _loss(name: str, op: str, *names: str) -> type[_Loss]:
    return type(name, (_Loss,), {"_op_name": op, "_names": names, "__doc__": f"weft.nn.{op}.", "__module__": __name__})


MSELoss, L1Loss = _loss("MSELoss", "mse_loss"), _loss("L1Loss", "l1_loss")
SoftMarginLoss = _loss("SoftMarginLoss", "soft_margin_loss")
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", "multilabel_margin_loss")
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss")
HuberLoss, SmoothL1Loss = _loss("HuberLoss", "huber_loss", "delta"), _loss("SmoothL1Loss", "smooth_l1_loss", "beta")
GaussianNLLLoss = _loss("GaussianNLLLoss", "gaussian_nll_loss", "full", "eps")
PoissonNLLLoss = _loss("PoissonNLLLoss", "poisson_nll_loss", "log_input", "full", "eps")
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", "hinge_embedding_loss", "margin")
MarginRankingLoss = _loss("MarginRankingLoss", "margin_ranking_loss", "margin")
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", "cosine_embedding_loss", "margin")
MultiMarginLoss = _loss("MultiMarginLoss", "multi_margin_loss", "p", "margin")
TripletMarginLoss = _loss("TripletMarginLoss", "triplet_margin_loss", "margin", "p", "eps", "swap")


class KLDivLoss(Module):
    """kl_div of log-probabilities and a target; reduction also "batchmean"."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        self.reduction, self.log_target = reduction, log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        mean = self.reduction == "batchmean"
        return _op("kl_div")(x, target, log_target=self.log_target, batch_mean=mean, reduction="mean" if mean else self.reduction)


class CTCLoss(Module):
    """ctc_loss of log-probabilities [T, N, C] and targets [N, S]."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(self, log_probabilities: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return _op("ctc_loss")(log_probabilities, targets, input_lengths, target_lengths, blank=self.blank,
                               zero_infinity=self.zero_infinity, reduction=self.reduction)


class _Classes(Module):
    """Losses whose classes are axis 1 of x [N, C, ...], as in PyTorch, or the only axis of x [C]."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        self.ignore_index, self.reduction = ignore_index, reduction
        self.register_buffer("weight", weight) if weight is not None else setattr(self, "weight", None)

    @staticmethod
    def _classes_last(x: Tensor) -> Tensor:
        return _op("moveaxis")(x, 1, -1) if x.ndim > 2 else x

    def _picked(self, log_probabilities: Tensor, targets: Tensor) -> Tensor:
        """-w_t log p_t, or their weighted mean; targets that are ignore_index count nothing."""
        kept = targets != self.ignore_index
        safe = _op("where")(kept, targets, 0)
        values = -_op("squeeze")(_op("take_along_axis")(log_probabilities, _op("unsqueeze")(safe, -1), -1), -1)
        shares = kept.to(values.dtype)
        if self.weight is not None:
            shares = shares * _op("embedding")(_op("unsqueeze")(self.weight, -1), safe).squeeze(-1)
        values = values * shares
        if self.reduction == "mean":
            return _op("sum")(values) / _op("sum")(shares)
        return _reduced(values, self.reduction)


class NLLLoss(_Classes):
    """-weight_t x_t of log-probabilities x [N, C, ...] and targets t [N, ...]. The mean is over the weights."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self._picked(self._classes_last(x), target)


class CrossEntropyLoss(_Classes):
    """Cross-entropy of logits x [N, C, ...] and targets [N, ...], or of probabilities of the shape of x. Classes are axis 1, as in
    PyTorch; those of weft.nn.cross_entropy are the last axis."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        super().__init__(weight, ignore_index, reduction)
        if not 0 <= label_smoothing <= 1:
            raise UsageError(f"CrossEntropyLoss: label_smoothing is {label_smoothing}; it must be in [0, 1]")
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        logits = self._classes_last(x)
        if not target.dtype.is_floating_point:
            return _op("cross_entropy")(logits, target, self.weight, ignore_index=self.ignore_index,
                                        label_smoothing=self.label_smoothing, reduction=self.reduction)
        if target.shape != x.shape:
            raise ShapeError(f"CrossEntropyLoss: probabilities {list(target.shape)} differ in shape from x {list(x.shape)}")
        wanted = self._classes_last(target)
        wanted = wanted * (1 - self.label_smoothing) + self.label_smoothing / logits.shape[-1]
        weighted = wanted if self.weight is None else wanted * self.weight
        values = -_op("sum")(weighted * _op("log_softmax")(logits, -1), -1)
        return _op("sum")(values) / values.size if self.reduction == "mean" else _reduced(values, self.reduction)


def _bounded_log(x: Tensor) -> Tensor:
    """log(x), but at least -100, whose gradient is 0 at 0."""
    safe = _op("where")(x > 0, x, 1.0)
    return _op("where")(x > 0, _op("maximum")(_op("log")(safe), -100.0), -100.0)


class BCELoss(Module):
    """-(t log x + (1 - t) log(1 - x)) of probabilities x, with logarithms of at least -100."""

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        self.reduction = reduction
        self.register_buffer("weight", weight) if weight is not None else setattr(self, "weight", None)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if x.shape != target.shape:
            raise ShapeError(f"BCELoss: x {list(x.shape)} and the target {list(target.shape)} differ in shape")
        values = -(target * _bounded_log(x) + (1 - target) * _bounded_log(1 - x))
        return _reduced(values if self.weight is None else values * self.weight, self.reduction)


class BCEWithLogitsLoss(Module):
    """-(w t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) of logits x, with w = pos_weight or 1."""

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        self.reduction = reduction
        for name, value in (("weight", weight), ("pos_weight", pos_weight)):
            self.register_buffer(name, value) if value is not None else setattr(self, name, None)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if self.pos_weight is None:
            values = _op("binary_cross_entropy")(x, target, reduction="none")
        else:
            values = -(self.pos_weight * target * _op("log_sigmoid")(x) + (1 - target) * _op("log_sigmoid")(-x))
        return _reduced(values if self.weight is None else values * self.weight, self.reduction)


class TripletMarginWithDistanceLoss(Module):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0); with `swap` the negative's distance is the smaller one to anchor and
    positive. The distance is pairwise_distance, or a function of two tensors."""

    def __init__(self, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean") -> None:
        self.distance = distance_function or _op("pairwise_distance")
        self.margin, self.swap, self.reduction = margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        far = self.distance(anchor, negative)
        if self.swap:
            far = _op("minimum")(far, self.distance(positive, negative))
        return _reduced(_op("relu")(self.distance(anchor, positive) - far + self.margin), self.reduction)
