"""Cases for `weft eval`: many ops with their references, run as one program and compared."""
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch


class Judge:
    """Runs batches on one device and collects what differs."""

    def __init__(self, weft, device):
        self.weft, self.device = weft, device
        self.on_cpu = device == "cpu"
        self.comparisons, self.failures = 0, []
        listed = subprocess.run([weft, "ops", "list", "--json"], check=True, capture_output=True, text=True).stdout
        self.ops = {op["name"]: op for op in json.loads(listed)["ops"]}

    def dtypes(self):
        """Float types that the device computes in."""
        return [np.float32, np.float64] if self.on_cpu else [np.float32]

    def run(self, program, inputs):
        """The arrays that a program gives; a str with the message when it is refused."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "program.json").write_text(json.dumps(program))
            np.savez(folder / "in.npz", **inputs)
            done = subprocess.run([self.weft, "eval", folder / "program.json", "--inputs", folder / "in.npz", "--out", folder / "out.npz",
                                   "--device", self.device], capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                return done.stderr.strip() or f"exit code {done.returncode}"
            with np.load(folder / "out.npz") as arrays:
                return dict(arrays)

    def compare(self, name, got, wanted, relative, floor=None):
        """|got - wanted| <= relative * max(|wanted|, floor), above 1e-37; floor: the largest finite |wanted| unless given."""
        self.comparisons += 1
        wanted = np.asarray(wanted)
        if got.shape != wanted.shape:
            return self.failures.append(f"{name}: shape {got.shape} instead of {wanted.shape}")
        if (got.dtype.kind == "b") != (wanted.dtype.kind == "b"):
            return self.failures.append(f"{name}: {got.dtype} instead of {wanted.dtype}")
        if got.size == 0:
            return None
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        size = np.abs(np.where(np.isfinite(wanted), wanted, 0))
        # Numbers below the normal ones of f32 may be flushed to zero.
        allowed = relative * np.maximum(size, size.max() if floor is None else floor) + (0 if relative == 0 else 1e-37)
        with np.errstate(invalid="ignore"):
            same = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(wanted) & (np.abs(got - wanted) <= allowed))
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            self.failures.append(f"{name}: {got[at]!r} instead of {wanted[at]!r} at {list(map(int, at))}, {np.count_nonzero(~same)} of {same.size} elements")
        return None


class Batch:
    """Cases that run as one program in one float type. References are in f64, of inputs that f32 holds."""

    def __init__(self, judge, dtype=np.float32, seed=1):
        self.judge, self.dtype = judge, dtype
        self.random = np.random.default_rng(seed)
        self.inputs, self.steps, self.gradients, self.checks = {}, [], [], []

    def array(self, shape, lo=-2.0, hi=2.0):
        return self.random.uniform(lo, hi, shape).astype(np.float32)

    def relative(self):
        return 2e-5 if self.dtype == np.float32 else 1e-11

    def add_input(self, array):
        name = f"in{len(self.inputs)}"
        array = np.asarray(array)
        self.inputs[name] = array.astype(self.dtype) if array.dtype.kind == "f" else array
        return name

    def case(self, name, op, arrays, reference, attributes=None, relative=None, floor=None, gradient=True, second=False, gradient_relative=None,
             weight=None):
        """One op, or a list of steps (op, input names or places of `arrays`, attributes) whose last result counts.

        `reference` is a function of torch tensors, and gives a tuple for an op with several results, where None stands for one that
        is not compared. Gradients of sum(weight * result) to every float input are compared,
        and with `second` the gradients of sum(v * gradient) to every input and to the weight.
        """
        k = len(self.steps)
        names = [None if a is None else self.add_input(a) for a in arrays]
        result = f"r{k}"
        if isinstance(op, str):
            self.steps.append({"op": op, "inputs": names, "attributes": attributes or {}, "output": result})
        else:
            for i, (step_op, step_inputs, step_attributes) in enumerate(op):
                output = result if i == len(op) - 1 else f"r{k}_{i}"
                operands = [names[j] if isinstance(j, int) else f"r{k}_{j[1:]}" if isinstance(j, str) else j for j in step_inputs]
                self.steps.append({"op": step_op, "inputs": operands, "attributes": step_attributes, "output": output})
        tensors = [None if a is None else tensor_of(np.asarray(a)) for a in arrays]
        floats = [i for i, a in enumerate(arrays) if a is not None and np.asarray(a).dtype.kind == "f"]
        with_gradient = gradient and floats
        if with_gradient:
            for i in floats:
                tensors[i].requires_grad_()
        wanted = reference(*tensors)
        wanted, *others = wanted if isinstance(wanted, tuple) else (wanted,)
        if others:  # further results of the op
            self.steps[-1]["outputs"] = [self.steps[-1].pop("output")] + [f"{result}_also{i}" for i in range(len(others))]
        if not isinstance(wanted, torch.Tensor):
            wanted = torch.tensor(np.asarray(wanted))
        title = f"{name} {np.dtype(self.dtype).name}"
        relative = self.relative() if relative is None else relative
        self.checks.append((title, result, wanted.detach().numpy(), relative, floor))
        for i, other in enumerate(others):
            if other is not None:
                self.checks.append((f"{title}, result {i + 1}", f"{result}_also{i}", other.detach().numpy(), relative, floor))
        if not with_gradient:
            return
        gradient_relative = gradient_relative or self.relative()
        w = self.array(tuple(wanted.shape), 0.5, 1.5) if weight is None else weight
        w_name, w_tensor = self.add_input(w), torch.tensor(w.astype(np.float64), requires_grad=True)
        outputs = [f"g{k}_{i}" for i in floats]
        self.gradients.append({"of": result, "weight": w_name, "with_respect_to": [names[i] for i in floats], "outputs": outputs})
        leaves = [tensors[i] for i in floats]
        gs = gradients_of(wanted, leaves, w_tensor, create_graph=second)
        for i, output, g in zip(floats, outputs, gs):
            self.checks.append((f"{title}, gradient {i}", output, g.detach().numpy(), gradient_relative, None))
        if not second:
            return
        for i, output, g in zip(floats, outputs, gs):
            v = self.array(tuple(g.shape), 0.5, 1.5)
            v_name, v_tensor = self.add_input(v), torch.tensor(v.astype(np.float64))
            hs = gradients_of(g, [*leaves, w_tensor], v_tensor)
            h_outputs = [f"{output}_{j}" for j in range(len(hs))]
            self.gradients.append({"of": output, "weight": v_name, "with_respect_to": [*[names[j] for j in floats], w_name], "outputs": h_outputs})
            for j, (h_output, h) in enumerate(zip(h_outputs, hs)):
                # Terms of size 1 cancel in many of these.
                floor_of = max(0.05, float(h.abs().max())) if h.numel() else None
                self.checks.append((f"{title}, second gradient {i} {j}", h_output, h.numpy(), 5 * gradient_relative, floor_of))

    def run(self):
        if not self.steps:
            return
        results = self.judge.run({"steps": self.steps, "gradients": self.gradients, "outputs": [check[1] for check in self.checks]}, self.inputs)
        if isinstance(results, str):
            self.judge.failures.append(f"{self.checks[0][0]} and the {len(self.steps)} steps after it: {results}")
            return
        for name, output, wanted, relative, floor in self.checks:
            self.judge.compare(name, results[output], wanted, relative, floor)


def tensor_of(array):
    """What PyTorch computes with: floats as f64; it has no u32."""
    wide = {"f": np.float64, "u": np.int64}.get(array.dtype.kind)
    return torch.tensor(array.astype(wide) if wide else array)


def gradients_of(of, leaves, weight, create_graph=False):
    """Gradients of sum(weight * of); zeros where nothing flows."""
    if not of.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    gs = torch.autograd.grad(of, leaves, weight, create_graph=create_graph, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gs, leaves)]
