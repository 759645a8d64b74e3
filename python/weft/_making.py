"""Functions that make tensors, with PyTorch's arguments: generator=, requires_grad=, size=. Generators of random numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _tensor, _weft
from ._types import ArrayLike, DeviceLike, DTypeLike
from ._weft import Tensor, UsageError

_op: Any = _weft.op
Size = Any  # integers one by one, or a list or tuple of them


class Generator:
    """A generator of random numbers beside that of weft.manual_seed: rand(3, generator=g)."""

    def __init__(self, device: DeviceLike | None = None) -> None:
        self.manual_seed(0)

    def manual_seed(self, seed: int) -> Generator:
        self._seed = int(seed)
        self._state = _weft._tensor([self._seed & 0xFFFFFFFF, 0], "u32", None, True)
        return self

    def initial_seed(self) -> int:
        return self._seed

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[None]:
        shared = _weft._random_state()
        outer = shared.value
        shared.assign(self._state)
        try:
            yield
        finally:
            self._state = shared.value.eval()
            shared.assign(outer)


def _drawn(generator: Generator | None, draw: Callable[[], Tensor]) -> Tensor:
    if generator is None:
        return draw()
    with generator._drawing():
        return draw()


def _finished(made: Tensor, device: DeviceLike | None, requires_grad: bool) -> Tensor:
    made = made if device is None else made.to(device)
    return made.requires_grad_() if requires_grad else made


def _shape(name: str, given: tuple[Any, ...], size: Any) -> tuple[int, ...]:
    if size is not None:
        given = (size,)
    if len(given) == 1 and not isinstance(given[0], int) and not (isinstance(given[0], Tensor) and given[0].ndim == 0):
        given = tuple(given[0])
    return tuple(int(n) for n in given)


def zeros(*shape: Size, size: Size = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape."""
    return _finished(_op("zeros")(_shape("zeros", shape, size), dtype=dtype), device, requires_grad)


