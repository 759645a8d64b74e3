"""The samples of PyTorch's own operator database, for the ops that both have: forward and gradient."""
import sys
import types
import unittest
import warnings

import numpy as np
import torch

from door import Batch

SAMPLES, SAMPLES_ON_GPU = 12, 2  # of an op; software GPUs compile each kernel for long
# Other things by the same name, conventions that Weft does not share, and a gradient (of hardsigmoid) that PyTorch computes in f32.
LEFT_OUT = {"equal", "nn.functional.hardsigmoid", "nan_to_num", "arange", "heaviside", "signbit", "fix", "nn.functional.dropout", "randn", "zeros", "ones", "zeros_like", "ones_like", "scatter_add", "split", "slice",
            "nn.functional.pad", "nn.functional.one_hot", "nn.functional.binary_cross_entropy", "nn.functional.nll_loss", "norm", "positive", "view"}
NUMBERS = {"alpha", "value", "negative_slope", "beta", "threshold", "min", "max"}  # keywords that are attributes of the same name


def database():
    """op_db; a module that it imports for other tests is not in Debian."""
    expecttest = types.ModuleType("expecttest")
    expecttest.TestCase, expecttest.ACCEPT = unittest.TestCase, False
    sys.modules.setdefault("expecttest", expecttest)
    from torch.testing._internal.common_methods_invocations import op_db
    return op_db


def ints(value):
    return list(value) if isinstance(value, (tuple, list, torch.Size)) else [value]


def converted(name, op, sample):
    """(inputs, attributes) of the sample in Weft's terms; None where it uses what Weft has not."""
    args, kwargs = list(sample.args), dict(sample.kwargs)
    inputs = [sample.input]
    if sample.input.dim() == 0 and op["family"] not in ("unary", "binary", "ternary"):
        return None  # a scalar has no axis 0 in Weft
    if op["family"] in ("unary", "binary", "ternary"):
        if name == "where":
            return None
        if len(args) + 1 != len(op["inputs"]) or not all(isinstance(a, (torch.Tensor, int, float)) for a in args) or not kwargs.keys() <= NUMBERS:
            return None
        if any(not isinstance(v, (int, float)) for v in kwargs.values()):
            return None
        return inputs + [a if isinstance(a, torch.Tensor) else torch.tensor(float(a)) for a in args], kwargs
    if op["family"] == "reduction":
        correction = kwargs.pop("correction", None)
        if name in ("var", "std") and (args or "unbiased" in kwargs):
            return None
        dim = kwargs.pop("dim", args[0] if args else None)
        keep = kwargs.pop("keepdim", False)
        if kwargs or len(args) > 1 or isinstance(dim, torch.Tensor) or (dim is not None and ints(dim) == []):
            return None
        attributes = {"keepdims": keep, **({} if dim is None else {"axes": ints(dim)}), **({} if correction is None else {"correction": correction})}
        return inputs, attributes
    if name in ("matmul", "nn.functional.linear", "nn.functional.mse_loss", "nn.functional.l1_loss", "nn.functional.huber_loss"):
        if not kwargs.keys() <= {"reduction", "delta"}:
            return None
        return inputs + args, kwargs
    if name in ("softmax", "log_softmax", "squeeze", "unsqueeze") and not kwargs and len(args) == 1 and isinstance(args[0], int):
        if name == "squeeze" and sample.input.shape[args[0]] != 1:
            return None  # PyTorch leaves such an axis, Weft refuses
        return inputs, {"axis": args[0]}
    if name == "permute":
        return inputs, {"order": ints(args[0] if len(args) == 1 else args)}
    if name == "transpose":
        return inputs, {"axis_a": args[0], "axis_b": args[1]}
    if name == "flip":
        return inputs, {"axes": ints(args[0] if args else kwargs["dims"])}
    if name in ("tril", "triu") and len(args) <= 1:
        return inputs, {"diagonal": args[0]} if args else {}
    if name in ("expand", "broadcast_to") and -1 not in ints(args[0]):
        return inputs, {"shape": ints(args[0])}
    if name == "reshape":
        return inputs, {"shape": ints(args[0])}
    if name == "select":
        return inputs, {"axis": args[0], "index": args[1]}
    if name == "narrow" and isinstance(args[1], int) and args[1] >= 0:
        return inputs, {"axis": args[0], "start": args[1], "length": args[2]}
    return None


def shared_ops(judge):
    by_name = {name: op for op in judge.ops.values() for name in [op["name"], *op["aliases"]]}
    ours = {"log_sigmoid": "logsigmoid"}
    for info in database():
        plain = info.name.replace("nn.functional.", "")
        plain = ours.get(plain, plain)
        if info.variant_test_name == "" and plain in by_name and info.name not in LEFT_OUT and torch.float32 in info.dtypes:
            yield info, by_name[plain]


def samples(judge):
    covered = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in judge.dtypes():
            batch = Batch(judge, dtype)
            for info, op in shared_ops(judge):
                torch.manual_seed(1)  # the samples of an op do not depend on which others there are
                try:
                    drawn = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
                except (ImportError, RuntimeError, TypeError):
                    continue  # does not draw here: a module that is missing, a newer Python
                used = 0
                for sample in drawn:
                    if not isinstance(sample.input, torch.Tensor) or used == (SAMPLES if judge.on_cpu else SAMPLES_ON_GPU):
                        continue
                    known = converted(info.name, op, sample)
                    if known is None or any(not isinstance(t, torch.Tensor) or t.numel() > 5000 for t in known[0]):
                        continue
                    inputs, attributes = known

                    def reference(*x, info=info, sample=sample):
                        count = len(x) - 1
                        return info.op(x[0], *x[1:], *list(sample.args)[count:], **sample.kwargs)

                    used += 1
                    batch.case(f"{info.name} sample {used} {[tuple(t.shape) for t in inputs]} {attributes}", op["name"],
                               [t.detach().numpy() for t in inputs], reference, attributes, relative=1e-5 if dtype == np.float32 else 1e-11,
                               floor=None, gradient=op["differentiable"] and info.supports_autograd)
                covered += used > 0
            batch.run()
    if covered < 60:
        judge.failures.append(f"only {covered} ops of PyTorch's database were compared")


SUBJECTS = [samples]
