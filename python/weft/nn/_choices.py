"""Layers that choose: mixtures of experts, soft assignment to learnt centres, draws that carry gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import Linear, _check_width
from ._module import Init, Module, Parameter

_op: Any = _weft.op


@dataclass(frozen=True)
class Routing:
    """Rows sorted by expert, for n rows, E experts and K choices of each row."""

    weights: Tensor  #: [n, K]: softmax over the scores of the chosen experts
    experts: Tensor  #: i32 [n, K], the best first
    ends: Tensor  #: i32 [E]: where the rows of each expert end, in the sorted order
    order: Tensor  #: i32 [n K]: the places (row K + choice) in the sorted order
    probabilities: Tensor  #: [n, E]: softmax over all scores


@dataclass(frozen=True)
class MixtureResult:
    output: Tensor
    balance_loss: Tensor  #: a scalar, to be added to the loss times a small factor such as 0.01
    routing: Routing


def route(scores: Tensor, top_k: int) -> Routing:
    """Chooses the K best experts of each row. Shapes: scores [n, E]. Errors: ShapeError; UsageError unless 1 <= K <= E.
    Gradient: to weights and probabilities."""
    return Routing(*_weft._route(scores, top_k))


def balance_loss(routing: Routing) -> Tensor:
    """E sum_e f_e P_e, with f_e the share of the choices that fell on expert e and P_e the mean probability of e: 1 where the
    experts have equal shares, E where one has all. Gradient: to the probabilities."""
    return _weft._balance_loss(routing.weights, routing.experts, routing.ends, routing.order, routing.probabilities)


class Mixture(Module):
    """A mixture of experts: the sum over the K chosen experts of w_e down_e(silu(gate_e x) * up_e x). Each expert's products take
    the rows that chose it, so time and memory grow with K and not with the number of experts. Shapes: x [..., width], as the
    output. `run` also gives the loss that keeps the experts' shares equal."""

    def __init__(self, width: int, hidden: int, experts: int, top_k: int = 2) -> None:
        if min(width, hidden, experts) < 1:
            raise ShapeError(f"mixture: width {width}, hidden {hidden}, experts {experts}; each is at least 1")
        if not 1 <= top_k <= experts:
            raise UsageError(f"mixture: top_k {top_k} of {experts} experts; it is between 1 and their number")
        self.width, self.hidden, self.experts, self.top_k = width, hidden, experts, top_k
        self.router = Linear(width, experts, bias=False)
        wide, narrow = (Init.uniform(-1 / math.sqrt(n), 1 / math.sqrt(n)) for n in (width, hidden))
        self.gates = Parameter((experts, hidden, width), wide)
        self.ups = Parameter((experts, hidden, width), wide)
        self.downs = Parameter((experts, width, hidden), narrow)

    def run(self, x: Tensor) -> MixtureResult:
        _check_width("mixture", x, self.width)
        rows = x.reshape(-1, self.width)
        routing = route(self.router(rows), self.top_k)
        matmul = _op("grouped_matmul")
        picked = rows.index_select(routing.order // self.top_k, 0)
        gates, ups = (matmul(picked, weights, routing.ends, True) for weights in (self.gates, self.ups))
        outer = matmul(_op("silu")(gates) * ups, self.downs, routing.ends, True)
        # Back to the order of rows: place i of the sorted order is choice order[i].
        chosen = outer.index_select(routing.order.argsort(-1), 0).reshape(rows.shape[0], self.top_k, self.width)
        output = (chosen * routing.weights.unsqueeze(2)).sum(1).reshape(x.shape)
        return MixtureResult(output, balance_loss(routing), routing)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x).output

    def describe(self) -> str:
        return f"Mixture {self.width} -> {self.hidden}, {self.top_k} of {self.experts} experts"


def gumbel_softmax(x: Tensor, temperature: float = 1, hard: bool = False, axis: int = -1) -> Tensor:
    """A relaxed draw from softmax(x), with noise of the generator that manual_seed seeds; `hard`: 1 at the drawn element, with
    the gradient of the relaxed draw."""
    noise = _op("rand")(x.shape, dtype=x.dtype, device=x.device)
    return _op("gumbel_softmax")(x, noise, temperature=temperature, hard=hard, axis=axis)


class KMeans(Module):
    """Soft assignment of each row to learnt centres, or with `features` the centres weighted by it. Shapes: x [N, inputs] ->
    [N, centres], or [N, inputs]."""

    def __init__(self, inputs: int, centres: int, temperature: float = 1, features: bool = False) -> None:
        if min(inputs, centres) < 1:
            raise ShapeError(f"k-means: {inputs} inputs and {centres} centres; each is at least 1")
        self.temperature, self.features = temperature, features
        self.centres = Parameter((centres, inputs), Init.normal(1))

    def forward(self, x: Tensor) -> Tensor:
        return _op("soft_kmeans")(x, self.centres, temperature=self.temperature, features=self.features)

    def describe(self) -> str:
        centres, inputs = self.centres.shape
        return f"KMeans {centres} centres of {inputs}"
