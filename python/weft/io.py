"""Tensors in files: .npy, .npz, .safetensors, .gguf."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Union

from . import _weft
from ._types import ArrayLike
from ._weft import Tensor, UsageError

Path = Union[str, "os.PathLike[str]"]


def _format(path: Path) -> str:
    end = os.fspath(path).rpartition(".")[2]
    if end not in ("npz", "safetensors", "gguf"):
        raise UsageError(f"{os.fspath(path)}: files of several tensors end in .npz, .safetensors or .gguf")
    return end


def load(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, by name."""
    return _weft._load(path, _format(path))[0]


def load_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same with the texts that safetensors and GGUF files hold beside the tensors."""
    return _weft._load(path, _format(path))


def save(path: Path, tensors: Mapping[str, ArrayLike], metadata: Mapping[str, str] | None = None) -> None:
    """Writes the file atomically: afterwards it is complete or unchanged."""
    _weft._save(path, _format(path), dict(tensors), dict(metadata or {}))


def load_npy(path: Path) -> Tensor:
    """The array of a .npy file."""
    return _weft._load_npy(path)


def save_npy(path: Path, tensor: ArrayLike) -> None:
    """Writes a .npy file atomically."""
    _weft._save_npy(path, tensor)
