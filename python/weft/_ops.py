"""The ops of the table as functions, and as methods of Tensor. The build writes their signatures to _ops.pyi and _weft.pyi."""

from __future__ import annotations

from . import _weft

# Names that Python or this package gives another meaning, or that take no tensor first.
_NO_METHODS = {"where", "concat", "stack", "meshgrid", "einsum", "sgd", "adam", "adamw", "rand", "randn", "max", "min", "round",
               "split", "tensor_split", "hsplit", "vsplit", "dsplit", "hstack", "vstack", "dstack", "column_stack", "block_diag",
               "cartesian_prod", "broadcast_tensors", "normal", "take", "tensordot", "eval", "item", "named", "op"}
_METHODS: list[str] = []


def _install() -> list[str]:
    names = []
    for name, function, aliases, _family, inputs in _weft._ops():
        for each in [name, *aliases]:
            globals()[each] = function
            names.append(each)
            if inputs > 0 and each not in _NO_METHODS and not hasattr(_weft.Tensor, each):
                setattr(_weft.Tensor, each, function)
                _METHODS.append(each)
    return sorted(names)


__all__ = _install()


def op_names() -> list[str]:
    """The names of all ops of the table, those registered later included."""
    return [name for name, *_ in _weft._ops()]


__all__ += ["op_names"]
