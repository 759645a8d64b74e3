"""The functions of the array-API standard that Weft has, against NumPy, on drawn arrays: WEFT_TEST_SEED=7 draws others.

docs/python.md names the functions of the standard that are left out, and those that differ, with the reasons."""
import os
import unittest
import zlib

import numpy as np

import weft

SEED = int(os.environ.get("WEFT_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("WEFT_TEST_ROUNDS", "6"))
FLOATS = ["f4", "f8"]
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
NAMES = {"f4": "f32", "f8": "f64", "f2": "f16", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16",
         "u4": "u32", "u8": "u64", "?": "bool"}
KINDS = {"float": FLOATS, "integer": INTEGERS, "numeric": FLOATS + INTEGERS, "bool": ["?"], "any": FLOATS + INTEGERS + ["?"],
         "whole": INTEGERS + ["?"]}


def shapes(rng, rank=None):
    rank = int(rng.integers(0, 5)) if rank is None else rank
    return tuple(int(n) for n in rng.choice([0, 1, 2, 3, 4], rank, p=[0.08, 0.2, 0.24, 0.24, 0.24]))


def array(rng, shape, dtype, low=-20, high=20):
    if dtype == "?":
        return rng.integers(0, 2, shape).astype("?")
    if dtype[0] == "u":
        low = 0
    if dtype[0] != "f":
        return rng.integers(low, high, shape).astype(dtype)
    return (rng.random(shape) * (high - low) + low).astype(dtype)


def broadcast_pair(rng):
    """Two shapes that broadcast with each other."""
    whole = shapes(rng)
    part = tuple(n if rng.random() < 0.7 else 1 for n in whole)[int(rng.integers(0, len(whole) + 1)):]
    return (whole, part) if rng.random() < 0.5 else (part, whole)


class Drawn(unittest.TestCase):
    def close(self, got, expected, exact_type=True, scale=1.0):
        if isinstance(expected, (tuple, list)):
            self.assertEqual(len(got), len(expected))
            for one, other in zip(got, expected):
                self.close(one, other, exact_type, scale)
            return
        expected = np.asarray(expected)
        self.assertEqual(got.shape, expected.shape)
        if exact_type:
            self.assertEqual(got.dtype.name, NAMES[expected.dtype.str[1:].replace("b1", "?")])
        single = got.dtype.name == "f32" or expected.dtype == "f4"
        np.testing.assert_allclose(got.numpy(), expected, rtol=(3e-5 if single else 1e-12) * scale, atol=(1e-5 if single else 1e-12) * scale)

    def rounds(self, name, count=ROUNDS):
        for i in range(count):
            rng = np.random.default_rng([SEED, zlib.crc32(name.encode()), i])
            try:
                yield rng
            except GeneratorExit:  # the caller's loop ends early, because a comparison failed
                print(f"{name}: seed {SEED}, round {i}")
                raise


# name: (kinds, range of the drawn elements)
UNARY = {"abs": ("numeric", None), "acos": ("float", (-1, 1)), "acosh": ("float", (1, 20)), "asin": ("float", (-1, 1)), "asinh": ("float", None),
         "atan": ("float", None), "atanh": ("float", (-0.99, 0.99)), "bitwise_invert": ("whole", None), "ceil": ("numeric", None),
         "cos": ("float", None), "cosh": ("float", (-5, 5)), "exp": ("float", (-5, 5)), "expm1": ("float", (-5, 5)), "floor": ("numeric", None),
         "isfinite": ("numeric", None), "isinf": ("numeric", None), "isnan": ("numeric", None), "log": ("float", (0.01, 20)),
         "log1p": ("float", (-0.9, 20)), "log2": ("float", (0.01, 20)), "log10": ("float", (0.01, 20)), "logical_not": ("bool", None),
         "negative": ("numeric", None), "positive": ("numeric", None), "reciprocal": ("float", (0.1, 20)), "round": ("numeric", None),
         "sign": ("numeric", None), "signbit": ("float", None), "sin": ("float", None), "sinh": ("float", (-5, 5)), "square": ("numeric", (-9, 9)),
         "sqrt": ("float", (0, 20)), "tan": ("float", (-1.5, 1.5)), "tanh": ("float", None), "trunc": ("numeric", None)}
IN_NUMPY = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh", "atan2": "arctan2",
            "bitwise_invert": "invert", "pow": "power", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
            "concat": "concatenate", "permute_dims": "transpose"}
BINARY = {"add": "numeric", "atan2": "float", "bitwise_and": "whole", "bitwise_or": "whole", "bitwise_xor": "whole", "copysign": "float",
          "divide": "float", "equal": "any", "floor_divide": "numeric", "greater": "numeric", "greater_equal": "numeric", "hypot": "float",
          "less": "numeric", "less_equal": "numeric", "logaddexp": "float", "logical_and": "bool", "logical_or": "bool", "logical_xor": "bool",
          "maximum": "numeric", "minimum": "numeric", "multiply": "numeric", "not_equal": "any", "remainder": "numeric", "subtract": "numeric"}
# The functions of the standard that another test of this file draws.
OTHERS = """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like
    clip pow bitwise_left_shift bitwise_right_shift sum prod mean var std max min all any count_nonzero cumulative_sum cumulative_prod
    argmax argmin nonzero searchsorted where sort argsort broadcast_to concat expand_dims flip moveaxis permute_dims reshape roll
    squeeze stack tile unstack take take_along_axis matmul matrix_transpose tensordot vecdot diff astype""".split()


def named(name):
    return getattr(np, IN_NUMPY.get(name, name))


class Elementwise(Drawn):
    def test_unary(self):
        for name, (kind, span) in UNARY.items():
            for rng in self.rounds(name):
                x = array(rng, shapes(rng), rng.choice(KINDS[kind]), *(span or (-20, 20)))
                self.close(getattr(weft, name)(weft.tensor(x)), named(name)(x).astype(x.dtype if name in ("ceil", "floor", "trunc", "round") else None or named(name)(x).dtype))

    def test_binary(self):
        for name, kind in BINARY.items():
            for rng in self.rounds(name):
                dtype = rng.choice(KINDS[kind])
                a, b = (array(rng, shape, dtype) for shape in broadcast_pair(rng))
                if name in ("divide", "floor_divide", "remainder"):
                    b = np.where(b == 0, np.ones_like(b), b)
                self.close(getattr(weft, name)(weft.tensor(a), weft.tensor(b)), named(name)(a, b))

    def test_powers_and_shifts(self):
        for rng in self.rounds("pow"):
            a, b = (array(rng, shape, rng.choice(FLOATS[:1]), 0.1, 3) for shape in broadcast_pair(rng))
            self.close(weft.pow(weft.tensor(a), weft.tensor(b)), a ** b)
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            for rng in self.rounds(name):
                dtype = rng.choice(["i4", "u4", "i8"])
                a, b = broadcast_pair(rng)
                a, b = array(rng, a, dtype), array(rng, b, dtype, 0, 8)
                self.close(getattr(weft, name)(weft.tensor(a), weft.tensor(b)), named(name)(a, b))

    def test_clip_and_where(self):
        for rng in self.rounds("clip"):
            x = array(rng, shapes(rng), rng.choice(KINDS["numeric"]))
            self.close(weft.clip(weft.tensor(x), 2, 9), np.clip(x, 2, 9).astype(x.dtype))
            a, b = broadcast_pair(rng)
            a, b = array(rng, a, "f4"), array(rng, b, "f4")
            self.close(weft.where(weft.tensor(a) > 0, weft.tensor(a), weft.tensor(b)), np.where(a > 0, a, b))


class Promotion(Drawn):
    """Two dtypes give the one that the standard's table has; where it has none (a float with an integer), that of PyTorch."""

    def test_table(self):
        def kind(dtype):
            return dtype[0] if dtype != "?" else "?"

        for a in INTEGERS + FLOATS + ["?"]:
            for b in INTEGERS + FLOATS + ["?"]:
                x, y = np.ones(2, a), np.ones(2, b)
                if {kind(a), kind(b)} == {"i", "u"} and "u8" in (a, b):  # the standard has none, either
                    with self.assertRaises(weft.DTypeError):
                        weft.tensor(x) + weft.tensor(y)
                    continue
                got = (weft.tensor(x) + weft.tensor(y)).dtype.name if (a, b) != ("?", "?") else "bool"
                if kind(a) == kind(b) or {kind(a), kind(b)} == {"i", "u"}:
                    self.assertEqual(got, NAMES[np.result_type(x, y).str[1:].replace("b1", "?")], (a, b))
                elif "f" in (kind(a), kind(b)):
                    self.assertEqual(got, NAMES[a if kind(a) == "f" else b], (a, b))


class Reductions(Drawn):
    def axes(self, rng, rank):
        choice = rng.random()
        if rank == 0 or choice < 0.25:
            return None
        if choice < 0.6:
            return int(rng.integers(-rank, rank))
        return tuple(int(axis) for axis in rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False))

    def test_sums(self):
        for name, kind in (("sum", "float"), ("prod", "float"), ("mean", "float"), ("all", "any"), ("any", "any"), ("count_nonzero", "any")):
            for rng in self.rounds(name, 2 * ROUNDS):
                x = array(rng, shapes(rng), rng.choice(KINDS[kind]), -2, 2)
                axis, keep = self.axes(rng, x.ndim), bool(rng.integers(0, 2))
                if name == "mean" and x.size == 0:
                    continue
                own = {} if axis is None else {"axis": axis}
                self.close(getattr(weft, name)(weft.tensor(x), keepdims=keep, **own), getattr(np, name)(x, axis=axis, keepdims=keep),
                           exact_type=name not in ("count_nonzero",))

    def test_sums_of_integers(self):
        for rng in self.rounds("sum of integers"):
            x = array(rng, shapes(rng), rng.choice(INTEGERS + ["?"]), -3, 3)
            self.assertEqual(weft.sum(weft.tensor(x)).item(), x.sum())

    def test_extremes(self):
        for name in ("max", "min", "argmax", "argmin"):
            for rng in self.rounds(name):
                x = array(rng, tuple(max(1, n) for n in shapes(rng)), rng.choice(KINDS["numeric"]))
                axis = self.axes(rng, x.ndim)
                if name.startswith("arg") and not (axis is None or isinstance(axis, int)):
                    axis = axis[0]
                own = {} if axis is None else {"axis": axis}
                self.close(getattr(weft, name)(weft.tensor(x), **own), getattr(np, name)(x, axis=axis), exact_type=not name.startswith("arg"))

    def test_deviations(self):
        for name in ("var", "std"):
            for rng in self.rounds(name):
                x = array(rng, tuple(n + 2 for n in shapes(rng, int(rng.integers(1, 4)))), rng.choice(FLOATS))
                axis, correction = self.axes(rng, x.ndim), int(rng.integers(0, 2))
                own = {} if axis is None else {"axis": axis}
                self.close(getattr(weft, name)(weft.tensor(x), correction=correction, **own), getattr(np, name)(x, axis=axis, ddof=correction))

    def test_cumulative(self):
        for own, theirs in (("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod")):
            for rng in self.rounds(own):
                x = array(rng, shapes(rng, int(rng.integers(1, 4))), rng.choice(FLOATS), -2, 2)
                axis = int(rng.integers(-x.ndim, x.ndim))
                self.close(getattr(weft, own)(weft.tensor(x), axis=axis), getattr(np, theirs)(x, axis))


