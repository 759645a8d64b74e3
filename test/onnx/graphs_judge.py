#!/usr/bin/python3
"""ONNX Runtime over random graphs of all rows of the op table: graphs_judge.py TEST_GRAPHS [COUNT [FIRST_SEED]]

test_graphs draws each graph, writes it as a model, and writes beside it what f64 gives, step by step, with a bound for each output.
onnx.checker must accept the model, and ONNX Runtime must give those numbers. It lacks kernels for some types; such graphs are counted.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

JUDGES = os.environ.get("WEFT_TEST_JUDGES")
if JUDGES:
    sys.path.insert(0, JUDGES)
try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)

LEAST = 0.8  # of the graphs for which ONNX has operators have to be judged


def difference(path):
    """Why ONNX Runtime differs on a model, or "". Errors: onnxruntime's NotImplemented."""
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # Its optimiser would fold the whole graph, because the numbers are constants, and replace some ops by approximations.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {})
    with np.load(path.with_suffix(".npz")) as file:
        wanted = dict(file)
    if len(found) * 2 != len(wanted):
        return f"{len(found)} outputs, and {len(wanted) // 2} are wanted"
    for i, x in enumerate(found):
        exact, allowed = wanted[f"exact{i}"], wanted[f"allowed{i}"][0]
        x = np.asarray(x).astype(np.float64).reshape(-1)
        if x.shape != exact.shape:
            return f"output {i} has {x.size} elements, and {exact.size} are wanted"
        wrong = ~((np.abs(x - exact) <= allowed) | (x == exact) | (np.isnan(x) & np.isnan(exact)))
        if np.isinf(allowed) or not wrong.any():
            continue
        at = int(np.argmax(wrong))
        return f"output {i}, element {at} of {x.size}: {x[at]:.9g}, expected {exact[at]:.9g} within {allowed:.3g}"
    return ""


def main():
    program = sys.argv[1]
    count, first = int(sys.argv[2]) if len(sys.argv) > 2 else 300, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    lacking, failures, judged = collections.Counter(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([program, "--gtest_filter=Graphs.AreModelsOfOnnx", "--gtest_brief=1"], text=True, stdout=subprocess.PIPE,
                             env={**os.environ, "WEFT_TEST_DEVICE": "cpu", "WEFT_TEST_ONNX_EXPORTS": folder,
                                  "WEFT_TEST_GRAPHS": str(count), "WEFT_TEST_SEED": str(first)})
        print(ran.stdout)
        if ran.returncode != 0:
            sys.exit("test_graphs fails")
        for path in sorted(pathlib.Path(folder).glob("*.onnx"), key=lambda each: int(each.stem)):
            try:
                reason = difference(path)
            except Exception as error:
                reason = str(error)
                found = re.search(r"NOT_IMPLEMENTED.*implementation for (\w+)\(", reason)
                if found:
                    lacking[found[1]] += 1
                    continue
            judged += 1
            if reason:
                failures.append(f"WEFT_TEST_SEED={path.stem}: {reason}\n{path.with_suffix('.txt').read_text()}")
    print(f"{judged} of {count} graphs judged, {len(failures)} differ; ONNX Runtime lacks", dict(lacking) or "nothing")
    if failures:
        sys.exit("\n".join(failures[:10]))
    # Runtimes do not agree on NaN, no operator of ONNX draws Weft's random numbers, and rows of optimisers evaluate their updates.
    without = sum(int(n) for n in re.findall(r"^ *(\d+) not: (?:onnx::save: ONNX has no |onnx::save: random draws |a step reads NaN|eval: a value was asked for)", ran.stdout, re.MULTILINE))
    if judged < LEAST * (count - without):
        sys.exit(f"fewer than {LEAST:.0%} of the graphs that ONNX can express were judged")


main()
