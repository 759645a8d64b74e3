"""Data sets and loaders against PyTorch's, files of weft.save, and assertions of weft.testing."""
import collections
import io
import os
import pickle
import tempfile
import threading
import time
import unittest

import numpy as np

import weft
from weft.utils import data

try:
    import torch
    import torch.utils.data as theirs
except Exception:
    torch = theirs = None

Pair = collections.namedtuple("Pair", "x y")


class Squares(data.Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        if i >= 11:
            raise IndexError(i)
        return {"x": np.full((2,), i, "f4"), "pair": Pair(i, float(i * i)), "name": f"item {i}", "list": [i, (i, i + 1)]}


class Countdown(data.IterableDataset):
    def __iter__(self):
        return iter(weft.tensor([i, i * 2]) for i in range(7))


def plain(value):
    if isinstance(value, weft.Tensor) or (torch is not None and isinstance(value, torch.Tensor)):
        return np.asarray(value).tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "_fields"):
        return type(value).__name__, [plain(each) for each in value]
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


@unittest.skipIf(torch is None, "no PyTorch")
class LikePyTorch(unittest.TestCase):
    def test_batches(self):
        for options in ({}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None},
                        {"batch_size": 3, "sampler": [5, 1, 9, 0]}, {"batch_sampler": [[1, 2], [10], [0, 3, 5]]}):
            wanted = list(theirs.DataLoader(Squares(), **options))
            for workers in (0, 3):
                loader = data.DataLoader(Squares(), **options, num_workers=workers)
                with self.subTest(options=options, workers=workers):
                    self.assertEqual(plain(list(loader)), plain(wanted))
                    self.assertEqual(plain(list(loader)), plain(wanted))  # again
                    self.assertEqual(len(loader), len(wanted))

    def test_parts(self):
        rows = np.arange(12, dtype="f4").reshape(6, 2)
        mine, other = data.TensorDataset(weft.tensor(rows), weft.arange(6)), theirs.TensorDataset(torch.tensor(rows), torch.arange(6))
        for make in (lambda m, d: d, lambda m, d: m.Subset(d, [4, 0]), lambda m, d: m.ConcatDataset([d, m.Subset(d, [1])]), lambda m, d: d + d):
            self.assertEqual([plain(make(data, mine)[i]) for i in range(2)], [plain(make(theirs, other)[i]) for i in range(2)])
            self.assertEqual(len(make(data, mine)), len(make(theirs, other)))
        self.assertEqual(plain((mine + mine)[-1]), plain((other + other)[-1]))
        for lengths, sizes in (([4, 2], [4, 2]), ([0.5, 0.25, 0.25], [4, 1, 1])):
            parts = data.random_split(mine, lengths)
            self.assertEqual([len(part) for part in parts], sizes)
            self.assertEqual(sorted(i for part in parts for i in part.indices), list(range(6)))


