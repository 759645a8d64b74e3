"""Operations: functions that can be called by name, described as data, checked, and run in process or for remote clients.

    exchange = Exchange()

    @exchange.register("text.repeat")
    def repeat(text: str, times: int = 2) -> str:
        return text * times

    exchange.call("text.repeat", {"text": "ha"})      # "haha"
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Union

from . import _weft
from ._weft import Context as Context
from ._weft import Error, UsageError
from ._weft import Identity as Identity
from ._weft import PendingCall as PendingCall
from ._weft import Subscription as Subscription
from .io import Path

Function = TypeVar("Function", bound=Callable[..., Any])
#: Who calls: True for the owner of the process, who may do everything; None for nobody, who may call open operations; an Identity.
Caller = Union[Identity, bool, None]


class OperationError(Error):
    """A call that failed: a code, a message for people, and details. An operation raises it for the errors that it declares."""

    def __init__(self, code: str, message: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    def __reduce__(self) -> Any:
        return OperationError, (self.code, self.message, self.details)


_open: weakref.WeakSet[Exchange] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Handlers end before the interpreter does."""
    for each in list(_open):
        each.close()


class Exchange:
    """Operations and their calls: a registry, and what Weft itself offers.

    A call has these steps: find the operation, check access, validate the input and fill in defaults, run, validate the output. Any
    thread may call any method. `close`, or the end of a `with` block, aborts calls and waits for their handlers."""

    def __init__(self, *, catalogue: bool = True, allow_read: Sequence[Path] = (), allow_write: Sequence[Path] = (),
                 allow_fetch: bool = False, calls_per_identity: int = 64) -> None:
        """`catalogue`: every op as tensor.NAME, handles, gradient checks, weights, models, training. Their files must be inside the
        folders that are allowed. `allow_fetch`: model.fetch may open the network."""
        self._native = _weft._Exchange(catalogue, list(allow_read), list(allow_write), calls_per_identity, allow_fetch)
        _open.add(self)

    # ---- Operations

    def register(self, id: str, *, kind: str | None = None, input: Any = None, output: Any = None, version: str = "1.0.0",
                 title: str = "", description: str | None = None, tags: Sequence[str] = (),
                 errors: Mapping[str, str] | None = None, scopes: Sequence[str] = (), any_scopes: Sequence[str] = (),
                 resource: tuple[str, str, str] | None = None, allow: Callable[[Identity | None, Any], bool] | None = None,
                 internal: bool = False, authority: Identity | None = None, reach: Sequence[str] = (),
                 metadata: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
        """A decorator that registers a function as the operation `id`, which is "namespace.name".

        The function's parameters are the members of the input, and their annotations its JSON Schema; a parameter annotated with
        Context is the call. With `input`, a schema of your own, the function gets the whole input as its first argument.
        `output` is the schema of the answer; without it, it follows from the annotation of the result. A generator is a
        subscription, anything else a query unless `kind` is "mutation".

        `errors` has the codes that the function may raise as OperationError, with descriptions. Callers need all of `scopes`, one of
        `any_scopes`, and for resource=(type, action, member) the action on the resource that the input's member names; and
        `allow(identity, input)` must agree. An internal operation can be called by other operations only. What the function itself
        calls through its Context is limited to `reach` (ids, or "tensor.*") and has the rights of `authority`.

        Errors: UsageError for an id that is taken or not a name, or annotations that no schema has; SchemaError."""

        def decorate(function: Function) -> Function:
            from ._operation_functions import Described

            space, _, name = id.rpartition(".")
            described = Described(function, id, input, output, kind)
            specification: dict[str, Any] = {
                "namespace": space, "name": name, "version": version, "type": described.kind, "tags": list(tags),
                "description": described.description if description is None else description,
                "inputSchema": described.input, "outputSchema": described.output,
                "errors": [{"code": code, "description": text} for code, text in (errors or {}).items()],
                "metadata": dict(metadata or {}),
                "accessControl": {"requiredScopes": list(scopes), "requiredScopesAny": list(any_scopes)}}
            if title:
                specification["title"] = title
            if resource is not None:
                kinds = ("resourceType", "resourceAction", "resourceInput")
                specification["accessControl"].update(zip(kinds, resource))
            check = None if allow is None else described.access_check(allow)
            self._native.register(specification, described.handler, check, internal, authority or Identity(""), list(reach))
            return function

        return decorate

    def remove(self, id: str) -> bool:
        """Removes an operation. Running calls finish. False if there is none."""
        return self._native.remove(id)

    def list(self, *, internal: bool = False) -> list[str]:
        """The ids of external operations; with `internal` of all."""
        return list(self._native.list(internal))

    def describe(self, id: str) -> dict[str, Any]:
        """The specification as JSON has it: inputSchema, outputSchema, errors, accessControl and more. Errors: KeyError."""
        found = self._native.describe(id)
        if found is None:
            raise KeyError(id)
        return dict(found)

    # ---- Calls

    def call(self, id: str, input: Any = None, *, identity: Caller = True, timeout: float | None = None, request_id: str = "",
             envelope: bool = False) -> Any:
        """Calls a query or mutation and waits for its answer; of a subscription, the first. Without a timeout (in seconds) it runs on
        this thread. Tensors and arrays in the input arrive as tensors. With `envelope` the answer is {"data", "meta"}; without it,
        an answer that does not fit the output's schema is a RuntimeWarning. Errors: OperationError."""
        return self._native.call(id, {} if input is None else input, identity, timeout, request_id, envelope)

    def start(self, id: str, input: Any = None, *, identity: Caller = True, timeout: float | None = None, request_id: str = "",
              envelope: bool = False) -> PendingCall:
        """Starts a call on another thread. Errors: OperationError OVERLOADED; `PendingCall.result` raises all others."""
        return self._native.start(id, {} if input is None else input, identity, timeout, request_id, envelope)

    def subscribe(self, id: str, input: Any = None, *, identity: Caller = True, timeout: float | None = None,
                  request_id: str = "", envelope: bool = False) -> Subscription:
        """All answers of a subscription, to iterate over. To drop the Subscription aborts the call."""
        return self._native.subscribe(id, {} if input is None else input, identity, timeout, request_id, envelope)

    def abort(self, request_id: str) -> bool:
        """Aborts a pending call, and the calls that it made. False if there is none."""
        return self._native.abort(request_id)

    @property
    def pending(self) -> int:
        """Number of calls under way."""
        return self._native.pending()

    def observe(self, function: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Reports every event of calls, as JSON has it, on the thread where it happens. Returns a function that ends this."""
        number = self._native.observe(function)
        return lambda: self._native.forget(number)

    # ---- Other places

    def import_from(self, place: str, *, token: str | None = None, ca: Path | None = None) -> int:
        """Adds the operations of another place, which then look local, and returns their number. Places are
        "http://HOST:PORT" and "https://...", which `weft operations serve --http` serves, with its `token`, and `ca`, the PEM file of
        the authority that signed its certificate; and "mcp+stdio:COMMAND", an MCP server that the shell starts, such as
        "mcp+stdio:weft operations serve --mcp --from nats://...". Ids that exist already are left out.
        Errors: OperationError UNAVAILABLE or UNAUTHENTICATED; UsageError for another place."""
        program = "mcp+stdio:"
        if place.startswith(program):
            return _weft._import_mcp_program(self._native, place[len(program):])
        if place.startswith(("http://", "https://")):
            from ._http import Transport

            return _weft._import_transport(self._native, Transport(place, token, ca))
        raise UsageError(f"operations of {place!r}: a place is http://HOST:PORT, https://HOST:PORT or mcp+stdio:COMMAND")

    def serve_mcp(self, *, identity: Identity | None = None) -> None:
        """Serves the operations as tools of the Model Context Protocol on standard input and output, until the client leaves. The
        client has the rights of `identity`; without one, those of the owner. What programs print goes to standard error meanwhile."""
        from ._operation_functions import standard_streams

        with standard_streams() as (read, write):
            _weft._serve_mcp(self._native, identity, read, write)

    # ---- Its end

    def close(self) -> None:
        """Aborts calls, waits for their handlers, and frees what they hold. Later calls are a UsageError."""
        _open.discard(self)
        self._native.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(place: str, *, token: str | None = None, ca: Path | None = None) -> Exchange:
    """An exchange whose operations are those of another place; see Exchange.import_from."""
    exchange = Exchange(catalogue=False)
    try:
        exchange.import_from(place, token=token, ca=ca)
    except BaseException:
        exchange.close()
        raise
    return exchange
