"""Containers, and layers of rows and elements."""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

from .. import _weft
from .._tensor import arange
from .._types import DeviceLike, DTypeLike
from .._weft import ShapeError, Tensor, UsageError, Variable
from ._module import Init, Module, Parameter

_op: Any = _weft.op

class _Numbered(Module):
    """Modules named by their positions."""

    def _replace_all(self, modules: Sequence[Any]) -> None:
        """The list from now on: each module gets the name of its place."""
        self._children.clear()
        for module in modules:
            self.append(module)

    def append(self, module: Any) -> Any:
        raise NotImplementedError

    def _listed(self) -> list[Any]:
        raise NotImplementedError

    def extend(self, modules: Iterable[Any]) -> Any:
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        everything = self._listed()
        everything.insert(index, module)
        self._replace_all(everything)
        return self

    def pop(self, index: int = -1) -> Any:
        everything = self._listed()
        taken = everything.pop(index)
        self._replace_all(everything)
        return taken

    def __getitem__(self, index: Any) -> Any:
        """What is at a position; -1 is the last. Of a slice, a container of the same modules."""
        if isinstance(index, slice):
            made = type(self)()
            made._replace_all(self._listed()[index])
            return made
        return self._listed()[index]

    def __setitem__(self, index: Any, module: Any) -> None:
        everything = self._listed()
        everything[index] = module
        self._replace_all(everything)

    def __delitem__(self, index: Any) -> None:
        everything = self._listed()
        del everything[index]
        self._replace_all(everything)

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    def describe(self) -> str:
        return f"{type(self).__name__} of {len(self)}"


class ModuleList(_Numbered):
    """Modules named by their positions."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleList: {type(module).__name__} is not a module")
        setattr(self, str(len(self._children)), module)
        return self

    def _listed(self) -> list[Module]:
        return list(self._children.values())


class ModuleDict(Module):
    """Modules by names."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def pop(self, name: str) -> Module:
        return self._children.pop(name)

    def clear(self) -> None:
        self._children.clear()

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


class Sequential(_Numbered):
    """Functions and modules one after another, named by their positions, or by the names of an OrderedDict."""

    def __init__(self, *steps: Any) -> None:
        self._steps: list[Any] = []
        if len(steps) == 1 and isinstance(steps[0], Mapping):
            for name, step in steps[0].items():
                self.add_module(name, step)
            return
        self.extend(steps)

    def append(self, step: Callable[[Any], Any]) -> Sequential:
        if not callable(step):
            raise TypeError(f"Sequential: {type(step).__name__} is neither a module nor a function")
        if isinstance(step, Module):
            self.add_module(str(len(self._steps)), step)
        else:
            self._steps.append(step)
        return self

    def add_module(self, name: str, module: Module | None) -> None:
        """Another step, with a name of its own."""
        if not isinstance(module, Module):
            raise TypeError(f"Sequential: {name!r} is {type(module).__name__}, not a module")
        setattr(self, name, module)
        if name not in self._steps:
            self._steps.append(name)

    def forward(self, x: Any) -> Any:
        for step in self._steps:
            x = self._children[step](x) if isinstance(step, str) else step(x)
        return x

    def _listed(self) -> list[Any]:
        return [self._children[step] if isinstance(step, str) else step for step in self._steps]

    def _replace_all(self, modules: Sequence[Any]) -> None:
        self._steps = []
        super()._replace_all(modules)


# ---- Layers -------------------------------------------------------------------------------------------------------------


def _check(layer: str, what: str, extent: int) -> int:
    if extent < 1:
        raise ShapeError(f"{layer}: {what} is {extent}; it must be at least 1")
    return int(extent)


def _check_eps(layer: str, eps: Any) -> float:
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or eps < 0:
        raise UsageError(f"{layer}: eps is {eps}; it must be a number of at least 0")
    return eps


def _check_width(layer: str, x: Tensor, width: int) -> None:
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeError(f"{layer}: made for a last axis of {width}, given x {x.dtype.name} {list(x.shape)}")


