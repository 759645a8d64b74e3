#!/usr/bin/python3
"""NumPy, by ONNX's reference evaluator, as judge of DFT, STFT and MelWeightMatrix: spectral_judge.py WEFT

Each case is a model of one node, whose first input is the signal. `weft eval` must give the same.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

JUDGES = os.environ.get("WEFT_TEST_JUDGES")
if JUDGES:
    sys.path.insert(0, JUDGES)
try:
    import numpy as np
    import onnx
    import onnx.reference
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)

WEFT = sys.argv.pop(1)
draw = np.random.default_rng(1)


def real(*shape):
    return draw.standard_normal(shape).astype(np.float32)


def whole(value):
    return np.array(value, np.int64)


def model_of(type, inputs, opset, attributes):
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    signal = helper.make_tensor_value_info("x0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)
    stored = [numpy_helper.from_array(np.asarray(x), n) for n, x in zip(names[1:], inputs[1:]) if n]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT if inputs[0].dtype.kind == "i" else signal.type.tensor_type.elem_type, None)
    graph = helper.make_graph([helper.make_node(type, names, ["y"], **attributes)], "graph", [signal], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


class Spectra(unittest.TestCase):
    def run_weft(self, model, signal):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            onnx.save(model, folder / "model.onnx")
            np.savez(folder / "in.npz", x0=signal)
            ran = subprocess.run([WEFT, "eval", folder / "model.onnx", "--inputs", folder / "in.npz", "--out", folder / "out.npz", "--device", "cpu"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if ran.returncode:
                return ran.stdout
            with np.load(folder / "out.npz") as out:
                return out["y"]

    def judge(self, type, inputs, opset=20, **attributes):
        model = model_of(type, inputs, opset, attributes)
        wanted = onnx.reference.ReferenceEvaluator(model).run(None, {"x0": inputs[0]})[0]
        found = self.run_weft(model, inputs[0])
        self.assertNotIsInstance(found, str, found)
        self.assertEqual((found.dtype, found.shape), (wanted.dtype, wanted.shape))
        bound = 1e-12 if wanted.dtype == np.float64 else 2e-6
        self.assertLessEqual(np.abs(found - wanted).max(), bound * max(np.abs(wanted).max(), 1))

    def refuse(self, error, type, inputs, opset=20, **attributes):
        self.assertIn(error, self.run_weft(model_of(type, inputs, opset, attributes), inputs[0]))

    def test_lengths(self):
        # One matrix, factors, primes, and primes by chirps.
        for n in (1, 2, 5, 97, 512, 513, 600, 1021, 1031, 4096, 10007):
            with self.subTest(n=n):
                self.judge("DFT", [real(2, n, 1)], opset=17)
                self.judge("DFT", [real(2, n, 2)])
        self.judge("DFT", [real(2, 48, 2).astype(np.float64)])
        self.judge("DFT", [real(1, 1536, 2).astype(np.float64)])

    def test_forms(self):
        self.judge("DFT", [real(2, 48, 1)], opset=17, onesided=1)
        self.judge("DFT", [real(2, 47, 3, 1)], opset=17, onesided=1)
        self.judge("DFT", [real(2, 48, 2)], opset=17, inverse=1)
        self.judge("DFT", [real(2, 48, 2), whole(60)], inverse=1)
        self.judge("DFT", [real(2, 48, 2), whole(30)])
        self.judge("DFT", [real(5, 7, 9, 2), None, whole(0)])
        self.judge("DFT", [real(5, 7, 9, 2), None, whole(-3)])

    def test_real_results(self):
        for n in (2, 3, 25, 26):
            self.judge("DFT", [real(2, n, 2)], inverse=1, onesided=1)
            self.judge("DFT", [real(2, n, 2), whole(2 * n - 1)], inverse=1, onesided=1)

    def test_short_times(self):
        self.judge("STFT", [real(2, 128, 1), whole(8), real(16)], opset=17, onesided=1)
        self.judge("STFT", [real(2, 128, 1), whole(8), None, whole(16)], opset=17, onesided=0)
        self.judge("STFT", [real(2, 130, 2), whole(5), real(20), whole(20)], opset=17, onesided=0)
        self.judge("STFT", [real(1, 1700, 1), whole(160), real(400)], opset=17, onesided=1)

    def test_real_signals_without_their_last_axis(self):
        # As ONNX Runtime takes them.
        signal = real(2, 128)
        inputs = [signal, whole(8), real(16)]
        found = self.run_weft(model_of("STFT", inputs, 17, {"onesided": 1}), signal)
        wanted = onnx.reference.ReferenceEvaluator(model_of("STFT", [signal[:, :, None], *inputs[1:]], 17, {"onesided": 1})).run(None, {"x0": signal[:, :, None]})[0]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)

    def test_mel_weights(self):
        for triangles, length, rate, low, high in ((8, 16, 8192, 0, 4096), (80, 400, 16000, 20, 7600), (3, 64, 8000, 100, 100)):
            self.judge("MelWeightMatrix", [whole(triangles), whole(length), whole(rate), np.float32(low), np.float32(high)], opset=17)

    def test_bad_input(self):
        self.refuse("points; 1 to", "DFT", [real(2, 8, 1), whole(0)])
        self.refuse("points; 1 to", "DFT", [real(2, 8, 1), whole(1 << 40)])
        self.refuse("the real part, or also the imaginary one", "DFT", [real(2, 8, 3)])
        self.refuse("the real part, or also the imaginary one", "DFT", [real(2, 8, 2), None, whole(2)])
        self.refuse("a step of 0", "STFT", [real(1, 64, 1), whole(0), real(16)], opset=17)
        self.refuse("fewer than a window of 65", "STFT", [real(1, 64, 1), whole(4), real(65)], opset=17)
        self.refuse("does not have 32 samples", "STFT", [real(1, 64, 1), whole(4), real(16), whole(32)], opset=17)
        self.refuse("no onesided spectrum", "STFT", [real(1, 64, 2), whole(4), real(16)], opset=17, onesided=1)
        self.refuse("they must rise", "MelWeightMatrix", [whole(8), whole(16), whole(8000), np.float32(300), np.float32(200)], opset=17)
        self.refuse("triangles over", "MelWeightMatrix", [whole(1 << 40), whole(16), whole(8000), np.float32(0), np.float32(200)], opset=17)


if __name__ == "__main__":
    unittest.main()
