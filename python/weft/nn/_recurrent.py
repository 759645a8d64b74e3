"""Recurrent networks."""

from __future__ import annotations

from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import _check
from ._module import Init, Module, Parameter

_op: Any = _weft.op


class _Recurrent(Module):
    _cell, _gates = "rnn", 1

    def __init__(self, inputs: int, width: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0, bidirectional: bool = False) -> None:
        self.inputs, self.width = _check("recurrent network", "inputs", inputs), _check("recurrent network", "width", width)
        self.layers, self.with_bias, self.batch_first = _check("recurrent network", "layers", num_layers), bias, batch_first
        self.dropout, self.directions = dropout, 2 if bidirectional else 1
        if not 0 <= dropout < 1:
            raise UsageError(f"recurrent network: dropout {dropout} is outside of [0, 1)")
        init = Init.kaiming_uniform(width)
        for layer in range(num_layers):
            for direction in range(self.directions):
                end = f"_l{layer}" + ("_reverse" if direction else "")
                before = inputs if layer == 0 else self.directions * width
                setattr(self, "weight_ih" + end, Parameter((self._gates * width, before), init))
                setattr(self, "weight_hh" + end, Parameter((self._gates * width, width), init))
                if bias:
                    setattr(self, "bias_ih" + end, Parameter((self._gates * width,), init))
                    setattr(self, "bias_hh" + end, Parameter((self._gates * width,), init))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The last layer's h of each step, and the last state: h, or (h, c) of an LSTM, [layers directions, N, width]."""
        if x.ndim != 3 or x.shape[2] != self.inputs:
            order = "batch, steps" if self.batch_first else "steps, batch"
            raise ShapeError(f"recurrent network: x {list(x.shape)} is not [{order}, {self.inputs}]")
        if self.batch_first:
            x = _op("transpose")(x, 0, 1)
        lstm = self._cell == "lstm"
        states = () if state is None else tuple(state) if lstm else (state,)
        zero = _op("zeros")((x.shape[1], self.width), dtype=x.dtype, device=x.device)
        last: list[list[Tensor]] = [[] for _ in range(2 if lstm else 1)]
        for layer in range(self.layers):
            outputs = []
            for direction in range(self.directions):
                i, end = layer * self.directions + direction, f"_l{layer}" + ("_reverse" if direction else "")
                first = [each[i] for each in states] or [zero] * len(last)
                weights = [getattr(self, name + end) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                           if self.with_bias or not name.startswith("bias")]
                results = _op(self._cell)(x, *first, *weights, reverse=direction == 1)
                outputs.append(results[0])
                for kept, each in zip(last, results[1:]):
                    kept.append(each)
            x = outputs[0] if len(outputs) == 1 else _op("concat")(outputs, axis=-1)
            if self.dropout > 0 and self.training and layer + 1 < self.layers:
                x = _op("dropout")(x, p=self.dropout)
        ends = tuple(_op("stack")(each, axis=0) for each in last)
        return (_op("transpose")(x, 0, 1) if self.batch_first else x), ends if lstm else ends[0]

    def describe(self) -> str:
        return f"{type(self).__name__} {self.inputs} -> {self.width}" + (f", {self.layers} layers" if self.layers > 1 else "")


class RNN(_Recurrent):
    """tanh(W_ih x + b_ih + W_hh h + b_hh), step by step."""


class GRU(_Recurrent):
    """Gated recurrent units, with the names and the order of gates of PyTorch."""

    _cell, _gates = "gru", 3


class LSTM(_Recurrent):
    """Long short-term memory, with the names and the order of gates of PyTorch."""

    _cell, _gates = "lstm", 4
