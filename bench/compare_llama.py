#!/usr/bin/env python3
"""Runs a language model with Weft and with llama.cpp, in turns, on the same processors, file and instruction sets, and
prints the ratios (above 1: Weft is ahead, for memory: takes less).

usage: compare_llama.py FOLDER MODEL.gguf [--rounds N]

FOLDER holds bench_llm. llama-bench is found through WEFT_LLAMA_BENCH (built for this processor) and WEFT_LLAMA_BENCH_AVX2
(GGML_NATIVE=OFF with AVX2, FMA, F16C and BMI2), or where script/setup --llama puts them. What is missing is left out.
Both use as many threads as Weft would: the physical cores of this process. Both caches are of f16.
Weft keeps weights as it packed them in a file, here in a folder of its own. A start of a model that it never saw is
measured too, from the begin of the program to the first token; then it waits for the file.
Peak memory is the resident set's; the bar is 1.2 times the file, and the cache of the prompt.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, NEW = 512, 64


def run(command, isa, **variables):
    """Output, seconds from start to end, and the largest resident set in bytes."""
    environment = dict(os.environ, **({"WEFT_CPU_ISA": isa} if isa else {}), **variables)
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    output, problem = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status:
        sys.exit(f"{' '.join(command)}: {problem.decode().strip()[-500:]}")
    return output.decode(), seconds, usage.ru_maxrss * 1024


def cores():
    """Physical cores this process may use, counted as Weft does."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                found.add(file.read())
        except OSError:
            found.add(str(cpu))
    return int(os.environ.get("WEFT_THREADS") or len(found))


class Weft:
    def __init__(self, folder, model, isa):
        self.isa, self.program = isa, [f"{folder}/bench_llm", model, "cpu"]
        self.cache = tempfile.TemporaryDirectory()
        self.first_starts = []

    def run(self, prompt, new, cache=None):
        return run([*self.program, str(prompt), str(new), "f16"], self.isa, WEFT_CACHE_DIR=cache or self.cache.name)

    def first_start(self):
        with tempfile.TemporaryDirectory() as empty:
            self.first_starts.append(float(re.search(r"first token after ([\d.]+) s", self.run(1, 0, empty)[0])[1]))

    def speeds(self):
        """Each measure's best and median of one process."""
        speeds = {}
        for depth in (1, PROMPT):
            text = self.run(depth, NEW)[0]
            decode = re.search(r"decode .*?([\d.]+) tokens/s \(median ([\d.]+)\)", text)
            speeds[f"decode at {depth if depth > 1 else 0}"] = [float(x) for x in decode.groups()]
        prefill = re.search(r"prefill .*?([\d.]+) tokens/s \(median ([\d.]+);", text)
        return {f"prefill {PROMPT}": [float(x) for x in prefill.groups()], **speeds}

    def start(self):
        _, seconds, memory = self.run(1, 0)
        text, _, after_prompt = self.run(PROMPT, 0)
        self.cache_bytes = int(re.search(r"cache of (\d+) bytes", text)[1])
        return seconds, memory, after_prompt


class Llama:
    def __init__(self, program, model, threads):
        self.program = [program, "-m", model, "-t", str(threads), "-o", "json"]

    def run(self, *arguments):
        return run([*self.program, *arguments], None)

    def speeds(self):
        def samples(*arguments):
            values = [t["samples_ts"] for t in json.loads(self.run(*arguments)[0])]
            return [[max(each), statistics.median(each)] for each in values]
        prefill, shallow = samples("-p", str(PROMPT), "-n", str(NEW), "-r", "3")
        (deep,) = samples("-p", "0", "-n", str(NEW), "-d", str(PROMPT), "-r", "3")
        return {f"prefill {PROMPT}": prefill, "decode at 0": shallow, f"decode at {PROMPT}": deep}

    def start(self):
        once = ("-n", "0", "-r", "1", "--no-warmup")
        _, seconds, memory = self.run("-p", "1", *once)
        return seconds, memory, self.run("-p", str(PROMPT), *once)[2]


