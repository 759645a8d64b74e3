"""Operations in Python: handlers, schemas, access, streams, deadlines, other places, and callers that misbehave."""
import contextlib
import gc
import json
import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings
import weakref
from typing import Annotated, Any, Iterator, Literal, Optional, Union

import numpy as np

import weft
from weft import operations
from weft.operations import Context, Exchange, Identity, OperationError

COMMAND = os.environ.get("WEFT_COMMAND") or str(pathlib.Path(__file__).resolve().parents[2] / "build" / "weft")


def setUpModule():
    logging.getLogger("weft.operations").setLevel(logging.CRITICAL)


class Case(unittest.TestCase):
    def setUp(self):
        self.exchange = Exchange(catalogue=False)
        self.addCleanup(self.exchange.close)

    def fails(self, code, function, *arguments, **named):
        with self.assertRaises(OperationError) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception


class Functions(Case):
    def test_a_function_is_an_operation(self):
        @self.exchange.register("text.repeat")
        def repeat(text: str, times: int = 2) -> str:
            """A text, several times."""
            return text * times

        self.assertEqual(self.exchange.call("text.repeat", {"text": "ha"}), "haha")
        self.assertEqual(repeat("x", 3), "xxx")  # still a function
        specification = self.exchange.describe("text.repeat")
        self.assertEqual(specification["description"], "A text, several times.")
        self.assertEqual(specification["inputSchema"]["required"], ["text"])
        self.assertEqual(self.exchange.list(), ["text.repeat"])
        error = self.fails("VALIDATION_ERROR", self.exchange.call, "text.repeat", {"text": 3})
        self.assertIn("/text", str(error))
        self.fails("VALIDATION_ERROR", self.exchange.call, "text.repeat", {"text": "a", "more": 1})
        self.fails("OPERATION_NOT_FOUND", self.exchange.call, "text.missing")
        self.assertTrue(self.exchange.remove("text.repeat"))
        self.assertFalse(self.exchange.remove("text.repeat"))
        self.fails("OPERATION_NOT_FOUND", self.exchange.call, "text.repeat", {"text": "ha"})
        with self.assertRaises(KeyError):
            self.exchange.describe("text.repeat")

    def test_annotations_are_schemas(self):
        @self.exchange.register("a.all")
        def everything(a: list[int], b: dict[str, float], c: Literal["x", "y"], d: Union[int, str, None], e: tuple[int, ...],
                       f: Annotated[int, "a count", {"minimum": 1}], g: tuple[str, bool], h: Any, x: weft.Tensor, i: Optional[str] = None,
                       j: bool = True):
            return [a, b, c, d, e, f, g, h, x.shape, i, j]

        good = {"a": [1, 2], "b": {"z": 0.5}, "c": "y", "d": None, "e": [1], "f": 3, "g": ["s", False], "h": [None], "x": weft.ones(2, 3)}
        self.assertEqual(self.exchange.call("a.all", good),
                         [[1, 2], {"z": 0.5}, "y", None, [1], 3, ["s", False], [None], [2, 3], None, True])
        for name, bad in [("a", [0.5]), ("a", 1), ("b", {"z": "s"}), ("c", "z"), ("d", 0.5), ("e", ["s"]), ("f", 0), ("g", ["s"]),
                          ("g", ["s", False, 1]), ("x", [1]), ("x", "s"), ("i", 1), ("j", "yes")]:
            self.fails("VALIDATION_ERROR", self.exchange.call, "a.all", {**good, name: bad})
        properties = self.exchange.describe("a.all")["inputSchema"]["properties"]
        self.assertEqual(properties["f"], {"type": "integer", "description": "a count", "minimum": 1})

    def test_schemas_of_your_own(self):
        @self.exchange.register("n.square", input={"type": "number"}, output={"type": "number", "maximum": 10})
        def square(x):
            return x * x

        self.assertEqual(self.exchange.call("n.square", 3), 9)
        self.fails("VALIDATION_ERROR", self.exchange.call, "n.square", "3")
        with self.assertWarns(RuntimeWarning):
            self.assertEqual(self.exchange.call("n.square", 4), 16)
        whole = self.exchange.call("n.square", 4, envelope=True)
        self.assertEqual(whole["data"], 16)
        self.assertIn("meta", whole)

    def test_what_cannot_be_an_operation(self):
        async def later():
            pass

        def many(*values: int):
            pass

        def unknown(x: complex):
            pass

        def stream() -> Iterator[int]:
            yield 1

        def unresolved(x: "Nonsense"):  # noqa: F821
            pass

        for function in [later, many, unknown, unresolved, lambda x, /: x, 3, None]:
            with self.assertRaises(weft.UsageError, msg=function):
                self.exchange.register("a.b")(function)
        with self.assertRaises(weft.UsageError):
            self.exchange.register("a.b", kind="query")(stream)
        with self.assertRaises(weft.UsageError):
            self.exchange.register("a.b", kind="nonsense")(lambda: 1)
        for id in ["", "a", ".", "a.", ".b", "a.b c", "ä.b", "a." + "b" * 100_000]:
            with self.assertRaises(weft.Error, msg=id[:10]):
                self.exchange.register(id)(lambda: 1)
                self.exchange.register(id)(lambda: 1)
        with self.assertRaises(weft.Error):
            self.exchange.register("c.d", input={"type": "nonsense"})(lambda x: 1)
        self.exchange.register("c.d")(lambda: 1)
        with self.assertRaisesRegex(weft.UsageError, "c.d"):
            self.exchange.register("c.d")(lambda: 2)

    def test_values_go_both_ways(self):
        self.exchange.register("v.same", input=True)(lambda x: x)
        same = lambda x: self.exchange.call("v.same", x)
        for value in [0, -1, 2**63 - 1, 2**64 - 1, -(2**63), 1.5, True, False, "", "ä\0\U0001f600", [], {}, {"a": [{"b": None}]}]:
            self.assertEqual(same(value), value)
            self.assertIs(type(same(value)), type(value))
        self.assertEqual(same((1, 2)), [1, 2])
        self.assertEqual(same(np.float32(0.5)), 0.5)
        self.assertEqual(same(np.int64(7)), 7)
        self.assertIs(same(np.bool_(True)), True)
        self.assertEqual(same(pathlib.Path("a/b")), "a/b")
        array = np.arange(6, dtype="f4").reshape(2, 3)
        tensor = same(weft.from_numpy(array))
        self.assertTrue(np.shares_memory(tensor.numpy(), array))  # no copy on the way
        self.assertEqual(same({"x": [array]})["x"][0].tolist(), array.tolist())
        v = weft.Variable(weft.ones(2))
        self.assertEqual(same(v).tolist(), [1, 1])

        class Strange:
            pass

        cyclic = []
        cyclic.append(cyclic)
        for value, error in [(2**64, OverflowError), (-(2**63) - 1, OverflowError), (Strange(), TypeError), ({1: 2}, TypeError),
                             (cyclic, weft.UsageError), (b"bytes", TypeError), (1j, TypeError), ({1, 2}, TypeError),
                             ("\ud800", UnicodeEncodeError)]:
            with self.assertRaises(error, msg=repr(value)):
                same(value)
        self.exchange.register("v.bad", input=True)(lambda x: Strange())
        self.assertIn("Strange", str(self.fails("EXECUTION_ERROR", self.exchange.call, "v.bad")))

    def test_errors_of_handlers(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        kinds = {"value": ValueError("of mine"), "declared": OperationError("TOO_LONG", "far", {"by": 3}),
                 "undeclared": OperationError("SECRET", "x"), "odd": Odd(), "empty": KeyError()}

        @self.exchange.register("e.throw", errors={"TOO_LONG": "too long"})
        def throw(kind: str):
            raise kinds[kind]

        self.assertIn("ValueError: of mine", str(self.fails("EXECUTION_ERROR", self.exchange.call, "e.throw", {"kind": "value"})))
        error = self.fails("TOO_LONG", self.exchange.call, "e.throw", {"kind": "declared"})
        self.assertEqual((error.message, error.details), ("far", {"by": 3}))
        self.assertEqual(pickle.loads(pickle.dumps(error)).details, {"by": 3})
        self.fails("EXECUTION_ERROR", self.exchange.call, "e.throw", {"kind": "undeclared"})
        self.fails("EXECUTION_ERROR", self.exchange.call, "e.throw", {"kind": "odd"})
        self.fails("EXECUTION_ERROR", self.exchange.call, "e.throw", {"kind": "empty"})
        with self.assertLogs("weft.operations", "ERROR") as logged:
            logging.getLogger("weft.operations").setLevel(logging.ERROR)
            self.fails("EXECUTION_ERROR", self.exchange.call, "e.throw", {"kind": "value"}, timeout=10)
            logging.getLogger("weft.operations").setLevel(logging.CRITICAL)
        self.assertIn("test_operations.py", logged.output[0])  # the lines are here, and not at the caller's
        self.assertIsInstance(error, weft.Error)

    def test_tensors_are_differentiated_through_a_call(self):
        @self.exchange.register("m.square")
        def square(x: weft.Tensor) -> weft.Tensor:
            return x * x

        x = weft.tensor([1.0, 2.0], requires_grad=True)
        slope = weft.grad(self.exchange.call("m.square", {"x": x * 3}).sum(), x)
        self.assertEqual(slope.tolist(), [18, 36])


class Rights(Case):
    def test_scopes_resources_and_functions(self):
        register = self.exchange.register
        register("r.scope", scopes=["a", "b"])(lambda: 1)
        register("r.any", any_scopes=["a", "c"])(lambda: 1)
        register("r.resource", resource=("model", "run", "name"))(lambda name: 1)
        register("r.allowed", allow=lambda identity, input: identity is not None and input["n"] < 3)(lambda n: 1)
        register("r.broken", allow=lambda identity, input: 1 / 0)(lambda: 1)
        register("r.truthy", allow=lambda identity, input: "yes")(lambda: 1)
        register("r.inside", internal=True)(lambda: 1)
        ann = Identity("ann", ["a", "b"], {"model:small": ["run"], "model:large": ["read"]})
        bob = Identity("bob", ["c"], {"model:*": ["*"]})
        call = self.exchange.call
        self.assertEqual(call("r.scope", identity=ann), 1)
        self.assertEqual(call("r.scope"), 1)  # the owner
        self.assertEqual(call("r.any", identity=ann), 1)
        self.assertEqual(call("r.any", identity=bob), 1)
        self.assertEqual(call("r.resource", {"name": "small"}, identity=ann), 1)
        self.assertEqual(call("r.resource", {"name": "large"}, identity=bob), 1)
        self.assertEqual(call("r.allowed", {"n": 2}, identity=ann), 1)
        for id, input, identity in [("r.scope", {}, bob), ("r.scope", {}, None), ("r.any", {}, None), ("r.resource", {"name": "large"}, ann),
                                    ("r.resource", {"name": "small"}, None), ("r.allowed", {"n": 3}, ann), ("r.allowed", {"n": 2}, None),
                                    ("r.broken", {}, ann), ("r.broken", {}, True), ("r.truthy", {}, ann)]:
            self.fails("ACCESS_DENIED", call, id, input, identity=identity)
        self.fails("OPERATION_NOT_FOUND", call, "r.inside")
        self.assertNotIn("r.inside", self.exchange.list())
        self.assertIn("r.inside", self.exchange.list(internal=True))
        for wrong in [3, "ann", {"id": "ann"}, False]:
            with self.assertRaises((TypeError, RuntimeError), msg=wrong):
                call("r.any", identity=wrong)

    def test_a_handler_has_its_own_rights(self):
        self.exchange.register("vault.open", scopes=["vault"], internal=True)(lambda: "gold")
        self.exchange.register("vault.other")(lambda: "tin")

        @self.exchange.register("clerk.ask", reach=["vault.open"], authority=Identity("clerk", ["vault"]))
        def ask(what: str, context: Context):
            return context.call(what)

        @self.exchange.register("thief.ask", reach=["vault.*"])
        def steal(context: Context):
            return context.call("vault.open")

        self.assertEqual(self.exchange.call("clerk.ask", {"what": "vault.open"}, identity=None), "gold")
        self.fails("OPERATION_NOT_FOUND", self.exchange.call, "clerk.ask", {"what": "vault.other"})
        self.fails("ACCESS_DENIED", self.exchange.call, "thief.ask", identity=Identity("me", ["vault"]))


class Calls(Case):
    def test_what_a_handler_sees(self):
        seen = []

        @self.exchange.register("c.see")
        def see(n: int, context: Context):
            seen.append(context)
            return [context.input, context.identity.id, context.request_id, context.stopped, context.remaining is not None]

        answer = self.exchange.call("c.see", {"n": 1}, identity=Identity("ann"), timeout=20, request_id="mine")
        self.assertEqual(answer, [{"n": 1}, "ann", "mine", False, True])
        for use in [lambda c: c.input, lambda c: c.check(), lambda c: c.emit(1), lambda c: c.call("c.see")]:
            with self.assertRaisesRegex(weft.UsageError, "has ended"):
                use(seen[0])
        with self.assertRaises(TypeError):
            Context()

    def test_deadlines_and_aborts(self):
        started, stopped = threading.Event(), threading.Event()

        @self.exchange.register("c.wait", kind="mutation")
        def wait(context: Context):
            started.set()
            try:
                while True:
                    context.check()
                    time.sleep(0.005)
            finally:
                stopped.set()

        begin = time.monotonic()
        self.fails("TIMEOUT", self.exchange.call, "c.wait", timeout=0.1)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertTrue(stopped.wait(10))
        started.clear()
        call = self.exchange.start("c.wait", request_id="r1")
        self.assertEqual(call.request_id, "r1")
        self.assertTrue(started.wait(10))
        self.assertFalse(call.done())
        self.assertEqual(self.exchange.pending, 1)
        with self.assertRaises(TimeoutError):
            call.result(timeout=0.05)
        self.assertTrue(call.abort())
        self.fails("ABORTED", call.result)
        self.assertTrue(call.done())
        self.assertFalse(self.exchange.abort("r1"))
        for bad in [-1, float("nan")]:
            with self.assertRaises(weft.UsageError):
                self.exchange.call("c.wait", timeout=bad)
        self.exchange.register("c.one")(lambda: 1)
        call = self.exchange.start("c.one")
        self.assertEqual((call.result(), call.result(timeout=1)), (1, 1))

    def test_streams(self):
        closed = threading.Event()

        @self.exchange.register("s.count")
        def count(n: int) -> Iterator[int]:
            try:
                for i in range(n):
                    yield i
            finally:
                closed.set()

        self.assertEqual(self.exchange.describe("s.count")["type"], "subscription")
        self.assertEqual(list(self.exchange.subscribe("s.count", {"n": 200})), list(range(200)))
        self.assertEqual(self.exchange.call("s.count", {"n": 2}), 0)
        closed.clear()
        answers = self.exchange.subscribe("s.count", {"n": 10**9})
        self.assertEqual([next(answers), next(answers)], [0, 1])
        del answers  # a subscriber that leaves ends the call
        gc.collect()
        self.assertTrue(closed.wait(10))
        answers = self.exchange.subscribe("s.count", {"n": 10**9})
        next(answers)
        answers.abort()
        self.fails("ABORTED", lambda: [None for _ in answers])
        with self.assertRaises(StopIteration):
            next(answers)

        @self.exchange.register("s.fail", errors={"DRY": "no more"})
        def fail():
            yield 1
            raise OperationError("DRY", "no more")

        answers = self.exchange.subscribe("s.fail")
        self.assertEqual(next(answers), 1)
        self.fails("DRY", next, answers)

    def test_events(self):
        self.exchange.register("o.one")(lambda: 1)
        events = []
        end = self.exchange.observe(events.append)
        self.exchange.call("o.one")
        self.assertEqual([each["event"] for each in events], ["call.requested", "call.responded"])
        end()
        known = len(events)
        self.exchange.call("o.one")
        self.assertEqual(len(events), known)

    def test_many_threads(self):
        @self.exchange.register("t.add")
        def add(a: int, b: int) -> int:
            return a + b

        failures = []

        def work(k):
            try:
                for i in range(100):
                    assert self.exchange.call("t.add", {"a": i, "b": k}, timeout=60 if i % 2 else None) == i + k
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failures, [])

    def test_the_end(self):
        running = threading.Event()
        done = []

        @self.exchange.register("z.wait")
        def wait(context: Context):
            running.set()
            while not context.stopped:
                time.sleep(0.005)
            done.append(1)

        @self.exchange.register("z.close")
        def close():
            self.exchange.close()

        self.assertIn("UsageError", str(self.fails("EXECUTION_ERROR", self.exchange.call, "z.close")))
        call = self.exchange.start("z.wait")
        running.wait(10)
        self.exchange.close()
        self.assertEqual(done, [1])
        self.fails("ABORTED", call.result)
        self.assertFalse(call.abort())
        with self.assertRaisesRegex(weft.UsageError, "closed"):
            self.exchange.call("z.wait")
        self.exchange.close()

    def test_functions_are_freed(self):
        class Marker:
            pass

        marker = Marker()
        gone = weakref.ref(marker)
        with Exchange(catalogue=False) as exchange:
            def keep():
                return marker is not None

            exchange.register("f.keep", input=True)(lambda x, context=None: keep())
            self.assertTrue(exchange.call("f.keep"))
        del keep, marker
        gc.collect()
        self.assertIsNone(gone())

    def test_ctrl_c(self):
        program = textwrap.dedent("""
            import signal, threading, time, os, sys
            from weft.operations import Exchange
            e = Exchange(catalogue=False)
            @e.register("a.sleep")
            def sleep():
                time.sleep(60)
            @e.register("a.stream")
            def stream():
                yield 1
                time.sleep(1 if sys.argv[1] == "stream" else 0)
            def press():
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=press).start()
            try:
                if sys.argv[1] == "here": e.call("a.sleep")
                if sys.argv[1] == "elsewhere": e.register("a.wait")(lambda: time.sleep(1.5)); e.call("a.wait", timeout=50)
                if sys.argv[1] == "stream": list(e.subscribe("a.stream"))
            except KeyboardInterrupt:
                print("interrupted")
            """)
        for how in ["here", "elsewhere", "stream"]:
            result = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.stdout, "interrupted\n", (how, result.stderr))

    def test_a_program_that_ends_while_calls_run(self):
        program = textwrap.dedent("""
            import time
            from weft.operations import Context, Exchange
            e = Exchange()
            @e.register("a.wait")
            def wait(context: Context):
                while not context.stopped:
                    time.sleep(0.01)
            calls = [e.start("a.wait") for _ in range(5)]
            time.sleep(0.2)
            print("end")
            """)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, "end\n"), result.stderr)


