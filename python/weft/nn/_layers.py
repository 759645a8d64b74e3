"""Containers, and layers of rows and elements."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

from .. import _weft
from .._tensor import arange
from .._weft import ShapeError, Tensor, UsageError, Variable
from ._module import Init, Module, Parameter

_op: Any = _weft.op

class ModuleList(Module):
    """Modules named by their positions."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        setattr(self, str(len(self._children)), module)
        return self

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._children.values())

    def __getitem__(self, index: int) -> Module:
        return list(self._children.values())[index]

    def describe(self) -> str:
        return f"ModuleList of {len(self)}"


class ModuleDict(Module):
    """Modules by names."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict: {name!r} is {type(module).__name__}, not a module")
        if name not in self._children and hasattr(self, name):
            raise UsageError(f"ModuleDict: {name!r} is an attribute of every module; choose another name")
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return self._children[name]

    def __delitem__(self, name: str) -> None:
        del self._children[name]

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def keys(self) -> KeysView[str]:
        return self._children.keys()

    def values(self) -> ValuesView[Module]:
        return self._children.values()

    def items(self) -> ItemsView[str, Module]:
        return self._children.items()

    def describe(self) -> str:
        return f"ModuleDict of {len(self)}"


class Identity(Module):
    """Gives its input, whatever it was made with."""

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        return x


class Sequential(Module):
    """Functions and modules one after another, named by their positions."""

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        self._steps: list[Any] = []
        for step in steps:
            self.append(step)

    def append(self, step: Callable[[Any], Any]) -> Sequential:
        if not callable(step):
            raise TypeError(f"Sequential: {type(step).__name__} is neither a module nor a function")
        name = str(len(self._steps))
        if isinstance(step, Module):
            setattr(self, name, step)
        self._steps.append(name if isinstance(step, Module) else step)
        return self

    def forward(self, x: Any) -> Any:
        for step in self._steps:
            x = self._children[step](x) if isinstance(step, str) else step(x)
        return x

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Any:
        """The module or function at a position; -1 is the last."""
        step = self._steps[index]
        return self._children[step] if isinstance(step, str) else step

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def describe(self) -> str:
        return f"Sequential of {len(self)}"


# ---- Layers -------------------------------------------------------------------------------------------------------------


def _check(layer: str, what: str, extent: int) -> int:
    if extent < 1:
        raise ShapeError(f"{layer}: {what} is {extent}; it must be at least 1")
    return int(extent)


def _check_width(layer: str, x: Tensor, width: int) -> None:
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeError(f"{layer}: made for a last axis of {width}, given x {x.dtype.name} {list(x.shape)}")


class Linear(Module):
    """x W^T + b. Shapes: x [..., inputs] -> [..., outputs]; weight [outputs, inputs], bias [outputs]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, weight_init: Init | None = None,
                 bias_init: Init | None = None) -> None:
        self.inputs = _check("linear", "the number of inputs", inputs)
        self.outputs = _check("linear", "the number of outputs", outputs)
        self.weight = Parameter((outputs, inputs), weight_init or Init.kaiming_uniform(inputs))
        if bias:
            self.bias = Parameter((outputs,), bias_init or Init.kaiming_uniform(inputs))
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        _check_width("linear", x, self.inputs)
        return _op_linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"Linear {self.inputs} -> {self.outputs}" + ("" if self.bias is not None else ", no bias")


class Bilinear(Module):
    """sum_ij x_i weight_oij y_j + bias_o. Shapes: x [..., first], y [..., second] -> [..., outputs]."""

    def __init__(self, first: int, second: int, outputs: int, bias: bool = True) -> None:
        self.first = _check("bilinear", "the number of elements of x", first)
        self.second = _check("bilinear", "the number of elements of y", second)
        self.outputs = _check("bilinear", "the number of outputs", outputs)
        self.weight = Parameter((outputs, first, second), Init.kaiming_uniform(first))
        self.bias = Parameter((outputs,), Init.kaiming_uniform(first)) if bias else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        _check_width("bilinear", x, self.first)
        _check_width("bilinear", y, self.second)
        return _op("bilinear")(x, y, self.weight, self.bias)

    def describe(self) -> str:
        return f"Bilinear {self.first} x {self.second} -> {self.outputs}" + ("" if self.bias is not None else ", no bias")


