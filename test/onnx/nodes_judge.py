#!/usr/bin/python3
"""ONNX's tests of operators of opsets 22 and later: nodes_judge.py TEST_ONNX

The package makes them with NumPy; those of older opsets are published as files. test_onnx runs them, and compares what fails with
test/onnx/expected_failures_22_to_28.txt.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

JUDGES = os.environ.get("WEFT_TEST_JUDGES")
if JUDGES:
    sys.path.insert(0, JUDGES)
try:
    import numpy as np
    import onnx
    from onnx.backend.test.case.node import collect_testcases
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)

OLDEST, LEAST = 22, 900


def write(values, ports, folder, kind):
    for i, (value, port) in enumerate(zip(values, ports)):
        tensor = value if isinstance(value, onnx.TensorProto) else onnx.numpy_helper.from_array(np.asarray(value), port.name)
        (folder / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def make(folder):
    """The tests as folders, like the published ones. Those whose values are no tensors are left out."""
    warnings.simplefilter("ignore")
    made = 0
    for case in collect_testcases(None):
        if max((o.version for o in case.model.opset_import if o.domain == ""), default=0) < OLDEST:
            continue
        target = folder / case.name
        target.mkdir()
        onnx.save(case.model, target / "model.onnx")
        try:
            for i, (inputs, outputs) in enumerate(case.data_sets):
                data = target / f"test_data_set_{i}"
                data.mkdir()
                write(inputs, case.model.graph.input, data, "input")
                write(outputs, case.model.graph.output, data, "output")
        except (NotImplementedError, TypeError, ValueError):
            for path in sorted(target.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            target.rmdir()
            continue
        made += 1
    return made


with tempfile.TemporaryDirectory() as name:
    made = make(pathlib.Path(name))
    if made < LEAST:
        sys.exit(f"onnx {onnx.__version__} makes {made} tests; {LEAST} are wanted")
    sys.exit(subprocess.run([sys.argv[1], "--gtest_filter=OnnxNodes.TestsOfOpsets22To28", "--gtest_brief=1"],
                            env={**os.environ, "WEFT_TEST_ONNX_MADE": name}).returncode)
