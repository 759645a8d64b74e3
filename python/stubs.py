"""Writes the stubs of a built module: stubs.py MODULE PACKAGE OUT. nanobind describes the classes and functions that C++ binds;
the functions and methods of ops are those of the op table."""

import importlib.util
import pathlib
import re
import sys

HEADER = '''"""Written by the build: stubs.py."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from ._types import ArrayLike, DeviceLike, DTypeLike, Operand
'''

# Methods that Python adds to Tensor (_tensor.py).
METHODS = '''
    def _elements(self) -> Any: ...
    def _text(self) -> str: ...
    def _dlpack(self, versioned: _bool) -> Any: ...
    def _to_device(self, device: DeviceLike) -> Tensor: ...
    def __iter__(self) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...
    def __contains__(self, item: object) -> bool: ...
    def __format__(self, spec: str) -> str: ...
    def __copy__(self) -> Tensor: ...
    def __reduce__(self) -> Any: ...
    def __round__(self, decimals: int = 0) -> Tensor: ...
    def _repr_html_(self) -> str: ...
    def numpy(self) -> Any: ...
    def tolist(self) -> Any: ...
    def to(self, *targets: DTypeLike | DeviceLike, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor: ...
    def split(self, size: int | Sequence[int], axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]: ...
    def tensor_split(self, indices_or_sections: int | Sequence[int], axis: int = 0, *, dim: int | None = None) -> tuple[Tensor, ...]: ...
    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]: ...
    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]: ...
    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]: ...
    def take(self, indices: ArrayLike, axis: _int | None = None) -> Tensor: ...
    def max(self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tensor: ...
    def min(self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tensor: ...
    def round(self, decimals: int = 0) -> Tensor: ...
    def squeeze(self, axis: _int | Sequence[_int] | None = None, *, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
    def t(self) -> Tensor: ...
    def ravel(self) -> Tensor: ...
    def expand(self, *shape: _int | Sequence[_int]) -> Tensor: ...
    def clamp(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor: ...
    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor: ...
    def scatter_add(self, *arguments: Any, **named: Any) -> Tensor: ...
    def contiguous(self) -> Tensor: ...
    def __divmod__(self, other: Operand) -> tuple[Tensor, Tensor]: ...
    def __rdivmod__(self, other: Operand) -> tuple[Tensor, Tensor]: ...
    def __array_function__(self, function: Callable[..., Any], types: Any, arguments: Any, named: Any) -> Any: ...
    @property
    def itemsize(self) -> _int: ...
    def requires_grad_(self, on: bool = True) -> Tensor: ...
    def clone(self) -> Tensor: ...
    def float(self) -> Tensor: ...
    def double(self) -> Tensor: ...
    def half(self) -> Tensor: ...
    def bfloat16(self) -> Tensor: ...
    def int(self) -> Tensor: ...
    def long(self) -> Tensor: ...
    def bool(self) -> Tensor: ...
    def cpu(self) -> Tensor: ...
    def dim(self) -> _int: ...
'''

OP = '''

class Error(Exception):
    """Base of the errors of Weft."""


class ShapeError(Error, ValueError):
    """Shapes that do not fit an op."""


class DTypeError(Error, TypeError):
    """A dtype that an op or a device does not take."""


class DeviceError(Error, RuntimeError):
    """No device, a lost device, no memory on it."""


class DeviceMemoryError(DeviceError):
    """A value that does not fit in the session's limit."""


class FileError(Error, OSError):
    """A file that is missing, unreadable, unwritable or malformed."""


class UsageError(Error, ValueError):
    """A wrong argument, option or order of calls."""


class InternalError(Error, RuntimeError):
    """A bug in Weft. Please report it."""


class AnomalyError(Error):
    """A computed value has a NaN (detect_anomaly)."""


class Op:
    """An op of the table, as a function."""

    __name__: str
    __qualname__: str
    def __call__(self, *arguments: Any, **named: Any) -> Any: ...

'''

# Functions of the package that take the place of ops.
OVERRIDDEN = {"arange", "split", "tensor_split", "hsplit", "vsplit", "dsplit", "einsum", "max", "min", "round", "take", "tensordot",
              "squeeze", "expand", "zeros_like", "ones_like", "full_like", "clamp", "clip", "scatter_add"}

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
UNARY = ["neg", "pos", "abs", "invert"]


def operators():
    lines = []
    for name in BINARY:
        lines += [f"    def __{name}__(self, other: Operand, /) -> Tensor: ...",
                  f"    def __r{name}__(self, other: Operand, /) -> Tensor: ..."]
    for name in ["lt", "le", "gt", "ge", "eq", "ne"]:
        ignore = "  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]" if name in ("eq", "ne") else ""
        lines.append(f"    def __{name}__(self, other: Operand, /) -> Tensor: ...{ignore}")
    lines += [f"    def __{name}__(self) -> Tensor: ..." for name in UNARY]
    lines += ["    def __getitem__(self, key: Any, /) -> Tensor: ...", "    def __len__(self) -> _int: ...",
              "    def __bool__(self) -> _bool: ...", "    def __float__(self) -> _float: ...", "    def __int__(self) -> _int: ...",
              "    def __index__(self) -> _int: ...", "    def __hash__(self) -> _int: ..."]
    return lines


