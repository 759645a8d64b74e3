"""Distributions of probability with PyTorch's names: samples, densities, entropies and divergences. rsample() is differentiated through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _weft
from ._types import ArrayLike
from ._weft import Tensor, UsageError

_op: Any = _weft.op
Size = Sequence[int]
_FLOATS = ("f32", "f64", "f16", "bf16")


def _float(x: ArrayLike) -> Tensor:
    made: Tensor = x if isinstance(x, Tensor) else _weft._tensor(x, None, None, True)
    return made if made.dtype in _FLOATS else made.to("f32")


def _together(*given: ArrayLike) -> tuple[Tensor, ...]:
    tensors: tuple[Tensor, ...] = tuple(_op("broadcast_tensors")([_float(each) for each in given]))
    return tensors


class Distribution:
    """Base: batch_shape counts distributions side by side, event_shape is that of one draw."""

    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    has_rsample = False

    def rsample(self, sample_shape: Size = ()) -> Tensor:
        raise UsageError(f"{type(self).__name__}: draws have no gradient; use sample(), and log_prob() for the gradient of an expectation")

    def sample(self, sample_shape: Size = ()) -> Tensor:
        drawn: Tensor = _op("detach")(self.rsample(sample_shape))
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log_prob()")

    def entropy(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no entropy()")

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def _shape(self, sample_shape: Size) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__} {list(self.batch_shape)}{list(self.event_shape) or ''}"


class Normal(Distribution):
    """Density exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi))."""

    has_rsample = True

    def __init__(self, loc: ArrayLike, scale: ArrayLike, validate_args: bool | None = None) -> None:
        self.loc, self.scale = _together(loc, scale)
        self.batch_shape = self.loc.shape

    def rsample(self, sample_shape: Size = ()) -> Tensor:
        return self.loc + self.scale * _op("randn")(self._shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -(z * z) / 2 - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 + 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + _op("erf")((value - self.loc) / (self.scale * math.sqrt(2))))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale


class Uniform(Distribution):
    """Density 1 / (high - low) in [low, high)."""

    has_rsample = True

    def __init__(self, low: ArrayLike, high: ArrayLike, validate_args: bool | None = None) -> None:
        self.low, self.high = _together(low, high)
        self.batch_shape = self.low.shape

    def rsample(self, sample_shape: Size = ()) -> Tensor:
        return self.low + (self.high - self.low) * _op("rand")(self._shape(sample_shape), dtype=self.low.dtype, device=self.low.device)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return _op("where")(inside, -(self.high - self.low).log(), -math.inf)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12


class Exponential(Distribution):
    """Density rate exp(-rate x)."""

    has_rsample = True

    def __init__(self, rate: ArrayLike, validate_args: bool | None = None) -> None:
        self.rate, = _together(rate)
        self.batch_shape = self.rate.shape

    def rsample(self, sample_shape: Size = ()) -> Tensor:
        return _op("exponential")(self._shape(sample_shape), 1.0, device=self.rate.device).to(self.rate.dtype) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / self.rate.square()


def _one(name: str, probs: ArrayLike | None, logits: ArrayLike | None) -> bool:
    if (probs is None) == (logits is None):
        raise UsageError(f"{name}: give probs or logits, one of them")
    return probs is not None


class Bernoulli(Distribution):
    """1 with probability p, else 0."""

    def __init__(self, probs: ArrayLike | None = None, logits: ArrayLike | None = None, validate_args: bool | None = None) -> None:
        if _one("Bernoulli", probs, logits):
            self.probs = _float(probs)  # type: ignore[arg-type]
            bounded = _op("clamp")(self.probs, 1.1920929e-07, 1 - 1.1920929e-07)
            self.logits = bounded.log() - (1 - bounded).log()
        else:
            self.logits = _float(logits)  # type: ignore[arg-type]
            self.probs = self.logits.sigmoid()
        self.batch_shape = self.probs.shape

    def sample(self, sample_shape: Size = ()) -> Tensor:
        drawn: Tensor = _op("bernoulli")(_op("broadcast_to")(self.probs.detach(), self._shape(sample_shape)))
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        return -(_op("softplus")(self.logits) - self.logits * value)

    def entropy(self) -> Tensor:
        return _op("softplus")(self.logits) - self.logits * self.probs

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class Categorical(Distribution):
    """A class 0, 1, ... with the probabilities of the last axis, or in proportion to them."""

    def __init__(self, probs: ArrayLike | None = None, logits: ArrayLike | None = None, validate_args: bool | None = None) -> None:
        if _one("Categorical", probs, logits):
            given = _float(probs)  # type: ignore[arg-type]
            self.probs = given / given.sum(-1, keepdims=True)
            self.logits = _op("clamp")(self.probs, 1.1920929e-07, 1 - 1.1920929e-07).log()
        else:
            self.logits = _op("log_softmax")(_float(logits), -1)  # type: ignore[arg-type]
            self.probs = self.logits.exp()
        if self.probs.ndim == 0:
            raise UsageError("Categorical: the probabilities have no axis of classes")
        self.batch_shape = self.probs.shape[:-1]

    def sample(self, sample_shape: Size = ()) -> Tensor:
        classes, count = self.probs.shape[-1], math.prod(sample_shape)
        rows = self.probs.detach().reshape((-1, classes))
        drawn = _op("multinomial")(rows, count, True)  # [rows, count]
        return drawn.transpose(0, 1).reshape(self._shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        logits = _op("broadcast_to")(self.logits, (*_shape_of(value, self.batch_shape), self.probs.shape[-1]))
        places = _op("broadcast_to")(value, logits.shape[:-1]).to("i32")
        return _op("take_along_axis")(logits, places.unsqueeze(-1), -1).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits).sum(-1)


def _shape_of(value: Tensor, batch: tuple[int, ...]) -> tuple[int, ...]:
    from ._torch_names import broadcast_shapes
    return broadcast_shapes(value.shape, batch)


class Independent(Distribution):
    """The last axes of a distribution's batch as one event: log-probabilities and entropies are summed over them."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        self.base_dist, self._count = base_distribution, reinterpreted_batch_ndims
        if not 0 <= self._count <= len(base_distribution.batch_shape):
            raise UsageError(f"Independent: {self._count} axes of a batch {list(base_distribution.batch_shape)}")
        cut = len(base_distribution.batch_shape) - self._count
        self.batch_shape, self.event_shape = base_distribution.batch_shape[:cut], base_distribution.batch_shape[cut:] + base_distribution.event_shape
        self.has_rsample = base_distribution.has_rsample

    def rsample(self, sample_shape: Size = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape: Size = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def _summed(self, x: Tensor) -> Tensor:
        return x if self._count == 0 else x.sum(tuple(range(-self._count, 0)))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log p - log q under p, of two normal distributions, two categorical ones, two of Bernoulli, or two independent."""
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale).square()
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        log = _op("softplus")
        return p.probs * (log(-q.logits) - log(-p.logits)) + (1 - p.probs) * (log(q.logits) - log(p.logits))
    if isinstance(p, Independent) and isinstance(q, Independent) and p._count == q._count:
        return p._summed(kl_divergence(p.base_dist, q.base_dist))
    raise UsageError(f"kl_divergence: not known of {type(p).__name__} and {type(q).__name__}; compute the mean of p.log_prob(x) - q.log_prob(x)")
