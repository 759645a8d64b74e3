"""Workflows in Python."""
import json
import os
import tempfile
import threading
import time
import unittest

import numpy as np

import weft
from weft import workflow
from weft.operations import Exchange, Identity, OperationError
from weft.workflow import conditional, map, operation, parallel, sequential

SOFTMAX = sequential(operation("tensor.exp", {"x": "$.input.x"}, id="exp"),
                     operation("tensor.sum", {"x": "$.exp.result"}, id="sum"),
                     operation("tensor.div", {"x": "$.exp.result", "y": "$.sum.result"}), output={"y": "$.previous.result"})


class Workflows(unittest.TestCase):
    def setUp(self):
        self.exchange = Exchange()
        self.addCleanup(self.exchange.close)

    def test_runs_as_numpy_computes(self):
        self.assertEqual(workflow.check(SOFTMAX, self.exchange), [])
        x = np.array([1.0, 2.0, 0.5], "f4")
        y = workflow.run(self.exchange, SOFTMAX, {"x": x})["y"].numpy()
        np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(), rtol=1e-5)
        graph = workflow.operations_of(SOFTMAX, self.exchange)
        self.assertEqual([node["operation"] for node in graph["nodes"]], ["tensor.exp", "tensor.sum", "tensor.div"])

    def test_functions_of_python_are_elements(self):
        threads = set()

        @self.exchange.register("text.twice")
        def twice(n: int) -> int:
            threads.add(threading.get_ident())
            return 2 * n

        @self.exchange.register("text.large")
        def large(n: int) -> bool:
            return n > 5

        steps = sequential(map([1, 2, 3], operation("text.twice", {"n": "$.n"}), item="n", max_concurrency=2, id="all"),
                           operation("text.large", {"n": "$.all[2]"}, id="test"),
                           conditional("$.test", operation("text.twice", {"n": 100}), operation("text.twice", {"n": 1})),
                           output={"all": "$.all", "chosen": "$.previous"})
        events = []
        run = workflow.start(self.exchange, steps, on_event=events.append)
        self.assertEqual(run.result(), {"all": [2, 4, 6], "chosen": 200})
        self.assertEqual(run.status, "completed")
        self.assertEqual({event["status"] for event in events if event["operation"] == "text.twice"} >= {"running", "completed"}, True)
        nodes = {node["id"]: node["status"] for node in run.graph["nodes"]}
        self.assertEqual(nodes["root"], "completed")
        self.assertEqual(sum(status == "completed" for status in nodes.values()) >= 6, True)

    def test_mistakes(self):
        wrong = sequential(operation("tensor.summ"), operation("tensor.sum", {"x": "$.nothing"}))
        self.assertEqual({problem.code for problem in workflow.check(wrong, self.exchange)}, {"UNKNOWN_OPERATION", "MISSING_RESULT"})
        self.assertRaises(weft.UsageError, workflow.run, self.exchange, wrong)
        self.assertRaises(weft.UsageError, workflow.check, {"type": "Loop"}, self.exchange)
        self.assertRaises(TypeError, workflow.run, self.exchange, SOFTMAX, {"x": object()})
        with self.assertRaises(OperationError) as caught:
            workflow.run(self.exchange, SOFTMAX, {"x": weft.ones(2)}, identity=Identity("u"))
        self.assertEqual(caught.exception.code, "ACCESS_DENIED")
        closed = Exchange()
        closed.close()
        self.assertRaises(weft.UsageError, workflow.run, closed, SOFTMAX, {"x": weft.ones(2)})

        @self.exchange.register("text.fails")
        def fails() -> int:
            raise ValueError("mine")

        with self.assertRaisesRegex(OperationError, "mine"):
            workflow.run(self.exchange, operation("text.fails", {}))

    def test_aborts_and_deadlines(self):
        release = threading.Event()
        self.addCleanup(release.set)

        @self.exchange.register("text.waits")
        def waits(context: weft.operations.Context) -> int:
            release.wait(10)
            return 1

        with self.assertRaises(OperationError) as caught:
            workflow.run(self.exchange, operation("text.waits", {}), timeout=0.1)
        self.assertEqual(caught.exception.code, "TIMEOUT")
        run = workflow.start(self.exchange, sequential(operation("text.waits", {}), operation("text.waits", {})))
        run.abort()
        with self.assertRaises(OperationError) as caught:
            run.result()
        self.assertEqual(caught.exception.code, "ABORTED")

    def test_closing_an_exchange_ends_its_runs(self):
        exchange = Exchange()
        done = workflow.start(exchange, SOFTMAX, {"x": weft.ones(2)})
        self.assertEqual(done.result()["y"].tolist(), [0.5, 0.5])
        begun = threading.Event()

        @exchange.register("text.waits")
        def waits(context: weft.operations.Context) -> int:
            begun.set()
            while not context.stopped:
                time.sleep(0.01)
            return 1

        waiting = workflow.start(exchange, operation("text.waits", {}))
        self.assertTrue(begun.wait(10))
        exchange.close()  # although both runs are held
        self.assertEqual(done.status, "completed")
        self.assertEqual(waiting.status, "aborted")
        self.assertRaises(OperationError, waiting.result)
        self.assertTrue(waiting.graph["nodes"])

    def test_files_operations_and_call_graphs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "softmax.json")
            with open(path, "w") as file:
                json.dump({"name": "softmax", "tree": SOFTMAX}, file)
            template = workflow.load(path)
            self.assertEqual(template["name"], "softmax")
            with open(path, "w") as file:
                file.write("{")
            self.assertRaises(weft.UsageError, workflow.load, path)
        scopes = ["tensor:run"]
        workflow.add(self.exchange, "models.softmax", template, scopes=["models:run"], authority=Identity("clerk", scopes))
        with workflow.CallGraph(self.exchange) as calls:
            user = Identity("u", ["models:run"])  # may call the workflow, and not its operations
            y = self.exchange.call("models.softmax", {"x": weft.tensor([1.0, 1.0])}, identity=user)["y"]
            self.assertEqual(y.tolist(), [0.5, 0.5])
            graph = calls.graph
        self.assertEqual({node["operation"] for node in graph["nodes"]}, {"models.softmax", "tensor.exp", "tensor.sum", "tensor.div"})
        self.assertEqual(sum(edge["kind"] == "triggered" for edge in graph["edges"]), 3)
        with self.assertRaises(OperationError):
            self.exchange.call("models.softmax", {"x": weft.ones(2)}, identity=Identity("v"))
        self.assertRaises(weft.UsageError, workflow.add, self.exchange, "models.softmax", template)


if __name__ == "__main__":
    unittest.main()
