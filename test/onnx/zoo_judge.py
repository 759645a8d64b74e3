#!/usr/bin/python3
"""ONNX Runtime as judge of models that people export: zoo_judge.py WEFT [--all] [NAME...]

PyTorch exports the models of zoo.py; ONNX Runtime's quantisers and optimiser rewrite some of them. `weft eval` must give what ONNX Runtime
gives. With --all also small forms of models of torchvision, timm and transformers (packages.py), by both of PyTorch's exporters, as far
as these packages are there: WEFT_TEST_ZOO_PYTHON is a Python that has them.
"""
import contextlib
import inspect
import io
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

JUDGES = os.environ.get("WEFT_TEST_JUDGES")
if JUDGES and "--all" not in sys.argv:
    sys.path.insert(0, JUDGES)
try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    from onnxruntime import quantization
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)
import zoo

WEFT = sys.argv.pop(1)
ALL = "--all" in sys.argv
sys.argv = [each for each in sys.argv if each != "--all"]
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(2)


def shaken(module):
    """Statistics of batch norms that are not 0 and 1, so that leaving them out is seen."""
    draw = torch.Generator().manual_seed(0)
    for each in module.modules():
        if isinstance(each, nn_norms) and each.running_mean is not None:
            each.running_mean.copy_(torch.randn(each.running_mean.shape, generator=draw) * 0.1)
            each.running_var.copy_(torch.rand(each.running_var.shape, generator=draw) * 0.4 + 0.8)
    return module.eval()


nn_norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


def export(make, path, opset=None, dynamo=False):
    """Writes a model, and gives inputs for it."""
    torch.manual_seed(7)
    module, arguments, axes = make()
    module = shaken(module)
    flat = [each for part in arguments for each in (part if isinstance(part, (list, tuple)) else (part,))]
    names = list(inspect.signature(module.forward).parameters)[:len(flat)]
    options = {"opset_version": opset or 17}
    if dynamo:
        options = {"dynamo": True, "external_data": False, "opset_version": opset}
        if axes:
            options["dynamic_shapes"] = tuple({k: torch.export.Dim.DYNAMIC for k in axes.get(n, {})} for n in names)
    else:
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = False
        if axes and len(names) == len(flat):
            names = ["x"] if "input" in names else names
            options.update(input_names=names, dynamic_axes=axes)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        torch.onnx.export(module, arguments, str(path), **options)
    ports = [each.name for each in onnx.load(str(path), load_external_data=False).graph.input]
    return dict(zip(ports, (each.numpy() for each in flat)))


def session(path, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC, written=None):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, options.graph_optimization_level = 2, 4, level
    if written:
        options.optimized_model_filepath = str(written)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Numbers(quantization.CalibrationDataReader):
    def __init__(self, inputs):
        self.rest = iter([inputs] * 2)

    def get_next(self):
        return next(self.rest, None)


