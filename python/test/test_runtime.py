"""Threads, Ctrl-C, the time of the import, notebooks, the command line of a fresh process."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import weft


def long_work(side=1200, times=40):
    x = weft.rand(side, side)
    for _ in range(times):
        x = weft.tanh(weft.matmul(x, x) / side)
    return x.sum()


class Threads(unittest.TestCase):
    def test_other_threads_run_while_values_are_computed(self):
        counted, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1
                time.sleep(0.001)

        work = long_work()
        other = threading.Thread(target=count)
        other.start()
        before, start = counted[0], time.monotonic()
        work.eval()
        seconds = time.monotonic() - start
        during = counted[0] - before
        stop.set()
        other.join()
        # With the GIL held the other thread would count nothing.
        self.assertGreater(during, max(3, 20 * min(seconds, 1)))

    def test_several_threads_at_once(self):
        results, failures = {}, []

        def work(i):
            try:
                x = weft.full((200, 200), float(i))
                for _ in range(20):
                    x = weft.sqrt(x * x + 0.0)
                results[i] = x.sum().item()
                v = weft.Variable(weft.zeros((10,)), f"v{i}")
                for _ in range(20):
                    v.assign(v + float(i))
                assert v.numpy()[0] == 20 * i
            except Exception as error:  # reported by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for i in range(6):
            self.assertAlmostEqual(results[i], i * 40000, delta=1)

    def test_a_compiled_function_from_several_threads(self):
        v = weft.Variable(weft.zeros((4,)))

        @weft.compile
        def step(x):
            v.assign(v + x)
            return v.sum()

        one = weft.ones((4,))
        step(one)
        threads = [threading.Thread(target=lambda: [step(one).item() for _ in range(50)]) for _ in range(4)]
        readers = [threading.Thread(target=lambda: [v.numpy() for _ in range(50)]) for _ in range(2)]
        for thread in threads + readers:
            thread.start()
        for thread in threads + readers:
            thread.join()
        self.assertEqual(v.tolist(), [201.0] * 4)


class Interrupts(unittest.TestCase):
    def test_ctrl_c_ends_a_long_evaluation(self):
        work = long_work(times=400)
        timer = threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            work.eval()
        self.assertLess(time.monotonic() - start, 8)
        timer.join()
        self.assertEqual((weft.ones(2) + 1).tolist(), [2, 2])  # the engine goes on

    def test_a_handler_that_raises(self):
        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with self.assertRaises(Alarm):
                long_work(times=400).eval()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_ctrl_c_ends_a_loop(self):
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            x = weft.ones(10)
            for _ in range(10**7):
                x = (x + 1).eval()
        timer.join()


class Process(unittest.TestCase):
    def test_import_is_quick(self):
        # CPU time, so that other work on the machine does not count.
        code = ("import time; s = time.process_time(); import weft; d = time.process_time() - s; import sys; "
                "assert 'numpy' not in sys.modules; print(d)")
        seconds = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
                   for _ in range(5)]
        self.assertLess(min(seconds), 0.3)

    def test_nothing_is_printed_and_the_end_is_clean(self):
        code = "import weft; x = weft.ones(10); v = weft.Variable(x); f = weft.compile(lambda y: y + v); f(x).eval(); y = x.numpy()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_memory_is_given_back(self):
        code = """
import weft, resource, numpy as np
def once():
    x = weft.rand(1000, 100)
    y = (x @ x.T).sum()
    weft.grad(y, x).numpy()
    a = np.ones(100000, "f4")
    weft.from_numpy(a).sum().item()
    weft.from_dlpack((weft.ones(1000) * 2).__dlpack__()).numpy()
for _ in range(20): once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(150): once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        self.assertLess(grown, 20000)  # KB


if __name__ == "__main__":
    unittest.main()
