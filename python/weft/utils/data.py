"""Data sets, samplers, and loaders that make batches, with PyTorch's names. Workers are threads: what they decode or compute in
NumPy and in Weft runs beside the training step."""

from __future__ import annotations

import collections
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from .. import _weft
from .._making import Generator, multinomial, randint, randperm
from .._weft import ShapeError, Tensor, UsageError

T_co = TypeVar("T_co", covariant=True)
_op: Any = _weft.op

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler",
           "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo", "default_collate", "default_convert",
           "get_worker_info", "random_split"]


# ---- Data sets


class Dataset(Generic[T_co]):
    """Examples by number: override __getitem__ and __len__."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Examples one after another: override __iter__."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Dataset[T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[Any]):
    """Rows of tensors that have the same number of them."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(each.shape[0] != tensors[0].shape[0] for each in tensors):
            raise ShapeError(f"TensorDataset: the numbers of rows differ: {[each.shape[0] for each in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(each[index] for each in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class StackDataset(Dataset[Any]):
    """Examples of several data sets side by side: tuples, or dictionaries of named ones."""

    def __init__(self, *datasets: Any, **named: Any) -> None:
        if bool(datasets) == bool(named):
            raise UsageError("StackDataset: give data sets, or named ones")
        self.datasets: Any = named if named else datasets
        self._lengths = [len(each) for each in (named.values() if named else datasets)]
        if len(set(self._lengths)) != 1:
            raise UsageError(f"StackDataset: the lengths differ: {self._lengths}")

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: each[index] for name, each in self.datasets.items()}
        return tuple(each[index] for each in self.datasets)

    def __len__(self) -> int:
        return self._lengths[0]


class ConcatDataset(Dataset[Any]):
    """One data set after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise UsageError("ConcatDataset: give at least one data set")
        self.cumulative_sizes: list[int] = []
        for each in self.datasets:
            self.cumulative_sizes.append((self.cumulative_sizes[-1] if self.cumulative_sizes else 0) + len(each))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        which = next(i for i, end in enumerate(self.cumulative_sizes) if place < end)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[Any]):
    """One iterable data set after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for each in self.datasets:
            yield from each


class Subset(Dataset[Any]):
    """The examples of some numbers."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Parts by chance, of these lengths or of these shares of 1."""
    count = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9 and any(isinstance(each, float) for each in lengths):
        sizes = [math.floor(count * share) for share in lengths]
        for i in range(count - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(each) for each in lengths]
    if sum(sizes) != count:
        raise UsageError(f"random_split: the lengths {sizes} add up to {sum(sizes)}, and the data set has {count} examples")
    order = randperm(count, generator=generator).tolist()
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    return [Subset(dataset, order[end - size:end]) for size, end in zip(sizes, ends)]


# ---- Samplers


class Sampler(Generic[T_co]):
    """The order of examples: override __iter__ and __len__."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """By chance: each once, or with `replacement` num_samples draws."""

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else int(num_samples)
        if self.num_samples < 0:
            raise UsageError(f"RandomSampler: num_samples is {num_samples}; it must be at least 0")

    def __iter__(self) -> Iterator[int]:
        count = len(self.data_source)
        if self.replacement:
            yield from randint(0, count, (self.num_samples,), generator=self.generator).tolist()
            return
        for start in range(0, self.num_samples, max(count, 1)):
            yield from randperm(count, generator=self.generator).tolist()[:self.num_samples - start]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """These numbers, by chance."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Drawn with a weight for each example."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None) -> None:
        self.weights = _weft._tensor(weights, "f32", None, True)
        self.num_samples, self.replacement, self.generator = int(num_samples), replacement, generator

    def __iter__(self) -> Iterator[int]:
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[Any]):
    """Lists of batch_size numbers of another sampler; the last may be shorter, or is left out."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise UsageError(f"BatchSampler: batch_size is {batch_size}; it must be at least 1")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


# ---- Batches


def default_convert(data: Any) -> Any:
    """Arrays and numbers of NumPy become tensors."""
    if isinstance(data, Tensor) or not hasattr(type(data), "__array_interface__"):
        if isinstance(data, Mapping):
            return {key: default_convert(each) for key, each in data.items()}
        if isinstance(data, (list, tuple)):
            return _like(data, [default_convert(each) for each in data])
        return data
    return _weft._tensor(data, None, None, True)


def _like(given: Any, parts: list[Any]) -> Any:
    return type(given)(*parts) if hasattr(given, "_fields") else parts


def default_collate(batch: Sequence[Any]) -> Any:
    """Examples as one batch: tensors, arrays and numbers are stacked, texts become a list, dictionaries and tuples are gone through
    part by part."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _op("stack")(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, (bool, int, float)):
        return _weft._tensor(list(batch), None, None, True)
    if hasattr(type(first), "__array_interface__"):
        return _op("stack")([_weft._tensor(each, None, None, True) for each in batch])
    if isinstance(first, Mapping):
        return {key: default_collate([each[key] for each in batch]) for key in first}
    if isinstance(first, (list, tuple)):
        if any(len(each) != len(first) for each in batch):
            raise UsageError(f"default_collate: the examples have {sorted({len(each) for each in batch})} parts; give a collate_fn")
        return _like(first, [default_collate(list(parts)) for parts in zip(*batch)])
    raise TypeError(f"default_collate: examples are {type(first).__name__}, not tensors, arrays, numbers, texts, or containers of these; "
                    "give a collate_fn")


