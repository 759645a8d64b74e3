"""Objects that misbehave give Python exceptions, and never a crash."""
import gc
import os
import random
import sys
import tempfile
import unittest
import warnings

import numpy as np

import weft


def setUpModule():
    """In a folder of its own, where calls may leave files."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    unittest.addModuleCleanup(os.chdir, os.getcwd())
    os.chdir(folder.name)


class Raises:
    def __array__(self, *_):
        raise RuntimeError("__array__")

    def __index__(self):
        raise RuntimeError("__index__")

    def __float__(self):
        raise RuntimeError("__float__")

    def __len__(self):
        raise RuntimeError("__len__")

    def __iter__(self):
        raise RuntimeError("__iter__")

    def __bool__(self):
        raise RuntimeError("__bool__")

    def __repr__(self):
        raise RuntimeError("__repr__")

    def __getattr__(self, name):
        raise RuntimeError(name)


class Liar:
    """An array interface that says anything."""

    def __init__(self, interface):
        self.__array_interface__ = interface

    __array_interface__ = None


class BadDlpack:
    def __init__(self, answer):
        self.answer = answer

    def __dlpack__(self, **_):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __dlpack_device__(self):
        return (1, 0)


def cyclic():
    a = [1]
    a.append(a)
    return a


def deep():
    a = [1]
    for _ in range(5000):
        a = [a]
    return a


class Grows(list):
    pass


NASTY = [None, "text", b"bytes", object(), {}, set(), 1j, Raises(), [Raises()], cyclic(), deep(), [[1, 2], [3]], [1, [2]], [[1], 2],
         BadDlpack(3), BadDlpack(RuntimeError("no")), BadDlpack(None), Liar(3), Liar({}), Liar({"typestr": "<f4"}),
         Liar({"typestr": "<f4", "shape": (2**62, 2**62), "data": (0, True), "version": 3}),
         Liar({"typestr": "<f4", "shape": (-1,), "data": (4096, True), "version": 3}),
         Liar({"typestr": "<f4", "shape": (2,), "data": (0, True), "version": 3}),
         Liar({"typestr": "<f4", "shape": "ab", "data": (0, True), "version": 3}),
         Liar({"typestr": 7, "shape": (1,), "data": (0, True)}), float, int, len, sys, lambda: 0, range(3), iter([1]), ..., slice(1),
         10**400, [10**400], float("nan"), -1, 2**63, [2**64], np.array(["a"]), np.array([None]), np.zeros(2, "c8"), memoryview(b"ab"),
         np.zeros((1,) * 32), NotImplemented, Exception, weft, weft.Tensor, weft.f32, weft.device("cpu"), weft.softmax]

EXCEPTIONS = (TypeError, ValueError, IndexError, OverflowError, RuntimeError, weft.Error, AttributeError, MemoryError, RecursionError,
              BufferError, KeyError, OSError, NotImplementedError, StopIteration)


def survives(call, *arguments, **named):
    """The call returns, or raises one of Python's exceptions."""
    try:
        return call(*arguments, **named)
    except EXCEPTIONS:
        return None