class Making(Drawn):
    def test_filled(self):
        for rng in self.rounds("filled"):
            shape, dtype = shapes(rng), rng.choice(KINDS["any"])
            like = weft.tensor(array(rng, shape, dtype))
            for name in ("zeros", "ones"):
                self.close(getattr(weft, name)(shape, dtype=NAMES[dtype]), getattr(np, name)(shape, dtype))
                self.close(getattr(weft, name + "_like")(like), getattr(np, name)(shape, dtype))
            self.assertEqual(weft.empty(shape).shape, shape)
            self.assertEqual(weft.empty_like(like).shape, shape)
            self.close(weft.full(shape, 3, dtype=NAMES[dtype]), np.full(shape, 3, dtype))
            self.close(weft.full_like(like, 1), np.full(shape, 1, dtype))

    def test_ranges(self):
        for rng in self.rounds("ranges"):
            start, stop, step = int(rng.integers(-9, 9)), int(rng.integers(-9, 9)), int(rng.choice([-3, -2, -1, 1, 2, 3]))
            self.close(weft.arange(start, stop, step), np.arange(start, stop, step, "i4"))
            self.close(weft.linspace(start, stop, abs(step) + 1), np.linspace(start, stop, abs(step) + 1, dtype="f4"))
            rows, columns, k = int(rng.integers(0, 5)), int(rng.integers(0, 5)), int(rng.integers(-2, 3))
            self.close(weft.eye(rows), np.eye(rows, dtype="f4"))
            x = array(rng, (2, rows, columns), "f4")
            self.close(weft.tril(weft.tensor(x), k), np.tril(x, k))
            self.close(weft.triu(weft.tensor(x), k), np.triu(x, k))
            a, b = np.arange(rows, dtype="f4"), np.arange(columns, dtype="f4")
            self.close(weft.meshgrid(weft.tensor(a), weft.tensor(b)), np.meshgrid(a, b, indexing="ij"))

    def test_arrays(self):
        for rng in self.rounds("arrays"):
            x = array(rng, shapes(rng), rng.choice(KINDS["any"]))
            self.close(weft.asarray(x), x)
            self.close(weft.from_dlpack(x), x)
            self.close(weft.astype(weft.tensor(x), "f64"), x.astype("f8"))
            self.assertEqual(weft.tensor(x).tolist(), x.tolist())


