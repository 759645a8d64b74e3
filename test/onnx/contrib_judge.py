#!/usr/bin/python3
"""ONNX Runtime as judge of the operators of the domains com.microsoft, its own, and ai.onnx.ml: contrib_judge.py WEFT

Each case is a model of one node. ONNX Runtime runs it without its optimiser, and `weft eval` must give the same.
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
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}; run script/setup --judges")
    sys.exit(77)

WEFT = sys.argv.pop(1)
draw = np.random.default_rng(1)


def real(*shape, scale=1.0):
    return (draw.standard_normal(shape) * scale).astype(np.float32)


def whole(low, high, *shape, dtype=np.int32):
    return draw.integers(low, high, shape).astype(dtype)


def u8(*shape):
    return whole(0, 256, *shape, dtype=np.uint8)


def i8(*shape):
    return whole(-128, 128, *shape, dtype=np.int8)


def one(value, dtype):
    return np.array(value, dtype)


def f32(value):
    return one(value, np.float32)


class Contrib(unittest.TestCase):
    def judge(self, type, inputs, outputs=1, tolerance=1e-4, weights=(), domain="com.microsoft", **attributes):
        """A model of one node. An input None is left out; `weights` are the places of inputs that the file stores."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
        wanted = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                 for i, (n, x) in enumerate(zip(names, inputs)) if n and i not in weights]
        stored = [inputs[i] if isinstance(inputs[i], TensorProto) else numpy_helper.from_array(inputs[i]) for i in weights]
        for i, tensor in zip(weights, stored):
            tensor.name = names[i]
        node = helper.make_node(type, names, wanted, domain=domain, **attributes)
        graph = helper.make_graph([node], "graph", ports, [helper.make_value_info(n, onnx.TypeProto()) for n in wanted if n], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        given = {n: x for i, (n, x) in enumerate(zip(names, inputs)) if n and i not in weights}
        expected = session.run(None, given)
        # ONNX Runtime says what types the results have, which the file must declare.
        del graph.output[:]
        for port, value in zip(session.get_outputs(), expected):
            graph.output.append(helper.make_tensor_value_info(port.name, helper.np_dtype_to_tensor_dtype(value.dtype), None))
        model.graph.CopyFrom(graph)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            onnx.save(model, folder / "model.onnx")
            np.savez(folder / "in.npz", **given)
            ran = subprocess.run([WEFT, "eval", folder / "model.onnx", "--inputs", folder / "in.npz", "--out", folder / "out.npz", "--device", "cpu"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(ran.returncode, 0, ran.stdout)
            with np.load(folder / "out.npz") as out:
                found = dict(out)
        for port, value in zip(session.get_outputs(), expected):
            x = found[port.name]
            self.assertEqual((x.dtype, x.shape), (value.dtype, value.shape), port.name)
            if x.dtype.kind == "f":
                np.testing.assert_allclose(x.astype(float), value.astype(float), rtol=tolerance, atol=tolerance, err_msg=port.name)
            else:  # integers next to each other where the reals lie between them
                away = np.abs(x.astype(int) - value.astype(int))
                self.assertLessEqual(away.max(initial=0), 1, port.name)
                self.assertLessEqual((away > 0).sum(), 1 + 0.02 * x.size, port.name)

    def test_recurrent_layers(self):
        # The usual cells are one op each, others go step by step.
        for kind, gates, usual, other in (("LSTM", 4, {}, {"input_forget": 1}), ("GRU", 3, {"linear_before_reset": 1}, {}),
                                          ("RNN", 1, {"activations": ["Relu"]}, {"activations": ["Softsign"]})):
            for extra in (usual, other):
                for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
                    with self.subTest(kind=kind, direction=direction, extra=extra):
                        words = dict(extra, direction=direction, hidden_size=5)
                        if "activations" in words:
                            words["activations"] = words["activations"] * count
                        inputs = [real(7, 3, 6), real(count, gates * 5, 6, scale=0.4), real(count, gates * 5, 5, scale=0.4), real(count, 2 * gates * 5)]
                        outputs = ["y", "h", "c"][:3 if kind == "LSTM" else 2]
                        self.judge(kind, inputs[:3], outputs, domain="", **words)
                        states = [real(count, 3, 5)] * (2 if kind == "LSTM" else 1)
                        self.judge(kind, [*inputs, np.array([7, 2, 5], np.int32), *states], outputs, domain="", **words)
        peepholes = [real(7, 2, 6), real(1, 20, 6), real(1, 20, 5), None, None, None, None, real(1, 15)]
        self.judge("LSTM", peepholes, ["y", "h", "c"], domain="", hidden_size=5)
        self.judge("LSTM", peepholes[:3], ["y", "h", "c"], domain="", hidden_size=5, clip=0.5)
        self.judge("LSTM", [real(3000, 1, 2), real(1, 8, 2), real(1, 8, 2)], ["y", "h", "c"], domain="", hidden_size=2)

    def test_activations(self):
        self.judge("Gelu", [real(3, 8)])
        self.judge("BiasGelu", [real(3, 8), real(8)])
        self.judge("FastGelu", [real(3, 8)])
        self.judge("FastGelu", [real(3, 8), real(8)])
        self.judge("QuickGelu", [real(3, 8)])
        self.judge("QuickGelu", [real(3, 8)], alpha=1.0)

    def test_products(self):
        self.judge("FusedMatMul", [real(2, 3, 4), real(2, 4, 5)], alpha=0.5)
        self.judge("FusedMatMul", [real(2, 4, 3), real(2, 5, 4)], transA=1, transB=1)
        self.judge("FusedMatMul", [real(3, 2, 4), real(2, 4, 5)], transBatchA=1)
        self.judge("FusedMatMul", [real(2, 3, 4), real(5, 2, 4)], transBatchB=1, transB=1)
        self.judge("TransposeMatMul", [real(2, 4, 3), real(2, 4, 5)], transA=1)
        self.judge("FusedGemm", [real(3, 4), real(5, 4), real(5)], transB=1, alpha=0.5, beta=2.0, activation="Relu")
        self.judge("FusedGemm", [real(3, 4), real(4, 5)], activation="LeakyRelu", activation_alpha=0.3)
        for name, numbers in (("Relu", []), ("Clip", [-0.5, 0.5]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", []), ("Sigmoid", [])):
            self.judge("FusedConv", [real(1, 3, 6, 6), real(4, 3, 3, 3), real(4)], pads=[1, 1, 1, 1], activation=name,
                       **({"activation_params": numbers} if numbers else {}))
        self.judge("FusedConv", [real(1, 3, 6, 6), real(4, 3, 3, 3), real(4), real(1, 4, 4, 4)], activation="Relu")

    def test_products_of_blocks(self):
        for bits, block, columns in ((4, 16, 64), (4, 32, 80), (8, 32, 64), (2, 32, 64)):
            blocks, rows = -(-columns // block), 6
            weight, scales = u8(rows, blocks, block * bits // 8), real(rows, blocks, scale=0.1)
            options = {"K": columns, "N": rows, "bits": bits, "block_size": block}
            with self.subTest(bits=bits, block=block):
                self.judge("MatMulNBits", [real(2, 3, columns), weight, scales], weights=(1, 2), **options)
                self.judge("MatMulNBits", [real(3, columns), weight, scales, u8(rows, -(-blocks * bits // 8))], weights=(1, 2, 3), **options)
        self.judge("MatMulNBits", [real(3, 64), u8(6, 2, 16), real(6, 2), whole(0, 16, 6, 2, dtype=np.float32), None, real(6)], weights=(1, 2, 3, 5),
                   K=64, N=6, bits=4, block_size=32)
        self.judge("GatherBlockQuantized", [u8(10, 32), whole(0, 10, 2, 3, dtype=np.int64), real(10, 2, scale=0.1)], weights=(0, 2),
                   bits=4, block_size=32, gather_axis=0, quantize_axis=1)
        self.judge("GatherBlockQuantized", [u8(10, 32), whole(0, 10, 4, dtype=np.int64), real(10, 2, scale=0.1), u8(10, 1)], weights=(0, 2, 3),
                   bits=4, block_size=32, gather_axis=0, quantize_axis=1)

        for type in (TensorProto.UINT4, TensorProto.INT4):  # stored as what they are, one number a place
            low = -8 if type == TensorProto.INT4 else 0
            table, zero = (helper.make_tensor("", type, shape, draw.integers(low, low + 16, shape).ravel()) for shape in ((10, 20), (10, 2)))
            self.judge("GatherBlockQuantized", [table, whole(0, 10, 4, dtype=np.int64), real(10, 2, scale=0.1), zero], weights=(0, 2, 3),
                       block_size=16, gather_axis=0, quantize_axis=1)

    def test_norms(self):
        x, skip, weight, shift, bias = real(2, 3, 8), real(2, 3, 8), real(8), real(8), real(8)
        for rest in ([weight], [weight, shift], [weight, shift, bias]):
            self.judge("SkipLayerNormalization", [x, skip, *rest], outputs=["y", "", "", "sum"], epsilon=1e-5)
        self.judge("SkipLayerNormalization", [x, real(1, 3, 8), weight, shift])
        self.judge("SkipSimplifiedLayerNormalization", [x, skip, weight], outputs=["y", "", "", "sum"])
        self.judge("SkipSimplifiedLayerNormalization", [x, skip, weight, bias])
        self.judge("SimplifiedLayerNormalization", [x, weight], domain="", epsilon=1e-6)
        ids, kinds = whole(0, 20, 2, 5), whole(0, 2, 2, 5)
        tables = [real(20, 8), real(9, 8), real(2, 8), real(8), real(8)]
        self.judge("EmbedLayerNormalization", [ids, kinds, *tables], outputs=["y", "n"])
        mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
        self.judge("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, *tables[3:], mask], outputs=["y", "n", "sum"])
        self.judge("EmbedLayerNormalization", [ids, kinds, *tables, None, whole(0, 9, 2, 5)], outputs=["y", "n"])

    def test_attention(self):
        x, weight, bias = real(2, 5, 16), real(16, 48, scale=0.3), real(48)
        self.judge("Attention", [x, weight, bias], num_heads=4)
        self.judge("Attention", [x, weight, bias], num_heads=4, unidirectional=1, scale=0.3)
        self.judge("Attention", [x, weight, bias, np.array([5, 3], np.int32)], num_heads=4)
        self.judge("Attention", [x, weight, bias, np.array([5, 4, 0, 1], np.int32)], num_heads=4)
        self.judge("Attention", [x, weight, bias, np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)], num_heads=4)
        self.judge("Attention", [x, weight, bias, np.tril(np.ones((2, 5, 5), np.int32))], num_heads=4)
        self.judge("Attention", [x, weight, bias, None, None, real(2, 4, 5, 5)], num_heads=4)
        self.judge("Attention", [x, weight, bias, None, real(2, 2, 4, 3, 4)], outputs=2, num_heads=4, unidirectional=1)
        self.judge("Attention", [x, real(16, 40, scale=0.3), real(40)], num_heads=4, qkv_hidden_sizes=[16, 16, 8])
        self.judge("QAttention", [u8(2, 5, 16), i8(16, 48), bias, f32(0.02), f32(0.01), np.array([5, 3], np.int32), one(128, np.uint8), one(3, np.int8)],
                   weights=(1,), num_heads=4)

    def test_multi_head_attention(self):
        q, k, v, bias = real(2, 5, 16), real(2, 7, 16), real(2, 7, 16), real(48)
        self.judge("MultiHeadAttention", [q, k, v], num_heads=4)
        self.judge("MultiHeadAttention", [q, k, v, bias], num_heads=4, scale=0.2)
        self.judge("MultiHeadAttention", [q, k, real(2, 7, 24)], num_heads=4)
        mask = np.ones((2, 7), np.int32)
        mask[1, 4:] = 0
        self.judge("MultiHeadAttention", [q, k, v, None, mask], num_heads=4)
        self.judge("MultiHeadAttention", [q, k, v, None, np.array([7, 4], np.int32)], num_heads=4)
        self.judge("MultiHeadAttention", [q, k, v, None, None, real(1, 4, 5, 7)], num_heads=4)
        self.judge("MultiHeadAttention", [q, real(2, 4, 7, 4), real(2, 4, 7, 4)], num_heads=4)
        self.judge("MultiHeadAttention", [q, real(2, 5, 16), real(2, 5, 16), None, None, None, real(2, 4, 3, 4), real(2, 4, 3, 4)], outputs=3,
                   num_heads=4, unidirectional=1)

    def test_group_query_attention(self):
        angles = np.arange(16)[:, None] / 10.0 ** np.arange(8)[None]
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

        def run(steps, past, lengths, total, batch=2, packed=False, tables=True, rest=(), **options):
            q, k, v = real(batch, steps, 64), real(batch, steps, 32), real(batch, steps, 32)
            first = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
            cache = [real(batch, 2, past, 16), real(batch, 2, past, 16)]
            for filled in cache:
                for row, length in zip(filled, lengths):
                    row[:, max(length + 1 - steps, 0):] = 0  # ONNX Runtime clears what a cache does not hold
            self.judge("GroupQueryAttention", [*first, *cache, np.array(lengths, np.int32), np.array(total, np.int32), *((cos, sin) if tables else (None, None)), *rest],
                       outputs=3, num_heads=4, kv_num_heads=2, **({"do_rotary": 1} if tables else {}), **options)

        run(6, 0, [5, 5], 6)
        run(6, 0, [5, 5], 6, packed=True, rotary_interleaved=1)
        run(6, 0, [5, 5], 6, tables=False, scale=0.2)
        run(1, 6, [6, 6], 7)
        run(1, 6, [6, 4], 7)  # sequences of different lengths
        run(1, 9, [6, 4], 7, local_window_size=3)  # a cache that is longer than what it holds
        run(1, 6, [6, 6], 7, softcap=5.0)
        run(1, 6, [6, 6], 7, local_window_size=3)
        run(6, 0, [5, 5], 6, local_window_size=2)
        run(6, 0, [5, 5], 6, smooth_softmax=1)
        run(1, 6, [6, 6], 7, tables=False, rest=(None, real(1, 1, 1, 7)))
        run(3, 5, [7], 8, batch=1)

    def test_triangles(self):
        self.judge("Trilu", [real(2, 4, 5), one(1, np.int64)], upper=0)

    def test_rotary_embeddings(self):
        cos, sin = real(16, 4), real(16, 4)
        for turned in (0, 1):
            self.judge("RotaryEmbedding", [real(2, 3, 5, 8), whole(0, 16, 2, 5, dtype=np.int64), cos, sin], interleaved=turned)
            self.judge("RotaryEmbedding", [real(2, 5, 24), np.array([3], np.int64), cos, sin], interleaved=turned)
        self.judge("RotaryEmbedding", [real(2, 3, 5, 12), whole(0, 16, 2, 5, dtype=np.int64), cos, sin], num_heads=3, rotary_embedding_dim=8)

    def test_integers(self):
        zero = one(120, np.uint8)
        x = [u8(2, 4, 6, 6), f32(0.02), zero]
        y = [f32(0.0517), one(100, np.uint8)]
        self.judge("QLinearAdd", [*x, u8(1, 4, 1, 6), f32(0.03), one(7, np.uint8), *y])
        self.judge("QLinearMul", [*x, u8(2, 4, 6, 6), f32(0.03), one(130, np.uint8), *y])
        self.judge("QLinearAdd", [i8(2, 9), f32(0.02), one(-4, np.int8), i8(2, 9), f32(0.03), one(7, np.int8), f32(0.04), one(2, np.int8)])
        self.judge("QLinearSigmoid", [*x, f32(1 / 256), one(0, np.uint8)], weights=(1, 2, 3, 4))
        self.judge("QLinearLeakyRelu", [*x, *y], weights=(1, 2, 3, 4), alpha=0.2)
        self.judge("QLinearSoftmax", [*x, f32(1 / 256), one(0, np.uint8)], weights=(1, 2, 3, 4), axis=3, opset=13)
        self.judge("QLinearSoftmax", [*x, f32(1 / 256), one(0, np.uint8)], weights=(1, 2, 3, 4), axis=1, opset=11)
        self.judge("QLinearConcat", [*y, *x, u8(2, 3, 6, 6), f32(0.04), one(90, np.uint8)], axis=1)
        self.judge("QLinearAveragePool", [*x, *y], weights=(1, 2, 3, 4), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        self.judge("QLinearAveragePool", [*x, *y], weights=(1, 2, 3, 4), kernel_shape=[2, 2], channels_last=1)
        self.judge("QLinearGlobalAveragePool", [*x, *y], weights=(1, 2, 3, 4))
        self.judge("QLinearGlobalAveragePool", [*x, *y], weights=(1, 2, 3, 4), channels_last=1)
        self.judge("QLinearWhere", [draw.random((2, 9)) < 0.5, u8(2, 9), f32(0.02), zero, u8(2, 9), f32(0.03), one(7, np.uint8), *y], weights=(2, 3, 5, 6, 7, 8))
        weight = [i8(5, 4, 3, 3), f32(0.01), one(0, np.int8)]
        self.judge("QLinearConv", [*x, *weight, f32(0.3), one(100, np.uint8), whole(-900, 900, 5)], weights=(3, 4, 5, 8), pads=[1, 1, 1, 1])
        self.judge("QLinearConv", [u8(2, 6, 6, 4), *x[1:], *weight, f32(0.3), one(100, np.uint8)], weights=(3, 4, 5), pads=[1, 1, 0, 0], channels_last=1)
        # Sums that f32 does not hold, with a zero point around the image, one for each output, and steps.
        many = [u8(1, 40, 9, 8), f32(0.02), one(120, np.uint8), u8(6, 40, 3, 3), np.linspace(0.01, 0.02, 6, dtype=np.float32), np.full(6, 128, np.uint8)]
        self.judge("QLinearConv", [*many, f32(3.0), one(100, np.uint8), whole(-90000, 90000, 6)], weights=(3, 4, 5, 8), domain="", pads=[1, 1, 1, 1], strides=[2, 1])
        self.judge("ConvInteger", [u8(2, 40, 9, 8), u8(6, 40, 3, 3), one(120, np.uint8), one(7, np.uint8)], weights=(1,), domain="", pads=[1, 0, 2, 1], dilations=[1, 2])
        self.judge("QuantizeLinear", [real(3, 5, scale=100), f32(0.01), one(30000, np.uint16)])
        self.judge("DequantizeLinear", [whole(0, 65536, 3, 5, dtype=np.uint16), f32(0.01), one(30000, np.uint16)])

    def test_products_of_integers(self):
        a = [u8(3, 8), f32(0.02), one(120, np.uint8)]
        self.judge("QGemm", [*a, i8(8, 5), f32(0.03), one(0, np.int8), whole(-900, 900, 5), f32(0.5), one(100, np.uint8)], weights=(3, 4, 5, 6))
        self.judge("QGemm", [*a, i8(5, 8), real(5, scale=0.01) ** 2, np.zeros(5, np.int8), whole(-900, 900, 5)], weights=(3, 4, 5, 6), transB=1, alpha=0.5)
        self.judge("MatMulIntegerToFloat", [u8(2, 3, 8), i8(8, 5), f32(0.02), f32(0.03), one(120, np.uint8), one(4, np.int8), real(5)], weights=(1,))
        self.judge("MatMulIntegerToFloat", [u8(2, 3, 8), u8(8, 5), f32(0.02), real(5, scale=0.03) ** 2, one(120, np.uint8), u8(5)], weights=(1,))
        self.judge("DynamicQuantizeMatMul", [real(2, 3, 8), i8(8, 5), f32(0.03)], weights=(1,))
        self.judge("DynamicQuantizeMatMul", [real(3, 8), u8(8, 5), real(5, scale=0.03) ** 2, u8(5), real(5)], weights=(1,))
        # Weft does not round x and h to integers in between.
        self.judge("DynamicQuantizeLSTM", [real(7, 2, 6), i8(1, 6, 20), i8(1, 5, 20), real(1, 40), None, None, None, None, np.full(1, 0.01, np.float32), np.zeros(1, np.int8),
                                           np.full(1, 0.01, np.float32), np.zeros(1, np.int8)], weights=(1, 2), outputs=3, tolerance=0.03, hidden_size=5)
        self.judge("DynamicQuantizeLSTM", [real(7, 2, 6), i8(2, 6, 20), i8(2, 5, 20), real(2, 40), None, None, None, None, real(2, 20, scale=0.1) ** 2, np.zeros((2, 20), np.int8),
                                           real(2, 20, scale=0.1) ** 2, np.zeros((2, 20), np.int8)], weights=(1, 2, 8, 9, 10, 11), outputs=3, tolerance=0.03,
                   hidden_size=5, direction="bidirectional")

    def test_linear_models(self):
        self.judge("Scaler", [real(5, 3)], domain="ai.onnx.ml", offset=[0.5, -1.0, 2.0], scale=[2.0, 0.5, 1.0])
        self.judge("Scaler", [whole(0, 9, 5, 3, dtype=np.int64)], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
        for norm in ("MAX", "L1", "L2"):
            self.judge("Normalizer", [np.concatenate([real(5, 3), np.zeros((1, 3), np.float32)])], domain="ai.onnx.ml", norm=norm)
        self.judge("ArrayFeatureExtractor", [real(5, 3), np.array([2, 0], np.int64)], domain="ai.onnx.ml")
        self.judge("ArrayFeatureExtractor", [real(3), np.array([2], np.int64)], domain="ai.onnx.ml")
        self.judge("Binarizer", [real(5, 3)], domain="ai.onnx.ml", threshold=0.25)
        weights = [float(each) for each in real(12)]
        self.judge("LinearRegressor", [real(5, 4)], domain="ai.onnx.ml", coefficients=weights, intercepts=weights[:3], targets=3)
        for after in ("NONE", "SOFTMAX", "LOGISTIC"):
            self.judge("LinearClassifier", [real(5, 4)], outputs=2, domain="ai.onnx.ml", coefficients=weights, intercepts=weights[:3], classlabels_ints=[7, 3, 5],
                       multi_class=1, post_transform=after)

    def test_trees(self):
        def forest(mode, prefix, outputs, signs=(-1, 1), depth=3, trees=4):
            """Full trees over three features, with weights at every leaf."""
            nodes = {"treeids": [], "nodeids": [], "featureids": [], "values": [], "modes": [], "truenodeids": [], "falsenodeids": [], "missing_value_tracks_true": []}
            leaves = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
            for tree in range(trees):
                for node in range(2 ** (depth + 1) - 1):
                    inner = node < 2 ** depth - 1
                    for key, value in zip(nodes, (tree, node, int(draw.integers(3)) if inner else 0, round(float(draw.standard_normal()), 1) if inner else 0.0,
                                                  mode if inner else "LEAF", 2 * node + 1 if inner else 0, 2 * node + 2 if inner else 0, int(draw.integers(2)) if inner else 0)):
                        nodes[key].append(value)
                    for output in [] if inner else outputs:
                        for key, value in zip(leaves, (tree, node, output, float(draw.uniform(*signs)))):
                            leaves[key].append(value)
            return {**{f"nodes_{k}": v for k, v in nodes.items()}, **{f"{prefix}_{k}": v for k, v in leaves.items()}}

        x = np.round(real(40, 3), 1)  # some are equal to limits
        x[0, 1] = np.nan
        for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"):
            self.judge("TreeEnsembleRegressor", [x], domain="ai.onnx.ml", n_targets=2, base_values=[0.5, -0.5], **forest(mode, "target", [0, 1]))
        self.judge("TreeEnsembleRegressor", [x], domain="ai.onnx.ml", n_targets=1, aggregate_function="AVERAGE", **forest("BRANCH_LEQ", "target", [0]))
        self.judge("TreeEnsembleClassifier", [x], outputs=2, domain="ai.onnx.ml", classlabels_int64s=[4, 2, 9], post_transform="SOFTMAX", **forest("BRANCH_LEQ", "class", [0, 1, 2]))
        # Two classes with one score, as gradient boosting has them: a logit, or a share.
        self.judge("TreeEnsembleClassifier", [x], outputs=2, domain="ai.onnx.ml", classlabels_int64s=[0, 1], base_values=[0.2], post_transform="LOGISTIC", **forest("BRANCH_LT", "class", [0]))
        self.judge("TreeEnsembleClassifier", [x], outputs=2, domain="ai.onnx.ml", classlabels_int64s=[0, 1], **forest("BRANCH_LEQ", "class", [0], (0, 0.25)))


if __name__ == "__main__":
    unittest.main(warnings="ignore")