def ones(*shape: Size, size: Size = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape."""
    return _finished(_op("ones")(_shape("ones", shape, size), dtype=dtype), device, requires_grad)


def empty(*shape: Size, size: Size = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False) -> Tensor:
    """Zeros."""
    return zeros(*shape, size=size, dtype=dtype, device=device, requires_grad=requires_grad)


def full(shape: Size = None, value: float = 0, *, size: Size = None, fill_value: float | None = None, dtype: DTypeLike | None = None,
         device: DeviceLike | None = None, requires_grad: bool = False) -> Tensor:
    """One number everywhere."""
    made = _op("full")(_shape("full", (), shape if size is None else size), value if fill_value is None else fill_value, dtype=dtype)
    return _finished(made, device, requires_grad)


def _random(name: str, shape: tuple[Any, ...], size: Any, dtype: Any, device: Any, generator: Any, requires_grad: bool) -> Tensor:
    wanted = _shape(name, shape, size)
    return _finished(_drawn(generator, lambda: _op(name)(wanted, dtype=dtype)), device, requires_grad)


def rand(*shape: Size, size: Size = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, generator: Generator | None = None,
         requires_grad: bool = False) -> Tensor:
    """Uniform numbers from [0, 1)."""
    return _random("rand", shape, size, dtype, device, generator, requires_grad)


def randn(*shape: Size, size: Size = None, dtype: DTypeLike | None = None, device: DeviceLike | None = None, generator: Generator | None = None,
          requires_grad: bool = False) -> Tensor:
    """Normal numbers of mean 0 and deviation 1."""
    return _random("randn", shape, size, dtype, device, generator, requires_grad)


def randint(low: Any = None, high: Any = None, shape: Size = None, *, size: Size = None, dtype: DTypeLike | None = None,
            device: DeviceLike | None = None, generator: Generator | None = None) -> Tensor:
    """Integers from [low, high): randint(low, high, shape); randint(high, shape) begins at 0."""
    if high is not None and not isinstance(high, (int, float)) and shape is None and size is None:
        low, high, shape = 0, low, high
    if high is None:
        low, high = 0, low
    made = _drawn(generator, lambda: _op("randint")(0 if low is None else low, high, _shape("randint", (), shape if size is None else size)))
    return _finished(made if dtype is None else made.to(dtype), device, False)


def randperm(n: int, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, generator: Generator | None = None) -> Tensor:
    """0 to n - 1 in an order by chance."""
    made = _drawn(generator, lambda: _op("randperm")(n))
    return _finished(made if dtype is None else made.to(dtype), device, False)


def normal(mean: ArrayLike = 0.0, std: ArrayLike = 1.0, size: Size = None, *, generator: Generator | None = None, dtype: DTypeLike | None = None,
           device: DeviceLike | None = None, **named: Any) -> Tensor:
    """Normal numbers: of tensors of means and deviations, or of two numbers and a size."""
    std = named.pop("deviation", std)
    if named:
        raise TypeError(f"normal() has no argument {next(iter(named))!r}; it takes mean, std, size, generator, dtype, device")
    if isinstance(mean, (int, float)) and isinstance(std, (int, float)):
        if size is None:
            raise UsageError("normal: give a size beside two numbers: normal(0.0, 1.0, size=(3,))")
        return _finished(_drawn(generator, lambda: _op("randn")(_shape("normal", (), size), dtype=dtype)) * std + mean, device, False)
    return _finished(_drawn(generator, lambda: _op("normal")(mean, std)), device, False)


def bernoulli(x: ArrayLike, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that x gives, else 0."""
    chance = x if p is None else _op("full_like")(x, p)
    return _drawn(generator, lambda: _op("bernoulli")(chance))


def multinomial(x: ArrayLike, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Positions drawn with weights."""
    return _drawn(generator, lambda: _op("multinomial")(x, num_samples, replacement))


def arange(start: float, end: float | None = None, step: float = 1, dtype: DTypeLike | None = None, device: DeviceLike | None = None, *,
           stop: float | None = None, requires_grad: bool = False) -> Tensor:
    """start, start + step, ... before the end; arange(n) counts from 0. Whole numbers give i32, others f32."""
    return _finished(_tensor.arange(start, end if stop is None else stop, step, dtype=dtype, device=device), None, requires_grad)


def linspace(start: float, end: float, steps: int, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
             **named: Any) -> Tensor:
    """So many numbers from start to end, at equal distances."""
    return _finished(_op("linspace")(start, end, steps, dtype=dtype, **named), device, requires_grad)


def eye(n: int, m: int | None = None, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False, **named: Any) -> Tensor:
    """Ones on the diagonal."""
    return _finished(_op("eye")(n, n if m is None else m, dtype=dtype, **named), device, requires_grad)


# ---- PyTorch's constructors by dtype.


def _constructor(name: str, dtype: str) -> Callable[..., Tensor]:
    def make(*data: Any) -> Tensor:
        if len(data) == 0:
            return _op("zeros")((0,), dtype=dtype)
        if all(isinstance(each, int) for each in data):
            return _op("zeros")(tuple(data), dtype=dtype)
        return _weft._tensor(data[0], dtype, None, True)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Elements {dtype} of lists or an array; of integers, zeros of that shape."
    return make


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor = (_constructor(f"{name}Tensor", dtype) for name, dtype in (
    ("Float", "f32"), ("Double", "f64"), ("Half", "f16"), ("BFloat16", "bf16")))
LongTensor, IntTensor, ShortTensor, ByteTensor, CharTensor, BoolTensor = (_constructor(f"{name}Tensor", dtype) for name, dtype in (
    ("Long", "i64"), ("Int", "i32"), ("Short", "i16"), ("Byte", "u8"), ("Char", "i8"), ("Bool", "bool")))


def manual_seed(seed: int) -> None:
    """Seeds the generator of random numbers."""
    _weft.manual_seed(int(seed) & 0xFFFFFFFF)


