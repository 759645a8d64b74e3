"""Layers, losses, initial values and utilities under PyTorch's names, against PyTorch."""
import math
import unittest

import numpy as np

import weft
from weft import nn, optim

try:
    import torch
except Exception:
    torch = None


def numbers(shape, seed=0, low=None, high=None):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)).astype("f4")


def integers(shape, most, seed=0):
    return np.random.default_rng(seed).integers(0, most, shape).astype("i4")


def given(array):
    """As tensors of both."""
    array = np.asarray(array)
    theirs = torch.tensor(array.astype("i8") if array.dtype == np.int32 else array)
    return weft.tensor(array), theirs


def close(mine, theirs, **options):
    if isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            close(a, b, **options)
    else:
        np.testing.assert_allclose(mine.numpy(), theirs.detach().numpy(), **{"rtol": 2e-5, "atol": 2e-6, **options})


X, WIDE = numbers((4, 6)), numbers((2, 4, 6, 8), 1)
# (name, positional options, named options, arrays)
PLAIN = [
    *((name, (), {}, [X]) for name in ("ReLU", "SiLU", "Tanh", "Sigmoid", "ReLU6", "SELU", "Mish", "Softsign", "Tanhshrink", "LogSigmoid",
                                       "Hardswish", "Hardsigmoid", "ELU", "CELU", "LeakyReLU", "Hardshrink", "Softshrink", "Hardtanh",
                                       "Softplus", "GELU")),
    ("ReLU", (True,), {}, [X]), ("ELU", (0.5,), {"inplace": True}, [X]), ("CELU", (0.7,), {}, [X]), ("LeakyReLU", (0.2,), {}, [X]),
    ("Hardshrink", (0.2,), {}, [X]), ("Softshrink", (), {"lambd": 0.3}, [X]), ("Hardtanh", (-0.3, 0.4), {}, [X]), ("Softplus", (2.0, 1.0), {}, [X]),
    ("Threshold", (0.1, 7.0), {}, [X]), ("GELU", ("tanh",), {}, [X]), ("GLU", (), {"dim": 1}, [X]), ("Softmin", (0,), {}, [X]),
    ("Softmax", (), {"dim": 0}, [X]), ("LogSoftmax", (1,), {}, [X]), ("Softmax2d", (), {}, [WIDE]),
    ("ConstantPad1d", ((1, 2), 3.0), {}, [X[None]]), ("ConstantPad2d", ((1, 2, 0, 3), -1.0), {}, [WIDE]), ("ConstantPad3d", (1, 0.5), {}, [WIDE[None]]),
    ("ZeroPad2d", (2,), {}, [WIDE]), ("ReflectionPad1d", ((2, 1),), {}, [X[None]]), ("ReflectionPad2d", ((1, 2, 3, 0),), {}, [WIDE]),
    ("ReplicationPad2d", (2,), {}, [WIDE]), ("ReplicationPad3d", ((1, 0, 2, 1, 0, 1),), {}, [WIDE[None]]),
    ("PixelShuffle", (2,), {}, [WIDE]), ("PixelUnshuffle", (2,), {}, [WIDE]), ("ChannelShuffle", (2,), {}, [WIDE]),
    ("Unflatten", (1, (2, 3)), {}, [X]), ("Flatten", (), {}, [WIDE]), ("Unfold", ((3, 2), 1, 1, 2), {}, [WIDE]),
    ("Fold", ((5, 6), (2, 3)), {"stride": (1, 2), "padding": (0, 1)}, [numbers((2, 12, 12), 2)]),
    ("CosineSimilarity", (1, 1e-6), {}, [X, numbers((4, 6), 5)]), ("PairwiseDistance", (3.0,), {"keepdim": True}, [X, numbers((4, 6), 5)]),
    ("LocalResponseNorm", (3, 0.1, 0.6, 2.0), {}, [WIDE]), ("LPPool2d", (2, 3), {"stride": 2}, [WIDE]), ("LPPool1d", (3, 2), {}, [np.abs(X[None])]),
    ("AdaptiveAvgPool2d", ((3, 2),), {}, [WIDE]), ("AdaptiveMaxPool1d", (3,), {}, [X[None]]), ("UpsamplingNearest2d", (), {"scale_factor": 2}, [WIDE]),
    ("UpsamplingBilinear2d", ((5, 7),), {}, [WIDE]), ("MaxPool2d", (2,), {}, [WIDE]), ("AvgPool1d", (2,), {}, [X[None]]),
]

