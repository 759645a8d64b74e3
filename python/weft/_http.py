"""Calls of operations over HTTP, for the exchange in C++, which encodes and decodes the messages."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Callable
from typing import Any

from ._weft import UsageError
from .io import Path

_FRAME = "application/vnd.weft.frame"
_ANSWER_MAX = 1 << 30
_LINE_MAX = 256 << 20
_PATIENCE = 30  # seconds for a connection, for an answer beyond the call's deadline, and for the next event or sign of life


class Transport:
    """A server of operations at a URL."""

    def __init__(self, url: str, token: str | None, ca: Path | None) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self.host, self.port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UsageError(f"{url!r} is not a URL: {error}") from None
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UsageError("the URL of a server of operations has a host, a port and perhaps a path; the token is an argument")
        if not self.host:
            raise UsageError(f"{url!r} names no host")
        if ca is not None and parts.scheme != "https":
            raise UsageError("a certificate authority belongs to https://")
        self.path = parts.path.rstrip("/")
        self.tls = ssl.create_default_context(cafile=os.fspath(ca) if ca is not None else None) if parts.scheme == "https" else None
        token = os.environ.get("WEFT_TOKEN") if token is None else token
        if token and not (token.isascii() and token.isprintable()):
            raise UsageError("a token has printable ASCII characters only")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def open(self) -> Connection:
        return Connection(self)

    def operations(self) -> list[dict[str, Any]]:
        """The specifications that the server lists."""
        connection = self.open()
        try:
            response = connection.request("GET", f"{self.path}/v1/operations", b"", {}, _PATIENCE)
            listed = json.loads(read_all(response))
            if not isinstance(listed, dict) or not isinstance(listed.get("operations"), list):
                raise failure("UNAVAILABLE", f"{self.host} does not list operations")
            return list(listed["operations"])
        except ValueError:
            raise failure("UNAVAILABLE", f"{self.host} does not answer as a server of operations does") from None
        finally:
            connection.close()


class Connection:
    """One call. `close`, from any thread, ends it, and the server aborts it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.socket: socket.socket | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str],
                patience: float | None) -> http.client.HTTPResponse:
        """Sends a request. Errors: OperationError: the server's, or UNAVAILABLE."""
        to = self.transport
        made = (http.client.HTTPSConnection(to.host, to.port, timeout=_PATIENCE, context=to.tls) if to.tls
                else http.client.HTTPConnection(to.host, to.port, timeout=_PATIENCE))
        try:
            made.connect()
            # Closed only by `close`: http.client closes its own after a response that ends the connection.
            self.socket = made.sock
            if self.closed:
                raise failure("ABORTED", "the call was aborted")
            made.sock.settimeout(patience)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a server may refuse a body before it has read it
                made.request(method, path, body=body or None, headers={**to.headers, **headers})
            response = made.getresponse()
        except TimeoutError:
            raise failure("TIMEOUT", f"{to.host} did not answer within {patience:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            if self.closed:
                raise failure("ABORTED", "the call was aborted") from None
            raise failure("UNAVAILABLE", f"{to.host}: {error or type(error).__name__}") from None
        if response.status >= 300:
            raise error_of(response)
        return response

    def run(self, id: str, type: str, body: bytes, timeout: float | None, request_id: str, via: str,
            take: Callable[[bytes], bool]) -> None:
        """Calls an operation and gives its answers to `take`, as bytes of envelopes."""
        headers = {"Content-Type": type, "Accept": f"{_FRAME}, application/json"}
        patience = None
        if timeout is not None:
            headers["Weft-Timeout"] = f"{max(timeout, 0.001):.6f}"
            patience = timeout + _PATIENCE
        if request_id:
            headers["Weft-Request-Id"] = request_id
        if via:
            headers["Weft-Via"] = via
        path = f"{self.transport.path}/v1/operations/{urllib.parse.quote(id)}"
        try:
            response = self.request("POST", path, body, headers, patience)
            if "text/event-stream" in (response.getheader("Content-Type") or ""):
                if self.socket is not None:
                    self.socket.settimeout(_PATIENCE)  # the server speaks every 15 s
                self.take_events(response, take)
            else:
                take(read_all(response))
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self.closed:
                raise failure("ABORTED", "the call was aborted") from None
            raise failure("UNAVAILABLE", f"the connection to {self.transport.host} broke: {error or type}") from None
        finally:
            self.close()

    def take_events(self, response: http.client.HTTPResponse, take: Callable[[bytes], bool]) -> None:
        event, data = "", b""
        while line := response.readline(_LINE_MAX):
            line = line.rstrip(b"\r\n")
            if line.startswith(b"event:"):
                event = line[6:].strip().decode()
            elif line.startswith(b"data:"):
                data += line[5:].strip()
            elif not line and event:
                if event == "call.responded":
                    if not take(data):
                        return
                elif event == "call.completed":
                    return
                else:
                    raise error_from(json.loads(data), "UNKNOWN_ERROR", event)
                event, data = "", b""
        raise failure("ABORTED" if self.closed else "UNAVAILABLE", "the stream of answers broke off")


def failure(code: str, message: str, details: Any = None) -> Exception:
    from .operations import OperationError

    return OperationError(code, message, details)


def error_from(error: Any, code: str, message: str) -> Exception:
    if not isinstance(error, dict):
        return failure(code, message)
    return failure(str(error.get("code", code)), str(error.get("message", message)), error.get("details"))


def error_of(response: http.client.HTTPResponse) -> Exception:
    """The error that a server answers with."""
    code = {401: "UNAUTHENTICATED", 413: "TOO_LARGE", 503: "UNAVAILABLE"}.get(response.status, "UNAVAILABLE")
    message = f"status {response.status} {response.reason}"
    try:
        body = json.loads(read_all(response))
    except ValueError:
        return failure(code, message)
    return error_from(body.get("error") if isinstance(body, dict) else None, code, message)


def read_all(response: http.client.HTTPResponse) -> bytes:
    data = response.read(_ANSWER_MAX + 1)
    if len(data) > _ANSWER_MAX:
        raise failure("TOO_LARGE", "the answer is larger than 1 GB")
    return data
