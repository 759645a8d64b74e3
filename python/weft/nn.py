"""Modules: trees of named parameters. Names, shapes and initial values are those of the C++ modules, so that files of weights
fit both. Subclass Module, and give its parameters and children as attributes."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _ops, _weft, io
from ._types import ArrayLike
from ._weft import ShapeError, Tensor, UsageError, Variable

Extents = Union[int, Sequence[int]]
_op: Any = _weft.op


@dataclass(frozen=True)
class Init:
    """How the elements of a parameter are drawn: by the seed, the parameter's full name and the element's number."""

    kind: str = "constant"
    a: float = 0
    b: float = 0

    @staticmethod
    def constant(value: float) -> Init:
        return Init("constant", value)

    @staticmethod
    def zeros() -> Init:
        return Init("constant", 0)

    @staticmethod
    def ones() -> Init:
        return Init("constant", 1)

    @staticmethod
    def normal(deviation: float, mean: float = 0) -> Init:
        return Init("normal", mean, deviation)

    @staticmethod
    def uniform(low: float, high: float) -> Init:
        return Init("uniform", low, high)

    @staticmethod
    def kaiming_uniform(fan_in: int, slope: float = math.sqrt(5)) -> Init:
        """Uniform in +-gain sqrt(3 / fan_in) with gain = sqrt(2 / (1 + slope^2)); the default gives +-1/sqrt(fan_in)."""
        if fan_in < 1:
            raise ShapeError("kaiming_uniform: the number of inputs must be at least 1")
        bound = math.sqrt(2 / (1 + slope * slope)) * math.sqrt(3 / fan_in)
        return Init("uniform", -bound, bound)

    @staticmethod
    def xavier_uniform(fan_in: int, fan_out: int) -> Init:
        bound = math.sqrt(6 / (fan_in + fan_out))
        return Init("uniform", -bound, bound)


class _Parameter:
    """A parameter of a module: of a shape, drawn when it is first read, or with given elements. Reading the module's attribute
    gives a Variable. Weight decay applies to rank 2 and above, unless `decay` says otherwise."""

    def __init__(self, shape_or_data: Sequence[int] | ArrayLike, init: Init | None = None, *, decay: bool | None = None) -> None:
        self.variable: Variable | None = None
        self.init = init or Init.zeros()
        self.requires_grad = True
        if init is not None or (isinstance(shape_or_data, tuple) and all(isinstance(n, int) for n in shape_or_data)):
            self.shape = tuple(int(n) for n in shape_or_data)  # type: ignore[union-attr]
            if any(n < 0 for n in self.shape):
                raise ShapeError(f"parameter: a negative extent in {list(self.shape)}")
        else:
            self.variable = shape_or_data if isinstance(shape_or_data, Variable) else Variable(shape_or_data)
            self.shape = self.variable.shape
        self.decay = len(self.shape) >= 2 if decay is None else decay


def Parameter(shape_or_data: Sequence[int] | ArrayLike, init: Init | None = None, *, decay: bool | None = None) -> Any:
    """A parameter, to be an attribute of a module: self.weight = Parameter((3, 2), Init.normal(1)). Its elements are drawn when it
    is first read; reading the attribute gives a Variable. With elements in place of a shape these are its first value. Weight
    decay applies to rank 2 and above, unless `decay` says otherwise."""
    return _Parameter(shape_or_data, init, decay=decay)


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


class Module:
    """Base of everything that has parameters. Override forward()."""

    _parameters: dict[str, _Parameter]
    _children: dict[str, Module]
    _buffers: dict[str, Variable]

    def __new__(cls, *_arguments: Any, **_named: Any) -> Any:
        # Here and not in __init__, so that a subclass may forget to call it.
        self = super().__new__(cls)
        for name, value in (("_parameters", {}), ("_children", {}), ("_buffers", {}), ("_parent", None), ("_seed", None),
                            ("_name", ""), ("_training", _weft._Switch(True))):
            object.__setattr__(self, name, value)
        return self

    # ---- Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (_Parameter, Module, Variable)):
            if "." in name:
                raise UsageError(f"module: the name {name!r} holds a dot; names are joined by dots to paths")
            if isinstance(value, Module):
                self._check_child(name, value)
            self.__dict__.pop(name, None)
            for table in (self._parameters, self._children, self._buffers):
                table.pop(name, None)
            if isinstance(value, _Parameter):
                self._parameters[name] = value
            elif isinstance(value, Module):
                object.__setattr__(value, "_parent", self)
                object.__setattr__(value, "_name", name)
                self._children[name] = value
            elif value.requires_grad:
                self._parameters[name] = _Parameter(value)
            else:
                self._buffers[name] = value
            return
        for table in (self._parameters, self._children, self._buffers):
            table.pop(name, None)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        if name in tables.get("_parameters", ()):
            return self._variable(name)
        for table in ("_children", "_buffers"):
            if name in tables.get(table, ()):
                return tables[table][name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._children, self._buffers):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._children, *self._buffers]

    def _check_child(self, name: str, child: Module) -> None:
        ancestor: Module | None = self
        while ancestor is not None:
            if ancestor is child:
                raise UsageError(f"module: {name!r} would contain itself")
            ancestor = ancestor._parent
        if child._parent is not None and child._parent is not self and child._parent._children.get(child._name) is child:
            raise UsageError(f"module: {name!r} already is {child.path!r} of another module; use it there, or make a second one")

    @property
    def path(self) -> str:
        """Names from the root to here: "blocks.0.mlp"; empty for the root."""
        return "" if self._parent is None else _joined(self._parent.path, self._name)

    def _root(self) -> Module:
        module = self
        while module._parent is not None:
            module = module._parent
        return module

    def _variable(self, name: str) -> Variable:
        record = self._parameters[name]
        if record.variable is None:
            root = self._root()
            # As in C++, the seed is that of the first draw.
            if root._seed is None:
                object.__setattr__(root, "_seed", _weft._generator_seed())
            full = _joined(self.path, name)
            drawn = _weft._draw(record.init.kind, record.init.a, record.init.b, list(record.shape), root._seed, full)
            record.variable = Variable(drawn, full, record.requires_grad)
        return record.variable

    def register_buffer(self, name: str, value: ArrayLike) -> None:
        """State that is saved but not trained."""
        setattr(self, name, Variable(value, name, requires_grad=False))

    # ---- The tree

    def children(self) -> dict[str, Module]:
        return dict(self._children)

    def modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module) for this module and all below, parents first."""
        yield prefix, self
        for name, child in self._children.items():
            yield from child.modules(_joined(prefix, name))

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        seen = set()
        for prefix, module in self.modules():
            for name, record in module._parameters.items():
                if id(record) not in seen:
                    seen.add(id(record))
                    yield _joined(prefix, name), module._variable(name)

    def parameters(self) -> list[Variable]:
        """Every parameter of the tree in order, each once."""
        return [variable for _, variable in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Variable]]:
        for prefix, module in self.modules():
            for name, buffer in module._buffers.items():
                yield _joined(prefix, name), buffer

    def _trained(self) -> list[tuple[str, Variable, bool]]:
        return [(_joined(prefix, name), module._variable(name), record.decay) for prefix, module in self.modules()
                for name, record in module._parameters.items() if module._variable(name).requires_grad]

    @property
    def parameter_count(self) -> int:
        """Number of elements of all parameters, without making them."""
        return sum(math.prod(record.shape) for _, module in self.modules() for record in module._parameters.values())

    # ---- Modes

    def initialize(self, seed: int) -> None:
        """Draws all parameters again with this seed."""
        root = self._root()
        object.__setattr__(root, "_seed", int(seed))
        for prefix, module in root.modules():
            for name, record in module._parameters.items():
                drawn = _weft._draw(record.init.kind, record.init.a, record.init.b, list(record.shape), root._seed,
                                    _joined(prefix, name))
                if record.variable is not None:
                    record.variable.assign(drawn)

    def train(self, on: bool = True) -> Module:
        for _, module in self.modules():
            module._training.set(bool(on))
        return self

    def eval(self) -> Module:
        return self.train(False)

    @property
    def training(self) -> bool:
        """A compiled function that reads it is traced once for each mode."""
        return bool(self._training.read())

    def requires_grad_(self, on: bool = True) -> Module:
        for _, module in self.modules():
            for record in module._parameters.values():
                record.requires_grad = on
                if record.variable is not None:
                    record.variable.requires_grad = on
        return self

    def zero_grad(self) -> None:
        for variable in self.parameters():
            variable.zero_grad()

    # ---- State

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by their dotted names."""
        return {name: variable.value for name, variable in [*self.named_parameters(), *self.named_buffers()]}

    def load_state_dict(self, state: dict[str, ArrayLike], strict: bool = True) -> None:
        """Sets parameters and buffers. UsageError that lists every name missing and unknown and every shape that differs; nothing
        is changed then. Without `strict`, missing and unknown names are ignored."""
        own = dict([*self.named_parameters(), *self.named_buffers()])
        values = {name: _weft._tensor(value, None, None, False) for name, value in state.items()}
        problems = []
        if strict:
            problems += [f"missing: {name}" for name in own if name not in values]
            problems += [f"unknown: {name}" for name in values if name not in own]
        problems += [f"shape: {name} is {list(own[name].shape)}, given {list(values[name].shape)}" for name in values
                     if name in own and own[name].shape != values[name].shape]
        if problems:
            raise UsageError(f"{type(self).__name__}: the state does not fit\n  " + "\n  ".join(problems))
        for name, value in values.items():
            if name in own:
                own[name].assign(value if value.dtype == own[name].dtype else _op("cast")(value, own[name].dtype))
        _weft.evaluate()

    def save(self, path: io.Path) -> None:
        """As safetensors."""
        io.save(path, self.state_dict())

    def load(self, path: io.Path) -> None:
        self.load_state_dict(io.load(path))  # type: ignore[arg-type]

    # ---- Use

    def forward(self, *inputs: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.forward(*inputs, **named)

    def describe(self) -> str:
        """"Linear 128 -> 384", for tables."""
        return type(self).__name__

    def __repr__(self) -> str:
        lines = [self.describe()]
        for name, child in self._children.items():
            lines += [f"  {name}: " + repr(child).replace("\n", "\n  ")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The summary of a model as a table, for notebooks."""
        rows = []
        for prefix, module in self.modules():
            if module._parameters or not module._children:
                own = sum(math.prod(record.shape) for record in module._parameters.values())
                shapes = " + ".join(str(list(record.shape)) for record in module._parameters.values())
                rows.append(f"<tr><td>{html.escape(prefix)}</td><td>{html.escape(module.describe())}</td><td>{shapes}</td>"
                            f"<td style='text-align:right'>{own:,}</td></tr>")
        total = self.parameter_count
        return ("<table><tr><th>name</th><th>layer</th><th>shape</th><th>parameters</th></tr>" + "".join(rows)
                + f"</table><small>{html.escape(self.describe())}: {total:,} parameters, {total * 4 / 1e6:.1f} MB</small>")