PROBABILITY, OTHER = numbers((4, 6), 3, 0.05, 0.95), numbers((4, 6), 4)
SIGNS = np.sign(numbers((4, 6), 6))
LABELS = integers((4,), 6)
LOSSES = [
    ("MSELoss", (), {}, [X, OTHER]), ("L1Loss", (), {"reduction": "sum"}, [X, OTHER]), ("HuberLoss", (), {"delta": 0.7}, [X, OTHER]),
    ("SmoothL1Loss", (), {"beta": 0.4, "reduction": "none"}, [X, OTHER]), ("SoftMarginLoss", (), {}, [X, SIGNS]),
    ("HingeEmbeddingLoss", (), {"margin": 0.5}, [X, SIGNS]), ("MarginRankingLoss", (0.3,), {}, [X, OTHER, SIGNS]),
    ("CosineEmbeddingLoss", (0.2,), {}, [X, OTHER, SIGNS[:, 0]]), ("MultiMarginLoss", (), {"p": 2, "margin": 0.8}, [X, LABELS]),
    ("MultiLabelSoftMarginLoss", (), {}, [X, (SIGNS > 0).astype("f4")]), ("TripletMarginLoss", (0.5,), {"swap": True}, [X, OTHER, PROBABILITY]),
    ("GaussianNLLLoss", (), {"full": True}, [X, OTHER, PROBABILITY]), ("PoissonNLLLoss", (False,), {}, [PROBABILITY, np.abs(OTHER)]),
    ("KLDivLoss", (), {"reduction": "batchmean"}, [np.log(PROBABILITY), numbers((4, 6), 7, 0.1, 0.9)]),
    ("KLDivLoss", (), {"log_target": True, "reduction": "sum"}, [np.log(PROBABILITY), np.log(numbers((4, 6), 7, 0.1, 0.9))]),
    ("BCELoss", (), {}, [PROBABILITY, numbers((4, 6), 8, 0, 1)]), ("BCELoss", (), {"weight": numbers((6,), 9, 0.5, 2)}, [PROBABILITY, numbers((4, 6), 8, 0, 1)]),
    ("BCEWithLogitsLoss", (), {"pos_weight": numbers((6,), 9, 0.5, 2), "weight": numbers((4, 1), 2, 0.5, 2)}, [X, numbers((4, 6), 8, 0, 1)]),
    ("BCEWithLogitsLoss", (), {"reduction": "none"}, [X, numbers((4, 6), 8, 0, 1)]),
    ("NLLLoss", (), {"weight": numbers((6,), 9, 0.5, 2), "ignore_index": int(LABELS[0])}, [X, LABELS]), ("NLLLoss", (), {"reduction": "none"}, [X, LABELS]),
    ("NLLLoss", (), {}, [WIDE, integers((2, 6, 8), 4)]), ("CrossEntropyLoss", (), {}, [X, LABELS]),
    ("CrossEntropyLoss", (), {"weight": numbers((4,), 9, 0.5, 2), "ignore_index": 1}, [WIDE, integers((2, 6, 8), 4)]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.2}, [WIDE, integers((2, 6, 8), 4)]), ("CrossEntropyLoss", (), {"reduction": "sum"}, [X[0], LABELS[0]]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.1, "weight": numbers((6,), 9, 0.5, 2)}, [X, np.exp(X) / np.exp(X).sum(1, keepdims=True)]),
    ("CrossEntropyLoss", (), {}, [WIDE, np.exp(WIDE) / np.exp(WIDE).sum(1, keepdims=True)]),
    ("TripletMarginWithDistanceLoss", (), {"margin": 0.7, "swap": True}, [X, OTHER, PROBABILITY]),
]