class Zoo(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def agree(self, path, inputs, tolerance=1e-4, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC):
        """Differences are measured by the largest number of each output."""
        run = session(path, level)
        wanted = dict(zip([each.name for each in run.get_outputs()], run.run(None, inputs)))
        np.savez(self.folder / "in.npz", **inputs)
        ran = subprocess.run([WEFT, "eval", path, "--inputs", self.folder / "in.npz", "--out", self.folder / "out.npz", "--device", "cpu"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        with np.load(self.folder / "out.npz") as out:
            found = dict(out)
        self.assertEqual(sorted(found), sorted(wanted))
        for name, y in wanted.items():
            x = found[name]
            self.assertEqual((x.dtype, x.shape), (y.dtype, y.shape), name)
            if x.dtype.kind != "f":
                np.testing.assert_array_equal(x, y, name)
                continue
            x, y = x.astype(np.float64), y.astype(np.float64)
            largest = np.abs(y[np.isfinite(y)]).max(initial=0)
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest + 1e-12, err_msg=name)

    def exported(self, name, **options):
        path = self.folder / f"{name}.onnx"
        return path, export(zoo.MODELS[name], path, **options)


def test_of(make, name, **options):
    def test(self):
        path = self.folder / "model.onnx"
        self.agree(path, export(make, path, **options))
    return test


for name, make in zoo.MODELS.items():
    setattr(Zoo, f"test_{name}", test_of(make, name))


class Rewritten(Zoo):
    """Models that a tool has changed. Rounding to integers widens small differences: by a step of the integers at some places."""

    def test_older_opsets(self):
        for name in ("resnet", "bert", "tagger", "unet"):
            for opset in (13, 15):
                with self.subTest(name, opset=opset):
                    self.agree(*self.exported(name, opset=opset))

    def test_other_sizes(self):
        path, inputs = self.exported("bert")
        self.agree(path, {k: np.concatenate([v, v[:1]])[:, :5] for k, v in inputs.items()})
        path, inputs = self.exported("gpt")
        self.agree(path, {k: v[:, :2] if k == "ids" else v[:, :, :0] for k, v in inputs.items()})
        path, inputs = self.exported("unet")
        self.agree(path, {"x": inputs["x"][:1, :, :, :20]})

    def test_halves(self):
        from onnxruntime.transformers.float16 import convert_float_to_float16
        for name in ("resnet", "bert", "unet"):
            with self.subTest(name):
                path, inputs = self.exported(name)
                onnx.save(convert_float_to_float16(onnx.load(str(path)), keep_io_types=True), str(path))
                self.agree(path, inputs, 1e-2)

    def test_optimised(self):
        for name in ("resnet", "mobilenet", "bert", "gpt", "diffusion"):
            with self.subTest(name):
                path, inputs = self.exported(name)
                session(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, self.folder / "fused.onnx")
                domains = {node.domain for node in onnx.load(str(self.folder / "fused.onnx")).graph.node}
                self.assertIn("com.microsoft", domains, "the optimiser fused nothing")
                self.agree(self.folder / "fused.onnx", inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)

    def test_quantised_for_inputs(self):
        int8 = {"activation_type": quantization.QuantType.QInt8, "weight_type": quantization.QuantType.QInt8}
        forms = {"qdq": {}, "qdq by channel": {"per_channel": True, **int8}, "operators": {"quant_format": quantization.QuantFormat.QOperator},
                 "16 bits": {"activation_type": quantization.QuantType.QUInt16, "weight_type": quantization.QuantType.QInt8}}
        for name in ("resnet", "mobilenet", "vision_transformer"):
            path, inputs = self.exported(name)
            for form, options in forms.items():
                if form == "operators" and name == "vision_transformer":
                    continue  # ONNX Runtime refuses what its quantiser writes for norms
                with self.subTest(name, form=form):
                    quantization.quantize_static(str(path), str(self.folder / "small.onnx"), Numbers(inputs), **{"quant_format": quantization.QuantFormat.QDQ, **options})
                    self.agree(self.folder / "small.onnx", inputs, 0.05, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)

    def test_quantised_while_running(self):
        for name in ("bert", "gpt", "tagger", "mobilenet"):
            for options in ({}, {"weight_type": quantization.QuantType.QUInt8, "per_channel": True}):
                with self.subTest(name, **options):
                    path, inputs = self.exported(name)
                    quantization.quantize_dynamic(str(path), str(self.folder / "small.onnx"), **options)
                    self.agree(self.folder / "small.onnx", inputs, 0.02, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)


for name in zoo.MODELS:  # once is enough
    setattr(Rewritten, f"test_{name}", None)


def test_of_package(make):
    """By both exporters. A model that an exporter, or ONNX Runtime, refuses is none to judge."""
    def test(self):
        refusals = []
        for options in ({"opset": 18}, {"opset": 18, "dynamo": True}, {"opset": 23, "dynamo": True}):
            path = self.folder / "model.onnx"
            try:
                inputs = export(make, path, **options)
                session(path).run(None, inputs)
            except Exception as error:  # of many kinds
                refusals.append(str(error).strip()[:200])
                continue
            with self.subTest(**options):
                self.agree(path, inputs)
        if len(refusals) == 3:
            self.skipTest(refusals[0])
    return test


if ALL:
    import packages
    print("without", packages.LEFT_OUT)

    class Packages(Zoo):
        pass

    for name in zoo.MODELS:
        setattr(Packages, f"test_{name}", None)
    for name, make in packages.MODELS.items():
        setattr(Packages, f"test_{name}", test_of_package(make))

if __name__ == "__main__":
    unittest.main(warnings="ignore")