def method_signature(signature):
    """(x: Operand, axis: int) -> Tensor as a method, with builtins that Tensor's methods do not hide."""
    inside = signature[1:]
    first, _, rest = inside.partition(", ") if ", " in inside.split(")")[0] else (inside.partition(")")[0], "", ")" + inside.partition(")")[2])
    text = f"(self, {rest}" if rest and not rest.startswith(")") else f"(self{rest}"
    return own_builtins(text)


def own_builtins(text):
    """int, float and bool are methods of Tensor too; annotations mean the types."""
    for name in ("int", "float", "bool"):
        text = re.sub(rf"(?<![\w.\"]){name}(?![\w(\"])", f"_{name}", text)
    return text


# Extents may be given one by one: x.reshape(2, 3).
EXTENTS = re.compile(r"\b(shape|order|repeats|axes): _?int \| Sequence\[_?int\](?=[,)])")


def declared(name, signature, doc, indent):
    """The declaration of a function, or two where extents may be given one by one."""
    signature = re.sub(r'-?_?float\("\w+"\)', "...", signature)
    body = f':\n{indent}    """{doc}"""'
    found = EXTENTS.search(signature)
    if not found or name == "as_strided":
        return f"{indent}def {name}{signature}{body}"
    apart = signature[:found.start()] + f"*{found[1]}: {'_int' if indent else 'int'}" + signature[found.end():].replace(", *, ", ", ")
    return f"{indent}@overload\n{indent}def {name}{signature}{body}\n{indent}@overload\n{indent}def {name}{apart}{body}"


def load(path):
    spec = importlib.util.spec_from_file_location("weft._weft", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(module_path, package, out):
    from nanobind.stubgen import StubGen

    native = load(module_path)
    ops = native._ops()
    source = {"__name__": "weft._ops", "__package__": "weft"}
    no_methods = next(line for line in (pathlib.Path(package) / "_ops.py").read_text("utf-8").split("\n\n")
                      if line.strip().startswith("# Names that Python"))
    exec(no_methods, source)
    own = set(source["_NO_METHODS"])

    lines = [HEADER.replace('"""Written by the build: stubs.py."""\n', '"""The ops of the table. Written by the build: stubs.py."""\n'),
             "from ._weft import Tensor\n"]
    methods = []
    for name, function, aliases, _family, inputs in ops:
        signature = function._typed_signature
        doc = function.__doc__.split("\n")[0].replace("\\", "\\\\").replace('"""', "'''")
        for each in [name, *aliases]:
            if each not in OVERRIDDEN:
                lines.append(declared(each, signature, doc, ""))
            if inputs > 0 and each not in own and not hasattr(native.Tensor, each) and f"def {each}(" not in METHODS:
                methods.append(declared(each, method_signature(signature), doc, "    "))
    lines.append("def op_names() -> list[str]: ...")
    (pathlib.Path(out) / "_ops.pyi").write_text("\n".join(lines) + "\n", "utf-8")

    del native.Op  # its doc is that of each op
    generator = StubGen(module=native, quiet=True)
    generator.put(native)
    text = generator.get()
    # Operators are slots, which nanobind's generator does not see.
    marker = "class Tensor:"
    head, _, tail = text.partition(marker)
    block, found, after = tail.partition("\nclass ")
    block = re.sub(r'\n    def __\w+__\((?:self)?[^:]*\):\n        """(?:[^"]|"(?!""))*"""\n', "\n", block)  # slots, without types
    block = "\n".join(own_builtins(line) if line.strip().startswith("def ") else line for line in block.split("\n"))
    block = block.rstrip() + "\n" + METHODS + "\n".join(operators()) + "\n" + "\n".join(methods) + "\n"
    text = head + marker + block + found + after
    text = re.sub(r"from weft import \([^)]*\)\n", "", text)
    text = text.replace("-> tuple:", "-> tuple[Any, ...]:").replace("os.PathLike:", "os.PathLike[str]:").replace("os.PathLike,", "os.PathLike[str],").replace("os.PathLike)", "os.PathLike[str])")
    imports = HEADER + OP + "\n_int = int\n_float = float\n_bool = bool\n"
    text = imports + text + "\n_dtype = dtype\n_device = device\n\n\ndef __getattr__(name: str) -> Any:\n    \"\"\"What only this package uses.\"\"\"\n"
    (pathlib.Path(out) / "_weft.pyi").write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