# ---- Containers ---------------------------------------------------------------------------------------------------------


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


_op_linear, _op_embedding = _op("linear"), _op("embedding")
_op_layer_norm, _op_rms_norm, _op_dropout = _op("layer_norm"), _op("rms_norm"), _op("dropout")


class Embedding(Module):
    """Rows of a table by index. Shapes: indices [...] -> [..., width]; weight [rows, width]."""

    def __init__(self, rows: int, width: int, init: Init | None = None) -> None:
        self.rows, self.width = _check("embedding", "the number of rows", rows), _check("embedding", "the width", width)
        self.weight = Parameter((rows, width), init or Init.normal(1))

    def forward(self, indices: Tensor) -> Tensor:
        return _op_embedding(self.weight, indices)

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


def _extents(value: Extents, axes: int) -> list[int]:
    return [value] * axes if isinstance(value, int) else list(value)


class _Conv(Module):
    _axes = 2
    _transposed = False

    def __init__(self, inputs: int, outputs: int, kernel_size: Extents, stride: Extents = 1, padding: Extents = 0,
                 dilation: Extents = 1, groups: int = 1, bias: bool = True, output_padding: Extents = 0) -> None:
        layer = type(self).__name__
        self.inputs, self.outputs = _check(layer, "channels", inputs), _check(layer, "channels", outputs)
        if groups < 1 or inputs % groups or outputs % groups:
            raise ShapeError(f"{layer}: {groups} groups do not divide {inputs} and {outputs} channels")
        self.kernel_size = _extents(kernel_size, self._axes)
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if self._transposed:
            self.options["output_padding"] = output_padding
        first, second = (inputs, outputs // groups) if self._transposed else (outputs, inputs // groups)
        init = Init.kaiming_uniform(second * math.prod(self.kernel_size))
        self.weight = Parameter((first, second, *self.kernel_size), init)
        self.bias = Parameter((outputs,), init) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        function = _op(f"conv{'_transpose' if self._transposed else ''}{self._axes}d")
        return function(x, self.weight, self.bias, **self.options)

    def describe(self) -> str:
        return f"{type(self).__name__} {self.inputs} -> {self.outputs}, {' x '.join(map(str, self.kernel_size))}"


class Conv1d(_Conv):
    """conv1d with weight [outputs, inputs / groups, kernel] and bias [outputs]."""

    _axes = 1


class Conv2d(_Conv):
    """conv2d with weight [outputs, inputs / groups, kernel...] and bias [outputs]."""


class Conv3d(_Conv):
    """conv3d with weight [outputs, inputs / groups, kernel...] and bias [outputs]."""

    _axes = 3


class ConvTranspose1d(_Conv):
    """conv_transpose1d with weight [inputs, outputs / groups, kernel]."""

    _axes, _transposed = 1, True


class ConvTranspose2d(_Conv):
    """conv_transpose2d with weight [inputs, outputs / groups, kernel...]."""

    _transposed = True


class ConvTranspose3d(_Conv):
    """conv_transpose3d with weight [inputs, outputs / groups, kernel...]."""

    _axes, _transposed = 3, True


class _Pool(Module):
    _op_name = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options

    def forward(self, x: Tensor) -> Tensor:
        if not 3 <= x.ndim <= 5:
            raise ShapeError(f"{type(self).__name__}: x has rank {x.ndim}; it is [N, C, space...] with one to three axes of space")
        return _op(f"{self._op_name}{x.ndim - 2}d")(x, *self.arguments, **self.options)


class MaxPool(_Pool):
    """The greatest element of each window: MaxPool(kernel_size, stride=..., padding=...)."""

    _op_name = "max_pool"


class AvgPool(_Pool):
    """The mean of each window."""

    _op_name = "avg_pool"


class AdaptiveAvgPool(_Pool):
    """The mean of `size` windows that cover x."""

    _op_name = "adaptive_avg_pool"


class AdaptiveMaxPool(_Pool):
    """The greatest element of `size` windows that cover x."""

    _op_name = "adaptive_max_pool"


MaxPool1d = MaxPool2d = MaxPool3d = MaxPool
AvgPool1d = AvgPool2d = AvgPool3d = AvgPool


class BatchNorm(Module):
    """Norm of each channel over images and places. In training by the statistics of the batch, which move running_mean and
    running_var; else by these."""

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        self.channels, self.eps, self.momentum = _check("batch norm", "channels", channels), eps, momentum
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None
        self.register_buffer("running_mean", _op("zeros")((channels,)))
        self.register_buffer("running_var", _op("ones")((channels,)))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return _op("batch_norm")(x, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps)
        axes = [0, *range(2, x.ndim)]
        mean, var = _op("mean")(x, axes), _op("var")(x, axes)
        m = self.momentum
        self.running_mean.assign(_op("detach")(self.running_mean * (1 - m) + mean * m))
        self.running_var.assign(_op("detach")(self.running_var * (1 - m) + var * m))
        return _op("batch_norm")(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"BatchNorm {self.channels}"


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class GroupNorm(Module):
    """Norm of groups of channels of each image."""

    def __init__(self, groups: int, channels: int, affine: bool = True, eps: float = 1e-5) -> None:
        self.groups, self.channels, self.eps = groups, channels, eps
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("group_norm")(x, self.weight, self.bias, groups=self.groups, eps=self.eps)

    def describe(self) -> str:
        return f"GroupNorm {self.groups}, {self.channels}"


class InstanceNorm(Module):
    """Norm of each channel of each image."""

    def __init__(self, channels: int, affine: bool = False, eps: float = 1e-5) -> None:
        self.channels, self.eps = channels, eps
        self.weight = Parameter((channels,), Init.ones()) if affine else None
        self.bias = Parameter((channels,), Init.zeros()) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return _op("instance_norm")(x, self.weight, self.bias, eps=self.eps)


class Flatten(Module):
    """Joins axes [first, last] of x to one."""

    def __init__(self, first: int = 1, last: int = -1) -> None:
        self.first, self.last = first, last

    def forward(self, x: Tensor) -> Tensor:
        return _op("flatten")(x, self.first, self.last)


class _Activation(Module):
    _op_name = ""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return _op(self._op_name)(x, **self.options)


def _activation(name: str, op: str) -> type[_Activation]:
    return type(name, (_Activation,), {"_op_name": op, "__doc__": f"weft.{op}.", "__module__": __name__})


ReLU, GELU, SiLU, Tanh, Sigmoid = (_activation(name, op) for name, op in (
    ("ReLU", "relu"), ("GELU", "gelu"), ("SiLU", "silu"), ("Tanh", "tanh"), ("Sigmoid", "sigmoid")))
Softmax, LogSoftmax = _activation("Softmax", "softmax"), _activation("LogSoftmax", "log_softmax")


class PReLU(Module):
    """max(x, 0) + weight min(x, 0)."""

    def __init__(self, channels: int = 1, initial: float = 0.25) -> None:
        self.weight = Parameter((channels,), Init.constant(initial))

    def forward(self, x: Tensor) -> Tensor:
        return _op("prelu")(x, self.weight)


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
                x = _op_dropout(x, p=self.dropout)
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


# ---- GPT ----------------------------------------------------------------------------------------------------------------


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
        self.norm_1 = LayerNorm(config.width, config.bias)
        self.attention = CausalSelfAttention(config)
        self.norm_2 = LayerNorm(config.width, config.bias)
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
        self.token_embedding = Embedding(c.vocabulary, c.width, Init.normal(c.deviation))
        self.position_embedding = Embedding(c.context, c.width, Init.normal(c.deviation))
        self.dropout = Dropout(c.dropout)
        self.blocks = ModuleList([Block(c) for _ in range(c.layers)])
        self.norm = LayerNorm(c.width, c.bias)
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


# ---- Losses: those of the table, with short names -----------------------------------------------------------------------

cross_entropy = _ops.cross_entropy
mse = mse_loss = _ops.mse_loss
l1 = l1_loss = _ops.l1_loss
huber = huber_loss = _ops.huber_loss
binary_cross_entropy = _ops.binary_cross_entropy
nll = nll_loss = _ops.nll_loss
kl_div = _ops.kl_div