class Catalogue(unittest.TestCase):
    def test_what_weft_offers(self):
        with tempfile.TemporaryDirectory() as folder, Exchange(allow_read=[folder], allow_write=[folder]) as exchange:
            y = exchange.call("tensor.softmax", {"x": weft.tensor([1.0, 2.0]), "axis": 0})["result"]
            np.testing.assert_allclose(y.numpy(), weft.softmax(weft.tensor([1.0, 2.0]), 0).numpy())
            path = os.path.join(folder, "w.safetensors")
            weft.io.save(path, {"w": weft.ones(2)})
            listed = exchange.call("weights.list", {"path": path})
            self.assertIn("w", json.dumps(listed))
            with self.assertRaises(OperationError):
                exchange.call("weights.list", {"path": "/etc/passwd"})
            self.assertGreater(len(exchange.list()), 300)
            with self.assertRaises(OperationError) as caught:
                exchange.call("tensor.softmax", {"x": weft.ones(2), "axis": 0}, identity=Identity("nobody"))
            self.assertEqual(caught.exception.code, "ACCESS_DENIED")


SERVED = """
import sys, time
from typing import Iterator
import weft
from weft.operations import Context, Exchange, OperationError
exchange = Exchange(catalogue=False)
@exchange.register("py.scale", errors={"TOO_LARGE_A_FACTOR": "it is above 100"})
def scale(x: weft.Tensor, by: float = 2.0) -> weft.Tensor:
    print("this must not disturb the protocol")
    if by > 100: raise OperationError("TOO_LARGE_A_FACTOR", "above 100")
    return x * by
@exchange.register("py.count")
def count(n: int, pause: float = 0) -> Iterator[int]:
    for i in range(n):
        time.sleep(pause)
        yield i
@exchange.register("py.wait")
def wait(context: Context) -> None:
    while True:
        context.check()
        time.sleep(0.01)
exchange.serve_mcp()
"""


