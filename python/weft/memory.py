"""Vector memory: texts with embeddings, searched exactly by cosine, and packed into a context for a language model.

    notes = weft.memory.Store(model.width)
    notes.add("The cat sat on the mat.", model.embed("The cat sat on the mat."))
    notes.recall(model.embed("Where is the cat?"), 200).text
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _weft
from ._types import ArrayLike
from .io import Path

__all__ = ["Entry", "Match", "Recall", "Store", "StoreFile", "open"]


@dataclass
class Entry:
    id: str
    namespace: str
    text: str
    metadata: dict[str, Any]


class Match(NamedTuple):
    """An entry, and the cosine of query and embedding."""

    entry: Entry
    similarity: float


class Recall(NamedTuple):
    """Texts for a prompt: "[1] the text\\n" for each match, the best first."""

    text: str
    tokens: int
    matches: list[Match]


def _matches(native: list[Any]) -> list[Match]:
    return [Match(Entry(*entry), similarity) for entry, similarity in native]


def _search(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


class Store:
    """Entries with embeddings of one width, which are kept in f32, divided by their norm."""

    def __init__(self, width: int) -> None:
        """UsageError unless 1 <= width <= 65536."""
        self._native = _weft._Memory(width)

    @classmethod
    def load(cls, path: Path) -> Store:
        """The memory of a file. FileError for one that is missing or damaged."""
        made = cls.__new__(cls)
        made._native = _weft._Memory.load(path)
        return made

    def save(self, path: Path) -> None:
        """A metatensor file, which appears whole or not at all."""
        self._native.save(path)

    def add(self, text: str, embedding: ArrayLike, *, id: str = "", namespace: str = "", metadata: Mapping[str, Any] | None = None) -> str:
        """Returns the id, which is made if it is not given. UsageError for an id that is taken, and for an embedding of another width, of
        zeros, or with numbers that are not finite."""
        return str(self._native.add(text, embedding, id, namespace, dict(metadata or {})))

    def remove(self, id: str) -> bool:
        """False if there is no such entry."""
        return bool(self._native.remove(id))

    def find(self, id: str) -> Entry | None:
        found = self._native.find(id)
        return None if found is None else Entry(*found)

    def search(self, query: ArrayLike, top_k: int = 10, *, namespace: str | None = None, where: Mapping[str, Any] | None = None,
               similarity_min: float = -1) -> list[Match]:
        """The entries that are most alike, the best first; of equal ones those that were stored earlier. `where`: members that their
        metadata must have. Exact."""
        return _matches(self._native.search(query, _search({"top_k": top_k, "namespace": namespace, "where": where,
                                                            "similarity_min": similarity_min})))

    def recall(self, query: ArrayLike, tokens: int = 500, *, count: Callable[[str], int] | None = None, top_k: int = 50,
               namespace: str | None = None, where: Mapping[str, Any] | None = None, similarity_min: float = -1) -> Recall:
        """The best texts that fit into a number of tokens. `count` tells how many tokens a text takes; otherwise a quarter of its bytes is
        the estimate."""
        text, used, matches = self._native.recall(query, tokens, count,
                                                  _search({"top_k": top_k, "namespace": namespace, "where": where,
                                                           "similarity_min": similarity_min}))
        return Recall(text, used, _matches(matches))

    @property
    def width(self) -> int:
        return int(self._native.width())

    @property
    def entries(self) -> list[Entry]:
        """In the order of their storage; a removal moves the last one to its place."""
        return [Entry(*each) for each in self._native.entries()]

    @property
    def namespaces(self) -> dict[str, int]:
        """Entries of each."""
        return dict(self._native.namespaces())

    def __len__(self) -> int:
        return int(self._native.size())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._native.find(id) is not None

    def __repr__(self) -> str:
        return f"Store({len(self)} entries of width {self.width})"


class StoreFile(Store):
    """A store and its file, to which changes are appended (see `open`). As a context it commits at its end, unless that is an exception, and
    closes."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def commit(self) -> None:
        """Appends the changes since the last commit to the file's journal, and waits until they are on the disk: after a crash the file has
        all of them or none. A journal that has grown larger than the file is worked into it. FileError; then the file has none."""
        self._native.commit()

    def compact(self) -> None:
        """Writes the whole file, and empties the journal."""
        self._native.compact()

    def close(self) -> None:
        """Lets go of the file, which another object may then open. The store itself stays, without a file."""
        self._native.close()

    @property
    def journal_bytes(self) -> int:
        return int(self._native.journal_bytes())

    def __enter__(self) -> StoreFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()


def open(path: Path, width: int | None = None) -> StoreFile:
    """The memory of a file, to add to it: `commit` appends what is new. Makes the file if there is none, for embeddings of this width.
    FileError if there is no file and no width, or if another object, of this or another program, has it; UsageError for another width."""
    return StoreFile(_weft._Memory.open(path, width))
