"""ONNX and ONNX Runtime as judges: judge_test.py TEST_ONNX WEFT

- Every model that Weft writes passes onnx.checker, and ONNX Runtime computes what Weft computed.
- A sentence encoder (MiniLM, exported by PyTorch) and a detector of speech (Silero) give ONNX Runtime's outputs.
The judges come from $WEFT_TEST_JUDGES, the models from .cache/data (script/setup --judges).
"""
import json
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
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)

TEST_ONNX, WEFT = sys.argv.pop(1), sys.argv.pop(1)
DATA = pathlib.Path(JUDGES).parent / "data" if JUDGES else pathlib.Path(".cache/data")


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def weft_outputs(model, inputs, folder, device="cpu"):
    np.savez(folder / "in.npz", **inputs)
    subprocess.run([WEFT, "eval", str(model), "--inputs", str(folder / "in.npz"), "--out", str(folder / "out.npz"),
                    "--device", device], check=True, stdout=subprocess.DEVNULL)
    with np.load(folder / "out.npz") as out:
        return dict(out)


class Exports(unittest.TestCase):
    def test_onnx_runtime_gives_the_same(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([TEST_ONNX, "--gtest_filter=OnnxSave.*", "--gtest_brief=1"], check=True,
                           env={**os.environ, "WEFT_TEST_ONNX_EXPORTS": name}, stdout=subprocess.DEVNULL)
            models = sorted(folder.glob("*.onnx"))
            self.assertGreaterEqual(len(models), 8)
            for path in models:
                with self.subTest(path.stem):
                    onnx.checker.check_model(str(path), full_check=True)
                    run = session(path)
                    # A model whose extents may change has several inputs: NAME.0.inputs.npz, NAME.1.inputs.npz, ...
                    cases = sorted(folder.glob(f"{path.stem}.inputs.npz")) + sorted(folder.glob(f"{path.stem}.[0-9].inputs.npz"))
                    self.assertTrue(cases)
                    for case in cases:
                        # NumPy has no bf16, so Weft leaves those outputs out.
                        with np.load(case) as i, np.load(str(case).replace(".inputs.", ".outputs.")) as o:
                            inputs, wanted = dict(i), dict(o)
                        self.compare(run, inputs, wanted)

    def compare(self, run, inputs, wanted):
        names = [output.name for output in run.get_outputs() if output.name in wanted]
        self.assertEqual(len(names), len(wanted))
        found = dict(zip(names, run.run(names, inputs)))
        for output in names:
            x, y = found[output], wanted[output]
            self.assertEqual(x.dtype, y.dtype, output)
            self.assertEqual(x.shape, y.shape, output)
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=1e-3 if x.dtype == np.float16 else 2e-4,
                                       atol=1e-3 if x.dtype == np.float16 else 2e-5, err_msg=output)


def minilm(folder):
    """The encoder of all-MiniLM-L6-v2 in PyTorch with its published weights, exported to ONNX by PyTorch."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
    weights = load_file(str(DATA / "minilm" / "model.safetensors"))
    config = json.loads((DATA / "minilm" / "config.json").read_text())
    heads, layers, eps = config["num_attention_heads"], config["num_hidden_layers"], config["layer_norm_eps"]
    width = config["hidden_size"] // heads

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in weights.items():
                if value.is_floating_point():
                    self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(value.float(), False))

        def w(self, name):
            return getattr(self, name.replace(".", "_"))

        def linear(self, x, name):
            return F.linear(x, self.w(name + ".weight"), self.w(name + ".bias"))

        def norm(self, x, name):
            return F.layer_norm(x, (heads * width,), self.w(name + ".weight"), self.w(name + ".bias"), eps)

        def forward(self, input_ids, attention_mask, token_type_ids):
            n, t = input_ids.shape
            positions = torch.arange(t).unsqueeze(0)
            x = (self.w("embeddings.word_embeddings.weight")[input_ids]
                 + self.w("embeddings.position_embeddings.weight")[positions]
                 + self.w("embeddings.token_type_embeddings.weight")[token_type_ids])
            x = self.norm(x, "embeddings.LayerNorm")
            mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
            for layer in range(layers):
                at = f"encoder.layer.{layer}."
                split = lambda y: y.view(n, t, heads, width).transpose(1, 2)
                q, k, v = (split(self.linear(x, at + "attention.self." + part)) for part in ("query", "key", "value"))
                scores = torch.matmul(q, k.transpose(-1, -2)) / width ** 0.5 + mask
                y = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2).reshape(n, t, heads * width)
                x = self.norm(self.linear(y, at + "attention.output.dense") + x, at + "attention.output.LayerNorm")
                y = self.linear(F.gelu(self.linear(x, at + "intermediate.dense")), at + "output.dense")
                x = self.norm(y + x, at + "output.LayerNorm")
            counted = attention_mask.unsqueeze(-1).float()
            pooled = (x * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
            return x, F.normalize(pooled, dim=-1)

    path = folder / "minilm.onnx"
    ids = torch.tensor([[101, 2023, 2003, 1037, 3231, 102, 0, 0], [101, 7592, 2088, 2129, 2024, 2017, 1029, 102]])
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask", "token_type_ids", "tokens_out")}
    torch.onnx.export(Encoder().eval(), (ids, (ids != 0).long(), torch.zeros_like(ids)), str(path), opset_version=14,
                      input_names=["input_ids", "attention_mask", "token_type_ids"],
                      output_names=["tokens_out", "sentence"], dynamic_axes={**axes, "sentence": {0: "batch"}})
    return path


class RealModels(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def agree(self, path, inputs, tolerance):
        run = session(path)
        wanted = dict(zip([o.name for o in run.get_outputs()], run.run(None, inputs)))
        found = weft_outputs(path, inputs, self.folder)
        self.assertEqual(sorted(found), sorted(wanted))
        for name, value in wanted.items():
            self.assertEqual(found[name].dtype, value.dtype, name)
            np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)

    def test_minilm(self):
        if not (DATA / "minilm" / "model.safetensors").exists():
            self.skipTest("run script/setup --judges")
        path = minilm(self.folder)
        draw = np.random.default_rng(3)
        for batch, tokens in ((1, 5), (3, 40)):
            ids = draw.integers(1000, 20000, (batch, tokens))
            mask = np.ones_like(ids)
            mask[0, tokens // 2:] = 0
            self.agree(path, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}, 1e-4)

    def test_silero(self):
        for name in ("silero_vad.onnx", "silero_vad_op18_ifless.onnx", "silero_vad_16k_op15.onnx"):
            path = DATA / "silero" / name
            if not path.exists():
                self.skipTest("run script/setup --judges")
            with self.subTest(name):
                draw = np.random.default_rng(5)
                for rate, samples in ((16000, 576), (8000, 288)):
                    if "16k" in name and rate != 16000:
                        continue
                    t = np.arange(samples) / rate
                    sound = (0.4 * np.sin(2 * np.pi * 220 * t) + 0.05 * draw.standard_normal(samples)).astype(np.float32)
                    given = {"input": sound[None], "state": draw.standard_normal((2, 1, 128)).astype(np.float32),
                             "sr": np.array(rate, np.int64)}
                    known = {i.name for i in session(path).get_inputs()}
                    self.agree(path, {k: v for k, v in given.items() if k in known}, 1e-4)


if __name__ == "__main__":
    unittest.main()
