"""Volumetric networks: layers in the cells of a grid, described as data, and their evolution.

    network = Network(mlp([2, 16, 1]))
    optimizer = optim.Adam(network, 0.02)
    y = network(x)                      # ordinary ops: gradients and weft.compile work as for any module
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _weft
from ._types import ArrayLike
from ._weft import Tensor, UsageError, Variable
from .io import Path
from .nn import Module

#: The place of a layer: z, y, x, and which of the cell's layers.
Place = Sequence[int]


# ---- Descriptions

def build(kind: str, **options: Any) -> dict[str, Any]:
    """The description that the builder "mlp", "cnn", "transformer" or "random" makes; options have the names of C++. UsageError for
    an option that is unknown or out of range."""
    return dict(_weft._grid_description(kind, options))


def mlp(widths: Sequence[int], activation: str = "relu") -> dict[str, Any]:
    """Dense layers widths[0] -> widths[1] -> ..., the last one without activation."""
    return build("mlp", widths=[int(width) for width in widths], activation=activation)


def _tensor(x: ArrayLike) -> Tensor:
    return x if isinstance(x, Tensor) else _weft._tensor(x, None, None, True)


class LayerPass(NamedTuple):
    """What one layer made of its input in a pass; `before` the activation."""

    path: str
    input: Tensor
    before: Tensor
    after: Tensor


class Pass(NamedTuple):
    output: Tensor
    layers: list[LayerPass]


class Memory(NamedTuple):
    """Numbers of parameters, and their bytes in f32 and in the types of the layers."""

    parameters: int
    master_bytes: int
    packed_bytes: int


class Network(Module):
    """A network of a description, which is a dictionary as JSON has it. Parameters have the names of C++: "z0y0x0l2.weight"."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """UsageError that lists every mistake of the description."""
        self._adopt(_weft._make_grid(dict(description)))

    @classmethod
    def _of(cls, native: Any) -> Network:
        made = cls.__new__(cls)
        made._adopt(native)
        return made

    def _adopt(self, native: Any) -> None:
        self._native = native
        for name, variable, _ in native.named_parameters():
            self._place(name, variable)

    @property
    def description(self) -> dict[str, Any]:
        return dict(self._native.description())

    def forward(self, x: ArrayLike) -> Tensor:
        """x [batch, ...], as the first layer takes it."""
        return self._native(_tensor(x))

    def run(self, x: ArrayLike) -> Pass:
        """The output with what every layer made of its input. Gradients of all these tensors can be taken."""
        output, layers = self._native.run_pass(_tensor(x))
        return Pass(output, [LayerPass(*each) for each in layers])

    def initialize(self, seed: int) -> None:
        """Draws all parameters again with this seed."""
        self._native.initialize(int(seed))

    def train(self, on: bool = True) -> Network:
        self._native.train(bool(on))
        super().train(on)
        return self

    def _trained(self) -> list[tuple[str, Variable, bool]]:
        return [each for each in self._native.named_parameters() if each[1].requires_grad]

    def morph(self, dtype: str, at: Place | None = None) -> None:
        """From now on a layer, or all, see their parameters in this type: one of 21, such as "int8" or "binary". They are trained in
        f32 as before. UsageError for another type."""
        self._native.morph(str(dtype), at)

    def set_disabled(self, at: Place, disabled: bool = True) -> None:
        self._native.set_disabled(at, disabled)

    def set_activation(self, at: Place, activation: str) -> None:
        self._native.set_activation(at, activation)

    def clone(self) -> Network:
        """A network of its own with the same description and parameters."""
        return Network._of(self._native.clone())

    @property
    def memory(self) -> Memory:
        return Memory(*self._native.memory())

    def time_layers(self, x: ArrayLike, repeats: int = 10) -> list[tuple[str, str, float]]:
        """(path, type, seconds) of each layer, alone and compiled: the median of the repeats."""
        return list(self._native.time_layers(_tensor(x), repeats))

    def save_checkpoint(self, path: Path, *, keep_master: bool = False) -> None:
        """Topology and parameters in one safetensors file. Without `keep_master`, layers of other types are stored in these types:
        the file is smaller and gives the same pass, but training goes on from the rounded values. `load` reads it."""
        self._native.save(path, keep_master)

    def __repr__(self) -> str:
        return str(self._native.describe())


def load(path: Path) -> Network:
    """The network of a checkpoint. FileError for a damaged one, or one whose tensors are not those of its description."""
    return Network._of(_weft._load_grid(path))


# ---- Other ways to run and to learn

class Systolic:
    """A network that runs by a clock: in each tick every layer reads what its source gave in the tick before, and links may point
    anywhere. With `keeps_gradients`, gradients of the output go back through all ticks."""

    def __init__(self, network: Network, *, keeps_gradients: bool = False) -> None:
        self._native = _weft._Systolic(network._native, keeps_gradients)

    def set_input(self, x: ArrayLike) -> None:
        """What the first layer reads from the next tick on."""
        self._native.set_input(_tensor(x))

    def ticks(self, count: int = 1) -> None:
        self._native.ticks(count)

    def output(self, at: Place | None = None) -> Tensor | None:
        """What the last layer gave, or the one at a place; None before anything reached it."""
        return self._native.output(at)

    @property
    def tick_count(self) -> int:
        return self._native.tick_count()

    def reset(self) -> None:
        self._native.reset()


class Stream:
    """Runs a network on sequences as their steps come. All parts together give what one pass over the whole sequences gives."""

    def __init__(self, network: Network) -> None:
        self._native = _weft._GridStream(network._native)

    def next(self, x: ArrayLike) -> Tensor:
        """x [batch, steps, ...] or ids [batch, steps]."""
        return self._native.next(_tensor(x))

    def reset(self) -> None:
        self._native.reset()


class LinkState(NamedTuple):
    """How well a layer met its target: budget in [0, 1], gap = root mean square of target - actual."""

    path: str
    target: Tensor
    budget: Tensor
    gap: Tensor


class TargetPropagation:
    """Every layer learns from the gap between what it gave and its target; `mode` is "chain_rule" or "gap"."""

    def __init__(self, network: Network, mode: str = "chain_rule", *, gradient_scale: float = 0.1, learning_rate: float = 0.01,
                 budget_min: float = 0.2) -> None:
        self._native = _weft._TargetPropagation(network._native, mode, gradient_scale, learning_rate, budget_min)

    def step(self, x: ArrayLike | Systolic, target: ArrayLike) -> list[LinkState]:
        """One update of all layers, from an input, or from the last tick of a mesh. It may be part of a compiled function."""
        native = self._native
        states = (native.step_mesh(x._native, _tensor(target)) if isinstance(x, Systolic)
                  else native.step(_tensor(x), _tensor(target)))
        return [LinkState(*each) for each in states]


# ---- Evolution

def dna(network: Network) -> list[dict[str, Any]]:
    """For each layer {"at", "type", "dtype", "direction"}: its parameters as the pass sees them, divided by their norm."""
    return list(_weft._grid_dna(network._native))


def compare(a: Network, b: Network, shift_above: float = 0.8) -> dict[str, Any]:
    """How alike two networks are: {"overall", "layers", "shifts"}; shifts are layers that have moved."""
    return dict(_weft._grid_compare(a._native, b._native, shift_above))


def splice(a: Network, b: Network, **options: Any) -> Network:
    """A child with parameters of both parents. Options: mode ("blend", "point", "uniform"), split_ratio, blend_alpha, fitness_a,
    fitness_b, seed."""
    return splice_with_report(a, b, **options)[0]


def splice_with_report(a: Network, b: Network, **options: Any) -> tuple[Network, dict[str, Any]]:
    """The same with what was alike: {"spliced", "similar", "similarities"}."""
    native, report = _weft._grid_splice(a._native, b._native, options)
    return Network._of(native), dict(report)


def mutate(network: Network, **options: Any) -> Network:
    """A changed clone, valid for the same input. Options: the probabilities weights, activation, node, toggle, add_link, drop_link;
    amount, width, seed."""
    return Network._of(_weft._grid_mutate(network._native, options))


@dataclass(frozen=True)
class Generation:
    """How well a generation did; None for a fitness that is not finite."""

    generation: int
    best: float | None
    mean: float | None
    worst: float | None


class Population:
    """Mutants of a network that evolve."""

    def __init__(self, ancestor: Network, size: int = 16, *, seed: int = 1, mutation: Mapping[str, Any] | None = None,
                 splice: Mapping[str, Any] | None = None) -> None:
        """`mutation` and `splice` are the options of `mutate` and `splice`."""
        if size < 1:
            raise UsageError(f"population: a size of {size}; it is 1 or more")
        self._native = _weft._Population(ancestor._native, {"size": size, "seed": seed, "mutation": dict(mutation or {}),
                                                            "splice": dict(splice or {})})

    def evolve(self, fitness: Callable[[Network], float]) -> Generation:
        """Evaluates all members, keeps the best quarter, and replaces the others by mutated children of these."""
        return Generation(**self._native.evolve(lambda native: float(fitness(Network._of(native)))))

    @property
    def best(self) -> Network:
        """A copy of the best member of the last evaluation."""
        return Network._of(self._native.best())

    @property
    def members(self) -> list[Network]:
        """Copies of all members; after `evolve` the best come first."""
        return [Network._of(native) for native in self._native.members()]
