#!/usr/bin/python3
"""Hostile clients of weft's servers: hostile_clients_test.py WEFT [--seconds N] [--seed N] [unittest arguments].

Clients send half requests, wrong lengths and chunks, heads and bodies that are none, messages of MCP in any order, and vanish at any moment.
Meanwhile and afterwards the servers answer others, in time and within little memory. --seconds is the time of each attack.
"""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / folder) for folder in ("cli", "remote")]
import tiny_model  # noqa: E402
from server import nats_server  # noqa: E402


def option(name, default):
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = type(default)(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    return value


WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
SECONDS, SEED = option("--seconds", 3.0), option("--seed", 1)
TOKEN, OTHER = "token-of-the-one-client", "token-of-another-client"
MEMORY = (2000 if b"__asan_" in WEFT.read_bytes() else 600) << 20  # more than a server has at its start; a sanitizer keeps freed memory for a while
PATIENCE = 20  # seconds for an answer while others attack; sanitizers are slow

# Words that mean something where they should not be.
JUNK = ["null", "{}", "[]", "-1", "-0", "1e308", "1e999", '""', "18446744073709551616", "[" * 40, "[" * 5000, '{"a":' * 3000, "\\ud800", '"\\ud800"', '"\\u0000"', "\x00",
        "true", '"' + "x" * 5000 + '"', "NaN", "\ufeff", '{"a": 1, "a": 2}', '{"$tensor": 3}', '{"$tensor": {"handle": "x"}}', '"hf:a/b"', '"/etc/passwd"', "9" * 400]


def mutated(random_, text):
    """JSON whose values are replaced, or bytes that are."""
    data = text.encode(errors="surrogatepass")
    for _ in range(random_.randrange(3)):
        spots = [m.start() + 1 for m in re.finditer(rb"[:,\[]", data)] or [0]
        at = random_.choice(spots)
        ends = [m.start() for m in re.finditer(rb"[,}\]]", data[at:])] or [0]
        data = data[:at] + random_.choice(JUNK).encode(errors="surrogatepass") + data[at + ends[0]:]
    for _ in range(random_.choice((0, 0, 1, 3))):
        if data:
            at = random_.randrange(len(data))
            data = data[:at] + bytes([random_.randrange(256)]) + data[at + random_.randrange(2):]
    return data[:random_.randrange(len(data) + 1)] if random_.random() < 0.1 else data


def request(random_, method, path, body, headers=()):
    """A request that is right, or wrong in its first line, its headers, its length or its chunks."""
    body = body if isinstance(body, bytes) else body.encode(errors="surrogatepass")
    lines = [("Host", "x"), ("Authorization", f"Bearer {TOKEN}"), ("Content-Type", "application/json"), *headers]
    first = f"{method} {path} HTTP/1.1"
    kind = random_.randrange(24)
    if kind == 0:
        first = random_.choice([f"{method} {path}", f"{method} {path} HTTP/0.9", f"{method} {path} HTTP/1.0", f"{method}  {path} HTTP/1.1", "PRI * HTTP/2.0", "\x00" * 20, "CONNECT x:1 HTTP/1.1",
                                f"{method} http://x{path} HTTP/1.1", f"{method} {path}?{'q' * 5000} HTTP/1.1", f"{method} {path}/%00%ff%2e%2e HTTP/1.1", f"{method} * HTTP/1.1", f"{'M' * 3000} / HTTP/1.1"])
    elif kind == 1:
        lines += [("X", "y" * random_.choice((100, 8000, 17000, 200000)))]
    elif kind == 2:
        lines += [(f"X-{i}", "1") for i in range(random_.choice((50, 500, 5000)))]
    elif kind == 3:
        lines += [random_.choice([("X\x00", "1"), ("X", "\x00\xff"), ("X ", "1"), ("", "1"), ("X", "a\r\n b"), ("Expect", "100-continue"), ("Expect", "x"), ("Upgrade", "h2c"), ("Connection", "close, x"),
                                  ("Host", "b"), ("Authorization", "Bearer"), ("Cookie", "=" * 4000)])]
    chunked = kind in (4, 5, 6)
    length = str(len(body))
    if chunked:
        sizes = [f"{len(body):x}"] if kind == 4 else [random_.choice(["-1", "ffffffffffffffff", "7fffffffffffffff", "0x5", "", "g", "5;" + "e" * 20000, "1" * 40, " 5", f"{len(body) + 7:x}"])]
        tail = random_.choice([b"\r\n0\r\n\r\n", b"\r\n0\r\nX: y\r\n\r\n", b"0\r\n\r\n", b"\n0\n\n", b"\r\n0\r\n" + b"T: t\r\n" * 5000, b""])
        body = sizes[0].encode() + b"\r\n" + body + tail
        lines += [("Transfer-Encoding", random_.choice(["chunked", "chunked", "gzip, chunked", "chunked, chunked", "xchunked"]))]
        if random_.random() < 0.2:
            lines += [("Content-Length", length)]
    else:
        if kind == 7:
            length = random_.choice(["-1", "+5", "0x5", "5, 5", "5,6", "", " ", "999999999999999999999", "99999999", "1e3", str(len(body) + 10), str(max(0, len(body) - 3))])
        lines += [("Content-Length", length)] * (2 if kind == 8 else 1)
    if random_.random() < 0.2:
        random_.shuffle(lines)
    end = "\n" if kind == 9 else "\r\n"
    head = end.join([first, *(f"{name}: {value}" for name, value in lines)]) + end * 2
    data = head.encode("latin-1", errors="replace") + body
    if kind == 10:
        data *= random_.choice((2, 50))  # pipelined
    if kind == 11:
        data = data[:random_.randrange(len(data))]
    return data


class Attack:
    """Clients on threads, each with random numbers of its own, until the time is over."""

    def __init__(self, seconds, *clients):
        self.until, self.counts, self.errors = time.monotonic() + seconds, [0] * len(clients), []
        self.threads = [threading.Thread(target=self.run, args=(i, each)) for i, each in enumerate(clients)]

    def run(self, i, client):
        random_ = random.Random(SEED * 1000 + i)
        while time.monotonic() < self.until:
            try:
                client(random_)
            except (OSError, http.client.HTTPException):  # the server may end any of these connections
                pass
            except Exception as error:  # noqa: BLE001
                self.errors.append(error)
                return
            self.counts[i] += 1

    def __enter__(self):
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_):
        for each in self.threads:
            each.join()


