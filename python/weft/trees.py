"""Component trees: elements {"type", "props", "children"}, what changed from one version to the next, and models made of them.

    model = Model(element("Sequential", element("Linear", key="in", inputs=2, outputs=8), element("Tanh"),
                          element("Linear", key="out", inputs=8, outputs=1)))
    model.render(...)      # another tree: what did not change keeps its trained parameters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _weft
from ._types import ArrayLike
from ._weft import Tensor
from .nn import Module

__all__ = ["Element", "Model", "difference", "element", "normalised", "patched"]

#: {"type": ..., "props": {...}, "children": [...]}
Element = Mapping[str, Any]


def element(type: str, *children: Any, **props: Any) -> dict[str, Any]:
    """An element. Children may be None or False, which are left out, and lists of elements."""
    flat: list[Any] = []
    for child in children:
        flat.extend(child if isinstance(child, (list, tuple)) else [child])
    return {"type": type, "props": props, "children": [child for child in flat if child is not None and child is not False]}


def normalised(tree: Element) -> dict[str, Any]:
    """The tree with props and children everywhere. UsageError with the path of what is not an element."""
    return dict(_weft._tree_normalised(dict(tree)))


def difference(older: Element, newer: Element) -> list[dict[str, Any]]:
    """The edits from one tree to another, with as few moves as possible: [{"kind": "move", "path": "", "from": 2, "to": 0}, ...]."""
    return list(_weft._tree_difference(dict(older), dict(newer)))


def patched(tree: Element, edits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tree with the edits done: patched(a, difference(a, b)) is b."""
    return dict(_weft._tree_patched(dict(tree), [dict(edit) for edit in edits]))


class Model(Module):
    """A model of a tree: Sequential, Residual, Parallel, Linear, Embedding, LayerNorm, RMSNorm, Conv1d to Conv3d, MaxPool, AvgPool,
    BatchNorm, Dropout, Flatten and activations, with the props that weft/nn/tree_model.hpp lists. A child is named by its key, or else by
    its place."""

    def __init__(self, tree: Element) -> None:
        """UsageError with the path of each mistake."""
        self._native = _weft._make_tree_model(dict(tree))
        self._adopt()

    def _adopt(self) -> None:
        for name in [*self._children, *self._parameters, *self._buffers]:
            delattr(self, name)
        for name, variable, decay in self._native.named_parameters():
            self._place(name, variable)._parameters[name.split(".")[-1]].decay = decay
        for name, variable in self._native.named_buffers():
            self._place(name, variable)

    @property
    def tree(self) -> dict[str, Any]:
        return dict(self._native.element())

    def render(self, tree: Element) -> list[dict[str, Any]]:
        """Makes the model one of another tree, and returns the edits. An element with the type and the props of the one that it is a version
        of keeps its parameters, and optimisers go on training them; new ones need a new optimiser. Compiled functions are traced again.
        For an equal tree nothing is made and nothing traced. UsageError as for a new model; then nothing has changed."""
        edits = list(self._native.render(dict(tree)))
        if edits:
            self._adopt()
        return edits

    def forward(self, x: ArrayLike) -> Tensor:
        return self._native(x if isinstance(x, Tensor) else _weft._tensor(x, None, None, True))

    def initialize(self, seed: int) -> None:
        """Draws all parameters again with this seed."""
        self._native.initialize(int(seed))

    def train(self, on: bool = True) -> Model:
        self._native.train(bool(on))
        super().train(on)
        return self

    def __repr__(self) -> str:
        return str(self._native.describe())
