"""Models by name: fetched from a hub, or from an address, into the cache that programs of the hub share.

    path = weft.models.fetch("hf:OWNER/NAME:Q4_K_M")
    model = weft.llm.load(path)

Nothing else in this package opens the network by itself.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _weft
from .io import Path

__all__ = ["Plan", "PlannedFile", "StoredModel", "fetch", "find", "plan", "stored"]

Progress = Callable[[str, int, int], Any]


@dataclass
class PlannedFile:
    """A file that a fetch takes."""

    name: str
    bytes: int
    here: bool  #: in the cache already


@dataclass
class Plan:
    """What a fetch takes."""

    path: pathlib.Path  #: where the model will be: a file, or a folder
    commit: str
    bytes: int
    missing_bytes: int
    weight_bytes: int
    memory_free: int
    fits: bool  #: whether the weights fit into the memory that is free
    files: list[PlannedFile]


@dataclass
class StoredModel:
    """A model on the disk."""

    name: str
    path: pathlib.Path
    format: str
    family: str
    type: str  #: of most bytes of weights
    parameters: int
    context: int
    bytes: int
    problem: str  #: why it cannot be loaded; empty if nothing is known


def _options(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def fetch(name: str, *, progress: Progress | None = None, token: str | None = None, endpoint: str | None = None,
          cache: Path | None = None, offline: bool = False, sha256: str | None = None, retries: int = 5,
          timeout: int = 30) -> pathlib.Path:
    """Fetches what is missing of a model, and gives its path: a GGUF file, or a folder.

    name      hf:OWNER/NAME, with @REVISION, and with :FILE or a type such as :Q4_K_M; or the https address of a GGUF file
    progress  called with a file's name, the bytes done and all bytes
    token     for the hub; otherwise that of HF_TOKEN, or of the hub's other programs; "" for none
    endpoint  the hub; otherwise HF_ENDPOINT, or the public one
    cache     the folder; otherwise HF_HUB_CACHE, or that of the hub's other programs
    offline   takes what is here, and does not open the network
    sha256    of a file at an address: the hash that it must have
    timeout   seconds without a byte before a new attempt

    Raises UsageError for a choice that the repository does not have, and FileError for what the network, the server and the disk can
    do. Ctrl-C ends it; what came is kept, and the next call goes on from there."""
    return _weft._fetch_model(name, _options(progress=progress, token=token, endpoint=endpoint, cache=cache, offline=offline,
                                             sha256=sha256, retries=retries, timeout=timeout))


def plan(name: str, *, token: str | None = None, endpoint: str | None = None, cache: Path | None = None) -> Plan:
    """What `fetch` would take, without fetching more than the list of files."""
    made = _weft._plan_fetch(name, _options(token=token, endpoint=endpoint, cache=cache))
    return Plan(**{**made, "files": [PlannedFile(**each) for each in made["files"]]})


def find(name: str, *, cache: Path | None = None) -> pathlib.Path | None:
    """The path of a model that the cache has whole, without the network; None if there is none."""
    return _weft._find_fetched(name, _options(cache=cache))


def stored(folders: Sequence[Path] = ()) -> list[StoredModel]:
    """The models below folders; without any, those that `weft models list` shows."""
    return [StoredModel(**each) for each in _weft._stored_models(list(folders))]
