"""Recurrent networks."""

from __future__ import annotations

from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import _check
from ._module import Init, Module, Parameter
from .utils.rnn import PackedSequence

_op: Any = _weft.op


class _Recurrent(Module):
    _cell, _gates = "rnn", 1

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0, bidirectional: bool = False) -> None:
        inputs = self.input_size = self.inputs = _check("recurrent network", "inputs", input_size)
        width = self.hidden_size = self.width = _check("recurrent network", "width", hidden_size)
        self.num_layers, self.bidirectional = num_layers, bidirectional
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

    def forward(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """The last layer's h of each step, and the last state: h, or (h, c) of an LSTM, [layers directions, N, width]. With `lengths`
        of sequences (i32 [N]) outputs after a sequence's end are zeros. A PackedSequence has lengths, and gives one."""
        if isinstance(x, PackedSequence):
            batch = _op("transpose")(x.data, 0, 1) if self.batch_first else x.data
            y, ends = self.forward(batch, state, x.lengths)
            return PackedSequence(_op("transpose")(y, 0, 1) if self.batch_first else y, x.lengths), ends
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
                results = _op(self._cell)(x, *first, *weights, lengths=lengths, reverse=direction == 1)
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


class _Cell(Module):
    _cell, _gates = "rnn", 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **options: Any) -> None:
        inputs = self.input_size = self.inputs = _check("recurrent cell", "inputs", input_size)
        width = self.hidden_size = self.width = _check("recurrent cell", "width", hidden_size)
        init = Init.kaiming_uniform(width)
        self.weight_ih = Parameter((self._gates * width, inputs), init)
        self.weight_hh = Parameter((self._gates * width, width), init)
        self.bias_ih = Parameter((self._gates * width,), init) if bias else None
        self.bias_hh = Parameter((self._gates * width,), init) if bias else None
        self.options = options

    def _step(self, x: Tensor, states: tuple[Tensor, ...]) -> list[Tensor]:
        is_single = x.ndim == 1
        if x.ndim not in (1, 2) or x.shape[-1] != self.inputs:
            raise ShapeError(f"{type(self).__name__}: x {list(x.shape)} is not [batch, {self.inputs}]")
        given = [_op("unsqueeze")(each, 0) if is_single else each for each in (x, *states)]
        zero = _op("zeros")((given[0].shape[0], self.width), dtype=x.dtype, device=x.device)
        first = given[1:] or [zero] * (2 if self._cell == "lstm" else 1)
        results = _op(self._cell)(_op("unsqueeze")(given[0], 0), *first, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh,
                                  **self.options)
        return [_op("squeeze")(each, 0) if is_single else each for each in results[1:]]

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return self._step(x, () if state is None else (state,))[0]

    def describe(self) -> str:
        return f"{type(self).__name__} {self.inputs} -> {self.width}"


class RNNCell(_Cell):
    """One step of RNN: x [N, inputs], h [N, width] -> h. nonlinearity: "tanh" or "relu"."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh") -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise UsageError(f'RNNCell: nonlinearity is {nonlinearity!r}; it must be "tanh" or "relu"')
        super().__init__(input_size, hidden_size, bias, relu=nonlinearity == "relu")


class GRUCell(_Cell):
    """One step of GRU: x [N, inputs], h [N, width] -> h."""

    _cell, _gates = "gru", 3


class LSTMCell(_Cell):
    """One step of LSTM: x [N, inputs], (h, c) [N, width] -> (h, c)."""

    _cell, _gates = "lstm", 4

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return tuple(self._step(x, () if state is None else tuple(state)))