_op_linear, _op_embedding = _op("linear"), _op("embedding")
_op_layer_norm, _op_rms_norm, _op_dropout = _op("layer_norm"), _op("rms_norm"), _op("dropout")


class Embedding(Module):
    """Rows of a table by index. Shapes: indices [...] -> [..., width]; weight [rows, width]."""

    def __init__(self, rows: int, width: int, init: Init | None = None, *, padding_idx: int | None = None) -> None:
        """padding_idx: a row that stays as it is and is zero at first; its indices give no gradient."""
        self.rows, self.width = _check("embedding", "the number of rows", rows), _check("embedding", "the width", width)
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise UsageError(f"embedding: padding_idx {padding_idx} is not one of {rows} rows")
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.weight = Parameter((rows, width), init or Init.normal(1))
        if self.padding_idx is not None:
            row = _op("unsqueeze")(arange(rows) == self.padding_idx, 1)
            self.weight.assign(_op("where")(row, 0.0, self.weight.value))

    @classmethod
    def from_pretrained(cls, weight: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A layer with these rows, which do not train if `freeze`."""
        value = Variable(weight)
        if value.ndim != 2:
            raise ShapeError(f"embedding: a table has rank 2, given {list(value.shape)}")
        made = cls(value.shape[0], value.shape[1], Init.zeros(), padding_idx=padding_idx)
        made.weight.assign(value.value)
        made.requires_grad_(not freeze)
        return made

    def forward(self, indices: Tensor) -> Tensor:
        rows = _op_embedding(self.weight, indices)
        if self.padding_idx is None:
            return rows
        return _op("where")(_op("unsqueeze")(indices == self.padding_idx, -1), _op("detach")(rows), rows)

    def describe(self) -> str:
        return f"Embedding {self.rows} x {self.width}"


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""

    def __init__(self, width: int, bias: bool = True, eps: float = 1e-5) -> None:
        self.width, self.eps = _check("layer norm", "the width", width), eps
        self.weight = Parameter((width,), Init.ones())
        self.bias = Parameter((width,), Init.zeros()) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        _check_width("layer norm", x, self.width)
        return _op_layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"LayerNorm {self.width}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        self.width, self.eps = _check("RMS norm", "the width", width), eps
        self.weight = Parameter((width,), Init.ones())

    def forward(self, x: Tensor) -> Tensor:
        _check_width("RMS norm", x, self.width)
        return _op_rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return f"RMSNorm {self.width}"


class Dropout(Module):
    """In training, each element is kept with probability 1-p and divided by 1-p, or else becomes 0."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise UsageError(f"dropout: probability {p} lies outside [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return _op_dropout(x, p=self.p) if self.training and self.p > 0 else x

    def describe(self) -> str:
        return f"Dropout {self.p:g}"


class AlphaDropout(Module):
    """In training, alpha_dropout, which keeps mean 0 and variance 1, for networks of selu."""

    _dropping = "alpha_dropout"

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p < 1:
            raise UsageError(f"alpha dropout: probability {p} must be in [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return _op(self._dropping)(x, p=self.p) if self.training else x

    def describe(self) -> str:
        return f"Alpha dropout {self.p:g}"


class FeatureAlphaDropout(AlphaDropout):
    """The same of whole channels of x [N, C, ...]."""

    _dropping = "feature_alpha_dropout"


class Flatten(Module):
    """Joins axes [first, last] of x to one."""

    def __init__(self, first: int = 1, last: int = -1) -> None:
        self.first, self.last = first, last

    def forward(self, x: Tensor) -> Tensor:
        return _op("flatten")(x, self.first, self.last)
