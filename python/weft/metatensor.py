"""Metatensor files: safetensors files with a schema, for every type, nested structs, data sets of records, and blobs.

    Writer().tensor("layers.0.weight", w).records("samples", layout, samples).save("small.metatensor")
    file = open("small.metatensor")         # maps the file, reads the header
    file["layers.0.weight"].numpy()         # in the mapping, without a copy
    file.column("samples", "pixels")        # one tensor of all records
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from . import _weft
from ._types import ArrayLike, DeviceLike
from ._weft import Tensor
from .io import Path


class Violation(NamedTuple):
    """A broken rule: its code, the byte of the file, the tensor or the place in the schema, and a message."""

    code: str
    byte: int
    name: str
    message: str


class Change(NamedTuple):
    """A difference of two schemas: kind is "added", "removed" or "changed"; before and after are nodes, or None."""

    kind: str
    path: str
    before: Any
    after: Any


class Records:
    """The records of a file, one dictionary each. Fields that are tensors are Tensors."""

    def __init__(self, file: File, path: str) -> None:
        self._file, self._path = file, path

    def __len__(self) -> int:
        return int(self._file._native.count(self._path))

    def __getitem__(self, index: int) -> dict[str, Any]:
        count = len(self)
        place = index + count if index < 0 else index
        if not 0 <= place < count:
            raise IndexError(f"record {index} of {count}")
        return dict(self._file._native.record(self._path, place))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))


class Blob:
    """The entries of a blob, as bytes."""

    def __init__(self, file: File, path: str) -> None:
        self._file, self._path = file, path

    def __len__(self) -> int:
        return int(self._file._native.count(self._path))

    def __getitem__(self, index: int) -> bytes:
        count = len(self)
        place = index + count if index < 0 else index
        if not 0 <= place < count:
            raise IndexError(f"entry {index} of {count}")
        return bytes(self._file._native.bytes(f"{self._path}.{place}"))

    def __iter__(self) -> Iterator[bytes]:
        return (self[i] for i in range(len(self)))


class File:
    """A file, open for reading. Paths have dots between names: "layers.0.weight", "samples.17.pixels", "images.3". FileError for a
    path that the file does not have, and for data that break its rules."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def schema(self) -> dict[str, Any]:
        """The schema as JSON has it. A safetensors file without one is a struct of its tensors."""
        return dict(self._native.schema())

    @property
    def has_schema(self) -> bool:
        """Whether the file has a schema of its own."""
        return bool(self._native.has_schema())

    @property
    def metadata(self) -> dict[str, str]:
        """Texts of the header, without the schema."""
        return dict(self._native.metadata())

    def keys(self) -> list[str]:
        """Paths of all tensors, records and blobs, in the order of their data."""
        return list(self._native.paths())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, path: str) -> bool:
        return path in self.keys()

    def __getitem__(self, path: str) -> Tensor | Records | Blob:
        """The tensor, the records or the blob of a path."""
        kind = self._native.kind(path) if path in self else "flat"
        return Records(self, path) if kind == "records" else Blob(self, path) if kind == "blob" else self.tensor(path)

    def tensor(self, path: str, device: DeviceLike | None = None) -> Tensor:
        """A tensor, or a Tensor field of a record. On the CPU it uses the mapped memory where the data is aligned to its elements, and so
        does its `numpy()`; bools, packed types and blocks are copied."""
        return self._native.tensor(path, device)

    def column(self, path: str, field: str, first: int = 0, count: int | None = None, device: DeviceLike | None = None) -> Tensor:
        """A Tensor field of records [first, first + count) as one tensor [count, ...]; without a count, of all behind the first."""
        if count is None:
            count = max(0, int(self._native.count(path)) - first)
        return self._native.column(path, field, first, count, device)

    def data(self, path: str) -> bytes:
        """The bytes of a tensor, of records, of one record or one of its fields, or of an entry of a blob."""
        return bytes(self._native.bytes(path))

    def array(self, path: str) -> Any:
        """The same bytes as a NumPy array of uint8 in the mapping, without a copy. It can only be read."""
        return self._native.array(path)

    def range(self, path: str) -> tuple[int, int]:
        """Where these bytes are in the data region: [begin, end)."""
        begin, end = self._native.range(path)
        return begin, end


def open(path: Path) -> File:
    """Maps a metatensor or safetensors file and reads its header only. FileError for the first broken rule."""
    return File(_weft._open_metatensor(path))


def validate(path: Path) -> list[Violation]:
    """All broken rules of a file, at most 1000; empty for a good one. Reads all data for which there are rules."""
    return [Violation(*each) for each in _weft._validate_metatensor(path)]


def difference(older: Mapping[str, Any], newer: Mapping[str, Any]) -> list[Change]:
    """The differences of two schemas. Alignments and counts do not matter."""
    return [Change(*each) for each in _weft._metatensor_difference(dict(older), dict(newer))]


def schema_of(element: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tree of elements {"type", "props", "children"}: Struct, Field, Tensor, ArrayOf, Blob."""
    return dict(_weft._metatensor_schema(dict(element)))


class Writer:
    """Collects what a file will hold, and writes it. UsageError for a path that is taken, is below a tensor, or begins with "__"."""

    def __init__(self) -> None:
        self._native = _weft._MetatensorWriter()

    def tensor(self, path: str, tensor: ArrayLike, alignment: int = 0) -> Writer:
        """A tensor of any type of Weft. The alignment is a power of two up to 256; 0: the element's size, and 4 at least."""
        self._native.tensor(path, tensor, alignment)
        return self

    def records(self, path: str, layout: Mapping[str, Any], values: Iterable[Mapping[str, Any]], *, packed: bool = False) -> Writer:
        """Records of a layout of fixed size, which is a JSON Schema with the keywords "TypeDef:...". Errors: Error with the place
        of a value that does not fit."""
        self._native.records(path, dict(layout), packed, [dict(value) for value in values])
        return self

    def blob(self, path: str, entries: Iterable[bytes | str]) -> Writer:
        """Entries of any length; texts are stored in UTF-8."""
        self._native.blob(path, [each.encode() if isinstance(each, str) else bytes(each) for each in entries])
        return self

    def optional(self, path: str) -> Writer:
        """Readers of this schema take files without the node."""
        self._native.optional(path)
        return self

    def metadata(self, key: str, text: str) -> Writer:
        self._native.metadata(key, text)
        return self

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self._native.schema())

    def save(self, path: Path) -> None:
        """Writes the file atomically."""
        self._native.save(path)


class Reader:
    """Reads files of other versions of a schema. What the schema has and the file lacks must be optional; what has changed its type
    needs a migration, a function of the stored tensor; what only the file has is ignored. FileError lists all other changes."""

    def __init__(self, file: File, schema: Mapping[str, Any], migrations: Mapping[str, Callable[[Tensor], ArrayLike]] | None = None) -> None:
        self._native = _weft._MetatensorReader(file._native, dict(schema), dict(migrations or {}))

    @property
    def changes(self) -> list[Change]:
        """From the file's schema to this one."""
        return [Change(*each) for each in self._native.changes()]

    def tensor(self, path: str, device: DeviceLike | None = None) -> Tensor | None:
        """A tensor of the schema; None if it is optional and the file lacks it."""
        return self._native.tensor(path, device)
