"""GPT: a decoder-only transformer as in GPT-2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import Dropout, Embedding, LayerNorm, Linear, ModuleList, _op_linear
from ._module import Init, Module

_op: Any = _weft.op


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT. init_deviation 0: 0.02 sqrt(768 / width)."""

    vocabulary: int = 256
    context: int = 64
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0
    bias: bool = True
    tied: bool = True
    init_deviation: float = 0

    @property
    def deviation(self) -> float:
        return self.init_deviation if self.init_deviation > 0 else 0.02 * math.sqrt(768 / self.width)


class CausalSelfAttention(Module):
    """softmax(q k^T / sqrt(D), causal) v for H heads, then a projection."""

    def __init__(self, config: GPTConfig) -> None:
        c, self.heads = config, config.heads
        self.qkv = Linear(c.width, 3 * c.width, c.bias, weight_init=Init.normal(c.deviation), bias_init=Init.zeros())
        self.output = Linear(c.width, c.width, c.bias, weight_init=Init.normal(c.deviation / math.sqrt(2 * c.layers)),
                             bias_init=Init.zeros())
        self.dropout = Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, width = x.shape
        qkv = self.qkv(x).reshape(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = _op("attention")(qkv[0], qkv[1], qkv[2])
        return self.dropout(self.output(mixed.permute(0, 2, 1, 3).reshape(batch, steps, width)))


class MLP(Module):
    """down(gelu_tanh(up(x))), four times as wide inside."""

    def __init__(self, config: GPTConfig) -> None:
        c = config
        self.up = Linear(c.width, 4 * c.width, c.bias, weight_init=Init.normal(c.deviation), bias_init=Init.zeros())
        self.down = Linear(4 * c.width, c.width, c.bias, weight_init=Init.normal(c.deviation / math.sqrt(2 * c.layers)),
                           bias_init=Init.zeros())
        self.dropout = Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(_op("gelu_tanh")(self.up(x))))


class Block(Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        self.norm_1 = LayerNorm(config.width, bias=config.bias)
        self.attention = CausalSelfAttention(config)
        self.norm_2 = LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(Module):
    """A decoder-only transformer as in GPT-2: tokens i32 [batch, positions] -> logits [batch, positions, vocabulary]."""

    def __init__(self, config: GPTConfig | None = None, **sizes: Any) -> None:
        c = self.config = config or GPTConfig(**sizes)
        if c.width % c.heads:
            raise UsageError(f"GPT: {c.heads} heads do not divide the width {c.width}")
        self.token_embedding = Embedding(c.vocabulary, c.width, init=Init.normal(c.deviation))
        self.position_embedding = Embedding(c.context, c.width, init=Init.normal(c.deviation))
        self.dropout = Dropout(c.dropout)
        self.blocks = ModuleList([Block(c) for _ in range(c.layers)])
        self.norm = LayerNorm(c.width, bias=c.bias)
        if not c.tied:
            self.head = Linear(c.width, c.vocabulary, False, weight_init=Init.normal(c.deviation))

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= self.config.context:
            raise ShapeError(f"GPT: tokens must be [batch, positions] with 1 to {self.config.context} positions (the context), "
                             f"given {tokens.dtype.name} {list(tokens.shape)}")
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return _op_linear(x, self.token_embedding.weight) if self.config.tied else self.head(x)

    def describe(self) -> str:
        c = self.config
        return f"GPT, {c.layers} layers, width {c.width}, {c.heads} heads, context {c.context}, vocabulary {c.vocabulary}"
