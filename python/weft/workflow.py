"""Workflows: trees of operations as data, checked before anything runs.

    steps = sequential(
        operation("tensor.exp", {"x": "$.input.x"}, id="exp"),
        operation("tensor.sum", {"x": "$.exp.result"}, id="sum"),
        operation("tensor.div", {"x": "$.exp.result", "y": "$.sum.result"}))
    run(exchange, steps, {"x": weft.tensor([1.0, 2.0])})

A template is a dictionary as JSON has it, or the tree of one; texts that begin with "$." refer to results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Union

from . import _weft
from ._weft import Identity, UsageError
from .io import Path
from .operations import Caller, Exchange

#: An element, or a template with its schemas.
Template = Mapping[str, Any]
Observer = Callable[[dict[str, Any]], None]


class Problem(NamedTuple):
    """A mistake in a template: its code, its place ("/tree/children/1/props/input/x") and a message."""

    code: str
    path: str
    message: str


# ---- Elements

def _element(type: str, props: Mapping[str, Any], children: tuple[Any, ...] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"type": type, "props": {name: value for name, value in props.items() if value is not None}}
    if children:
        made["children"] = list(children)
    return made


def operation(name: str, input: Any = None, *, id: str | None = None, timeout: float | None = None) -> dict[str, Any]:
    """One call. Without an input it gets the previous result; a timeout is in seconds."""
    return _element("Operation", {"id": id, "name": name, "input": input, "timeout": timeout})


def sequential(*children: Template, id: str | None = None, output: Any = None) -> dict[str, Any]:
    """The children in order; the result is that of the last one, or `output`."""
    return _element("Sequential", {"id": id, "output": output}, children)


def parallel(*children: Template, id: str | None = None, output: Any = None, max_concurrency: int | None = None) -> dict[str, Any]:
    """The children at once; the result is a list."""
    return _element("Parallel", {"id": id, "output": output, "maxConcurrency": max_concurrency}, children)


def conditional(test: Any, then: Template, otherwise: Template | None = None, *, id: str | None = None,
                output: Any = None) -> dict[str, Any]:
    """`then` if the test holds, else `otherwise`. A test is a reference to a boolean, or {"value": ..., "matches": JSON Schema}."""
    children = (then,) if otherwise is None else (then, otherwise)
    return _element("Conditional", {"id": id, "test": test, "output": output}, children)


def map(over: Any, body: Template, *, item: str = "item", initial: Any = None, id: str | None = None, output: Any = None,
        max_concurrency: int | None = None) -> dict[str, Any]:
    """The body once for each item of a list, in order unless `max_concurrency` is above 1."""
    return _element("Map", {"id": id, "over": over, "as": item, "initial": initial, "output": output,
                            "maxConcurrency": max_concurrency}, (body,))


def load(path: Path) -> dict[str, Any]:
    """The template of a JSON file. Errors: OSError, UsageError that names every member that is missing, unknown or wrong."""
    with open(path, encoding="utf-8") as file:
        try:
            given = json.load(file)
        except ValueError as error:
            raise UsageError(f"{os.fspath(path)}: {error}") from None
    return dict(_weft._workflow_template(given))


# ---- Checks and runs

def check(template: Template, exchange: Exchange) -> list[Problem]:
    """All mistakes: names, order, cycles, and data that the schemas refuse. Empty if nothing is wrong."""
    return [Problem(*each) for each in _weft._workflow_check(dict(template), exchange._native, False)]


def operations_of(template: Template, exchange: Exchange) -> dict[str, Any]:
    """The operations and the edges between them, in a topological order: {"nodes": [...], "edges": [...]}. UsageError with all
    problems."""
    return dict(_weft._workflow_operations(dict(template), exchange._native))


class Run:
    """A workflow that runs."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def result(self) -> Any:
        """Waits for the result. OperationError of the element that failed first, with its place; ABORTED, TIMEOUT."""
        return self._native.result()

    def abort(self) -> None:
        self._native.abort()

    @property
    def status(self) -> str:
        """idle, waiting, ready, running, completed, failed or aborted."""
        return str(self._native.status())

    @property
    def graph(self) -> dict[str, Any]:
        """What has happened so far: {"nodes": [{"id", "operation", "status", ...}], "edges": [{"from", "to", "kind"}]}."""
        return dict(self._native.graph())


def start(exchange: Exchange, template: Template, input: Any = None, *, identity: Caller = True, timeout: float | None = None,
          threads: int = 16, on_event: Observer | None = None) -> Run:
    """Starts a workflow. Its operations are calls with the rights of `identity`. `on_event` gets each change of an element's status,
    on the threads of the run. UsageError with all problems; OperationError VALIDATION_ERROR for an input that does not fit."""
    return Run(_weft._workflow_start(dict(template), exchange._native, {} if input is None else input, identity, timeout,
                                     threads, on_event))


def run(exchange: Exchange, template: Template, input: Any = None, *, identity: Caller = True, timeout: float | None = None,
        threads: int = 16, on_event: Observer | None = None) -> Any:
    """The same, and waits for the result."""
    return start(exchange, template, input, identity=identity, timeout=timeout, threads=threads, on_event=on_event).result()


def add(exchange: Exchange, id: str, template: Template, *, scopes: tuple[str, ...] | list[str] = (), description: str = "",
        authority: Identity | None = None) -> None:
    """Makes a workflow the operation `id`. Its calls have the rights of `authority` and reach the template's operations only.
    UsageError with all problems, or for an id that is taken."""
    space, _, name = id.rpartition(".")
    specification: dict[str, Any] = {"namespace": space, "name": name, "type": "mutation",
                                     "accessControl": {"requiredScopes": list(scopes)}}
    if description:
        specification["description"] = description
    _weft._workflow_add(dict(template), exchange._native, specification, authority or Identity(""))


class CallGraph:
    """Records the calls of an exchange from now on: what triggered which, and how each ended."""

    def __init__(self, exchange: Exchange) -> None:
        self._native = _weft._CallRecorder(exchange._native)

    @property
    def graph(self) -> dict[str, Any]:
        return dict(self._native.graph())

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> CallGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
