"""The time of calls from Python beside those from C++, in one run: overhead.py [PROGRAM], where PROGRAM is the build of overhead.cpp.
Prints a line for each call: nanoseconds in C++, in Python, and the difference."""
import subprocess
import sys
import time

import weft

x, y = weft.ones(4, 4).eval(), weft.full((4, 4), 2.0).eval()
z = weft.ones(4, 4, dtype="f32").eval()
add, softmax, where, tanh = weft.add, weft.softmax, weft.where, weft.tanh
step = weft._weft._Compiled(lambda arguments: [arguments[0] + 1.0])
one = weft.ones(4).eval()
step([one])
pretty = weft.compile(lambda a: a + 1.0)
pretty(one)
CALLS = {
    "add": lambda: add(x, y),
    "x + y": lambda: x + y,
    "x * 2": lambda: x * 2.0,
    "tanh": lambda: tanh(x),
    "x.tanh()": lambda: x.tanh(),
    "sum axis 1": lambda: x.sum(1),
    "softmax": lambda: softmax(x, -1),
    "reshape": lambda: x.reshape(16),
    "matmul": lambda: x @ y,
    "x[0]": lambda: x[0],
    "compiled call": lambda: step([one]),
    "weft.compile": lambda: pretty(one),
}


def nanoseconds(call, rounds=7, count=4000):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


def main():
    cpp = {}
    if len(sys.argv) > 1:
        for line in subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout.splitlines():
            name, value = line.rsplit(maxsplit=1)
            cpp[name] = float(value)
    empty = nanoseconds(lambda: None)
    print(f"{'':16}{'C++ ns':>10}{'Python ns':>11}{'more ns':>10}{'ratio':>8}")
    for name, call in CALLS.items():
        own = nanoseconds(call) - empty
        other = cpp.get(name)
        print(f"{name:16}" + (f"{other:10.0f}{own:11.0f}{own - other:10.0f}{own / other:8.2f}" if other else f"{'':10}{own:11.0f}"))


main()
