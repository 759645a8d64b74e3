"""save() and load(): any object that holds tensors, in one file, as PyTorch's functions of that name."""

from __future__ import annotations

import io as streams
import os
import pickle
import tempfile
from collections.abc import Mapping
from typing import Any

from . import _weft
from ._types import DeviceLike
from ._weft import FileError, Tensor, UsageError, Variable

_MAGIC = b"weft.save 1\n"
# What a file of data may name. Everything else can run code.
_PLAIN = {("collections", "OrderedDict"), ("collections", "defaultdict"), ("collections", "Counter"), ("collections", "deque"), ("builtins", "set"),
          ("builtins", "frozenset"), ("builtins", "complex"), ("builtins", "slice"), ("builtins", "range"), ("builtins", "bytearray"),
          ("weft._tensor", "_restore"), ("weft._tensor", "_restore_variable"), ("weft._tensor", "_restore_device"), ("weft", "dtype"),
          ("weft._weft", "dtype"), ("_codecs", "encode")}


def save(obj: Any, f: Any) -> None:
    """Writes an object to a path or an open file: tensors, dictionaries, lists, numbers, texts, and with them whole modules. A path is
    written atomically. Weights that other programs shall read belong into .safetensors: weft.io.save."""
    if hasattr(f, "write"):
        f.write(_MAGIC)
        pickle.dump(obj, f, protocol=4)
        return
    path = os.fspath(f)
    try:
        descriptor, other = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            save(obj, file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(other, 0o666 & ~mask)
        os.replace(other, path)
    except BaseException:
        os.unlink(other)
        raise


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise UsageError(f"load: the file holds {module}.{name}, which can run code; if you trust the file, use "
                         "load(..., weights_only=False)")


def load(f: Any, map_location: DeviceLike | Any = None, *, weights_only: bool = True) -> Any:
    """What save() wrote. Only data is read: tensors, containers, numbers and texts. weights_only=False reads every object, such as a
    module, and runs code that the file names. map_location: the device for all tensors."""
    if not hasattr(f, "read"):
        path = os.fspath(f)
        if path.endswith((".safetensors", ".npz", ".gguf")):
            from . import io
            return _moved(io.load(path), map_location)
        try:
            with open(path, "rb") as file:
                return load(file, map_location, weights_only=weights_only)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}: {error.strerror}") from None
    begin = f.read(len(_MAGIC))
    if begin != _MAGIC:
        what = ("is one of torch.save; write its weights with safetensors.torch.save_file, and read them with weft.io.load"
                if begin[:2] == b"PK" or begin[:1] == b"\x80" else "was not written by weft.save")
        raise FileError(f"load: the file {what}")
    rest = f.read()
    try:
        made = (pickle.Unpickler if not weights_only else _Plain)(streams.BytesIO(rest)).load()
    except (EOFError, pickle.UnpicklingError, ValueError, IndexError, KeyError) as error:
        if isinstance(error, UsageError):
            raise
        raise FileError(f"load: the file is damaged: {error}") from None
    return _moved(made, map_location)


def _moved(value: Any, where: Any) -> Any:
    if where is None:
        return value
    if isinstance(value, Variable):
        return value
    if isinstance(value, Tensor):
        return value.to(_weft.device(str(where)))
    if isinstance(value, Mapping) and type(value).__name__ in ("dict", "OrderedDict"):
        kind: Any = type(value)
        return kind((key, _moved(each, where)) for key, each in value.items())
    return type(value)(_moved(each, where) for each in value) if type(value) in (list, tuple) else value
