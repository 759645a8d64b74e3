"""Assertions for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _weft
from ._weft import Tensor

_op: Any = _weft.op
# PyTorch's relative and absolute tolerances.
_TOLERANCES = {"f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_dtype: bool = True, check_device: bool = True, msg: str | None = None) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere, in equal shapes and dtypes. Lists and
    dictionaries are compared part by part. Tolerances that are not given are those of the dtype, as in PyTorch."""
    _compare(actual, expected, rtol, atol, equal_nan, check_dtype, check_device, msg, "")


def _compare(actual: Any, expected: Any, rtol: Any, atol: Any, equal_nan: bool, check_dtype: bool, check_device: bool, msg: Any, place: str) -> None:
    def fail(text: str) -> None:
        raise AssertionError(msg or f"{'at ' + place + ': ' if place else ''}{text}")

    options = (rtol, atol, equal_nan, check_dtype, check_device, msg)
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or set(actual) != set(expected):
            fail("the keys differ")
        for key in expected:
            _compare(actual[key], expected[key], *options, f"{place}[{key!r}]")
        return
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            fail("the lengths differ")
        for i, (a, b) in enumerate(zip(actual, expected)):
            _compare(a, b, *options, f"{place}[{i}]")
        return
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: give rtol and atol, or neither")
    x, y = (each.detach() if isinstance(each, Tensor) else _weft._tensor(each, None, None, True) for each in (actual, expected))
    if x.shape != y.shape:
        fail(f"the shapes differ: {list(x.shape)} and {list(y.shape)}")
    if check_dtype and x.dtype != y.dtype:
        fail(f"the dtypes differ: {x.dtype.name} and {y.dtype.name}; check_dtype=False compares anyway")
    if check_device and x.device != y.device:
        fail(f"the devices differ: {x.device} and {y.device}; check_device=False compares anyway")
    names = [each.dtype.name for each in (x, y)]
    relative, absolute = (max(each) for each in zip(*(_TOLERANCES.get(name, (0.0, 0.0)) for name in names)))
    if rtol is not None:
        relative, absolute = rtol, atol
    a, b = x.cpu().to("f64"), y.cpu().to("f64")
    near = (a == b) | (_op("abs")(a - b) <= absolute + relative * _op("abs")(b))
    if equal_nan:
        near = near | (_op("isnan")(a) & _op("isnan")(b))
    if x.size == 0 or bool(near.all()):
        return
    wrong = ~near
    count = int(wrong.sum().item())
    first = [int(n) for n in _op("nonzero")(wrong)[0].tolist()]
    at = tuple(first)
    largest = float(_op("amax")(_op("abs")(a - b)).item())
    fail(f"{count} of {x.size} elements differ (rtol {relative:g}, atol {absolute:g}); the largest difference is {largest:g}; first at "
         f"{first}: {a[at].item():.9g} and {b[at].item():.9g}")
