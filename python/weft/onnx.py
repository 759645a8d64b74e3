"""Models of ONNX: read, run, differentiated, written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _weft
from ._types import ArrayLike, DeviceLike
from ._weft import Tensor, Variable
from ._transforms import _inputs, _Listed
from .io import Path


@dataclass(frozen=True)
class Port:
    """An input or output of a model, as the file declares it."""

    name: str
    dtype: _weft.dtype | None  #: None for values that are not tensors, and for types that Weft lacks
    shape: tuple[int | str, ...] | None  #: a name for an extent that is not fixed; None where the file has no shape
    text: str

    def __str__(self) -> str:
        return self.text


class Model:
    """A model on a device, of opsets 1 to 28. A call applies the model's nodes as Weft's ops, so a model may be part of a compiled
    function and of other graphs, and gradients flow through it."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def inputs(self) -> list[Port]:
        return [Port(*each) for each in self._native.inputs()]

    @property
    def outputs(self) -> list[Port]:
        return [Port(*each) for each in self._native.outputs()]

    @property
    def device(self) -> _weft.device:
        return self._native.device

    def named_parameters(self) -> list[tuple[str, Variable]]:
        """The initialisers of float types, which an optimiser can train."""
        return list(self._native.named_parameters())

    def parameters(self) -> list[Variable]:
        return [variable for _, variable in self.named_parameters()]

    def __call__(self, *inputs: ArrayLike) -> Any:
        """The outputs for these inputs, in the model's order: one Tensor or a tuple."""
        results = self._native.apply(_inputs(inputs))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Tensor]:
        """The same by name. Inputs on another device are moved."""
        return dict(self._native.run(dict(inputs)))

    def __repr__(self) -> str:
        return str(self._native.describe()).rstrip()


def load(path: Path, device: DeviceLike | None = None) -> Model:
    """Reads a model, and the files beside it that it names. Errors: FileError for a damaged file; UsageError that lists every op
    that Weft lacks."""
    return Model(_weft._load_onnx(path, device))


def save(path: Path, function: Callable[..., Any], *examples: ArrayLike, inputs: Sequence[str] = (),
         outputs: Sequence[str] = (), dynamic_axes: Mapping[str, Mapping[int, str]] | None = None) -> None:
    """Traces a function or a module on examples, and writes what it computes as a model of opset 18. Shapes are those of the
    examples. `inputs` and `outputs` are names; without them x0, x1, ... and y0, y1, ... Parameters are stored with the model.

    `dynamic_axes` names axes whose extents may change in the model: {"tokens": {0: "batch", 1: "length"}}. Equal names are equal
    extents. The function is then traced at several extents; an op that cannot follow them is an error that names it."""
    axes = {name: dict(named) for name, named in (dynamic_axes or {}).items()}
    _weft._save_onnx(path, _Listed(function, "onnx.save"), _inputs(examples), list(inputs), list(outputs), axes)
