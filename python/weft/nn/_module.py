"""Modules: trees of named parameters."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import _weft, io
from .._types import ArrayLike, DeviceLike, DTypeLike
from .._weft import ShapeError, Tensor, UsageError, Variable

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

    def __repr__(self) -> str:
        return f"Parameter {list(self.shape)}, for an attribute of a module"


class _ParameterType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (_Parameter, Variable))


class Parameter(metaclass=_ParameterType):
    """A parameter, to be an attribute of a module. Parameter(tensor) is a Variable with these first elements. Of a shape and an Init,
    self.weight = Parameter((3, 2), Init.normal(1)), elements are drawn when the attribute is first read; reading it gives a Variable.
    Weight decay applies to rank 2 and above, unless `decay` says otherwise."""

    def __new__(cls, shape_or_data: Any = None, init: Init | None = None, *, decay: bool | None = None,  # type: ignore[misc]
                requires_grad: bool = True, data: Any = None) -> Any:
        given = shape_or_data if data is None else data
        if isinstance(init, bool):  # PyTorch's second argument
            init, requires_grad = None, init
        is_shape = init is not None or (isinstance(given, tuple) and all(isinstance(n, int) for n in given))
        if is_shape or decay is not None or not requires_grad:
            made = _Parameter(given, init, decay=decay)
            made.requires_grad = requires_grad
            if made.variable is not None:
                made.variable.requires_grad = requires_grad
            return made
        return Variable(given, "", requires_grad)


class ModuleHookHandle:
    """A registered hook. It stays until remove(), or as long as its module."""

    def __init__(self, hooks: dict[ModuleHookHandle, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        if not callable(hook):
            raise TypeError(f"hooks: {type(hook).__name__} is not a function")
        self._hooks = hooks
        hooks[self] = hook

    def remove(self) -> None:
        self._hooks.pop(self, None)


def clear_gradients(variables: Sequence[Variable], set_to_none: bool) -> None:
    for variable in variables:
        if set_to_none:
            variable.grad = None
        elif variable.grad is not None:
            variable.grad = _op("zeros_like")(variable.grad)


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


class Parameters(list[Variable]):
    """A list of parameters, of which next() gives the first: next(net.parameters()).device."""

    def __next__(self) -> Variable:
        if not self:
            raise StopIteration
        return self[0]


class Unfitting(UsageError, RuntimeError):  # type: ignore[misc]
    """A state that does not fit a module."""


class LoadedKeys(NamedTuple):
    """What load_state_dict() did not find, and did not know."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """Base of everything that has parameters. Override forward()."""

    _parameters: dict[str, _Parameter]
    _children: dict[str, Module]
    _buffers: dict[str, Variable]
    _hooks: dict[str, dict[ModuleHookHandle, Callable[..., Any]]]
    _unsaved: set[str]  # names of buffers that are not persistent
    _parametrized: dict[str, Any]  # parameters that are computed (nn.utils.parametrize)

    def __new__(cls, *_arguments: Any, **_named: Any) -> Any:
        # Here and not in __init__, so that a subclass may forget to call it.
        self = super().__new__(cls)
        for name, value in (("_parameters", {}), ("_children", {}), ("_buffers", {}), ("_parent", None), ("_seed", None),
                            ("_name", ""), ("_training", _weft._Switch(True)), ("_hooks", {}), ("_unsaved", set())):
            object.__setattr__(self, name, value)
        return self

    # ---- Copies. A copy of a part of a tree is a tree of its own.

    def __getstate__(self) -> dict[str, Any]:
        for name in self._parameters:
            self._variable(name)  # drawn by its place in this tree
        return {**self.__dict__, "_parent": None, "_training": bool(self._training.read())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["_training"] = _weft._Switch(state["_training"])
        for child in self._children.values():
            object.__setattr__(child, "_parent", self)

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
                parent = value._parent
                if parent is None or parent._children.get(value._name) is not value:  # a module of two others has the path of the first
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
        if name in tables.get("_parametrized", ()):
            return tables["_parametrized"][name]()
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

    def register_buffer(self, name: str, tensor: ArrayLike | None, persistent: bool = True) -> None:
        """State that is not trained; it is saved if it is persistent. None stands for a buffer that is left out."""
        if tensor is None:
            setattr(self, name, None)
            return
        setattr(self, name, Variable(tensor, name, requires_grad=False))
        (self._unsaved.discard if persistent else self._unsaved.add)(name)

    def _place(self, name: str, variable: Variable) -> Module:
        """Makes a Variable the attribute of a dotted name, with modules on the way; returns the module that has it."""
        *path, last = name.split(".")
        module: Module = self
        for part in path:
            if part not in module._children:
                setattr(module, part, Module())
            module = module._children[part]
        setattr(module, last, variable)
        return module

    # ---- The tree

    def children(self) -> Iterator[Module]:
        """The modules right below, each once."""
        return iter({id(each): each for each in self._children.values()}.values())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(self._children.items())

    def modules(self) -> Iterator[Module]:
        """This module and all below, parents first, each once."""
        seen = set()
        for _, module in self.named_modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield module

    def named_modules(self, memo: object = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(path, module) for this module and all below, parents first."""
        yield prefix, self
        for name, child in self._children.items():
            yield from child.named_modules(None, _joined(prefix, name))

    def _records(self) -> Iterator[tuple[str, _Parameter, Variable]]:
        for prefix, module in self.named_modules():
            for name, record in module._parameters.items():
                yield _joined(prefix, name), record, module._variable(name)

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Variable]]:
        """Every parameter of the tree in order, each once, by its first name; without `recurse` those of this module alone."""
        seen = set()
        for name, _, variable in self._records():
            if id(variable) not in seen and (recurse or "." not in name):
                seen.add(id(variable))
                yield _joined(prefix, name), variable

    def parameters(self, recurse: bool = True) -> Parameters:
        """Every parameter of the tree in order, each once."""
        return Parameters(variable for _, variable in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Variable]:
        return (variable for name, variable in self.named_buffers() if recurse or "." not in name)

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Calls the function for every module below, and then this one."""
        for child in self._children.values():
            child.apply(function)
        function(self)
        return self

    def get_submodule(self, path: str) -> Module:
        """The module of a path, such as "blocks.0.mlp"."""
        module = self
        for name in path.split(".") if path else []:
            if name not in module._children:
                raise AttributeError(f"{type(module).__name__} has no module {name!r} (of the path {path!r})")
            module = module._children[name]
        return module

    def get_parameter(self, path: str) -> Variable:
        """The parameter of a path, such as "blocks.0.mlp.weight"."""
        owner, _, name = path.rpartition(".")
        module = self.get_submodule(owner)
        if name not in module._parameters:
            raise AttributeError(f"{type(module).__name__} has no parameter {name!r} (of the path {path!r})")
        return module._variable(name)

    def add_module(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    register_module = add_module

    def register_parameter(self, name: str, value: Any) -> None:
        """None stands for a parameter that is left out."""
        setattr(self, name, value if value is None or isinstance(value, _Parameter) else Parameter(value))

    def named_buffers(self) -> Iterator[tuple[str, Variable]]:
        for prefix, module in self.named_modules():
            for name, buffer in module._buffers.items():
                yield _joined(prefix, name), buffer

    def _saved_buffers(self) -> Iterator[tuple[str, Variable]]:
        for prefix, module in self.named_modules():
            for name, buffer in module._buffers.items():
                if name not in module._unsaved:
                    yield _joined(prefix, name), buffer

    def get_buffer(self, path: str) -> Variable:
        """The buffer of a path, such as "norms.0.running_mean"."""
        owner, _, name = path.rpartition(".")
        module = self.get_submodule(owner)
        if name not in module._buffers:
            raise AttributeError(f"{type(module).__name__} has no buffer {name!r} (of the path {path!r})")
        return module._buffers[name]

    def _trained(self) -> list[tuple[str, Variable, bool]]:
        first = dict(self.named_parameters())
        return [(name, variable, record.decay) for name, record, variable in self._records()
                if name in first and variable.requires_grad]

    @property
    def parameter_count(self) -> int:
        """Number of elements of all parameters, without making them."""
        return sum(math.prod(record.shape) for module in self.modules() for record in module._parameters.values())

    # ---- Modes

    def initialize(self, seed: int) -> None:
        """Draws all parameters again with this seed."""
        root = self._root()
        object.__setattr__(root, "_seed", int(seed))
        for prefix, module in root.named_modules():
            for name, record in module._parameters.items():
                drawn = _weft._draw(record.init.kind, record.init.a, record.init.b, list(record.shape), root._seed,
                                    _joined(prefix, name))
                if record.variable is not None:
                    record.variable.assign(drawn)

    def reset_parameters(self) -> None:
        """Draws the parameters of this module, not of those below, again by the generator that weft.manual_seed sets."""
        seed = int(_op("randint")(0, 2**24 - 1, (1,)).item())
        for name, record in self._parameters.items():
            record_value = _weft._draw(record.init.kind, record.init.a, record.init.b, list(record.shape), seed, _joined(self.path, name))
            self._variable(name).assign(record_value)

    def train(self, mode: bool = True) -> Module:
        for module in self.modules():
            module._training.set(bool(mode))
        return self

    def eval(self) -> Module:
        return self.train(False)

    @property
    def training(self) -> bool:
        """A compiled function that reads it is traced once for each mode."""
        return bool(self._training.read())

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        for module in self.modules():
            for record in module._parameters.values():
                record.requires_grad = requires_grad
                if record.variable is not None:
                    record.variable.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients that backward() left, or with set_to_none=False makes them zero."""
        clear_gradients(self.parameters(), set_to_none)

    # ---- Dtypes and devices

    def to(self, *targets: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None, non_blocking: bool = False) -> Module:
        """Parameters and buffers of floats in another dtype, and all of them on another device. Make optimisers afterwards: theirs are
        the parameters that they were given."""
        for each in targets:
            if isinstance(each, Tensor):
                dtype, device = each.dtype, each.device
            elif isinstance(each, bool):
                continue
            else:
                try:
                    dtype = _weft.dtype(each)
                except TypeError:
                    device = each
        if dtype is not None and not _weft.dtype(dtype).is_floating_point:
            raise UsageError(f"{type(self).__name__}: the parameters cannot become {_weft.dtype(dtype).name}; name a dtype of floats")
        place = None if device is None else _weft.device(str(device))
        for variable in [*self.parameters(), *self.buffers()]:
            value = variable.value
            if dtype is not None and value.dtype.is_floating_point and value.dtype != dtype:
                value = value.to(dtype)
            if place is not None and value.device != place:
                value = value.to(place)
            if value.dtype != variable.dtype or value.device != variable.device:
                variable._set_variable(value)
        return self

    def cpu(self) -> Module:
        return self.to("cpu")

    def cuda(self, device: object = None) -> Module:
        raise UsageError(f'{type(self).__name__}: Weft reaches GPUs through WebGPU; write module.to("webgpu")')

    def float(self) -> Module:
        return self.to("f32")

    def double(self) -> Module:
        return self.to("f64")

    def half(self) -> Module:
        return self.to("f16")

    def bfloat16(self) -> Module:
        return self.to("bf16")

    def type(self, dtype: DTypeLike) -> Module:
        return self.to(dtype)

    # ---- State

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by their dotted names."""
        return {prefix + name: variable if keep_vars else variable.value for name, variable in [*self.named_parameters(), *self._saved_buffers()]}

    def load_state_dict(self, state_dict: Mapping[str, ArrayLike], strict: bool = True) -> LoadedKeys:
        """Sets parameters and buffers. UsageError that lists every name missing and unknown and every shape that differs; nothing
        is changed then. Without `strict`, missing and unknown names are ignored; the result lists them. A parameter with several names
        needs one of them. PyTorch's num_batches_tracked beside running_mean is ignored."""
        saved = [*self.named_parameters(), *self._saved_buffers()]
        own = dict([*((name, variable) for name, _, variable in self._records()), *self._saved_buffers()])
        given = {id(variable) for name, _, variable in self._records() if name in state_dict}
        values = {name: _weft._tensor(value, None, None, True) for name, value in state_dict.items()
                  if not name.endswith("num_batches_tracked") or name[:-len("num_batches_tracked")] + "running_mean" not in own}
        missing = [name for name, _ in saved if name not in values and id(own[name]) not in given]
        unknown = [name for name in values if name not in own]
        problems = [*(f"missing: {name}" for name in missing), *(f"unknown: {name}" for name in unknown)] if strict else []
        problems += [f"shape: {name} is {list(own[name].shape)}, given {list(values[name].shape)}" for name in values
                     if name in own and own[name].shape != values[name].shape]
        if problems:
            raise Unfitting(f"{type(self).__name__}: the state does not fit\n  " + "\n  ".join(problems))
        for name, value in values.items():
            if name in own:
                value = value if value.dtype == own[name].dtype else _op("cast")(value, own[name].dtype)
                own[name].assign(value if value.device == own[name].device else value.to(own[name].device))
        _weft.evaluate()
        return LoadedKeys(missing, unknown)

    def save(self, path: io.Path) -> None:
        """As safetensors."""
        io.save(path, self.state_dict())

    def load(self, path: io.Path) -> None:
        self.load_state_dict(io.load(path))  # type: ignore[arg-type]

    # ---- Use

    def forward(self, *inputs: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._call_with_hooks(*inputs, **named) if self._hooks else self.forward(*inputs, **named)

    # ---- Hooks. Those of one kind run in the order of registration, and each sees what the one before it returned. Inside
    # weft.compile they run once, while the function is traced.

    def _register_hook(self, kind: str, hook: Callable[..., Any]) -> ModuleHookHandle:
        return ModuleHookHandle(self._hooks.setdefault(kind, {}), hook)

    def register_forward_pre_hook(self, hook: Callable[[Module, Any], Any]) -> ModuleHookHandle:
        """Before each call, hook(module, inputs) with a tuple: what it returns takes the place of the inputs, a tuple of all or the
        first, unless that is None."""
        return self._register_hook("before", hook)

    def register_forward_hook(self, hook: Callable[[Module, Any, Any], Any]) -> ModuleHookHandle:
        """After each call, hook(module, inputs, output) with a tuple of inputs: what it returns takes the place of the output, unless that
        is None."""
        return self._register_hook("after", hook)

    def register_output_gradient_hook(self, hook: Callable[[Module, Tensor], Tensor | None]) -> ModuleHookHandle:
        """hook(module, gradient of the output), before the module's own gradients are computed; what it returns takes the place
        of the gradient, unless that is None. Outputs that are not one tensor of floats have no such gradient."""
        return self._register_hook("output gradient", hook)

    def register_input_gradient_hook(self, hook: Callable[[Module, Tensor], Tensor | None]) -> ModuleHookHandle:
        """hook(module, gradient that the module passes to its first input); otherwise as register_output_gradient_hook."""
        return self._register_hook("input gradient", hook)

    def _watched(self, x: Any, kind: str) -> Any:
        if isinstance(x, Tensor) and x.dtype.is_floating_point:
            # A gradient meets the hook that was put on last first.
            for hook in reversed(list(self._hooks.get(kind, {}).values())):
                x = _weft.with_gradient_hook(x, functools.partial(hook, self))
        return x

    def register_full_backward_hook(self, hook: Callable[[Module, Any, Any], Any]) -> ModuleHookHandle:
        raise UsageError("register_full_backward_hook: use register_output_gradient_hook, whose hook(module, gradient) sees the gradient of "
                         "the output, or register_input_gradient_hook")

    def _call_with_hooks(self, *inputs: Any, **named: Any) -> Any:
        if not inputs:
            raise UsageError(f"{type(self).__name__}: a module with hooks takes its input by position")
        for hook in list(self._hooks.get("before", {}).values()):
            other = hook(self, inputs)
            if other is not None:
                inputs = other if isinstance(other, tuple) else (other, *inputs[1:])
        inputs = (self._watched(inputs[0], "input gradient"), *inputs[1:])
        y = self.forward(*inputs, **named)
        for hook in list(self._hooks.get("after", {}).values()):
            other = hook(self, inputs, y)
            y = y if other is None else other
        return self._watched(y, "output gradient")

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What print(module) shows beside the name; override it."""
        return ""

    def describe(self) -> str:
        """"Linear 128 -> 384", for tables."""
        return f"{self._get_name()}{' ' if self.extra_repr() else ''}{self.extra_repr()}"

    def __repr__(self) -> str:
        lines = [self.describe()]
        for name, child in self._children.items():
            lines += [f"  {name}: " + repr(child).replace("\n", "\n  ")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The summary of a model as a table, for notebooks."""
        rows = []
        for prefix, module in self.named_modules():
            if module._parameters or not module._children:
                own = sum(math.prod(record.shape) for record in module._parameters.values())
                shapes = " + ".join(str(list(record.shape)) for record in module._parameters.values())
                rows.append(f"<tr><td>{html.escape(prefix)}</td><td>{html.escape(module.describe())}</td><td>{shapes}</td>"
                            f"<td style='text-align:right'>{own:,}</td></tr>")
        total = self.parameter_count
        return ("<table><tr><th>name</th><th>layer</th><th>shape</th><th>parameters</th></tr>" + "".join(rows)
                + f"</table><small>{html.escape(self.describe())}: {total:,} parameters, {total * 4 / 1e6:.1f} MB</small>")