class Manipulation(Drawn):
    def test_layout(self):
        for rng in self.rounds("layout", 2 * ROUNDS):
            x = array(rng, shapes(rng, int(rng.integers(1, 5))), rng.choice(KINDS["any"]))
            t, axis = weft.tensor(x), int(rng.integers(-x.ndim, x.ndim))
            order = [int(i) for i in rng.permutation(x.ndim)]
            self.close(weft.permute_dims(t, order), x.transpose(order))
            self.close(weft.moveaxis(t, axis, 0), np.moveaxis(x, axis, 0))
            self.close(weft.flip(t, axis), np.flip(x, axis))
            self.close(weft.roll(t, 2, axis), np.roll(x, 2, axis))
            self.close(weft.expand_dims(t, axis), np.expand_dims(x, axis))
            self.close(weft.squeeze(weft.expand_dims(t, axis), axis), x)
            self.close(weft.reshape(t, -1) if x.size else t, x.reshape(-1) if x.size else x)
            self.close(weft.broadcast_to(t, (2, *x.shape)), np.broadcast_to(x, (2, *x.shape)))
            self.close(weft.concat([t, t], axis=axis), np.concatenate([x, x], axis))
            self.close(weft.stack([t, t], axis=axis), np.stack([x, x], axis))
            self.close(weft.unstack(t, axis=axis) if x.shape[axis] else (), [np.take(x, i, axis) for i in range(x.shape[axis])])
            self.close(weft.repeat_interleave(t, 2, axis=axis), np.repeat(x, 2, axis))
            self.close(weft.tile(t, (2, 1)), np.tile(x, (2, 1)))
            if x.dtype != "?":
                self.close(weft.diff(t, axis=axis) if x.shape[axis] else t, np.diff(x, axis=axis) if x.shape[axis] else x)

    def test_places(self):
        for rng in self.rounds("places", 2 * ROUNDS):
            x = array(rng, tuple(n + 1 for n in shapes(rng, int(rng.integers(1, 4)))), rng.choice(KINDS["numeric"]))
            t, axis = weft.tensor(x), int(rng.integers(-x.ndim, x.ndim))
            places = rng.integers(0, x.shape[axis], 3).astype("i4")
            self.close(weft.take(t, weft.tensor(places), axis=axis), np.take(x, places, axis))
            order = np.argsort(x, axis, kind="stable")
            self.close(weft.take_along_axis(t, weft.tensor(order.astype("i4")), axis), np.sort(x, axis))
            self.close(weft.sort(t, axis=axis)[0], np.sort(x, axis))
            self.close(weft.argsort(t, axis=axis), order, exact_type=False)
            line = np.sort(x.reshape(-1))
            values = array(rng, (4,), x.dtype.str[1:])
            for right in (False, True):
                self.close(weft.searchsorted(weft.tensor(line), weft.tensor(values), right=right),
                           np.searchsorted(line, values, "right" if right else "left"), exact_type=False)
            self.close(weft.nonzero(t), np.argwhere(x), exact_type=False)

    def test_indexing(self):
        for rng in self.rounds("indexing", 4 * ROUNDS):
            x = array(rng, tuple(n + 1 for n in shapes(rng, 3)), "i4")
            t = weft.tensor(x)

            def key(extent):
                kind = rng.integers(0, 5)
                if kind == 0:
                    return int(rng.integers(-extent, extent))
                if kind == 1:
                    return slice(*(None if rng.random() < 0.3 else int(rng.integers(-6, 6)) for _ in range(2)), int(rng.choice([-2, -1, 1, 2])))
                if kind == 2:
                    return None
                if kind == 3:
                    return rng.integers(-extent, extent, 2)
                return slice(None)

            keys = []
            for extent in x.shape[:int(rng.integers(1, 4))]:
                keys.append(key(extent))
                if keys[-1] is None:  # stands for no axis
                    keys.append(slice(None))
            if rng.random() < 0.3:
                keys.append(...)
            keys = tuple(keys)
            self.close(t[keys], x[keys])
            self.close(t[t > 3], x[x > 3])