class Loaders(unittest.TestCase):
    def test_iterable(self):
        for workers in (0, 2):
            found = list(data.DataLoader(Countdown(), batch_size=3, num_workers=workers))
            self.assertEqual([each.tolist() for each in found], [[[0, 0], [1, 2], [2, 4]], [[3, 6], [4, 8], [5, 10]], [[6, 12]]])
        both = list(data.ChainDataset([Countdown(), Countdown()]))
        self.assertEqual(len(both), 14)

    def test_shuffled(self):
        loader = data.DataLoader(range(50), batch_size=7, shuffle=True, generator=weft.Generator().manual_seed(3))
        one, two = ([i for batch in loader for i in batch.tolist()] for _ in range(2))
        self.assertEqual((sorted(one), sorted(two)), (list(range(50)), list(range(50))))
        self.assertNotEqual(one, two)
        again = data.DataLoader(range(50), batch_size=7, shuffle=True, generator=weft.Generator().manual_seed(3))
        self.assertEqual([i for batch in again for i in batch.tolist()], one)
        self.assertEqual(sorted(data.SubsetRandomSampler([3, 5, 8])), [3, 5, 8])
        self.assertEqual(set(data.WeightedRandomSampler([0.0, 1.0, 0.0], 5)), {1})
        drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=8))
        self.assertEqual((len(drawn), set(drawn) <= {0, 1, 2}), (8, True))

    def test_a_generator_leaves_the_shared_one_alone(self):
        weft.manual_seed(5)
        one = weft.rand(3).tolist()
        weft.manual_seed(5)
        generator = weft.Generator().manual_seed(9)
        first = weft.rand(2, generator=generator).tolist()
        self.assertEqual(weft.rand(3).tolist(), one)
        self.assertNotEqual(weft.rand(2, generator=generator).tolist(), first)
        self.assertEqual(weft.rand(2, generator=generator.manual_seed(9)).tolist(), first)

    def test_workers_run_beside_each_other_and_end(self):
        class Slow(data.Dataset):
            def __len__(self):
                return 12

            def __getitem__(self, i):
                time.sleep(0.05)
                return i, data.get_worker_info().id

        seen = []
        begin = time.monotonic()
        batches = list(data.DataLoader(Slow(), batch_size=2, num_workers=6, worker_init_fn=seen.append))
        self.assertLess(time.monotonic() - begin, 0.45)  # 0.6 one after another
        self.assertEqual([i for batch, _ in batches for i in batch.tolist()], list(range(12)))
        self.assertGreater(len(seen), 2)
        self.assertIsNone(data.get_worker_info())
        half = iter(data.DataLoader(Slow(), num_workers=2))
        next(half)
        del half
        deadline = time.monotonic() + 5
        while any(thread.name.startswith("weft loader") for thread in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse([thread.name for thread in threading.enumerate() if thread.name.startswith("weft loader")])

    def test_an_error_of_a_worker_arrives(self):
        class Broken(data.Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, i):
                if i == 3:
                    raise RuntimeError("example 3 is damaged")
                return i

        for workers in (0, 2):
            batches = iter(data.DataLoader(Broken(), num_workers=workers))
            self.assertEqual([int(next(batches)) for _ in range(3)], [0, 1, 2])
            with self.assertRaisesRegex(RuntimeError, "example 3"):
                next(batches)

    def test_mistakes_are_errors(self):
        rows = data.TensorDataset(weft.ones(4, 2))
        for message, make in (("differ", lambda: data.TensorDataset(weft.ones(2), weft.ones(3))), ("not both", lambda: data.DataLoader(rows, shuffle=True, sampler=[1])),
                              ("no choice", lambda: data.DataLoader(rows, batch_size=2, batch_sampler=[[1]])), ("add up to 3", lambda: data.random_split(rows, [1, 2])),
                              ("order of its own", lambda: data.DataLoader(Countdown(), shuffle=True)), ("at least 1", lambda: data.DataLoader(rows, batch_size=0)),
                              ("at least 0", lambda: data.DataLoader(rows, num_workers=-1)), ("give a collate_fn", lambda: data.default_collate([[1], [1, 2]]))):
            with self.subTest(message=message), self.assertRaisesRegex(weft.UsageError if "differ" not in message else weft.ShapeError, message):
                make()
        with self.assertRaisesRegex(TypeError, "collate_fn"):
            data.default_collate([object()])


class Saving(unittest.TestCase):
    def test_round_trip(self):
        net = weft.nn.Linear(2, 3)
        given = {"epoch": 3, "state": net.state_dict(), "nested": [weft.arange(3), ("text", None, True)], "half": weft.ones(2, dtype="bf16"),
                 "ordered": collections.OrderedDict(a=1), "device": weft.device("cpu"), "dtype": weft.float32}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.pt")
            weft.save(given, path)
            self.assertEqual(os.listdir(folder), ["checkpoint.pt"])
            found = weft.load(path, map_location="cpu")
            self.assertEqual((found["epoch"], found["nested"][1], found["half"].dtype.name, found["dtype"]), (3, ("text", None, True), "bf16", weft.float32))
            np.testing.assert_array_equal(found["state"]["weight"].numpy(), net.weight.numpy())
            stream = io.BytesIO()
            weft.save(net, stream)
            stream.seek(0)
            with self.assertRaisesRegex(weft.UsageError, "weights_only=False"):
                weft.load(stream)
            stream.seek(0)
            np.testing.assert_array_equal(weft.load(stream, weights_only=False).weight.numpy(), net.weight.numpy())
            with open(path, "rb") as file:
                whole = file.read()
            for damaged, message in ((whole[:-20], "damaged"), (b"PK\3\4" + whole, "torch.save"), (pickle.dumps(1), "torch.save"), (b"", "weft.save")):
                with self.assertRaisesRegex(weft.FileError, message):
                    weft.load(io.BytesIO(damaged))
            with self.assertRaisesRegex(weft.FileError, "No such file"):
                weft.load(os.path.join(folder, "none.pt"))
            weft.io.save(os.path.join(folder, "w.safetensors"), net.state_dict())
            self.assertEqual(sorted(weft.load(os.path.join(folder, "w.safetensors"))), ["bias", "weight"])

    def test_no_code_runs(self):
        class Evil:
            def __reduce__(self):
                return os.system, ("echo bad",)

        stream = io.BytesIO()
        weft.save({"a": Evil()}, stream)
        stream.seek(0)
        with self.assertRaisesRegex(weft.UsageError, "can run code"):
            weft.load(stream)


class Testing(unittest.TestCase):
    def test_assert_close(self):
        x = weft.tensor([[1.0, 2.0], [3.0, float("nan")]])
        weft.testing.assert_close(x, x + 0, equal_nan=True)
        weft.testing.assert_close({"a": [x[0], 1.0]}, {"a": [x[0] + 1e-7, 1.0]})
        weft.testing.assert_close(weft.tensor([1]), weft.tensor([1.0]), check_dtype=False)
        for wrong, message in ((lambda: weft.testing.assert_close(x[0], x[0] + 0.1), "2 of 2 elements differ.*largest difference is 0.1"),
                               (lambda: weft.testing.assert_close(x, x), r"1 of 4 .*\[1, 1\]"), (lambda: weft.testing.assert_close(x[0], x[:, 0, None]), "shapes differ"),
                               (lambda: weft.testing.assert_close(weft.tensor([1]), weft.tensor([1.0])), "dtypes differ"),
                               (lambda: weft.testing.assert_close({"a": [1.0]}, {"a": [2.0]}), r"at \['a'\]\[0\]")):
            with self.assertRaisesRegex(AssertionError, message):
                wrong()


if __name__ == "__main__":
    unittest.main()