class WorkerInfo:
    """Which worker runs: get_worker_info().id of .num_workers."""

    def __init__(self, id: int, num_workers: int, dataset: Any) -> None:  # noqa: A002
        self.id, self.num_workers, self.dataset = id, num_workers, dataset


_local = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """Of the thread that asks; None outside of workers."""
    return getattr(_local, "info", None)


def _evaluated(value: Any) -> Any:
    """So that the work is done by the worker."""
    if isinstance(value, Tensor):
        value.eval()
    elif isinstance(value, Mapping):
        for each in value.values():
            _evaluated(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _evaluated(each)
    return value


class DataLoader(Generic[T_co]):
    """Batches of a data set, in order or by `shuffle`, a `sampler` or a `batch_sampler`; batch_size None gives examples one by one.
    With num_workers, threads prepare prefetch_factor batches each ahead, and the order stays. An iterable data set is read by one of
    them. pin_memory, timeout and persistent_workers are taken and change nothing."""

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None, batch_sampler: Any = None,
                 num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None, pin_memory: bool = False, drop_last: bool = False,
                 timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None, multiprocessing_context: Any = None,
                 generator: Generator | None = None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "") -> None:
        self.dataset, self.num_workers, self.worker_init_fn = dataset, num_workers, worker_init_fn
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        if num_workers < 0 or self.prefetch_factor < 1:
            raise UsageError(f"DataLoader: num_workers is {num_workers} and prefetch_factor {self.prefetch_factor}; they must be at least 0 and 1")
        self._is_iterable = isinstance(dataset, IterableDataset)
        if self._is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise UsageError("DataLoader: an iterable data set has an order of its own; leave shuffle and samplers out")
        if sampler is not None and shuffle:
            raise UsageError("DataLoader: give shuffle or a sampler, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise UsageError("DataLoader: a batch_sampler leaves no choice of batch_size, shuffle, sampler and drop_last")
        self.batch_size, self.drop_last, self.generator = batch_size if batch_sampler is None else None, drop_last, generator
        self.sampler: Any = sampler
        if sampler is None and not self._is_iterable:
            self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.batch_sampler = batch_sampler
        if batch_sampler is None and batch_size is not None and not self._is_iterable:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self.collate_fn: Callable[[Any], Any] = collate_fn or (default_convert if self.batch_sampler is None and batch_size is None else default_collate)

    def __len__(self) -> int:
        if self._is_iterable:
            count = len(self.dataset)
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return self._iterable() if self._is_iterable else (self._made(key) for key in self._keys())
        if self._is_iterable:
            return _Ahead(self, None)
        return _Ahead(self, self._keys())

    def _keys(self) -> Iterator[Any]:
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def _made(self, key: Any) -> Any:
        if self.batch_sampler is None:
            return self.collate_fn(self.dataset[key])
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(key))
        return self.collate_fn([self.dataset[index] for index in key])

    def _iterable(self) -> Iterator[Any]:
        if self.batch_size is None:
            for each in self.dataset:
                yield self.collate_fn(each)
            return
        batch: list[Any] = []
        for each in self.dataset:
            batch.append(each)
            if len(batch) == self.batch_size:
                yield self.collate_fn(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.collate_fn(batch)


class _Slot:
    """A batch that a worker makes."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def get(self) -> Any:
        self.ready.wait()
        if self.error is not None:
            raise self.error
        return self.value


class _Ahead:
    """Batches that threads make ahead, in order. The threads end with the last batch, with an error, or with this object."""

    def __init__(self, loader: DataLoader[Any], keys: Iterator[Any] | None) -> None:
        self._keys, self._slots = keys, collections.deque[_Slot]()
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended: list[bool] = []  # not empty: the workers are to stop. They do not refer to this object.
        workers = 1 if keys is None else loader.num_workers
        self._workers, self._ahead = workers, workers * loader.prefetch_factor
        for number in range(workers):
            threading.Thread(target=_work, args=(loader, number, workers, self._tasks, self._ended), daemon=True, name=f"weft loader {number}").start()
        for _ in range(self._ahead):
            self._ask()

    def _ask(self) -> None:
        key = None
        if self._keys is not None:
            try:
                key = next(self._keys)
            except StopIteration:
                return
        slot = _Slot()
        self._slots.append(slot)
        self._tasks.put((slot, key))

    def __iter__(self) -> _Ahead:
        return self

    def __next__(self) -> Any:
        if not self._slots:
            self.__del__()
            raise StopIteration
        try:
            value = self._slots.popleft().get()
        except BaseException:
            self._slots.clear()
            self.__del__()
            raise
        self._ask()
        return value

    def __del__(self) -> None:
        if not self._ended:
            self._ended.append(True)
            for _ in range(self._workers):
                self._tasks.put(None)


def _work(loader: DataLoader[Any], number: int, workers: int, tasks: Any, ended: list[bool]) -> None:
    _local.info = WorkerInfo(number, workers, loader.dataset)
    source: Iterator[Any] | None = None
    started = False
    while (task := tasks.get()) is not None and not ended:
        slot, key = task
        try:
            if not started and loader.worker_init_fn is not None:
                loader.worker_init_fn(number)
            started = True
            if loader._is_iterable:
                source = loader._iterable() if source is None else source
                slot.value = _evaluated(next(source))
            else:
                slot.value = _evaluated(loader._made(key))
        except BaseException as error:  # noqa: BLE001  handed to the thread that asks; the end of an iterable too
            slot.error = error
        slot.ready.set()
