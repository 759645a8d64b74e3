"""Optimisers, schedules and averages: against PyTorch, and rules that it lacks against NumPy in f64, as their papers write them."""
import math
import unittest

import numpy as np

import weft
from weft import nn, optim

try:
    import torch
except Exception:
    torch = None

# On both sides of the alignment of flat variables, and a scalar. Parameters of rank 0 and 1 do not decay in Weft.
SHAPES = [(8, 8), (3,), (5, 7), (64,), (), (2, 3, 4)]
STEPS = 9


def numbers(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def gradients(step, dtype):
    """Of some elements the sign stays, of others it changes."""
    return [(0.3 * numbers(shape, i) + numbers(shape, 100 * step + i)).astype(dtype) for i, shape in enumerate(SHAPES)]


def parameters(dtype):
    return [weft.Variable(numbers(shape, 50 + i).astype(dtype), f"p{i}") for i, shape in enumerate(SHAPES)]


# (class, options of Weft under PyTorch's names, which both take)
TORCH_CASES = [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "weight_decay": 0.1}), ("SGD", {"momentum": 0.8, "dampening": 0.3, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {"weight_decay": 0.1}), ("Adam", {"betas": (0.8, 0.95), "eps": 1e-3}),
    ("Adam", {"betas": (0.7, 0.6), "amsgrad": True, "maximize": True}), ("AdamW", {"weight_decay": 0.1}),
    ("AdamW", {"betas": (0.7, 0.6), "amsgrad": True}), ("RMSprop", {}), ("RMSprop", {"alpha": 0.8, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"alpha": 0.9, "centered": True, "eps": 1e-4}), ("RMSprop", {"alpha": 0.9, "centered": True, "momentum": 0.5, "eps": 1e-4}),
    ("Adagrad", {}), ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}), ("Adagrad", {"maximize": True, "eps": 1e-3}),
    ("Adadelta", {}), ("Adadelta", {"rho": 0.7, "eps": 1e-3, "weight_decay": 0.1}), ("Adamax", {}), ("Adamax", {"betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9), "weight_decay": 0.1}), ("RAdam", {"betas": (0.9, 0.99), "eps": 1e-3}), ("ASGD", {}),
    ("ASGD", {"lambd": 0.1, "alpha": 0.6, "t0": 3, "weight_decay": 0.1}), ("Rprop", {}), ("Rprop", {"etas": (0.4, 1.5), "step_sizes": (1e-3, 0.08)}),
]


class Own(unittest.TestCase):
    def test_a_rate_keeps_its_digits(self):
        """0.1 as an f32 is 0.100000001."""
        for step in (lambda o, g: o.step(g, 0.1), lambda o, g: o.step(g), lambda o, g: o.step(g, 0.1, scale=optim.LossScale(1.0)), lambda o, g: o.step(g, scale=optim.LossScale(1.0))):
            w = weft.Variable(np.zeros(1), "w")
            step(optim.SGD([w], 0.1), [weft.tensor(np.ones(1))])
            self.assertEqual(w.item(), -0.1)

    def test_groups(self):
        a, b = weft.ones(2, 2, requires_grad=True), weft.ones(2, requires_grad=True)
        optimizer = optim.Adam([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25, betas=(0.8, 0.9))
        first, second = optimizer.param_groups
        self.assertEqual((first["lr"], second["lr"], first["betas"], first["params"][0] is a), (0.25, 0.5, (0.8, 0.9), True))
        optimizer.learning_rate = 0.125  # the ratio stays
        self.assertEqual((first["lr"], second["lr"]), (0.125, 0.25))
        first["betas"] = (0.7, 0.95)
        self.assertEqual((first["beta_1"], first["beta_2"], second["beta_1"]), (0.7, 0.95, 0.8))
        first["name"] = "body"  # a note
        state = optimizer.state_dict()
        other = optim.Adam([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.25)
        other.load_state_dict(state)
        self.assertEqual([group["lr"] for group in other.param_groups], [0.125, 0.25])
        del state["learning_rate.1"]  # as earlier versions wrote it
        other.load_state_dict(state)
        self.assertEqual([group["lr"] for group in other.param_groups], [0.125, 0.25])

        @weft.compile
        def step(g, h):
            optimizer.step([g, h])

        for rates in ((0.1, 0.0), (0.0, 0.2)):
            before = a.numpy().copy(), b.numpy().copy()
            first["lr"], second["lr"] = rates
            step(weft.ones(2, 2), weft.ones(2))
            self.assertEqual((np.any(a.numpy() != before[0]), np.any(b.numpy() != before[1])), (rates[0] > 0, rates[1] > 0))
        for key, value, message in (("lr", -1, "at least 0"), ("betas", (2, 0.5), r"\[0, 1\)"), ("params", [], "stay"), ("amsgrad", True, "another state")):
            with self.assertRaisesRegex(weft.UsageError, message):
                first[key] = value
        with self.assertRaisesRegex(weft.UsageError, "another state"):
            optim.SGD([a]).param_groups[0]["momentum"] = 0.9
        with self.assertRaisesRegex(weft.UsageError, "cycle_momentum=False"):
            optim.lr_scheduler.OneCycleLR(optim.Adagrad([a]), 0.1, total_steps=5)

    def test_parameters_without_a_gradient_stay(self):
        used, unused = weft.ones(2, 2, requires_grad=True), weft.ones(2, 2, requires_grad=True)
        optimizer = optim.AdamW([used, unused], lr=0.1, weight_decay=0.5)
        with self.assertRaisesRegex(weft.UsageError, "backward"):
            optimizer.step()
        (used * used).sum().backward()
        optimizer.step()
        self.assertEqual(unused.tolist(), [[1, 1], [1, 1]])
        self.assertLess(used.numpy().max(), 1)
        self.assertEqual(optimizer.step(lambda: 7), 7)


class AgainstTorch(unittest.TestCase):
    def setUp(self):
        if torch is None:
            self.skipTest("no PyTorch")

    def theirs(self, name, options, dtype):
        """Their parameters, in groups as Weft decays them, and their optimiser."""
        tensors = [torch.nn.Parameter(torch.tensor(numbers(shape, 50 + i).astype(dtype))) for i, shape in enumerate(SHAPES)]
        groups = [{"params": [p for p in tensors if p.ndim >= 2]},
                  {"params": [p for p in tensors if p.ndim < 2], **({} if name == "Rprop" else {"weight_decay": 0})}]
        return tensors, getattr(torch.optim, name)(groups, lr=0.05, **options)

    def test_updates(self):
        for name, options in TORCH_CASES:
            for dtype, tolerance in (("f4", 3e-6), ("f8", 1e-12)):
                with self.subTest(name=name, options=options, dtype=dtype):
                    if name == "ASGD" and dtype == "f8":
                        tolerance = 3e-8  # theirs has the rate in f32
                    tensors, reference = self.theirs(name, options, dtype)
                    mine = parameters(dtype)
                    optimizer = getattr(optim, name)(mine, lr=0.05, **options)
                    for step in range(STEPS):
                        given = gradients(step, dtype)
                        for tensor, gradient in zip(tensors, given):
                            tensor.grad = torch.tensor(gradient)
                        reference.step()
                        optimizer.step([weft.tensor(g) for g in given])
                    for a, b in zip(mine, tensors):
                        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)

    def test_state_of_torch(self):
        """Training goes on from PyTorch's state as it would there."""
        for name, options in TORCH_CASES:
            if name == "ASGD":  # keeps the rate of the last step, which Weft computes again
                continue
            with self.subTest(name=name, options=options):
                tensors = [torch.nn.Parameter(torch.tensor(numbers(shape, 50 + i).astype("f4"))) for i, shape in enumerate(SHAPES)]
                own = {**options, **({} if name == "Rprop" else {"weight_decay": 0})}
                reference = getattr(torch.optim, name)(tensors, lr=0.05, **own)

                def step(number):
                    given = gradients(number, "f4")
                    for tensor, gradient in zip(tensors, given):
                        tensor.grad = torch.tensor(gradient)
                    reference.step()
                    return [weft.tensor(g) for g in given]

                for number in range(4):
                    step(number)
                mine = [weft.Variable(t.detach().numpy(), f"p{i}") for i, t in enumerate(tensors)]
                optimizer = getattr(optim, name)(mine, lr=0.5, **own)
                if name == "SGD" and not own.get("momentum"):
                    continue  # nothing is kept
                optimizer.load_state_dict(reference.state_dict())
                self.assertEqual(optimizer.learning_rate, float(np.float32(0.05)))
                for number in range(4, 8):
                    optimizer.step(step(number))
                for a, b in zip(mine, tensors):
                    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=3e-6, atol=3e-6)

    def test_groups(self):
        tensors = [torch.nn.Parameter(torch.tensor(numbers(shape, 50 + i).astype("f4"))) for i, shape in enumerate(SHAPES)]
        reference = torch.optim.AdamW([{"params": tensors[:2], "lr": 0.1}, {"params": tensors[2:], "betas": (0.5, 0.9)}], lr=0.02, weight_decay=0)
        mine = parameters("f4")
        optimizer = optim.AdamW([{"params": mine[:2], "lr": 0.1}, {"params": mine[2:], "betas": (0.5, 0.9)}], lr=0.02, weight_decay=0)
        schedule = torch.optim.lr_scheduler.StepLR(reference, 3, 0.5)
        rates = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        for step in range(STEPS):
            given = gradients(step, "f4")
            for tensor, gradient in zip(tensors, given):
                tensor.grad = torch.tensor(gradient)
            reference.step()
            optimizer.step([weft.tensor(g) for g in given])
            schedule.step()
            rates.step()
        for a, b in zip(mine, tensors):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=3e-6, atol=3e-6)

    def test_groups_are_changed(self):
        """By each group's dictionary, as programs for PyTorch do, also inside a compiled step that is given no rate."""
        tensors = [torch.nn.Parameter(torch.tensor(numbers(shape, 50 + i).astype("f8"))) for i, shape in enumerate(SHAPES)]
        mine = parameters("f8")
        found = []
        for module, given in ((torch.optim, tensors), (optim, mine)):
            optimizer = module.SGD([{"params": given[:2], "lr": 0.1}, {"params": given[2:], "momentum": 0.5}], lr=0.02, momentum=0.9)
            for step in range(STEPS):
                for group, rate in zip(optimizer.param_groups, (0.1 / (1 + step), 0.03 * step)):
                    group["lr"] = rate
                    group["momentum"] = 0.9 - 0.05 * step
                for p, gradient in zip(given, gradients(step, "f8")):
                    p.grad = torch.tensor(gradient) if module is torch.optim else weft.tensor(gradient)
                optimizer.step()
            found.append([group["lr"] for group in optimizer.param_groups])
        self.assertEqual(*found)
        for a, b in zip(mine, tensors):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-12)

    def test_momentum_cycles(self):
        for name, options, of in (("OneCycleLR", {"max_lr": 1.0, "total_steps": 23}, "SGD"), ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 4}, "SGD"),
                                  ("OneCycleLR", {"max_lr": 1.0, "total_steps": 23, "base_momentum": 0.6, "anneal_strategy": "linear"}, "Adam"),
                                  ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 4, "mode": "triangular2", "base_momentum": 0.5}, "SGD")):
            seen = []
            for module, weight in ((torch.optim, torch.nn.Parameter(torch.ones(2))), (optim, weft.ones(2, requires_grad=True))):
                optimizer = getattr(module, of)([weight], lr=0.5, **({"momentum": 0.7} if of == "SGD" else {}))
                schedule = getattr(module.lr_scheduler, name)(optimizer, **options)
                rows = []
                for _ in range(20):
                    weight.grad = weight.detach() * 1
                    optimizer.step()
                    schedule.step()
                    group = optimizer.param_groups[0]
                    rows.append([group["lr"], group["momentum"] if of == "SGD" else group["betas"][0], *weight.tolist()])
                seen.append(rows)
            np.testing.assert_allclose(seen[1], seen[0], rtol=2e-5, atol=1e-6, err_msg=name)

    SCHEDULES = [
        ("StepLR", {"step_size": 4, "gamma": 0.5}), ("MultiStepLR", {"milestones": [3, 3, 8], "gamma": 0.3}), ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
        ("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 7}), ("ExponentialLR", {"gamma": 0.9}),
        ("PolynomialLR", {"total_iters": 9, "power": 2.0}), ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.01}),
        ("CosineAnnealingWarmRestarts", {"T_0": 5, "eta_min": 0.01}), ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
        ("OneCycleLR", {"max_lr": 1.0, "total_steps": 41, "cycle_momentum": False}),
        ("OneCycleLR", {"max_lr": 0.6, "epochs": 5, "steps_per_epoch": 9, "pct_start": 0.4, "anneal_strategy": "linear", "cycle_momentum": False}),
        ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 4, "step_size_down": 6, "cycle_momentum": False}),
        ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 5, "mode": "triangular2", "cycle_momentum": False}),
        ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 5, "mode": "exp_range", "gamma": 0.95, "cycle_momentum": False}),
        ("LambdaLR", {"lr_lambda": lambda step: 1 / (1 + step)}), ("MultiplicativeLR", {"lr_lambda": lambda step: 0.9 if step % 2 else 0.8}),
    ]

    def pair(self):
        weight = torch.nn.Parameter(torch.zeros(2))
        return torch.optim.SGD([weight], lr=0.5), optim.SGD([weft.Variable(np.zeros(2, "f4"), "w")], 0.5)

    def compare(self, a, b, reference, optimizer, name, steps=40):
        for step in range(steps):
            self.assertAlmostEqual(b.get_last_lr()[0], reference.param_groups[0]["lr"], delta=1e-9, msg=f"{name}, step {step}")
            self.assertAlmostEqual(optimizer.learning_rate, reference.param_groups[0]["lr"], delta=1e-6)
            reference.step()
            a.step()
            b.step()

    def test_schedules(self):
        for name, options in self.SCHEDULES:
            if name == "PolynomialLR" and not hasattr(torch.optim.lr_scheduler, name):
                continue
            reference, optimizer = self.pair()
            self.compare(getattr(torch.optim.lr_scheduler, name)(reference, **options), getattr(optim.lr_scheduler, name)(optimizer, **options),
                         reference, optimizer, name)

    def test_schedules_together(self):
        def sequential(s, o):
            return s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 5), s.ExponentialLR(o, 0.9), s.ConstantLR(o, 0.5, 100)], [5, 12])

        def chained(s, o):
            return s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 4)])

        for make in (sequential, chained):
            reference, optimizer = self.pair()
            self.compare(make(torch.optim.lr_scheduler, reference), make(optim.lr_scheduler, optimizer), reference, optimizer, make.__name__, 20)

    def test_plateau(self):
        measures = np.concatenate([np.linspace(5, 2, 6), np.full(7, 2.0), [1.99, 1.5, math.nan, 1.4999], np.full(9, 1.5)])
        for options in ({"patience": 2}, {"patience": 1, "cooldown": 2, "factor": 0.5}, {"mode": "max", "patience": 3},
                        {"patience": 0, "threshold": 0.05, "threshold_mode": "abs", "min_lr": 0.01}, {"mode": "max", "patience": 2, "threshold": 0.1}):
            reference, optimizer = self.pair()
            a, b = torch.optim.lr_scheduler.ReduceLROnPlateau(reference, **options), optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            for i, measure in enumerate(measures):
                a.step(float(measure))
                b.step(float(measure))
                self.assertAlmostEqual(b.get_last_lr()[0], reference.param_groups[0]["lr"], delta=1e-12, msg=f"{options} {i}")

    def test_lbfgs(self):
        start = np.array([-1.5, 2.0, 0.5, -0.3])
        for options in ({"lr": 0.1, "max_iter": 4}, {"lr": 1, "line_search_fn": "strong_wolfe"}, {"lr": 0.02, "max_iter": 30, "history_size": 3},
                        {"lr": 2, "max_iter": 5, "line_search_fn": "strong_wolfe", "history_size": 2}):
            theirs = torch.nn.Parameter(torch.tensor(start))
            mine = weft.Variable(start, "x")
            a, b = torch.optim.LBFGS([theirs], **options), optim.LBFGS([mine], **options)

            def rosenbrock(x):
                return (100 * (x[1:] - x[:-1] * x[:-1]) ** 2 + (1 - x[:-1]) ** 2).sum()

            def torch_closure():
                a.zero_grad()
                loss = rosenbrock(theirs)
                loss.backward()
                return loss

            def closure():
                b.zero_grad()
                loss = rosenbrock(mine)
                loss.backward()
                return loss

            for step in range(5):
                before, own = a.step(torch_closure), b.step(closure)
                self.assertAlmostEqual(own / max(1, abs(float(before))), float(before) / max(1, abs(float(before))), places=8, msg=f"{options} {step}")
                np.testing.assert_allclose(mine.numpy(), theirs.detach().numpy(), rtol=1e-7, atol=1e-9, err_msg=f"{options} {step}")
            self.assertEqual(b.evaluation_count, a.state[theirs]["func_evals"])

    def test_averages(self):
        weights = [numbers((3, 2), i).astype("f4") for i in range(5)]
        theirs, mine = torch.nn.Linear(2, 3, bias=False), nn.Linear(2, 3, bias=False)
        a, b = torch.optim.swa_utils.AveragedModel(theirs), optim.swa_utils.AveragedModel(mine)
        average, moving = optim.AveragedWeights(mine), optim.AveragedWeights(mine, 0.9)
        for weight in weights:
            theirs.weight.data = torch.tensor(weight)
            mine.weight.assign(weight)
            for each in (average, moving):
                each.update()
            a.update_parameters(theirs)
            b.update_parameters(mine)
        np.testing.assert_allclose(b.module.weight.numpy(), a.module.weight.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(average.values()[0].numpy(), np.mean(weights, axis=0), rtol=1e-5, atol=1e-6)
        expected = weights[0]
        for weight in weights[1:]:
            expected = 0.9 * expected + 0.1 * weight
        np.testing.assert_allclose(moving.values()[0].numpy(), expected, rtol=1e-5, atol=1e-6)
        moving.swap()
        np.testing.assert_allclose(mine.weight.numpy(), expected, rtol=1e-5, atol=1e-6)
        moving.swap()
        np.testing.assert_array_equal(mine.weight.numpy(), weights[-1])
        state = moving.state_dict()
        self.assertEqual(sorted(state), ["n_averaged", "weight"])
        again = optim.AveragedWeights(mine, 0.9)
        again.load_state_dict(state)
        np.testing.assert_array_equal(again.values()[0].numpy(), moving.values()[0].numpy())
        self.assertEqual(again.update_count, 5)


# ---- Rules that PyTorch got later, or does not have: (parameter, gradient, step, state) -> parameter, in f64.


def lion(p, g, t, s, lr, b1=0.9, b2=0.99, decay=0.0):
    m = s.get("m", 0 * g)
    update = np.sign(b1 * m + (1 - b1) * g)
    s["m"] = b2 * m + (1 - b2) * g
    return p - lr * (update + decay * p)


def adafactor(p, g, t, s, lr, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, decay=0.0, machine=2.0 ** -52):
    first, second = eps[0] or machine, eps[1]
    share = t ** beta2_decay
    alpha = max(second, np.linalg.norm(p) / math.sqrt(p.size)) * min(lr, 1 / math.sqrt(t))
    p = p * (1 - lr * decay)
    if g.ndim > 1:
        s["r"] = s.get("r", 0) * (1 - share) + share * (g * g).mean(-1, keepdims=True)
        s["c"] = s.get("c", 0) * (1 - share) + share * (g * g).mean(-2, keepdims=True)
        v = s["r"] @ s["c"] / np.maximum(s["r"].mean(-2, keepdims=True), first)
    else:
        s["v"] = v = s.get("v", 0) * (1 - share) + share * g * g
    u = g / np.sqrt(np.maximum(v, first * first))
    return p - alpha * u / max(1.0, np.linalg.norm(u) / (math.sqrt(u.size) * d))


def adam_direction(g, t, s, b1, b2, eps):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    return s["m"] / (1 - b1 ** t) / (np.sqrt(s["v"] / (1 - b2 ** t)) + eps)


def lamb(p, g, t, s, lr, b1=0.9, b2=0.999, eps=1e-6, decay=0.0):
    u = adam_direction(g, t, s, b1, b2, eps) + decay * p
    size, step = np.linalg.norm(p), np.linalg.norm(u)
    return p - lr * (size / step if size > 0 and step > 0 else 1.0) * u


def nadam(p, g, t, s, lr, b1=0.9, b2=0.999, eps=1e-8, momentum_decay=4e-3, decay=0.0, decoupled=False):
    """PyTorch has an extra factor in the last product before 2.1."""
    p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
    now, later = (b1 * (1 - 0.5 * 0.96 ** (n * momentum_decay)) for n in (t, t + 1))
    s["product"] = s.get("product", 1.0) * now
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    below = np.sqrt(s["v"] / (1 - b2 ** t)) + eps
    return p - lr * (1 - now) / (1 - s["product"]) * g / below - lr * later / (1 - s["product"] * later) * s["m"] / below


def muon(p, g, t, s, lr, momentum=0.95, nesterov=True, decay=0.0, match=True, matrices=True):
    p = p * (1 - lr * decay)
    if g.ndim < 2 or not matrices:
        return p - lr * adam_direction(g, t, s, 0.9, 0.95, 1e-8)
    s["b"] = momentum * s.get("b", 0) + (1 - momentum) * g
    u = (1 - momentum) * g + momentum * s["b"] if nesterov else s["b"]
    x = u.reshape(u.shape[0], -1)
    rows, columns = x.shape
    x = x / max(np.linalg.norm(x), 1e-7)
    x = x.T if rows > columns else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    x = x.T if rows > columns else x
    factor = 0.2 * math.sqrt(max(rows, columns)) if match else math.sqrt(max(1, rows / columns))
    return p - lr * factor * x.reshape(p.shape)


PAPERS = [
    (lambda p: optim.NAdam(p, 0.05), nadam, {}),
    (lambda p: optim.NAdam(p, 0.05, betas=(0.8, 0.9), weight_decay=0.1, momentum_decay=0.05), nadam,
     {"b1": 0.8, "b2": 0.9, "decay": 0.1, "momentum_decay": 0.05}),
    (lambda p: optim.NAdam(p, 0.05, weight_decay=0.2, decoupled_weight_decay=True), nadam, {"decay": 0.2, "decoupled": True}),
    (lambda p: optim.Lion(p, 0.05), lion, {}),
    (lambda p: optim.Lion(p, 0.05, betas=(0.8, 0.9), weight_decay=0.3, maximize=True), lion, {"b1": 0.8, "b2": 0.9, "decay": 0.3}),
    (lambda p: optim.Adafactor(p, 0.05), adafactor, {}),
    (lambda p: optim.Adafactor(p, 0.5, beta2_decay=-0.6, eps=(1e-2, 0.5), d=0.7, weight_decay=0.2), adafactor,
     {"lr": 0.5, "beta2_decay": -0.6, "eps": (1e-2, 0.5), "d": 0.7, "decay": 0.2}),
    (lambda p: optim.LAMB(p, 0.05, weight_decay=0), lamb, {}),
    (lambda p: optim.LAMB(p, 0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.4), lamb, {"b1": 0.8, "b2": 0.9, "eps": 1e-3, "decay": 0.4}),
    (lambda p: optim.Muon(p, 0.05), muon, {"decay": 0.1}),
    (lambda p: optim.Muon(p, 0.05, weight_decay=0.3, nesterov=False, match_adamw=False, momentum=0.8), muon,
     {"decay": 0.3, "nesterov": False, "match": False, "momentum": 0.8}),
    (lambda p: optim.Muon(p, 0.05, weight_decay=0, matrices=lambda name: name == "p2"), muon, {"only": 2}),
]


class AgainstPapers(unittest.TestCase):
    def test_updates(self):
        for number, (make, rule, options) in enumerate(PAPERS):
            for dtype, tolerance in (("f4", 2e-5), ("f8", 1e-11)):
                with self.subTest(rule=rule.__name__, number=number, dtype=dtype):
                    mine = parameters(dtype)
                    optimizer = make(mine)
                    expected, states = [p.numpy().astype("f8") for p in mine], [{} for _ in mine]
                    given = dict(options)
                    only, decay, lr = given.pop("only", None), given.pop("decay", 0.0), given.pop("lr", 0.05)
                    if rule is adafactor and dtype == "f4":
                        given["machine"] = 2.0 ** -23
                    sign = -1 if optimizer.defaults["maximize"] else 1
                    for t in range(1, STEPS + 1):
                        list_of = gradients(t, dtype)
                        optimizer.step([weft.tensor(g) for g in list_of])
                        for i, g in enumerate(list_of):
                            extra = {} if only is None else {"matrices": i == only}
                            expected[i] = rule(expected[i], sign * g.astype("f8"), t, states[i], lr, decay=decay if g.ndim >= 2 else 0.0, **given, **extra)
                    for a, b in zip(mine, expected):
                        np.testing.assert_allclose(a.numpy(), b, rtol=tolerance, atol=tolerance)


class Optimizers(unittest.TestCase):
    def every(self):
        return [getattr(optim, title) for _, title, _, _ in weft._weft._optimizer_rules()]

    def test_signatures_are_the_table(self):
        import inspect
        for _, title, _, options in weft._weft._optimizer_rules():
            signature = inspect.signature(getattr(optim, title).__init__).parameters
            own = {name: parameter.default for name, parameter in signature.items()
                   if name not in ("self", "parameters", "torch", "matrices")}
            self.assertEqual({key: float(value) for key, value in own.items()}, {key: float(value) for key, value in options.items()}, title)

    def test_compiled_steps_and_state(self):
        """One graph for all steps, eager steps have the same result, and a second optimiser goes on from the state."""
        for make in self.every():
            with self.subTest(rule=make.__name__):
                eager, compiled, resumed = parameters("f4"), parameters("f4"), None
                a, b = make(eager, 0.02), make(compiled, 0.02)

                @weft.compile
                def step(*given):
                    return b.step(list(given), 0.02)

                for t in range(6):
                    given = [weft.tensor(g) for g in gradients(t, "f4")]
                    if t == 3:
                        resumed = [weft.Variable(p.numpy(), p.name) for p in eager]
                        c = make(resumed, 9)
                        c.load_state_dict(a.state_dict())
                    a.step(given)
                    step(*given)
                    if t >= 3:
                        c.step(given)
                for x, y, z in zip(eager, compiled, resumed):
                    np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=2e-5, atol=2e-6)
                    np.testing.assert_array_equal(z.numpy(), x.numpy())
                a.reset()
                self.assertEqual(a.step_count, 0)

    def test_a_step_that_is_not_finite_changes_nothing(self):
        for make in self.every():
            with self.subTest(rule=make.__name__):
                mine = parameters("f4")
                optimizer, scale = make(mine, 0.02), optim.LossScale(8)
                given = [weft.tensor(np.float32(8) * g) for g in gradients(0, "f4")]
                optimizer.step(given, 0.02, scale=scale)
                before, state = [p.numpy().copy() for p in mine], optimizer.state_dict()
                optimizer.step([given[0] * math.inf, *given[1:]], 0.02, scale=scale)
                for a, b in zip(mine, before):
                    np.testing.assert_array_equal(a.numpy(), b)
                for key, value in optimizer.state_dict().items():
                    np.testing.assert_array_equal(value.numpy(), state[key].numpy(), key)
                self.assertEqual((scale.skipped_steps, optimizer.step_count), (1, 1))

    def test_training(self):
        rates = {"Adadelta": 3, "Lion": 0.01, "Adafactor": 0.05, "Adagrad": 0.2, "SGD": 0.1, "ASGD": 0.1, "Muon": 0.05}
        rng = np.random.default_rng(0)
        x = rng.standard_normal((64, 6)).astype("f4")
        y = np.tanh(x @ rng.standard_normal((6, 2))).astype("f4")
        for make in self.every():
            weft.manual_seed(3)
            net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
            optimizer = make(net, rates.get(make.__name__, 0.02), clip_norm=5)

            @weft.compile
            def step(inputs, wanted):
                loss = nn.mse(net(inputs), wanted)
                optimizer.step(weft.grad(loss, optimizer.parameters))
                return loss

            first = step(x, y).item()
            for _ in range(80):
                last = step(x, y).item()
            self.assertLess(last, 0.5 * first, make.__name__)

    def test_lbfgs_with_a_compiled_loss(self):
        weft.manual_seed(1)
        x = weft.tensor(numbers((32, 3), 1).astype("f4"))
        net = nn.Linear(3, 1)
        y = weft.tensor(x.numpy() @ np.array([[1.0], [-2], [0.5]], "f4") + 0.25)
        optimizer = optim.LBFGS(net, line_search="strong_wolfe")

        @weft.compile
        def evaluate(inputs, wanted):
            loss = nn.mse(net(inputs), wanted)
            return loss, *weft.grad(loss, net.parameters())

        def closure():
            loss, *found = evaluate(x, y)
            return loss, found

        optimizer.step(closure)
        self.assertLess(optimizer.step(closure), 1e-8)
        np.testing.assert_allclose(net.weight.numpy(), [[1, -2, 0.5]], atol=1e-3)
        state = optimizer.state_dict()
        other = optim.LBFGS(net)
        other.load_state_dict(state)
        for key, value in other.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), state[key].numpy(), key)

    def test_mistakes_are_errors(self):
        p = [weft.Variable(np.ones((2, 2), "f4"), "p")]
        with self.assertRaisesRegex(TypeError, "RMSprop: there is no option 'betas'"):
            optim.RMSprop(p, betas=(0.9, 0.99))
        with self.assertRaisesRegex(weft.UsageError, r"NAdam: beta_1 is 1; it must be in \[0, 1\)"):
            optim.NAdam(p, betas=(1, 0.9))
        with self.assertRaisesRegex(weft.UsageError, "Rprop: shrink is 2 and grow is 1.2"):
            optim.Rprop(p, shrink=2)
        with self.assertRaisesRegex(weft.UsageError, '"params"'):
            optim.SGD([{"lr": 1}])
        with self.assertRaisesRegex(weft.UsageError, "are one Variable"):
            optim.SGD([{"params": p}, {"params": p}])
        with self.assertRaisesRegex(weft.UsageError, "strong_wolfe"):
            optim.LBFGS(p, line_search="armijo")
        with self.assertRaisesRegex(weft.UsageError, "0 gradients for 1 parameters"):
            optim.LBFGS(p).step(lambda: (weft.tensor(1.0), []))
        with self.assertRaisesRegex(weft.UsageError, "decay is 1"):
            optim.AveragedWeights(p, 1)
        with self.assertRaisesRegex(weft.UsageError, "must begin after"):
            optim.Schedule.constant(1).then(5, optim.Schedule.constant(2)).then(5, optim.Schedule.constant(3)).at(0)
        optim.Adam(p, foreach=True, fused=None, capturable=False)  # say how, not what

    def test_running_statistics_of_averages(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4))
        batches = [weft.tensor(numbers((8, 3), i).astype("f4")) for i in range(5)]
        optim.swa_utils.update_bn(batches, net)
        inner = [net[0](batch).numpy() for batch in batches]
        np.testing.assert_allclose(net[1].running_mean.numpy(), np.mean([each.mean(0) for each in inner], axis=0), rtol=1e-4, atol=1e-5)
        self.assertEqual(net[1].momentum, 0.1)


if __name__ == "__main__":
    unittest.main()