class OtherPlaces(Case):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program = os.path.join(self.folder.name, "served.py")
        with open(self.program, "w") as file:
            file.write(SERVED)

    def test_a_program_over_mcp(self):
        place = f"mcp+stdio:{sys.executable} {self.program}"
        with operations.connect(place) as remote:
            self.assertEqual(sorted(remote.list()), ["py.count", "py.scale", "py.wait"])
            self.assertEqual(remote.call("py.scale", {"x": weft.ones(2), "by": 3}).tolist(), [3, 3])
            error = self.fails("TOO_LARGE_A_FACTOR", remote.call, "py.scale", {"x": weft.ones(2), "by": 300})
            self.assertEqual(error.message, "above 100")
            self.assertEqual(remote.describe("py.scale")["outputSchema"], {"x-tensor": True})
            self.fails("VALIDATION_ERROR", remote.call, "py.scale", {"x": 3})
            self.fails("TIMEOUT", remote.call, "py.wait", timeout=0.3)
        self.fails("UNAVAILABLE", operations.connect, "mcp+stdio:false")
        for place in ["", "ftp://x", "http://", "http://a:b@c", "http://x?y=1", "http://x:99999", 3]:
            with self.assertRaises((weft.UsageError, AttributeError, TypeError), msg=place):
                operations.connect(place)

    @contextlib.contextmanager
    def server(self, *options):
        """`weft operations serve --http` that offers Weft's operations and those of the Python program."""
        tokens = os.path.join(self.folder.name, "tokens.json")
        with open(tokens, "w") as file:
            json.dump({"tokens": [{"token": "a-long-secret-of-mine", "id": "me", "scopes": ["*"]},
                                  {"token": "a-long-secret-of-hers", "id": "her", "scopes": []}]}, file)
        server = subprocess.Popen([COMMAND, "operations", "serve", "--http", "127.0.0.1:0", "--token-file", tokens, "--device", "cpu",
                                   "--quiet", *options], stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if " on http://" in line:
                    yield line.split(" on ")[1].strip()
                    return
            self.fail("the server did not start")
        finally:
            server.terminate()
            server.communicate(timeout=30)

    @unittest.skipUnless(os.path.exists(COMMAND), "needs the command weft")
    def test_a_server_over_http(self):
        with self.server("--from", f"mcp+stdio:{sys.executable} {self.program}") as url:
            with operations.connect(url, token="a-long-secret-of-mine") as remote:
                self.assertIn("py.scale", remote.list())
                array = np.random.default_rng(1).standard_normal((300, 200)).astype("f4")
                result = remote.call("tensor.add", {"x": array, "y": 1})["result"]
                np.testing.assert_array_equal(result.numpy(), array + 1)  # bytes, and not decimal numbers
                self.assertEqual(remote.call("py.scale", {"x": weft.ones(2), "by": 3}).tolist(), [3, 3])
                self.fails("VALIDATION_ERROR", remote.call, "tensor.softmax", {"x": "text"})
                self.assertEqual(remote.call("tensor.add", {"x": 2, "y": 3}, timeout=20)["result"].item(), 5)
                begin = time.monotonic()
                self.fails("TIMEOUT", remote.call, "py.wait", timeout=0.3)
                call = remote.start("py.wait")
                time.sleep(0.3)
                call.abort()
                self.fails("ABORTED", call.result)
                self.assertLess(time.monotonic() - begin, 20)
                # Imported beside other operations, and called by one of them.
                self.exchange.import_from(url, token="a-long-secret-of-mine")

                @self.exchange.register("mine.twice", reach=["py.scale"], authority=Identity("mine", ["mcp:call"]))
                def twice(x: weft.Tensor, context: Context) -> weft.Tensor:
                    return context.call("py.scale", {"x": x, "by": 2})

                self.assertEqual(self.exchange.call("mine.twice", {"x": weft.ones(3)}).tolist(), [2, 2, 2])
            with operations.connect(url, token="a-long-secret-of-hers") as her:
                self.fails("ACCESS_DENIED", her.call, "tensor.add", {"x": 2, "y": 3})
            self.fails("UNAUTHENTICATED", operations.connect, url, token="not-a-token-at-all")
            with self.assertRaises(weft.UsageError):
                operations.connect(url, token="line\nbreak")
        self.fails("UNAVAILABLE", operations.connect, url, token="a-long-secret-of-mine")

    @unittest.skipUnless(os.path.exists(COMMAND), "needs the command weft")
    def test_streams_over_http(self):
        script = os.path.join(self.folder.name, "count.js")
        with open(script, "w") as file:
            file.write("""
                import { full, operations } from "weft";
                operations.register({namespace: "js", name: "count", kind: "subscription"}, async function* ({n}) {
                  for (let i = 0; i < n; ++i) {
                    yield {i, x: full([3], i)};
                    await new Promise((done) => setTimeout(done, 1));
                  }
                });""")
        with self.server("--script", script, "--allow-register", "js") as url, \
                operations.connect(url, token="a-long-secret-of-mine") as remote:
            answers = list(remote.subscribe("js.count", {"n": 20}))
            self.assertEqual([each["i"] for each in answers], list(range(20)))
            self.assertEqual(answers[7]["x"].tolist(), [7, 7, 7])
            endless = remote.subscribe("js.count", {"n": 10**9})
            next(endless)
            endless.abort()
            self.fails("ABORTED", lambda: [None for _ in endless])


class Hostile(Case):
    def test_servers_that_are_none(self):
        import http.server

        class Handler(http.server.BaseHTTPRequestHandler):
            answer = b""
            status = 200
            kind = "application/json"

            def do_GET(self):
                self.send_response(self.status)
                self.send_header("Content-Type", self.kind)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(self.answer)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        good = {"operations": [{"namespace": "a", "name": "b", "type": "query"}, {"namespace": "a", "name": "s", "type": "subscription"}]}
        for status, answer in [(200, b""), (200, b"null"), (200, b"[]"), (200, b"{"), (200, b"\xff"), (200, b'{"operations": 3}'),
                               (200, b'{"operations": []}'), (500, b"oops"), (404, b'{"error": 3}'), (302, b""),
                               (200, b'{"operations": [1]}'), (200, b'{"operations": [{"namespace": "a"}]}'),
                               (200, b'{"operations": [{"namespace": "a", "name": "b", "type": "query", "inputSchema": 3}]}'),
                               (200, b"[" * 100_000)]:
            Handler.status, Handler.answer = status, answer
            with self.assertRaises(weft.Error, msg=answer[:60]) as caught:
                operations.connect(url, token="t" * 20)
            self.assertNotIn("tttt", str(caught.exception))
        Handler.status, Handler.answer = 200, json.dumps(good).encode()
        with operations.connect(url) as remote:
            for status, kind, answer in [(200, "application/json", b""), (200, "application/json", b"{}"), (200, "application/json", b"WEFT"),
                                         (200, "application/json", b"WEFT\x01\0\0\0" + b"\xff" * 8), (500, "text/html", b"<html>"),
                                         (422, "application/json", b'{"error": {"code": 3, "message": [], "details": {}}}'),
                                         (200, "application/json", b'{"data": {"$tensor": {"dtype": "f32", "shape": [9999999999], "data": ""}}, "meta": {}}'),
                                         (200, "text/event-stream", b"event: call.responded\ndata: 3\n\n"),
                                         (200, "text/event-stream", b"event: call.responded\n"),
                                         (200, "text/event-stream", b"event: call.error\ndata: {\n\n"),
                                         (200, "text/event-stream", b"event: \xff\n\n"), (200, "text/event-stream", b"")]:
                Handler.status, Handler.kind, Handler.answer = status, kind, answer
                for use in [lambda: remote.call("a.b"), lambda: list(remote.subscribe("a.s"))]:
                    try:
                        use()
                    except weft.Error:
                        pass
                    else:
                        self.assertIn(b"", answer)
                        self.fail(f"{answer!r} was taken")

    def test_lines_that_are_no_messages(self):
        program = "from weft.operations import Exchange; e = Exchange(catalogue=False); e.register('a.b')(lambda: 1); e.serve_mcp()"
        lines = [b"", b"{", b"null", b"[]", b"\xff\xfe", b"{}" * 1000, b"[" * 5000, b'{"jsonrpc": "2.0", "id": 1, "method": "nonsense"}',
                 b"x" * 1_000_000, b'{"jsonrpc": "2.0", "id": {}, "method": "tools/call", "params": {"name": 3}}']
        result = subprocess.run([sys.executable, "-c", program], input=b"\n".join(lines), capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.splitlines():
            self.assertEqual(json.loads(line)["jsonrpc"], "2.0")

    def test_objects_that_misbehave(self):
        class Shrinking(dict):
            def items(self):
                raise RuntimeError("no items")

        class Changing:
            def __init__(self, other):
                self.other = other

            def __index__(self):
                self.other.clear()
                return 1

        self.exchange.register("h.same", input=True)(lambda x: x)
        growing = {}
        growing.update(a=Changing(growing), b=2)
        self.assertEqual(self.exchange.call("h.same", growing), {"a": 1, "b": 2})
        with contextlib.suppress(RuntimeError):
            self.exchange.call("h.same", Shrinking(a=1))
        for odd in [np.zeros((2, 2), "O"), np.array("text"), np.datetime64("2020-01-01"), memoryview(b"ab"), type, object, print]:
            with self.assertRaises((TypeError, weft.Error), msg=repr(odd)):
                self.exchange.call("h.same", odd)
        for id in [3, None, "x" * 10_000_000, "\0", "a.b\0c"]:
            with self.assertRaises((TypeError, OperationError)):
                self.exchange.call(id)
        wrong = object.__new__(Exchange)
        with self.assertRaises(AttributeError):
            wrong.call("a.b")
        with warnings.catch_warnings(), self.assertRaises((TypeError, RuntimeError)):
            warnings.simplefilter("ignore")
            weft._weft._Exchange.__new__(weft._weft._Exchange).list(False)


if __name__ == "__main__":
    unittest.main()