def read_whole(path):
    """Both begin with the file in memory: a system may have dropped it while the other side ran."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def compare(name, isa, program, options):
    weft, llama = Weft(options.folder, options.model, isa), Llama(program, options.model, cores())
    sides, speeds, starts = (weft, llama), ([], []), ([], [])
    weft.run(1, 0)  # packs the weights
    for round_number in range(options.rounds):
        for i in range(2):
            read_whole(options.model)
            starts[i].append(sides[i].start())
        read_whole(options.model)
        weft.first_start()
        for i in range(2):
            speeds[i].append(sides[i].speeds())
    def keep(work, unit, mine, peer):
        figures.keep(group=f"{os.path.basename(options.model)}, {name}", work=work, unit=unit, weft=mine, peer="llama.cpp",
                       of_peer=peer)

    print(f"{os.path.basename(options.model)}, {name}, {cores()} threads, {options.rounds} rounds:")
    for measure in speeds[0][0]:
        best = [max(r[measure][0] for r in side) for side in speeds]
        middle = [statistics.median(r[measure][1] for r in side) for side in speeds]
        print(f"  {measure:14} tokens/s  best {best[0]:8.1f} : {best[1]:8.1f}  ratio {best[0] / best[1]:.2f}"
              f"   median {middle[0]:8.1f} : {middle[1]:8.1f}  ratio {middle[0] / middle[1]:.2f}")
        keep(measure, "tokens/s", best[0], best[1])
    best = [min(s[0] for s in side) for side in starts]
    middle = [statistics.median(s[0] for s in side) for side in starts]
    print(f"  {'first token':14} ms        best {best[0] * 1e3:8.1f} : {best[1] * 1e3:8.1f}  ratio {best[1] / best[0]:.2f}"
          f"   median {middle[0] * 1e3:8.1f} : {middle[1] * 1e3:8.1f}  ratio {middle[1] / middle[0]:.2f}")
    keep("start to first token", "ms", best[0] * 1e3, best[1] * 1e3)
    first = [min(weft.first_starts), statistics.median(weft.first_starts)]
    print(f"  the first ever ms        best {first[0] * 1e3:8.1f} : {best[1] * 1e3:8.1f}  ratio {best[1] / first[0]:.2f}"
          f"   median {first[1] * 1e3:8.1f} : {middle[1] * 1e3:8.1f}  ratio {middle[1] / first[1]:.2f}")
    keep("the first start, which packs the weights", "ms", first[0] * 1e3, best[1] * 1e3)
    for which, tokens in ((1, 1), (2, PROMPT)):
        memory = [statistics.median(s[which] for s in side) / 1e6 for side in starts]
        bar = (1.2 * os.path.getsize(options.model) + tokens * weft.cache_bytes) / 1e6
        print(f"  memory after {tokens:4} tokens MB {memory[0]:8.1f} : {memory[1]:8.1f}  ratio {memory[1] / memory[0]:.2f}"
              f"   1.2 x file + cache {bar:.1f}  ratio {bar / memory[0]:.2f}")
        keep(f"peak memory after {tokens} tokens", "MB", *memory)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
parser.add_argument("model")
parser.add_argument("--rounds", type=int, default=3)
arguments = parser.parse_args()
cache = os.environ.get("WEFT_CACHE") or f"{HERE}/../.cache"
found = False
for name, isa, variable, folder in (("this processor", None, "WEFT_LLAMA_BENCH", "native"),
                                    ("AVX2", "avx2", "WEFT_LLAMA_BENCH_AVX2", "avx2")):
    program = os.environ.get(variable) or f"{cache}/llama/{folder}/bin/llama-bench"
    if os.access(program, os.X_OK):
        found = True
        compare(name, isa, program, arguments)
    else:
        print(f"compare_llama.py: no llama-bench for {name} (script/setup --llama, or set {variable})")
sys.exit(0 if found else 1)
