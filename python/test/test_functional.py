"""weft.nn.functional, weft.distributions, weft.linalg and other functions that have PyTorch's arguments, against PyTorch."""
import unittest
import warnings

import numpy as np

import weft
import weft.nn.functional

try:
    import torch
    import torch.distributions
except Exception:
    torch = None

DRAW = np.random.default_rng(0)
X, Y = (DRAW.normal(size=(4, 3, 6, 6)).astype("f4") for _ in range(2))
L = DRAW.normal(size=(5, 7)).astype("f4")
P, Q = (DRAW.random((5, 7)).astype("f4") for _ in range(2))
K = DRAW.integers(0, 7, 5)
SIGNS = np.sign(Q - 0.5)

# name -> a function of nn.functional (F) and of the maker of tensors (t)
FUNCTIONS = {
    "pad": lambda F, t: F.pad(t(X), (1, 2, 0, 1)), "pad, negative": lambda F, t: F.pad(t(X), (-1, 2), value=3.0), "pad, reflect": lambda F, t: F.pad(t(X), (1, 1, 2, 2), mode="reflect"),
    "unfold": lambda F, t: F.unfold(t(X), 3, 1, 1, 2), "fold": lambda F, t: F.fold(F.unfold(t(X), 2), (6, 6), 2),
    "cross_entropy of planes": lambda F, t: F.cross_entropy(t(X), t(K[:4].clip(0, 2)[:, None, None].repeat(6, 1).repeat(6, 2))),
    "cross_entropy": lambda F, t: F.cross_entropy(t(L), t(K), ignore_index=2, label_smoothing=0.1), "nll_loss": lambda F, t: F.nll_loss(F.log_softmax(t(L), 1), t(K), reduction="sum"),
    "binary_cross_entropy": lambda F, t: F.binary_cross_entropy(t(P), t(Q)), "binary_cross_entropy_with_logits": lambda F, t: F.binary_cross_entropy_with_logits(t(L), t(Q), pos_weight=t(P)),
    "kl_div": lambda F, t: F.kl_div(F.log_softmax(t(L), -1), t(Q), reduction="batchmean"), "huber_loss": lambda F, t: F.huber_loss(t(L), t(Q), "sum", 0.5),
    "smooth_l1_loss": lambda F, t: F.smooth_l1_loss(t(L), t(Q), beta=0.5), "interpolate": lambda F, t: F.interpolate(t(X), scale_factor=2, mode="bilinear", align_corners=False),
    "interpolate, size": lambda F, t: F.interpolate(t(X), size=(3, 9)), "max_pool2d": lambda F, t: F.max_pool2d(t(X), 2, 1), "max_pool2d, stride": lambda F, t: F.max_pool2d(t(X), (2, 3)),
    "max_pool2d, indices": lambda F, t: F.max_pool2d(t(X), 2, return_indices=True)[1].float(), "avg_pool2d": lambda F, t: F.avg_pool2d(t(X), 2),
    "adaptive_avg_pool2d": lambda F, t: F.adaptive_avg_pool2d(t(X), (2, 3)), "layer_norm": lambda F, t: F.layer_norm(t(X), (6, 6), t(X[0, 0]), t(Y[0, 0])),
    "group_norm": lambda F, t: F.group_norm(t(X), 3, t(X[0, :, 0, 0])), "instance_norm": lambda F, t: F.instance_norm(t(X)),
    "batch_norm": lambda F, t: F.batch_norm(t(X), t(np.zeros(3, "f4")), t(np.full(3, 2, "f4"))), "embedding": lambda F, t: F.embedding(t(K), t(Y[0, 0].repeat(2, 0))),
    "one_hot": lambda F, t: F.one_hot(t(K)).float(), "one_hot of 9": lambda F, t: F.one_hot(t(K), 9).float(), "conv2d": lambda F, t: F.conv2d(t(X), t(Y[:2, :, :3, :3]), None, 1, 1),
    "conv_transpose2d": lambda F, t: F.conv_transpose2d(t(X), t(Y[:3, :2, :3, :3]), stride=2, padding=1, output_padding=1), "linear": lambda F, t: F.linear(t(L), t(P)),
    "cosine_similarity": lambda F, t: F.cosine_similarity(t(L), t(P), dim=1), "normalize": lambda F, t: F.normalize(t(L), dim=-1), "leaky_relu": lambda F, t: F.leaky_relu(t(L), 0.3, True),
    "relu": lambda F, t: F.relu(t(L), inplace=True), "elu": lambda F, t: F.elu(t(L), 0.5), "gelu": lambda F, t: F.gelu(t(L)), "softplus": lambda F, t: F.softplus(t(L), 2.0),
    "hardtanh": lambda F, t: F.hardtanh(t(L), -0.5, 0.5), "softmax": lambda F, t: F.softmax(t(L), dim=1), "glu": lambda F, t: F.glu(t(X), dim=-1), "rrelu": lambda F, t: F.rrelu(t(L)),
    "triplet_margin_loss": lambda F, t: F.triplet_margin_loss(t(L), t(P), t(Q), margin=2.0), "mse_loss": lambda F, t: F.mse_loss(t(L), t(P), reduction="sum"),
    "multi_margin_loss": lambda F, t: F.multi_margin_loss(t(L), t(K)), "margin_ranking_loss": lambda F, t: F.margin_ranking_loss(t(L), t(P), t(SIGNS), margin=0.3),
    "lp_pool2d": lambda F, t: F.lp_pool2d(t(X), 2, 2), "poisson_nll_loss": lambda F, t: F.poisson_nll_loss(t(L), t(P)), "gaussian_nll_loss": lambda F, t: F.gaussian_nll_loss(t(L), t(P), t(Q)),
    "hinge_embedding_loss": lambda F, t: F.hinge_embedding_loss(t(L), t(SIGNS)), "multilabel_soft_margin_loss": lambda F, t: F.multilabel_soft_margin_loss(t(L), t((Q > 0.5).astype("f4")), t(P)),
    "dropout": lambda F, t: F.dropout(t(L), 0.5, training=False) + F.dropout(t(L), 1.0),
}
# Functions of the module itself.
OTHERS = {
    "norm": lambda m, t: m.norm(t(L), p=1, dim=0), "norm of all": lambda m, t: t(L).norm(), "max": lambda m, t: t(L).max(1)[1].float(), "max, keepdim": lambda m, t: m.max(t(L), dim=0, keepdim=True).values,
    "min of two": lambda m, t: m.min(t(L), t(P)), "topk": lambda m, t: t(L).topk(2).values, "where": lambda m, t: m.where(t(L) > 0.5)[1].float(), "nonzero": lambda m, t: t(L).gt(0).nonzero(as_tuple=True)[0].float(),
    "var": lambda m, t: t(L).var(dim=1, unbiased=False), "std": lambda m, t: t(L).std(0, keepdim=True), "var of all": lambda m, t: m.var(t(L), unbiased=False), "median": lambda m, t: t(L).median(),
    "median, dim": lambda m, t: t(L).median(1).values, "unique": lambda m, t: m.unique(t(K)).float(), "unique, counts": lambda m, t: m.unique(t(K), return_counts=True)[1].float(),
    "meshgrid": lambda m, t: m.meshgrid(t(L[0]), t(P[0]), indexing="xy")[0], "scatter of a number": lambda m, t: t(L).scatter(1, t(K[:, None]), 9.0), "cat of dtypes": lambda m, t: m.cat([t(K), t(L[0])]),
    "solve of a vector": lambda m, t: m.linalg.solve(t(X[0, 0]), t(Y[0, 0, 0])), "inv": lambda m, t: m.linalg.inv(t(X[0, 0])), "svd": lambda m, t: m.linalg.svd(t(X[0]), full_matrices=False)[1],
    "linalg.norm": lambda m, t: m.linalg.norm(t(X[0, 0]), "nuc"), "linalg.norm, dim": lambda m, t: m.linalg.norm(t(L), dim=1), "full": lambda m, t: m.full((2, 3), 1.5), "full, size": lambda m, t: m.full(size=(2,), fill_value=2.0),
    "LayerNorm": lambda m, t: m.nn.LayerNorm([6, 6], 1e-3)(t(X)).detach(), "LayerNorm without": lambda m, t: m.nn.LayerNorm(6, elementwise_affine=False)(t(X)),
    "Conv2d, same": lambda m, t: filled(m, m.nn.Conv2d(3, 2, 3, padding="same", bias=False))(t(X)).detach(), "Conv2d, reflect": lambda m, t: filled(m, m.nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"))(t(X)).detach(),
    "ConvTranspose2d": lambda m, t: filled(m, m.nn.ConvTranspose2d(3, 2, 3, 2, 1, 1))(t(X)).detach(), "Upsample": lambda m, t: m.nn.Upsample(scale_factor=2, mode="bilinear")(t(X)),
    "GroupNorm": lambda m, t: m.nn.GroupNorm(3, 3, 1e-2)(t(X)).detach(), "BatchNorm, momentum None": lambda m, t: moved(m, t, momentum=None), "BatchNorm": lambda m, t: moved(m, t, momentum=0.3),
    "BatchNorm without statistics": lambda m, t: m.nn.BatchNorm2d(3, track_running_stats=False).eval()(t(X)).detach(), "F.batch_norm moves": lambda m, t: moving(m, t),
}


def filled(m, layer):
    with m.no_grad():
        for p in layer.parameters():
            p.copy_(m.linspace(-1, 1, p.numel()).reshape(p.shape))
    return layer


def moved(m, t, **options):
    norm = m.nn.BatchNorm2d(3, **options)
    norm(t(X)), norm(t(Y))
    return m.cat([norm.running_mean, norm.running_var, norm.eval()(t(X)).detach().flatten()])


def moving(m, t):
    mean, var = t(np.zeros(3, "f4")), t(np.ones(3, "f4"))
    y = m.nn.functional.batch_norm(t(X), mean, var, training=True, momentum=0.25)
    return m.cat([mean, var, y.flatten()])


def distributions(d, t):
    """Numbers of several distributions of the module d."""
    n, o = d.Normal(t(L), t(P) + 0.1), d.Normal(t(P), t(Q) + 0.5)
    b, c = d.Bernoulli(t(P)), d.Categorical(logits=t(L))
    u, e, i = d.Uniform(t(P), t(P) + 2), d.Exponential(t(Q) + 0.5), d.Independent(n, 1)
    yield from (n.log_prob(t(P)), n.entropy(), n.cdf(t(P)), n.variance, d.kl_divergence(n, o), b.log_prob(t((Q > 0.5).astype("f4"))), b.entropy(), d.kl_divergence(b, d.Bernoulli(logits=t(L))))
    yield from (c.log_prob(t(K)), c.entropy(), c.probs, d.kl_divergence(c, d.Categorical(t(P))), d.Categorical(t(P)).log_prob(t(K)))
    yield from (u.log_prob(t(P) + 0.5), u.log_prob(t(P) + 3), u.entropy(), u.variance, e.log_prob(t(Q)), e.entropy(), i.log_prob(t(P)), i.entropy(), d.kl_divergence(i, d.Independent(o, 1)))


@unittest.skipIf(torch is None, "no PyTorch")
class LikePyTorch(unittest.TestCase):
    def check(self, theirs, mine):
        theirs, mine = np.asarray(theirs), np.asarray(mine)
        self.assertEqual(mine.shape, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-5)

    def test_functional(self):
        for name, function in FUNCTIONS.items():
            with self.subTest(name=name):
                self.check(function(torch.nn.functional, torch.tensor), function(weft.nn.functional, weft.tensor))

    def test_others(self):
        for name, function in OTHERS.items():
            with self.subTest(name=name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.check(function(torch, torch.tensor), function(weft, weft.tensor))

    def test_distributions(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.distributions.Distribution.set_default_validate_args(False)
            for number, (theirs, mine) in enumerate(zip(distributions(torch.distributions, torch.tensor), distributions(weft.distributions, weft.tensor))):
                with self.subTest(number=number):
                    self.check(theirs, mine)


class Own(unittest.TestCase):
    def test_draws(self):
        weft.manual_seed(3)
        d = weft.distributions
        for made, mean, deviation in ((d.Normal(2.0, 0.5), 2, 0.5), (d.Uniform(0.0, 2.0), 1, 3**-0.5), (d.Exponential(2.0), 0.5, 0.5), (d.Bernoulli(0.25), 0.25, 0.4330127)):
            drawn = made.sample((4000,))
            self.assertEqual(drawn.shape, (4000,))
            self.assertAlmostEqual(drawn.mean().item(), mean, delta=0.06)
            self.assertAlmostEqual(drawn.std().item(), deviation, delta=0.06)
            self.assertAlmostEqual(made.stddev.item(), deviation, delta=1e-6)
        drawn = d.Categorical(weft.tensor([[0.9, 0.1], [0.2, 0.8]])).sample((3000,))
        self.assertEqual(drawn.shape, (3000, 2))
        np.testing.assert_allclose(drawn.to("f32").mean(0).numpy(), [0.1, 0.8], atol=0.04)
        loc = weft.tensor(1.0, requires_grad=True)
        d.Normal(loc, 1.0).rsample((5,)).sum().backward()
        self.assertEqual(loc.grad.item(), 5)
        with self.assertRaisesRegex(weft.UsageError, "log_prob"):
            d.Bernoulli(0.5).rsample()

    def test_containers(self):
        nn = weft.nn
        net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), lambda x: x * 2, nn.Linear(3, 1))
        x = weft.ones(1, 2)
        whole = net(x).item()
        self.assertEqual(net[2:](net[:2](x)).item(), whole)
        self.assertIs(net[:1][0], net[0])  # shared
        self.assertEqual([name for name, _ in net.named_parameters()], ["0.weight", "0.bias", "3.weight", "3.bias"])
        net[1] = nn.Identity()
        net.insert(0, nn.Flatten())
        self.assertEqual([name for name, _ in net.named_parameters()], ["1.weight", "1.bias", "4.weight", "4.bias"])
        del net[-1]
        self.assertEqual(net(x).shape, (1, 3))
        self.assertIsInstance(net.pop(0), nn.Flatten)
        modules = nn.ModuleList(nn.Linear(1, n) for n in (1, 2, 3))
        modules += [nn.ReLU()]
        self.assertEqual([m.out_features for m in modules[1:3]], [2, 3])
        self.assertEqual((len(list(net.modules())), len(list(net.children())), next(net.parameters()).shape), (3, 2, (3, 2)))
        shared = nn.Linear(2, 2)
        both = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
        self.assertEqual([name for name, _ in both.named_parameters()], ["a.weight", "a.bias"])
        twin = nn.Module()
        twin.register_buffer("kept", weft.ones(1))
        twin.register_buffer("lost", weft.ones(1), persistent=False)
        self.assertEqual((list(twin.state_dict()), [name for name, _ in twin.named_buffers()]), (["kept"], ["kept", "lost"]))
        layer = nn.Linear(2, 2).double()
        self.assertEqual((layer.weight.dtype, layer(weft.ones(1, 2, dtype="f64")).dtype), ("f64", "f64"))
        with self.assertRaisesRegex(weft.UsageError, "WebGPU"):
            layer.cuda()
        with self.assertRaises(RuntimeError):  # as PyTorch's, and a UsageError
            layer.load_state_dict({})

    def test_a_function_of_its_own_has_second_derivatives(self):
        class Cube(weft.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.save_for_backward(x)
                ctx.factor = factor
                return x * x * x * factor

            @staticmethod
            def backward(ctx, gradient):
                x, = ctx.saved_tensors
                return gradient * 3 * x * x * ctx.factor, None

        x = weft.tensor([1.0, 2.0], requires_grad=True)
        first, = weft.autograd.grad(Cube.apply(x, 2.0).sum(), x, create_graph=True)
        second, = weft.autograd.grad(first.sum(), x)
        self.assertEqual((first.tolist(), second.tolist()), ([6, 24], [12, 24]))

        class Short(Cube):
            @staticmethod
            def backward(ctx, gradient):
                return gradient

        with self.assertRaisesRegex(weft.UsageError, "1 gradients for 2 inputs"):
            Short.apply(x, 1.0).sum().backward()

    def test_scales_of_losses(self):
        w = weft.ones(2, requires_grad=True)
        optimizer, scaler = weft.optim.SGD([w], 0.5), weft.amp.GradScaler(init_scale=8.0, growth_interval=2)
        for factor, scale in ((1.0, 8.0), (float("inf"), 4.0), (1.0, 4.0), (1.0, 8.0)):
            before = w.tolist()
            optimizer.zero_grad()
            scaler.scale((w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(scaler.get_scale(), scale)
            self.assertEqual(w.tolist(), [b - (0.5 if factor == 1 else 0) for b in before])
        other = weft.amp.GradScaler()
        other.load_state_dict(scaler.state_dict())
        self.assertEqual(other.get_scale(), 8.0)


if __name__ == "__main__":
    unittest.main()