class Hostile(unittest.TestCase):
    def test_making(self):
        for value in NASTY:
            for make in (weft.tensor, weft.asarray, weft.from_numpy, weft.from_dlpack, weft.Variable, weft.Tensor,
                         lambda v: weft.tensor(1, dtype=v), lambda v: weft.tensor(1, device=v), weft.dtype, weft.device,
                         weft.zeros, lambda v: weft.zeros((v,)), lambda v: weft.full(v, v), weft.arange, weft.manual_seed, weft.op):
                survives(make, value)

    def test_every_op_with_nasty_arguments(self):
        x = weft.ones(2, 3)
        choose = random.Random(5)
        # A list that no op may evaluate: the graph is built, and thrown away.
        quick = [v for v in NASTY if not isinstance(v, (int, float)) or abs(v) < 100]
        count = 0
        for name in weft.op_names():
            function = weft.op(name)
            for _ in range(6):
                arguments = [choose.choice([x, x, choose.choice(quick)]) for _ in range(choose.randrange(5))]
                survives(function, *arguments)
                survives(function, *arguments, **{choose.choice(["axis", "dtype", "shape", "x", "eps", "no"]): choose.choice(quick)})
                count += 2
        self.assertGreater(count, 2000)

    def test_methods_and_keys(self):
        x, v = weft.ones(2, 3), weft.Variable(weft.ones(2, 3))
        for value in NASTY:
            for call in (lambda: x[value], lambda: x[value, value], lambda: x[..., value], lambda: x + value, lambda: value + x,
                         lambda: x @ value, lambda: x == value, lambda: x < value, lambda: v.assign(value), lambda: x.to(value),
                         lambda: x.backward(value), lambda: weft.grad(x.sum(), value), lambda: weft.grad(value, x),
                         lambda: setattr(v, "grad", value), lambda: setattr(v, "requires_grad", value), lambda: x.named(value),
                         lambda: weft.evaluate(value), lambda: weft.compile(value), lambda: weft.compile(lambda a: value)(x),
                         lambda: weft.compile(lambda a: a)(value), lambda: weft.checkpoint(value, x),
                         lambda: weft.checkpoint(lambda a: value, x), lambda: value in x, lambda: x.reshape(value),
                         lambda: x.sum(value), lambda: format(x, value if isinstance(value, str) else ""),
                         lambda: weft.einsum(value, x), lambda: weft.einsum("ij", value), lambda: weft.split(x, value),
                         lambda: weft.autocast(value).__enter__() and None, lambda: weft.Session(threads=value),
                         lambda: weft.explain(value), lambda: weft.register_op(value, ["x"], "x"),
                         lambda: weft.register_op("n", value, "x"), lambda: weft.register_op("m", ["x"], value),
                         lambda: weft.register_kernel("k", ["x"], value), lambda: weft.nn.Linear(value, 2),
                         lambda: weft.nn.Parameter(value), lambda: weft.optim.AdamW(value), lambda: weft.optim.SGD([value]),
                         lambda: weft.io.load(value), lambda: weft.io.save("x.npz", value), lambda: weft.io.save(value, {}),
                         lambda: weft.io.save("/nowhere/x.npz", {"a": value}), lambda: weft.llm.load(value),
                         lambda: weft.train.text(value, value), lambda: weft.train.load(value), lambda: weft.llm.Tokenizer.load(value)):
                survives(call)
        self.assertEqual(weft.is_grad_enabled(), True)

    def test_sizes(self):
        for shape in [(-1,), (2**62,), (2**62, 2**62), (2**40, 2**20), tuple([1] * 65), (2**70,), (1.5,), ("a",), (0, 2**62, 2**62)]:
            with self.assertRaises(EXCEPTIONS):
                x = weft.zeros(shape)
                (x + 1).eval()
                if x.size > 2**40:
                    raise ValueError("never computed")
                raise ValueError(f"{shape} was taken")
        with self.assertRaises(EXCEPTIONS):
            (weft.ones(2**20, 1) + weft.ones(1, 2**24)).eval()
            (weft.ones(2**40) + 1).numpy()
        with self.assertRaises(EXCEPTIONS):
            weft.arange(2**62).eval()

    def test_array_that_changes_its_mind(self):
        class Shape(tuple):
            def __iter__(self):
                raise RuntimeError("no shape")

        survives(weft.zeros, Shape((2, 3)))

        class Changing(list):
            def __len__(self):
                return 1000000

            def __getitem__(self, i):
                raise IndexError

        survives(weft.tensor, Changing([1, 2]))

        class ClearsList:
            def __init__(self, target):
                self.target = target

            def __index__(self):
                self.target.clear()
                gc.collect()
                return 1

        target = [1, 2, 3]
        target[0] = ClearsList(target)
        survives(weft.tensor, target)
        target = [ClearsList([]), 2]
        survives(weft.zeros, target)

    def test_uninitialised_objects(self):
        warnings.simplefilter("ignore")  # nanobind warns of each
        for cls in (weft.Tensor, weft.Variable, weft.dtype, weft.device, weft.Session, weft.Op, weft._weft._Compiled, weft._weft._Scope,
                    weft._weft._Stream, weft._weft._Model, weft._weft._Optimizer, weft.optim.Schedule):
            made = survives(cls.__new__, cls)
            if made is not None:
                for name in dir(cls):
                    if not name.startswith("__") or name in ("__repr__", "__add__", "__len__", "__call__", "__enter__", "__hash__"):
                        survives(lambda: getattr(made, name))
                survives(repr, made)
                survives(lambda: made + 1)
                survives(lambda: weft.ones(2) + made)

    def test_subclasses(self):
        class Mine(weft.Tensor):
            def __init__(self):  # forgets super().__init__
                pass

        survives(lambda: Mine() + 1)
        survives(lambda: Mine().shape)

        class Child(weft.Variable):
            pass

        self.assertEqual((Child([1.0]) + 1).tolist(), [2])

    def test_callbacks_that_fail(self):
        def bad_shape(inputs, values):
            raise KeyError("shape")

        f = survives(weft.register_kernel, "py_hostile_shape", ["x"], bad_shape, cpu=lambda *_: None)
        with self.assertRaises(KeyError):
            f(weft.ones(2))
        for answer in (None, 3, [3], [("f32",)], [("nothing", (1,))], [("f32", "ab")], [("f32", (2**62, 2**62))]):
            name = f"py_hostile_{abs(hash(str(answer)))}"
            g = survives(weft.register_kernel, name, ["x"], lambda i, v, answer=answer: answer, cpu=lambda *_: None)
            survives(lambda: g(weft.ones(2)).eval())
        h = weft.register_kernel("py_hostile_gradient", ["x"], lambda i, v: i, cpu=lambda i, o, v: None,
                                 gradient=lambda *_: [object()])
        x = weft.ones(2)
        with self.assertRaises(TypeError):
            weft.grad(h(x).sum(), x)

        def kept(inputs, outputs, values):
            kept.arrays = (inputs, outputs)
            outputs[0][:] = 1

        k = weft.register_kernel("py_hostile_kept", ["x"], lambda i, v: i, cpu=kept)
        self.assertEqual(k(x).tolist(), [1, 1])


if __name__ == "__main__":
    unittest.main()