@unittest.skipIf(torch is None, "no PyTorch")
class AgainstTorch(unittest.TestCase):
    def compare(self, cases):
        for name, arguments, options, arrays in cases:
            with self.subTest(name=name, arguments=arguments, options={key: value for key, value in options.items() if key != "weight"}):
                pairs = [given(array) for array in arrays]
                theirs = getattr(torch.nn, name)(*arguments, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})
                mine = getattr(nn, name)(*arguments, **options)
                leaf = pairs[0][1].clone().requires_grad_()
                expected = theirs(leaf * 1, *(each for _, each in pairs[1:]))
                variable = weft.Variable(pairs[0][0])
                result = mine(variable.value, *(each for each, _ in pairs[1:]))
                close(result, expected)
                if name == "ChannelShuffle":
                    continue  # has no derivative in older versions of PyTorch
                expected.square().sum().backward()
                close(weft.grad(result.square().sum(), variable), leaf.grad, rtol=1e-4, atol=1e-5)

    def test_plain_layers(self):
        self.compare(PLAIN)

    def test_losses(self):
        self.compare(LOSSES)

    def test_certain_probabilities(self):
        """The loss is bounded, and so is its gradient."""
        (x, tx), (t, tt) = given(np.array([0, 1, 0.5], "f4")), given(np.array([1, 1, 0], "f4"))
        variable = weft.Variable(x)
        loss = nn.BCELoss(reduction="sum")(variable.value, t)
        close(loss, torch.nn.BCELoss(reduction="sum")(tx, tt))
        np.testing.assert_allclose(weft.grad(loss, variable).numpy(), [0, -1, 2])

    def test_ctc_loss(self):
        logits = numbers((9, 2, 5))
        targets, steps, lengths = integers((2, 4), 4, 1) + 1, np.array([9, 7], "i4"), np.array([4, 2], "i4")
        mine, theirs = given(logits)
        args = [given(each) for each in (targets, steps, lengths)]
        for options in ({}, {"reduction": "sum", "zero_infinity": True}):
            close(nn.CTCLoss(**options)(weft.log_softmax(mine, -1), *(a for a, _ in args)),
                  torch.nn.CTCLoss(**options)(theirs.log_softmax(-1), *(b for _, b in args)), rtol=1e-4)

    def loaded(self, mine, theirs):
        mine.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
        mine.eval()
        theirs.eval()

    def test_attention(self):
        for options in ({}, {"batch_first": True, "bias": False}, {"kdim": 5, "vdim": 7}):
            theirs, mine = torch.nn.MultiheadAttention(8, 2, **options), nn.MultiheadAttention(8, 2, **options)
            self.loaded(mine, theirs)
            first = bool(options.get("batch_first"))
            shapes = [(3, 4, 8), (5, 4, options.get("kdim", 8)), (5, 4, options.get("vdim", 8))]
            arrays = [given(numbers(shape, i).swapaxes(0, 1).copy() if first else numbers(shape, i)) for i, shape in enumerate(shapes)]
            mask, added = np.triu(np.ones((3, 5), "?"), 3), numbers((8, 3, 5), 9)
            padding = np.zeros((4, 5), "?")
            padding[1, 3:] = True
            for named in ({}, {"attn_mask": mask}, {"attn_mask": added, "average_attn_weights": False}, {"key_padding_mask": padding},
                          {"attn_mask": mask, "key_padding_mask": padding}, {"attn_mask": mask, "need_weights": False}):
                a = mine(*(x for x, _ in arrays), **{k: weft.tensor(v) if isinstance(v, np.ndarray) else v for k, v in named.items()})
                b = theirs(*(x for _, x in arrays), **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in named.items()})
                close(a[0], b[0])
                self.assertEqual(a[1] is None, b[1] is None)
                if b[1] is not None:
                    close(a[1], b[1])
        single = [given(numbers((3, 8), 5))] * 3
        theirs, mine = torch.nn.MultiheadAttention(8, 4), nn.MultiheadAttention(8, 4)
        self.loaded(mine, theirs)
        close(mine(*(a for a, _ in single)), theirs(*(b for _, b in single)))

    def test_transformers(self):
        for options in ({}, {"norm_first": True, "activation": "gelu", "batch_first": True}):
            sizes = {"d_model": 8, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 12, "dropout": 0.0}
            theirs, mine = torch.nn.Transformer(**sizes, **options), nn.Transformer(**sizes, **options)
            self.loaded(mine, theirs)
            theirs.train()  # its fast path has other rounding, and no gradients
            (a, b), (c, d) = given(numbers((5, 3, 8))), given(numbers((4, 3, 8), 1))
            if options:
                (a, b), (c, d) = given(numbers((3, 5, 8))), given(numbers((3, 4, 8), 1))
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            np.testing.assert_array_equal(mask.numpy(), torch.nn.Transformer.generate_square_subsequent_mask(4).numpy())
            leaf = b.clone().requires_grad_()
            expected = theirs(leaf, d, tgt_mask=torch.tensor(mask.numpy()))
            variable = weft.Variable(a)
            result = mine(variable.value, c, tgt_mask=mask)
            close(result, expected, rtol=1e-4, atol=1e-5)
            (expected * torch.tensor(numbers(tuple(expected.shape), 8))).sum().backward()
            close(weft.grad((result * weft.tensor(numbers(result.shape, 8))).sum(), variable), leaf.grad, rtol=1e-3, atol=1e-5)
            self.assertEqual(sorted(mine.state_dict()), sorted(theirs.state_dict()))

    def test_cells_and_packs(self):
        (x, tx), (h, th), (c, tc) = (given(numbers(shape, i)) for i, shape in enumerate([(3, 4), (3, 5), (3, 5)]))
        for name, options in (("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu", "bias": False}), ("GRUCell", {}), ("LSTMCell", {})):
            theirs, mine = getattr(torch.nn, name)(4, 5, **options), getattr(nn, name)(4, 5, **options)
            self.loaded(mine, theirs)
            state, their_state = ((h, c), (th, tc)) if name == "LSTMCell" else (h, th)
            close(mine(x, state), theirs(tx, their_state))
            close(mine(x), theirs(tx))
            close(mine(x[0]), theirs(tx[0]))
        sequences = [numbers((n, 4), n) for n in (5, 2, 7)]
        mine_list, their_list = [weft.tensor(s) for s in sequences], [torch.tensor(s) for s in sequences]
        pad, their_pad = nn.utils.rnn.pad_sequence, torch.nn.utils.rnn.pad_sequence
        close(pad(mine_list, padding_value=2.0), their_pad(their_list, padding_value=2.0))
        close(pad(mine_list, batch_first=True), their_pad(their_list, batch_first=True))
        for name in ("RNN", "GRU", "LSTM"):
            theirs, mine = getattr(torch.nn, name)(4, 5, 2, bidirectional=True), getattr(nn, name)(4, 5, 2, bidirectional=True)
            self.loaded(mine, theirs)
            y, ends = mine(nn.utils.rnn.pack_sequence(mine_list))
            ty, their_ends = theirs(torch.nn.utils.rnn.pack_sequence(their_list, enforce_sorted=False))
            close(ends, their_ends)
            padded, lengths = nn.utils.rnn.pad_packed_sequence(y, padding_value=-1.0, total_length=9)
            close(padded, torch.nn.utils.rnn.pad_packed_sequence(ty, padding_value=-1.0, total_length=9)[0])
            self.assertEqual(lengths.tolist(), [5, 2, 7])
            apart = nn.utils.rnn.unpad_sequence(padded, lengths)
            self.assertEqual([each.shape for each in apart], [(5, 10), (2, 10), (7, 10)])

    def test_embeddings(self):
        theirs, mine = torch.nn.EmbeddingBag(7, 3, mode="max"), nn.EmbeddingBag(7, 3, mode="max")
        self.loaded(mine, theirs)
        (i, ti), (o, to) = given(integers((6,), 7)), given(np.array([0, 2, 5], "i4"))
        close(mine(i, o), theirs(ti, to))
        for mode in ("sum", "mean"):
            theirs, mine = torch.nn.EmbeddingBag(7, 3, mode=mode), nn.EmbeddingBag(7, 3, mode=mode)
            self.loaded(mine, theirs)
            close(mine(i.reshape((2, 3))), theirs(ti.reshape(2, 3)))
        weighted = numbers((6,), 3)
        theirs, mine = torch.nn.EmbeddingBag(7, 3, mode="sum"), nn.EmbeddingBag(7, 3, mode="sum")
        self.loaded(mine, theirs)
        close(mine(i, o, weft.tensor(weighted)), theirs(ti, to, torch.tensor(weighted)))

        theirs, mine = torch.nn.Embedding(5, 2, padding_idx=1), nn.Embedding(5, 2, padding_idx=1)
        self.assertEqual(mine.weight.numpy()[1].tolist(), [0, 0])
        self.loaded(mine, theirs)
        (i, ti) = given(np.array([[1, 0], [4, 1]], "i4"))
        theirs(ti).square().sum().backward()
        close(weft.grad(mine(i).square().sum(), mine.weight), theirs.weight.grad)
        table = numbers((4, 3))
        frozen = nn.Embedding.from_pretrained(table)
        self.assertEqual((frozen.weight.requires_grad, frozen(weft.tensor([2])).tolist()[0]), (False, table[2].tolist()))

    def test_unpooling(self):
        x, tx = given(WIDE)
        pooled, positions = torch.nn.MaxPool2d(2, return_indices=True)(tx)
        own = weft.max_pool2d(x, 2)
        close(nn.MaxUnpool2d(2)(own, weft.max_pool_positions2d(x, 2)), torch.nn.MaxUnpool2d(2)(pooled, positions))
        y, places = nn.FractionalMaxPool2d(2, output_ratio=0.5, return_indices=True)(x)
        self.assertEqual((y.shape, places.shape), ((2, 4, 3, 4), (2, 4, 3, 4)))
        for image, found, kept in zip(WIDE.reshape(8, -1), places.numpy().reshape(8, -1), y.numpy().reshape(8, -1)):
            np.testing.assert_array_equal(image[found], kept)

    def test_gradients_are_clipped(self):
        for norm_type in (2.0, 1.0, math.inf):
            mine, theirs = [weft.Variable(numbers(s, i)) for i, s in enumerate([(3, 2), (4,)])], []
            for i, variable in enumerate(mine):
                theirs.append(torch.nn.Parameter(torch.tensor(variable.numpy())))
                theirs[-1].grad = torch.tensor(numbers(variable.shape, 10 + i))
                variable.grad = weft.tensor(numbers(variable.shape, 10 + i))
            mine.append(weft.Variable(np.ones(2, "f4")))  # without a gradient
            before = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type)
            self.assertAlmostEqual(nn.utils.clip_grad_norm_(mine, 0.7, norm_type).item(), before.item(), places=5)
            for a, b in zip(mine, theirs):
                close(a.grad, b.grad)
            nn.utils.clip_grad_value_(mine, 0.1)
            torch.nn.utils.clip_grad_value_(theirs, 0.1)
            for a, b in zip(mine, theirs):
                close(a.grad, b.grad)

    def test_fused_norms(self):
        x = numbers((2, 3, 7, 7))
        for conv, their_conv in ((nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3)), (nn.Conv2d(3, 4, 3, bias=False), torch.nn.Conv2d(3, 4, 3, bias=False))):
            norm, their_norm = nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4)
            their_norm(torch.tensor(numbers((9, 4, 2, 2), 3)))
            with torch.no_grad():
                their_norm.weight.copy_(torch.tensor(numbers((4,), 5)))
                their_norm.bias.copy_(torch.tensor(numbers((4,), 6)))
            self.loaded(conv, their_conv)
            self.loaded(norm, their_norm)
            fused = nn.utils.fuse_conv_bn_eval(conv, norm)
            close(fused(weft.tensor(x)), their_norm(their_conv(torch.tensor(x))), rtol=1e-4, atol=1e-5)
            expected = torch.nn.utils.fuse_conv_bn_eval(their_conv, their_norm)
            close(fused.weight, expected.weight)
            close(fused.bias, expected.bias)
        turned, norm = nn.ConvTranspose2d(3, 4, 3).eval(), nn.BatchNorm2d(4).eval()
        norm.running_mean.assign(numbers((4,), 2))
        close(nn.utils.fuse_conv_bn_eval(turned, norm, transpose=True)(weft.tensor(x)), torch.tensor(norm(turned(weft.tensor(x))).numpy()), rtol=1e-4, atol=1e-5)
        linear, norm = nn.Linear(3, 4).eval(), nn.BatchNorm(4).eval()
        norm.running_var.assign(numbers((4,), 2, 0.5, 2))
        y = weft.tensor(numbers((5, 3)))
        close(nn.utils.fuse_linear_bn_eval(linear, norm)(y), torch.tensor(norm(linear(y)).numpy()))
        with self.assertRaisesRegex(weft.UsageError, "call eval"):
            nn.utils.fuse_linear_bn_eval(nn.Linear(3, 4), norm)

    def test_weight_norm(self):
        for dim in (0, 1, None):
            theirs, mine = torch.nn.Linear(3, 4), nn.Linear(3, 4)
            self.loaded(mine, theirs)
            torch.nn.utils.weight_norm(theirs, dim=dim)
            nn.utils.weight_norm(mine, dim=dim)
            x, tx = given(numbers((5, 3)))
            close(mine(x), theirs(tx))
            self.assertEqual(sorted(mine.state_dict()), ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"])
            theirs(tx).square().sum().backward()
            names = [name for name, _ in mine.named_parameters()]
            gradients = dict(zip(names, weft.grad(mine(x).square().sum(), mine)))
            close(gradients["parametrizations.weight.original0"].reshape(tuple(theirs.weight_g.shape)), theirs.weight_g.grad, rtol=1e-4, atol=1e-5)
            close(gradients["parametrizations.weight.original1"], theirs.weight_v.grad, rtol=1e-4, atol=1e-5)
            before = mine(x).numpy()
            nn.utils.remove_weight_norm(mine)
            self.assertEqual(sorted(mine.state_dict()), ["bias", "weight"])
            np.testing.assert_allclose(mine(x).numpy(), before, rtol=1e-5)

    def test_spectral_norm(self):
        mine = nn.Conv2d(3, 4, 2)
        weight = mine.weight.numpy().reshape(4, -1)
        nn.utils.spectral_norm(mine, n_power_iterations=5)
        for _ in range(10):
            divided = mine.weight.numpy().reshape(4, -1)
        np.testing.assert_allclose(divided, weight / np.linalg.svd(weight)[1][0], rtol=1e-3, atol=1e-5)
        theirs = torch.nn.Conv2d(3, 4, 2)
        torch.nn.utils.parametrizations.spectral_norm(theirs)
        theirs.load_state_dict({("parametrizations.weight.0." + name.rsplit(".", 1)[1] if name.endswith(("_u", "_v")) else name): torch.tensor(value.numpy())
                                for name, value in mine.state_dict().items()})
        mine.eval()
        theirs.eval()
        x, tx = given(numbers((2, 3, 5, 5)))
        close(mine(x), theirs(tx), rtol=1e-4, atol=1e-5)
        theirs(tx).square().sum().backward()
        names = [name for name, _ in mine.named_parameters()]
        gradients = dict(zip(names, weft.grad(mine(x).square().sum(), mine)))
        close(gradients["parametrizations.weight.original"], theirs.parametrizations.weight.original.grad, rtol=1e-3, atol=1e-4)


class Layers(unittest.TestCase):
    def test_compiled_training_with_parametrizations(self):
        """The originals train, inside of one graph, and the vectors of a spectral norm move."""
        weft.manual_seed(2)
        net = nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.utils.weight_norm(nn.Linear(8, 1)))
        optimizer = optim.Adam(net, 0.05)
        x = weft.tensor(numbers((16, 4)))
        y = weft.tensor(np.tanh(x.numpy().sum(1, keepdims=True)))

        @weft.compile
        def step(inputs, wanted):
            loss = nn.mse(net(inputs), wanted)
            optimizer.step(weft.grad(loss, net), 0.05)
            return loss

        first, u = step(x, y).item(), net[0].parametrizations.weight._children["0"]._u.numpy().copy()
        for _ in range(60):
            last = step(x, y).item()
        self.assertLess(last, first / 3)
        self.assertGreater(np.abs(net[0].parametrizations.weight._children["0"]._u.numpy() - u).max(), 0)

    def test_initial_values(self):
        weft.manual_seed(0)
        wide = weft.Variable(np.zeros((200, 300), "f4"))
        bounds = {"xavier_uniform_": math.sqrt(6 / 500), "kaiming_uniform_": math.sqrt(6 / 300)}
        for name, bound in bounds.items():
            values = getattr(nn.init, name)(wide).numpy()
            self.assertLessEqual(np.abs(values).max(), bound)
            self.assertAlmostEqual(values.std(), bound / math.sqrt(3), delta=bound / 100)
        for name, deviation in (("xavier_normal_", math.sqrt(2 / 500)), ("kaiming_normal_", math.sqrt(2 / 300))):
            self.assertAlmostEqual(getattr(nn.init, name)(wide).numpy().std(), deviation, delta=deviation / 50)
        self.assertAlmostEqual(nn.init.kaiming_normal_(wide, mode="fan_out", nonlinearity="tanh").numpy().std(), 5 / 3 / math.sqrt(200), delta=2e-3)
        self.assertAlmostEqual(nn.init.normal_(wide, 3, 0.5).numpy().mean(), 3, delta=0.01)
        self.assertTrue((np.abs(nn.init.trunc_normal_(wide, 0, 1, -0.5, 0.7).numpy() - 0.1) <= 0.6 + 1e-6).all())
        for shape in ((5, 3), (3, 5), (4, 2, 3)):
            q = nn.init.orthogonal_(weft.Variable(np.zeros(shape, "f4")), 2).numpy().reshape(shape[0], -1)
            gram = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
            np.testing.assert_allclose(gram, 4 * np.eye(min(q.shape)), atol=1e-5)
        sparse = nn.init.sparse_(wide, 0.25).numpy()
        self.assertTrue(((sparse == 0).sum(0) == 50).all())
        conv = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        nn.init.dirac_(conv.weight, 2)
        x = numbers((1, 4, 5, 5))
        np.testing.assert_array_equal(conv(weft.tensor(x)).numpy(), x)
        np.testing.assert_array_equal(nn.init.eye_(weft.Variable(np.zeros((2, 3), "f4"))).numpy(), np.eye(2, 3))
        with self.assertRaisesRegex(weft.ShapeError, "rank 1"):
            nn.init.xavier_normal_(weft.Variable(np.zeros(3, "f4")))
        with self.assertRaisesRegex(weft.UsageError, "fan_in"):
            nn.init.kaiming_normal_(wide, mode="out")
        if torch is not None:
            for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"):
                self.assertAlmostEqual(nn.init.calculate_gain(name), torch.nn.init.calculate_gain(name))
            self.assertAlmostEqual(nn.init.calculate_gain("leaky_relu", 0.3), torch.nn.init.calculate_gain("leaky_relu", 0.3))

    def test_vectors_lists_and_paths(self):
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        vector = nn.utils.parameters_to_vector(net)
        self.assertEqual(vector.shape, (13,))
        nn.utils.vector_to_parameters(weft.arange(13).to("f32"), net.parameters())
        self.assertEqual(net[0].bias.tolist(), [6, 7, 8])
        with self.assertRaisesRegex(weft.ShapeError, "13 elements"):
            nn.utils.vector_to_parameters(vector[:5], net)
        self.assertIs(net.get_submodule("1"), net[1])
        self.assertEqual(net.get_parameter("1.bias").shape, (1,))
        with self.assertRaisesRegex(AttributeError, "no module '7'"):
            net.get_submodule("7")
        seen = []
        net.apply(lambda module: seen.append(type(module).__name__))
        self.assertEqual(seen, ["Linear", "Linear", "Sequential"])

        class Both(nn.Module):
            def __init__(self):
                self.items = nn.ParameterList([np.ones(2, "f4"), nn.Parameter(np.zeros(3, "f4"))])
                self.named = nn.ParameterDict({"a": np.full(2, 3, "f4")})
                self.register_parameter("none", None)

        both = Both()
        self.assertEqual([name for name, _ in both.named_parameters()], ["items.0", "items.1", "named.a"])
        self.assertEqual((len(both.items), both.items[-1].shape, "a" in both.named, both.named["a"].tolist(), both.none), (2, (3,), True, [3, 3], None))
        self.assertEqual([each.shape for each in both.items], [(2,), (3,)])

    def test_functional(self):
        from weft.nn import functional as F
        x = weft.tensor(X)
        np.testing.assert_allclose(F.normalize(x, dim=1).numpy(), X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-5)
        np.testing.assert_array_equal(F.relu(x).numpy(), np.maximum(X, 0))
        self.assertGreaterEqual(F.triplet_margin_with_distance_loss(x, x + 1, x - 1, margin=0.5).item(), 0)

    def test_rrelu(self):
        layer = nn.RReLU(0.2, 0.4)
        x = weft.tensor(np.full((1000,), -1.0, "f4"))
        drawn = -layer(x).numpy()
        self.assertTrue(0.2 <= drawn.min() < 0.22 and 0.38 < drawn.max() <= 0.4)
        np.testing.assert_allclose(layer.eval()(x).numpy(), -0.3, rtol=1e-6)

    def test_mistakes_are_errors(self):
        x = weft.tensor(X)
        for message, make in (("do not divide", lambda: nn.MultiheadAttention(8, 3)), ("activation is 'swish'", lambda: nn.TransformerEncoderLayer(8, 2, activation="swish")),
                              ("padding needs 4 numbers", lambda: nn.ZeroPad2d((1, 2))), ("takes 1 options by position", lambda: nn.ELU(1, 2)),
                              ("approximate", lambda: nn.GELU("erf")), ("mode is 'median'", lambda: nn.EmbeddingBag(3, 2, mode="median")),
                              ("give output_size or output_ratio", lambda: nn.FractionalMaxPool2d(2)), ("reduction is 'all'", lambda: nn.BCELoss(reduction="all")(x, x)),
                              ("differ in shape", lambda: nn.CrossEntropyLoss()(x, x[:, :2])), ("has no parametrization", lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2))),
                              ("must be at least 2", lambda: nn.utils.spectral_norm(nn.Linear(2, 2), "bias")), (r"\[2\] lengths for 6", lambda: nn.utils.rnn.pack_padded_sequence(x, [1, 2])),
                              ("is not one of 3 rows", lambda: nn.Embedding(3, 2, padding_idx=3))):
            with self.assertRaisesRegex((weft.Error, TypeError), message):
                make()


if __name__ == "__main__":
    unittest.main()