class LinearAlgebra(Drawn):
    def test_products(self):
        for rng in self.rounds("products", 2 * ROUNDS):
            dtype = rng.choice(FLOATS)
            batch = shapes(rng, int(rng.integers(0, 3)))
            n, k, m = (int(i) for i in rng.integers(0, 5, 3))
            a, b = array(rng, (*batch, n, k), dtype, -2, 2), array(rng, (*(batch if rng.random() < 0.5 else ()), k, m), dtype, -2, 2)
            self.close(weft.matmul(weft.tensor(a), weft.tensor(b)), a @ b)
            self.close(weft.matrix_transpose(weft.tensor(a)), np.swapaxes(a, -1, -2))
            self.close(weft.tensordot(weft.tensor(a), weft.tensor(b), axes=0) if a.size * b.size < 500 else weft.zeros(0),
                       np.tensordot(a, b, 0) if a.size * b.size < 500 else np.zeros(0, "f4"))
            u, v = array(rng, (*batch, k), dtype), array(rng, (*batch, k), dtype)
            self.close(weft.vecdot(weft.tensor(u), weft.tensor(v)), (u * v).sum(-1), scale=10)
            self.close(weft.outer(weft.tensor(u.reshape(-1)), weft.tensor(v.reshape(-1))), np.outer(u, v))
            c = array(rng, (*batch, 3), dtype)
            self.close(weft.cross(weft.tensor(c), weft.tensor(c[..., ::-1].copy())), np.cross(c, c[..., ::-1]), scale=30)

    def test_decompositions(self):
        for rng in self.rounds("decompositions"):
            n = int(rng.integers(1, 5))
            x = rng.normal(size=(2, n, n)) + 3 * np.eye(n)
            t, spd = weft.tensor(x), x @ np.swapaxes(x, -1, -2)
            s = weft.tensor(spd)
            self.close(weft.inverse(t), np.linalg.inv(x), scale=1e5)
            self.close(weft.det(t), np.linalg.det(x), scale=1e4)
            self.close(weft.slogdet(t), np.linalg.slogdet(x), scale=1e4)
            self.close(weft.cholesky(s), np.linalg.cholesky(spd), scale=1e4)
            self.close(weft.solve(t, weft.tensor(x[..., :1])), np.linalg.solve(x, x[..., :1]), scale=1e5)
            self.close(weft.svd(t)[1], np.linalg.svd(x)[1], scale=1e4)
            self.close(weft.eigh(s)[0], np.linalg.eigh(spd)[0], scale=1e5)
            q, r = weft.qr(t)
            np.testing.assert_allclose((q @ r).numpy(), x, atol=1e-9)
            self.close(weft.pinv(t), np.linalg.pinv(x), scale=1e6)
            self.close(weft.matrix_power(t, 3), np.linalg.matrix_power(x, 3), scale=1e3)
            self.close(weft.trace(t), np.trace(x, axis1=-2, axis2=-1), scale=10)


class Standard(unittest.TestCase):
    def test_names(self):
        missing = [name for name in [*UNARY, *BINARY, *OTHERS] if not hasattr(weft, name)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