class Linear(Module):
    """x W^T + b. Shapes: x [..., inputs] -> [..., outputs]; weight [outputs, inputs], bias [outputs]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, weight_init: Init | None = None,
                 bias_init: Init | None = None, device: DeviceLike | None = None, dtype: DTypeLike | None = None) -> None:
        self.in_features = self.inputs = _check("linear", "the number of inputs", in_features)
        self.out_features = self.outputs = _check("linear", "the number of outputs", out_features)
        self.weight = Parameter((out_features, in_features), weight_init or Init.kaiming_uniform(in_features))
        if bias:
            self.bias = Parameter((out_features,), bias_init or Init.kaiming_uniform(in_features))
        else:
            self.bias = None
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        _check_width("linear", x, self.inputs)
        return _op_linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"Linear {self.inputs} -> {self.outputs}" + ("" if self.bias is not None else ", no bias")


class Bilinear(Module):
    """sum_ij x_i weight_oij y_j + bias_o. Shapes: x [..., first], y [..., second] -> [..., outputs]."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True) -> None:
        self.first = _check("bilinear", "the number of elements of x", in1_features)
        self.second = _check("bilinear", "the number of elements of y", in2_features)
        self.outputs = _check("bilinear", "the number of outputs", out_features)
        self.weight = Parameter((out_features, in1_features, in2_features), Init.kaiming_uniform(in1_features))
        self.bias = Parameter((out_features,), Init.kaiming_uniform(in1_features)) if bias else None

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

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, init: Init | None = None,
                 _weight: Any = None) -> None:
        """padding_idx: a row that stays as it is and is zero at first; its indices give no gradient."""
        rows = self.num_embeddings = self.rows = _check("embedding", "the number of rows", num_embeddings)
        width = self.embedding_dim = self.width = _check("embedding", "the width", embedding_dim)
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise UsageError(f"embedding: padding_idx {padding_idx} is not one of {rows} rows")
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.weight = Parameter((rows, width), init or Init.normal(1))
        if self.padding_idx is not None:
            row = _op("unsqueeze")(arange(rows) == self.padding_idx, 1)
            self.weight.assign(_op("where")(row, 0.0, self.weight.value))
        if _weight is not None:
            self.weight.assign(_weight)

    @classmethod
    def from_pretrained(cls, weight: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A layer with these rows, which do not train if `freeze`."""
        value = Variable(weight)
        if value.ndim != 2:
            raise ShapeError(f"embedding: a table has rank 2, given {list(value.shape)}")
        made = cls(value.shape[0], value.shape[1], init=Init.zeros(), padding_idx=padding_idx)
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
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis, or over the last axes of a shape."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True) -> None:
        shape = self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if not shape:
            raise ShapeError("layer norm: normalized_shape has no axis")
        for extent in shape:
            _check("layer norm", "the width", extent)
        self.width, self.eps = math.prod(shape), _check_eps("layer norm", eps)
        self.weight = Parameter(shape, Init.ones(), decay=False) if elementwise_affine else None
        self.bias = Parameter(shape, Init.zeros(), decay=False) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        if len(self.normalized_shape) == 1:
            _check_width("layer norm", x, self.width)
            return _op_layer_norm(x, self.weight, self.bias, eps=self.eps)
        count = len(self.normalized_shape)
        if x.shape[-count:] != self.normalized_shape:
            raise ShapeError(f"layer norm: made for last axes {list(self.normalized_shape)}, given x {x.dtype.name} {list(x.shape)}")
        flat = [None if each is None else each.reshape((self.width,)) for each in (self.weight, self.bias)]
        rows = x.reshape((*x.shape[:-count], self.width))
        return _op_layer_norm(rows, *flat, eps=self.eps).reshape(x.shape)

    def describe(self) -> str:
        return f"LayerNorm {' x '.join(map(str, self.normalized_shape))}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = 1e-6, elementwise_affine: bool = True) -> None:
        given = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if len(given) != 1:
            raise ShapeError(f"RMS norm: normalized_shape {list(given)} is not one axis")
        self.width, self.eps = _check("RMS norm", "the width", given[0]), 1.1920929e-07 if eps is None else _check_eps("RMS norm", eps)
        self.weight = Parameter((self.width,), Init.ones()) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        _check_width("RMS norm", x, self.width)
        return _op_rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return f"RMSNorm {self.width}"


class Dropout(Module):
    """In training, each element is kept with probability 1-p and divided by 1-p, or else becomes 0."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
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

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
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

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.first, self.last = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return _op("flatten")(x, self.first, self.last)
