"""All functions of networks under one name, as PyTorch has them: from weft.nn import functional as F. The ops of the table are those of
weft; classes of `cross_entropy` are the last axis."""

from __future__ import annotations

from typing import Any

from .. import _weft
from .._ops import *  # noqa: F403  every op of the table
from .._weft import Tensor
from . import _losses

_op: Any = _weft.op


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(|x|_p, eps) along an axis."""
    return x / _op("maximum")(_op("vector_norm")(x, p, dim, True), eps)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, **options: Any) -> Tensor:
    return _losses.TripletMarginWithDistanceLoss(**options)(anchor, positive, negative)

