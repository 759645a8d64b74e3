"""Attention and transformers, with the names, shapes and parameters of PyTorch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from .. import _weft
from .._weft import ShapeError, Tensor, UsageError
from ._layers import Dropout, LayerNorm, Linear, ModuleList
from ._module import Init, Module, Parameter

_op: Any = _weft.op


def _as_added(mask: Tensor | None, dtype: Any) -> Tensor | None:
    """A mask that is added to scores. Where a bool mask is true there is no attention."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    return _op("where")(mask, -math.inf, _op("zeros")(mask.shape, dtype=dtype, device=mask.device))


class MultiheadAttention(Module):
    """Attention of several heads. query [L, N, E], key [S, N, kdim], value [S, N, vdim] -> [L, N, E], with batch_first [N, L, E]; without
    N for one sequence. Gives (output, weights [N, L, S] or [N, heads, L, S]). In bool masks true means: no attention.
    Source: Vaswani et al. 2017, arXiv:1706.03762."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {num_heads} heads do not divide a width of {embed_dim}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self._is_one = self.kdim == embed_dim and self.vdim == embed_dim
        if self._is_one:
            self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), Init.xavier_uniform(embed_dim, 3 * embed_dim))
        else:
            for name, inputs in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
                setattr(self, f"{name}_proj_weight", Parameter((embed_dim, inputs), Init.xavier_uniform(inputs, embed_dim)))
        self.in_proj_bias = Parameter((3 * embed_dim,), Init.zeros()) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, bias_init=Init.zeros())

    def _projected(self, inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        e = self.embed_dim
        weights = (_op("split")(self.in_proj_weight, [e] * 3, 0) if self._is_one
                   else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight))
        biases = (None,) * 3 if self.in_proj_bias is None else _op("split")(self.in_proj_bias, [e] * 3, 0)
        return [_op("linear")(x, weight, bias) for x, weight, bias in zip(inputs, weights, biases)]

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        is_single = query.ndim == 2
        inputs: Any = (query, key, value)
        if any(x.ndim != query.ndim for x in inputs) or query.ndim not in (2, 3):
            raise ShapeError(f"MultiheadAttention: query, key and value have ranks {[x.ndim for x in inputs]}; all are 3, or all 2")
        if is_single:
            inputs = tuple(_op("unsqueeze")(x, 0) for x in inputs)
        elif not self.batch_first:
            inputs = tuple(_op("transpose")(x, 0, 1) for x in inputs)
        n, length, _ = inputs[0].shape
        source = inputs[1].shape[1]
        heads, width = self.num_heads, self.embed_dim // self.num_heads
        q, k, v = (_op("transpose")(x.reshape((n, x.shape[1], heads, width)), 1, 2) for x in self._projected(inputs))

        mask = _as_added(attn_mask, q.dtype)
        if mask is None and is_causal:
            mask = _as_added(~_op("tril")(_op("ones")((length, source), dtype="bool")), q.dtype)
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape((n, heads, length, source))
        if key_padding_mask is not None:
            padding = _as_added(key_padding_mask, q.dtype)
            padding = padding.reshape((n, 1, 1, source))  # type: ignore[union-attr]
            mask = padding if mask is None else mask + padding
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = _op("matmul")(q, _op("transpose")(k)) / math.sqrt(width)
            weights = _op("softmax")(scores if mask is None else scores + mask, -1)
            if drop > 0:
                weights = _op("dropout")(weights, p=drop)
            y = _op("matmul")(weights, v)
            weights = _op("mean")(weights, 1) if average_attn_weights else weights
        else:
            if mask is not None:
                mask = _op("broadcast_to")(mask, (n, heads, length, source))
            y = _op("scaled_dot_product_attention")(q, k, v, mask, dropout=drop)
        y = self.out_proj(_op("transpose")(y, 1, 2).reshape((n, length, self.embed_dim)))
        if is_single:
            return _op("squeeze")(y, 0), None if weights is None else _op("squeeze")(weights, 0)
        return (y if self.batch_first else _op("transpose")(y, 0, 1)), weights

    def describe(self) -> str:
        return f"MultiheadAttention {self.embed_dim}, {self.num_heads} heads"


def _function(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if isinstance(activation, str):
        if activation not in ("relu", "gelu"):
            raise UsageError(f'transformer: activation is {activation!r}; it must be "relu", "gelu" or a function')
        return _op(activation)
    return activation


class _Layer(Module):
    """What the layers of encoder and decoder share."""

    def _make(self, d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: Any, layer_norm_eps: float,
              batch_first: bool, norm_first: bool, bias: bool, attentions: tuple[str, ...]) -> None:
        for name in attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first))
        self.linear1, self.linear2 = Linear(d_model, dim_feedforward, bias), Linear(dim_feedforward, d_model, bias)
        for i in range(1, len(attentions) + 2):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        self.drop = Dropout(dropout)
        self.activation, self.norm_first, self.batch_first = activation, norm_first, batch_first
        _function(activation)  # checks the name

    def _fed_forward(self, x: Tensor) -> Tensor:
        return self.drop(self.linear2(self.drop(_function(self.activation)(self.linear1(x)))))

    def _added(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, and two linear layers, each with a residual and a norm."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True) -> None:
        self._make(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, ("self_attn",))

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.drop(self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0])

        return self._added(self._added(src, self.norm1, attend), self.norm2, self._fed_forward)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself and to a memory, and two linear layers, each with a residual and a norm."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True) -> None:
        self._make(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                   ("self_attn", "multihead_attn"))

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.drop(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0])

        def look(x: Tensor) -> Tensor:
            return self.drop(self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask,
                                                 is_causal=memory_is_causal)[0])

        x = self._added(self._added(tgt, self.norm1, attend), self.norm2, look)
        return self._added(x, self.norm3, self._fed_forward)


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(self, x: Tensor, *inputs: Any, **named: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *inputs, **named)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Copies of an encoder layer, which begin with the same weights, and a norm."""


class TransformerDecoder(_Stack):
    """Copies of a decoder layer, which begin with the same weights, and a norm."""


class Transformer(Module):
    """Encoder and decoder. src [S, N, E], tgt [T, N, E] -> [T, N, E]. Source: Vaswani et al. 2017, arXiv:1706.03762."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True) -> None:
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*options), num_encoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias))
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*options), num_decoder_layers, LayerNorm(d_model, layer_norm_eps, bias=bias))

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Tensor:
        """A mask [size, size] that is added: 0, and -inf above the diagonal."""
        return _op("triu")(_op("full")((size, size), -math.inf), 1)
