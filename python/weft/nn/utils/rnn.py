"""Batches of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import _weft
from ..._tensor import arange
from ..._weft import ShapeError, Tensor, UsageError

_op: Any = _weft.op


@dataclass(frozen=True)
class PackedSequence:
    """A padded batch with its lengths, which RNN, GRU and LSTM take in place of a tensor. Unlike PyTorch's it keeps the padding,
    which the kernels skip, and sequences need no order."""

    data: Tensor  # [steps, batch, ...]
    lengths: Tensor  # i32 [batch]


def _lengths(lengths: Any) -> Tensor:
    return _weft._tensor(lengths, None, None, True).to("i32")


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Sequences [steps, ...] as one batch [longest, batch, ...]."""
    if not sequences:
        raise UsageError("pad_sequence: give at least one sequence")
    if padding_side not in ("right", "left"):
        raise UsageError(f'pad_sequence: padding_side is {padding_side!r}; it must be "right" or "left"')
    longest = max(each.shape[0] for each in sequences)

    def pair(each: Tensor) -> tuple[int, int]:
        rest = longest - each.shape[0]
        return (0, rest) if padding_side == "right" else (rest, 0)

    padded = [_op("pad")(each, [pair(each), *([(0, 0)] * (each.ndim - 1))], value=padding_value) for each in sequences]
    return _op("stack")(padded, axis=0 if batch_first else 1)


def unpad_sequence(padded: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch."""
    counts = [int(n) for n in _lengths(lengths).tolist()]
    return [_op("narrow")(_op("select")(padded, 0 if batch_first else 1, i), 0, 0, n) for i, n in enumerate(counts)]


def pack_padded_sequence(x: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = False) -> PackedSequence:
    counts = _lengths(lengths)
    batch = x.shape[0 if batch_first else 1]
    if counts.shape != (batch,):
        raise ShapeError(f"pack_padded_sequence: {list(counts.shape)} lengths for {batch} sequences")
    return PackedSequence(_op("transpose")(x, 0, 1) if batch_first else x, counts)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = False) -> PackedSequence:
    return pack_padded_sequence(pad_sequence(sequences), [each.shape[0] for each in sequences])


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """The batch, whose padding has padding_value, and its lengths. Without total_length it has the longest sequence's steps."""
    longest = int(_op("amax")(sequence.lengths).item())
    steps, x = total_length or longest, sequence.data
    if steps < longest:
        raise UsageError(f"pad_packed_sequence: total_length is {steps}, and the longest sequence has {longest} steps")
    x = _op("narrow")(x, 0, 0, longest)
    x = _op("pad")(x, [(0, steps - longest), *([(0, 0)] * (x.ndim - 1))])
    inside = _op("unsqueeze")(arange(steps, dtype="i32"), 1) < _op("unsqueeze")(sequence.lengths, 0)
    x = _op("where")(inside.reshape((*inside.shape, *([1] * (x.ndim - 2)))), x, padding_value)
    return (_op("transpose")(x, 0, 1) if batch_first else x), sequence.lengths
