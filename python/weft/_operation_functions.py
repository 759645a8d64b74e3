"""Python functions as handlers of operations: their schemas, from annotations, and how they are called."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import logging
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union

from ._weft import Context, Identity, Tensor, UsageError, Variable

_log = logging.getLogger("weft.operations")
_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    None: {"type": "null"}, type(None): {"type": "null"}, Any: {}, inspect.Parameter.empty: {}, object: {},
    Tensor: {"x-tensor": True}, Variable: {"x-tensor": True},
    list: {"type": "array"}, tuple: {"type": "array"}, dict: {"type": "object"}}
_LISTS = (list, set, collections.abc.Sequence, collections.abc.Iterable)
_STREAMS = (collections.abc.Iterator, collections.abc.Generator, collections.abc.Iterable)


def schema_of(annotation: Any, place: str) -> dict[str, Any]:
    """The JSON Schema of an annotation. Errors: UsageError that names the place."""
    with contextlib.suppress(TypeError):  # what cannot be a key
        if annotation in _SIMPLE:
            return dict(_SIMPLE[annotation])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        schema = schema_of(arguments[0], place)
        for each in arguments[1:]:
            schema.update({"description": each} if isinstance(each, str) else each if isinstance(each, dict) else {})
        return schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, place) for each in arguments]}
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is ...):
        return {"type": "array", "prefixItems": [schema_of(each, place) for each in arguments], "items": False,
                "minItems": len(arguments)}
    if origin in (*_LISTS, tuple):
        return {"type": "array", "items": schema_of(arguments[0], place)}
    if origin in (dict, collections.abc.Mapping) and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], place)}
    raise UsageError(f"{place} is annotated with {annotation!r}, which has no JSON Schema here: annotate it with str, int, float, "
                     "bool, None, Any, list, tuple, dict, Literal, Annotated, a union of them or weft.Tensor, or give the schemas with "
                     "`input` and `output`")


class Described:
    """A function as an operation: its schemas, and the handler that calls it."""

    def __init__(self, function: Callable[..., Any], id: str, input: Any, output: Any, kind: str | None) -> None:
        if not callable(function):
            raise UsageError(f"{id}: an operation is a function, and not {type(function).__name__}")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(f"{id}: the function is asynchronous; operations are plain functions, which run on threads of their own")
        self.function, self.id = function, id
        self.description = inspect.getdoc(function) or "" if inspect.isroutine(function) else ""
        streams = inspect.isgeneratorfunction(function)
        self.kind = kind or ("subscription" if streams else "query")
        if streams and self.kind != "subscription":
            raise UsageError(f"{id}: a generator answers many times, so its kind is subscription, and not {self.kind}")
        try:
            self.signature = inspect.signature(function)
        except ValueError:
            raise UsageError(f"{id}: Python does not know this function's parameters: wrap it in a def") from None
        self.hints = self._hints(given=input is not None and output is not None)
        parameters = list(self.signature.parameters.values())
        self.contexts = [p.name for p in parameters if self.hints.get(p.name) is Context]
        self.takes_whole = input is not None
        self.input = self._input([p for p in parameters if p.name not in self.contexts]) if input is None else input
        self.output = self._output() if output is None else output

    def _hints(self, given: bool) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except (NameError, TypeError) as error:
            if isinstance(error, TypeError) or given:  # a partial, or an object that is called
                return {}
            raise UsageError(f"{self.id}: an annotation cannot be read: {error}") from None

    def _input(self, parameters: list[inspect.Parameter]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required = []
        for each in parameters:
            if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise UsageError(f"{self.id}: the parameter {each} has no name in an input; name it, or give the schema with `input`")
            schema = schema_of(self.hints.get(each.name, each.annotation), f"{self.id}: the parameter {each.name}")
            if each.default is each.empty:
                required.append(each.name)
            elif each.default is None or isinstance(each.default, (bool, int, float, str, list, dict)):
                schema["default"] = each.default
            properties[each.name] = schema
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _output(self) -> Any:
        annotation = self.hints.get("return", self.signature.return_annotation)
        if self.kind == "subscription" and typing.get_origin(annotation) in _STREAMS:
            annotation = typing.get_args(annotation)[0]
        return schema_of(annotation, f"{self.id}: the result") or True

    def handler(self, input: Any, context: Context) -> Any:
        """What the exchange calls. OperationErrors pass; other exceptions are logged here, with their lines, and the caller learns
        their text."""
        from .operations import OperationError

        try:
            known = {name: context for name in self.contexts}
            if self.takes_whole:
                result = self.function(input, **known)
            else:
                # An input without a schema for an object, such as a number, was refused before.
                result = self.function(**input, **known)
            if self.kind != "subscription":
                return result
            for each in result:
                context.emit(each)
            return None
        except OperationError:
            raise
        except Exception:
            if context.stopped:  # it ended because it was told to
                context.check()
            _log.exception("%s failed", self.id)
            raise

    def access_check(self, allow: Callable[[Identity | None, Any], bool]) -> Callable[[Identity | None, Any], bool]:
        def check(identity: Identity | None, input: Any) -> bool:
            try:
                return allow(identity, input) is True
            except Exception:  # who cannot be checked may not call
                _log.exception("the access function of %s failed", self.id)
                return False

        return check


@contextlib.contextmanager
def standard_streams() -> Iterator[tuple[Callable[[], bytes | None], Callable[[bytes], bool]]]:
    """read() and write(line) of standard input and output for a protocol. What the program prints goes to standard error."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    longest = 64 << 20

    def read() -> bytes | None:
        line = source.readline(longest + 2)
        if not line:
            return None
        while not line.endswith(b"\n") and len(line) > longest:  # too long, which the protocol refuses: the rest is not kept
            rest = source.readline(1 << 20)
            if not rest or rest.endswith(b"\n"):
                break
        return line.rstrip(b"\r\n")

    def write(line: bytes) -> bool:
        try:
            target.write(line + b"\n")
            target.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True

    with contextlib.redirect_stdout(sys.stderr):
        yield read, write