def memory_of(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10


class Server(unittest.TestCase):
    """One server for the tests of a class; derived classes say which."""
    health = "/health"

    @classmethod
    def command(cls, folder):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        if cls is Server:
            raise unittest.SkipTest("a base")
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        (path / "tokens.json").write_text(json.dumps({"tokens": [{"token": TOKEN, "id": "owner", "scopes": ["*"], "resources": {"*": ["*"]}},
                                                                   {"token": OTHER, "id": "other", "scopes": ["*"]}]}))
        cls.process = cls.start(path)
        cls.memory = memory_of(cls.process.pid)

    @classmethod
    def start(cls, path, **more):
        with open(path / "log", "w") as log:
            process = subprocess.Popen([WEFT, *cls.command(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, **more)
        for _ in range(1200):
            if found := re.search(r"on http://127.0.0.1:(\d+)", (path / "log").read_text()):
                break
            if process.poll() is not None:
                raise RuntimeError((path / "log").read_text())
            time.sleep(0.05)
        cls.port = int(found[1])
        return process

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGTERM)
        code = cls.process.wait(60)
        text = (pathlib.Path(cls.folder.name) / "log").read_text()
        cls.folder.cleanup()
        assert code == 0, (code, text[-3000:])

    def connect(self, timeout=PATIENCE):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body),
                               {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def throw(self, random_, data):
        """Sends bytes at some pace, and reads an answer, a part of it, or nothing."""
        with self.connect(5) as client:
            way = random_.randrange(6)
            if way == 0:  # a reset in the middle
                client.sendall(data[:random_.randrange(len(data) + 1)])
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            if way == 1:  # in pieces
                for i in range(0, min(len(data), 4000), 1 + len(data) // 7):
                    client.sendall(data[i:i + 1 + len(data) // 7])
                    time.sleep(0.002)
            else:
                client.sendall(data)
            if way == 2:
                client.shutdown(socket.SHUT_WR)
            client.settimeout(random_.choice((0.01, 0.02, 0.2)))
            while client.recv(random_.choice((1, 65536))) and random_.random() < 0.9:
                pass

    def withstands(self, *clients, calls):
        """Runs the clients, and another one that is always answered; then all is as it was."""
        answered, slowest = 0, 0
        with Attack(SECONDS, *clients) as attack:
            while time.monotonic() < attack.until:
                start = time.monotonic()
                calls()
                slowest = max(slowest, time.monotonic() - start)
                answered += 1
                self.assertIsNone(self.process.poll(), "the server ended")
        self.assertEqual(attack.errors, [])
        self.assertGreater(min(attack.counts), 0)
        calls()
        more = memory_of(self.process.pid) - self.memory
        self.assertLess(more, MEMORY)
        print(f"{self.id()}: {sum(attack.counts)} attacks, {answered} others were answered, the slowest in {slowest:.2f} s; {more >> 20} MB more", flush=True)


class Operations(Server):
    @classmethod
    def command(cls, folder):
        return ["operations", "serve", "--http", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu", "--allow-read", folder]

    def calls(self):
        status, text = self.ask("POST", "/v1/operations/tensor.add", {"x": 2, "y": 3})
        self.assertEqual(status, 200, text)

    def test_requests(self):
        data = base64.b64encode(struct.pack("<2f", 1, 2)).decode()
        good = json.dumps({"x": {"$tensor": {"dtype": "f32", "shape": [2], "data": data}}, "y": 3, "axis": -1, "shape": [2, 1]})

        def client(random_):
            name = random_.choice(("tensor.add", "tensor.softmax", "tensor.reshape", "tensor.matmul", "handle.create", "handle.read", "weights.list", "workflow.run", "nothing"))
            path = random_.choice((f"/v1/operations/{name}", f"/v1/operations/{name}", "/v1/operations", "/openapi.json", f"/v1/calls/owner/{name}", "/v1/sessions/x", "/v1/handles/x", "/health"))
            headers = random_.choice(((), (), (("Accept", "text/event-stream"),), (("Weft-Timeout", random_.choice(("0.01", "-1", "nan", "1e300"))),), (("Weft-Tensors", "handles"), ("Weft-Session", "s")),
                                     (("Weft-Request-Id", random_.choice(("same", "\xff", "x" * 101))),), (("Weft-Via", random_.choice(("a,b", ",,,", "x" * 9000))),)))
            self.throw(random_, request(random_, random_.choice(("POST", "POST", "POST", "GET", "DELETE", "PUT")), path, mutated(random_, good), headers))
        self.withstands(client, client, client, calls=self.calls)

    def test_messages_of_mcp(self):
        def session():
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}}
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            with contextlib.closing(connection):
                connection.request("POST", "/mcp", json.dumps(body), {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"})
                answer = connection.getresponse()
                answer.read()
                return answer.getheader("Mcp-Session-Id")

        def client(random_):
            name = session()
            if not name:  # as many as there may be
                time.sleep(0.05)
                return
            for _ in range(random_.randrange(1, 12)):
                method = random_.choice(("tools/call", "tools/call", "tools/list", "ping", "initialize", "notifications/cancelled", "notifications/initialized", "none", "resources/list"))
                params = {"tools/call": {"name": random_.choice(("tensor.add", "tensor.softmax", "handle.create", "none")), "arguments": {"x": 1, "y": 2},
                                         "_meta": {"progressToken": random_.choice((1, "a", None))}},
                          "notifications/cancelled": {"requestId": random_.choice((1, 2, "x", None, -5))}, "tools/list": {"cursor": random_.choice((None, "x", "tensor.add"))}}.get(method, {})
                message = {"jsonrpc": random_.choice(("2.0", "2.0", "2.0", "1.0", 2)), "method": method, "params": params}
                if not method.startswith("notifications") or random_.random() < 0.2:
                    message["id"] = random_.choice((1, 2, "1", -1, 1.5, None, [1], 2**70, "x" * 300))
                text = json.dumps(message if random_.random() < 0.9 else [message] * 3)
                data = mutated(random_, text) if random_.random() < 0.5 else text
                headers = (("Mcp-Session-Id", random_.choice((name, name, name, "x", "\xff"))), ("Accept", random_.choice(("text/event-stream", "application/json", "*/*"))))
                self.throw(random_, request(random_, random_.choice(("POST", "POST", "POST", "POST", "GET", "DELETE")), "/mcp", data, headers))
            if random_.random() < 0.8:
                self.ask("DELETE", "/mcp", Mcp_Session_Id=name)
        self.withstands(client, client, client, calls=self.calls)

    def test_more_idle_clients_than_there_are_places(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = min(2000, hard - 100)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 100), hard))
        with contextlib.ExitStack() as all_:
            clients = []
            for i in range(count):
                clients.append(all_.enter_context(self.connect()))
                if i % 3 == 1:
                    clients[-1].sendall(b"POST /v1/operations/tensor.add HTTP/1.1\r\nHost: x\r\nContent-")
                if i % 250 == 249:
                    self.calls()
            self.calls()
            self.assertEqual(clients[0].recv(100), b"", "it waited the longest")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.calls()

    def test_slow_clients(self):
        with contextlib.ExitStack() as all_:
            clients = [all_.enter_context(self.connect()) for _ in range(400)]
            for byte in b"GET /health HT":
                for each in clients:
                    with contextlib.suppress(OSError):
                        each.sendall(bytes([byte]))
                self.calls()

    def test_a_refused_client_may_send_its_body_to_the_end(self):
        body = b"[" + b"1," * (1 << 20) + b"1]"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            for _ in range(3):
                connection.request("POST", "/v1/operations/tensor.add", body, {"Authorization": "Bearer none", "Content-Type": "application/json"})
                answer = connection.getresponse()
                self.assertEqual(answer.status, 401)
                answer.read()
                connection.close()


class Limits(unittest.TestCase):
    @unittest.skipIf(b"__ubsan_" in WEFT.read_bytes(), "the sanitizer takes an object for damaged where it has no descriptor to look with")
    def test_without_descriptors(self):
        """Connections wait for one; the server does not end, and does not spin."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tokens.json").write_text(json.dumps({"tokens": [{"token": TOKEN, "id": "owner", "scopes": ["*"]}]}))
            server = Operations("calls")
            process = server.start(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))

            def ticks():
                return sum(map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
            try:
                with contextlib.ExitStack() as all_:
                    for _ in range(100):
                        all_.enter_context(server.connect())
                    time.sleep(0.2)
                    before = ticks()
                    time.sleep(1)
                    self.assertLess(ticks() - before, 50, "it spins")
                for _ in range(100):
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        server.calls()
                        break
                    time.sleep(0.1)
                else:
                    self.fail("it does not serve again")
            finally:
                process.terminate()
                self.assertEqual(process.wait(30), 0)


class Model(Server):
    """weft serve."""
    @classmethod
    def command(cls, folder):
        return ["serve", tiny_model.put_byte_model(folder / "tiny"), "--port", "0", "--device", "cpu", "--api-key", TOKEN]

    def calls(self):
        status, text = self.ask("POST", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3})
        self.assertIn(status, (200, 429, 503), text)

    def test_requests(self):
        chat = json.dumps({"model": "tiny", "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_tokens": 8, "temperature": 0.5, "top_p": 0.9,
                           "stop": ["x"], "seed": 3, "n": 1, "stream": True, "logprobs": True, "top_logprobs": 3, "logit_bias": {"3": -1}, "tool_choice": "auto",
                           "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],
                           "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}}}})
        others = {"/v1/completions": json.dumps({"model": "tiny", "prompt": ["a", [1, 2]], "max_tokens": 5, "echo": True, "suffix": "b", "stream": True, "stream_options": {"include_usage": True}}),
                  "/v1/embeddings": json.dumps({"model": "tiny", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
                  "/v1/responses": json.dumps({"model": "tiny", "input": [{"role": "user", "content": "hello"}], "max_output_tokens": 20, "stream": True, "store": True, "previous_response_id": None,
                                               "text": {"format": {"type": "text"}}}),
                  "/v1/audio/transcriptions": "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b--\r\n", "/v1/models": "", "/tokenize": '{"content": "x"}'}

        def client(random_):
            path = random_.choice(("/v1/chat/completions", "/v1/chat/completions", *others))
            body = others.get(path, chat)
            if random_.random() < 0.5:
                body = body.replace('"stream": true', '"stream": false')
            headers = (("Content-Type", "multipart/form-data; boundary=b"),) if "audio" in path and random_.random() < 0.8 else ()
            self.throw(random_, request(random_, random_.choice(("POST", "POST", "POST", "POST", "GET", "DELETE")), path, mutated(random_, body), headers))
        self.withstands(client, client, client, calls=self.calls)


class Grpc(Server):
    """Frames of HTTP/2 in any order, most of them wrong."""
    @classmethod
    def command(cls, folder):
        return ["operations", "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu"]

    def calls(self):
        status, text = self.ask("POST", "/v1/operations/tensor.add", {"x": 2, "y": 3})
        self.assertEqual(status, 200, text)

    def test_frames(self):
        for _ in range(600):
            if found := re.search(r"over gRPC on 127.0.0.1:(\d+)\n", (pathlib.Path(self.folder.name) / "log").read_text()):
                break
            time.sleep(0.05)
        port = int(found[1])

        def frame(kind, flags, stream, body, length=None):
            return struct.pack(">I", len(body) if length is None else length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body

        def header(name, value):  # a literal without an index
            return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value

        def client(random_):
            path = random_.choice((b"/weft.v1.Operations/Call", b"/weft.v1.Operations/Subscribe", b"/weft.v1.Operations/Hold", b"/weft.v1.Operations/Abort", b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"/" + b"x" * 90, b"", b"\xff\x00"))
            head = b"".join((header(b":method", random_.choice((b"POST", b"GET", b""))), header(b":scheme", b"http"), header(b":path", path), header(b":authority", b"x"),
                             header(b"content-type", b"application/grpc"), header(b"te", b"trailers"), header(b"authorization", b"Bearer " + random_.choice((TOKEN.encode(), b"none", b"")))))
            data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
            for _ in range(random_.randrange(1, 12)):
                stream = random_.choice((1, 1, 1, 3, 0, 2, 2**31 - 1))
                message = random_.randbytes(random_.randrange(40))
                data += random_.choice((
                    frame(1, random_.choice((4, 5, 0)), stream, head), frame(0, random_.choice((0, 1)), stream, b"\x00" + struct.pack(">I", len(message)) + message),
                    frame(0, 1, stream, b"\x01" + struct.pack(">I", 2**32 - 1)), frame(9, 4, stream, head), frame(3, 0, stream, bytes(4)), frame(6, 0, 0, bytes(8)),
                    frame(8, 0, random_.choice((0, stream)), struct.pack(">I", random_.choice((0, 2**31 - 1)))), frame(4, 0, 0, struct.pack(">HI", random_.randrange(9), random_.choice((0, 1, 2**32 - 1)))),
                    frame(random_.randrange(256), random_.randrange(256), stream, message), frame(1, 4, stream, message), frame(0, 0, stream, message, 2**24 - 1), frame(7, 0, 0, bytes(8))))
            if random_.random() < 0.2:
                data = random_.randbytes(random_.randrange(1, 300))
            with socket.create_connection(("127.0.0.1", port), timeout=5) as each:
                each.sendall(data[:random_.randrange(len(data))] if random_.random() < 0.2 else data)
                each.settimeout(0.02)
                while each.recv(65536):
                    pass
        self.withstands(client, client, client, calls=self.calls)
        run = subprocess.run([WEFT, "operations", "call", "tensor.add", "--from", f"grpc://127.0.0.1:{port}", "--token", TOKEN, "--input", '{"x": 2, "y": 3}', "--device", "cpu"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)


class Nats(Server):
    """Messages to all subjects of a worker, over a NATS server that hands on whatever is a message. Most have a token, as a client that is broken
    has, and some have none."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            raise unittest.SkipTest("no nats-server")
        cls.broker = contextlib.ExitStack()
        cls.url = cls.broker.enter_context(nats_server())
        try:
            super().setUpClass()
        except BaseException:
            cls.broker.close()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            super().tearDownClass()
        finally:
            cls.broker.close()

    @classmethod
    def command(cls, folder):
        return ["operations", "serve", "--http", "127.0.0.1:0", "--nats", cls.url, "--token-file", folder / "tokens.json", "--device", "cpu", "--allow-read", folder]

    def broker_client(self, timeout=PATIENCE):
        """A connection that has said hello; what it sends is up to the test."""
        host, port = self.url.removeprefix("nats://").split(":")
        client = socket.create_connection((host, int(port)), timeout=timeout)
        client.sendall(b'CONNECT {"verbose": false, "headers": true, "no_responders": true}\r\nPING\r\n')
        text = b""
        while b"PONG" not in text:
            text += client.recv(65536)
        return client

    @staticmethod
    def message(subject, body, reply=b"", headers=()):
        head = b"NATS/1.0\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"
        return b"HPUB " + subject + b" " + (reply + b" " if reply else b"") + b"%d %d\r\n" % (len(head), len(head) + len(body)) + head + body + b"\r\n"

    def ask_worker(self, timeout=PATIENCE):
        """An answer to a call of tensor.add."""
        inbox = b"_INBOX.calls" + str(random.random())[2:].encode()
        with self.broker_client(timeout) as client:
            client.sendall(b"SUB " + inbox + b" 1\r\n" + self.message(b"weft.call.tensor.add", b'{"x": 2, "y": 3}', inbox, ((b"Authorization", b"Bearer " + OTHER.encode()),)))
            text = b""
            while not (found := re.search(rb"Weft-Event: (\S+)", text)) or not text.endswith(b"\r\n"):
                part = client.recv(65536)
                if not part:
                    raise OSError("the connection ended")
                text += part
                if b"PING" in text:
                    client.sendall(b"PONG\r\n")
        return found[1], text

    def calls(self):
        # Of another identity: calls of one have a limit of their own.
        status, text = self.ask("POST", "/v1/operations/tensor.add", {"x": 2, "y": 3}, Authorization=f"Bearer {OTHER}")
        self.assertEqual(status, 200, text)
        event, text = self.ask_worker()
        self.assertTrue(event == b"call.responded" or b"OVERLOADED" in text, text)

    def worker(self):
        return re.search(r"as worker (\S+)", (pathlib.Path(self.folder.name) / "log").read_text())[1].encode()

    def test_messages(self):
        worker = self.worker()
        data = base64.b64encode(struct.pack("<2f", 1, 2)).decode()
        good = json.dumps({"x": {"$tensor": {"dtype": "f32", "shape": [2], "data": data}}, "y": 3, "axis": -1, "shape": [2, 1]})

        def framed(random_):
            text = mutated(random_, json.dumps({"x": {"$tensor": {"dtype": random_.choice(("f32", "i64", "q4", "bool")), "shape": [random_.choice((2, 3, -1, 2**40))],
                                                                  "offset": random_.choice((0, 64, 2**63, -8))}}, "y": 1}))
            length = random_.choice((len(text), len(text), len(text), 0, 2**64 - 1, 2**32, len(text) + 100))
            head = random_.choice((b"WEFT", b"WEFT", b"WEFX")) + struct.pack("<IQ", random_.choice((1, 1, 1, 0, 2**31)), length) + text
            return (head + bytes(-len(head) % 64) + random_.randbytes(8))[:random_.choice((10**6, 10**6, 20, 5))]

        def client(random_):
            inbox = b"_INBOX.hostile%d" % random_.randrange(10**9)
            names = (b"tensor.add", b"tensor.softmax", b"tensor.reshape", b"handle.create", b"handle.read", b"weights.list", b"workflow.run", b"training.observe", b"nothing", b"tensor", b"tensor.add.more")
            with self.broker_client(5) as each:
                if random_.random() < 0.8:
                    each.sendall(b"SUB " + inbox + b" 1\r\n")
                for _ in range(random_.randrange(1, 20)):
                    name = random_.choice(names)
                    subject = random_.choice((b"weft.call." + name,) * 4 + (b"weft.direct." + worker + b"." + name, b"weft.direct." + worker + b"." + b"x" * 3000, b"weft.describe", b"weft.describe." + name,
                                              b"weft.control", b"$SRV.PING", b"$SRV.INFO.weft", b"$SRV.STATS.weft." + worker, b"weft.call.\xff\xfe", b"weft.direct." + worker + b".a..b"))
                    reply = random_.choice((inbox,) * 6 + (b"", b"weft.call.tensor.add", b"weft.direct." + worker + b".tensor.add", b"weft.control", b"weft.describe", b"$SRV.PING.weft", b"_INBOX.none",
                                                           b"\xff\xfe", b"a" * 3000))
                    headers = [(b"Authorization", random_.choice((b"Bearer " + TOKEN.encode(),) * 5 + (b"Bearer none", b"Bearer", b"\xff")))]
                    for _ in range(random_.choice((0, 0, 1, 3))):
                        headers.append(random_.choice((
                            (b"Weft-Follow", b"1"), (b"Weft-Timeout", random_.choice((b"0.05", b"-1", b"nan", b"1e300", b"x", b""))), (b"Weft-Tensors", random_.choice((b"handles", b"data", b"x"))),
                            (b"Weft-Credit", random_.choice((b"1", b"0", b"-1", b"1e30", b"nan"))), (b"Weft-Session", random_.choice((inbox, b"weft.control", b">", b"*", b"", b"a b", b"$SYS.x", b"s" * 300))),
                            (b"Weft-Via", random_.choice((b"a,b", b",,,", b"x" * 9000))), (b"Weft-Request-Id", random_.choice((b"same", b"\xff", b"x" * 201, b"%d" % random_.randrange(99)))),
                            (b"Weft-Object", random_.choice((b"none", b"../x", b">", b"x" * 999))), (b"Weft-Control", random_.choice((b"grant", b"abort", b"credit", b"x"))), (b"Weft-Call", random_.choice((inbox, b"", b"_INBOX.none"))),
                            (b"Weft-Worker", random_.choice((worker, b"x"))), (b"X", b"y" * random_.choice((10, 5000, 200000))), (b"Status", b"503"))))
                    if random_.random() < 0.05:
                        headers += [(b"H%d" % i, b"1") for i in range(random_.choice((100, 3000)))]
                    body = framed(random_) if random_.random() < 0.3 else mutated(random_, random_.choice((good, good, "", '{"handle": "x"}', '{"path": "/etc"}')))
                    each.sendall(self.message(subject, body, reply, headers))
                if random_.random() < 0.5:
                    each.settimeout(random_.choice((0.01, 0.1)))
                    with contextlib.suppress(TimeoutError):
                        while each.recv(65536):
                            pass
        self.withstands(client, client, client, calls=self.calls)

    def test_floods(self):
        """More calls than a worker takes, large ones too, and callers that do not stay for the answers."""
        many = b"".join(self.message(b"weft.call.tensor.add", b'{"x": 2, "y": 3}', b"_INBOX.flood.%d" % i, ((b"Authorization", b"Bearer " + TOKEN.encode()),)) for i in range(2000))
        strange = b"".join(self.message(b"weft.call.tensor.add", b"[" * 100, b"_INBOX.flood.%d" % i) for i in range(2000))
        large = self.message(b"weft.call.tensor.add", b'{"x": [' + b"1," * 400000 + b"1]}", b"_INBOX.flood", ((b"Authorization", b"Bearer none"),))

        def client(random_):
            with self.broker_client(10) as each:
                each.sendall(random_.choice((many, strange, large * 30)))
        self.withstands(client, client, calls=self.calls)


class Pipes(unittest.TestCase):
    """MCP on standard input."""

    def test_messages(self):
        random_ = random.Random(SEED)
        messages = [json.dumps(each) for each in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}, {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"cursor": None}}, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "tensor.add", "arguments": {"x": 1, "y": [1, 2]}}},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "tensor.matmul", "arguments": {"x": 1}, "_meta": {"progressToken": "p"}}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}, {"jsonrpc": "2.0", "id": 4, "result": {}}, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}])]
        process = subprocess.Popen([WEFT, "operations", "serve", "--mcp", "--device", "cpu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        answers = []
        reader = threading.Thread(target=lambda: answers.extend(process.stdout))
        reader.start()
        complaints = []
        second = threading.Thread(target=lambda: complaints.extend(process.stderr))
        second.start()
        until = time.monotonic() + SECONDS
        count = 0
        while time.monotonic() < until or count < 100:
            process.stdin.write(mutated(random_, random_.choice(messages)).replace(b"\n", b" ") + b"\n")
            count += 1
        process.stdin.write(b'{"jsonrpc": "2.0", "id": "last", "method": "ping"}\n{"jsonrpc": "2.0", "id": 3, "met')
        process.stdin.close()
        self.assertEqual(process.wait(60), 0, complaints[-20:])
        reader.join()
        second.join()
        process.stdout.close()
        process.stderr.close()
        for line in answers:
            self.assertEqual(json.loads(line)["jsonrpc"], "2.0")
        self.assertIn({"jsonrpc": "2.0", "id": "last", "result": {}}, [json.loads(line) for line in answers])
        print(f"{count} lines, {len(answers)} answers")


if __name__ == "__main__":
    unittest.main()
