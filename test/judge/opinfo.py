"""The samples of PyTorch's own operator database: forward, gradient and second order, in every type that both have.

`translated` says what each operator is in Weft's ops, `opinfo_left_out.py` why an operator has no translation;
`opinfo_known.py` lists what differs, and why. An entry of a list that is no longer needed is a failure too.
"""
import collections
import fnmatch
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

import numpy as np
import torch

from opinfo_known import KNOWN
from opinfo_left_out import LEFT_OUT
from translated import TABLE, Program, Untranslated, Value

TYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {"f32": "F32", "f64": "F64", "i32": "I32", "i64": "I64", "bool": "BOOL", "f16": "F16", "bf16": "BF16"}
TYPE_OF = {torch_type: name for name, torch_type in TYPES.items()}
# Of the value, and of the largest value: results, gradients, second order. PyTorch computes narrow types and f32 in f64 here.
TOLERANCE = {"f32": (3e-5, 6e-6), "f64": (1e-10, 1e-11), "f16": (4e-3, 2e-3), "bf16": (3e-2, 1.6e-2)}
ELEMENTS_MAX = 20000
PER_PROGRAM = 250


def database():
    """op_db; a module that it imports for other tests is not in Debian."""
    expecttest = types.ModuleType("expecttest")
    expecttest.TestCase, expecttest.ACCEPT = unittest.TestCase, False
    sys.modules.setdefault("expecttest", expecttest)
    from torch.testing._internal.common_methods_invocations import op_db
    return op_db


def title_of(info):
    return info.name + (f"|{info.variant_test_name}" if info.variant_test_name else "")


def mapped(value, function):
    """The argument with function(t) for every tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return value


def flat(results):
    return [r for each in results for r in flat(each)] if isinstance(results, (list, tuple)) else [results]


def gradient_of(x, g):
    """As an ordinary tensor: PyTorch's zeros may have no memory, and numpy() reads at random there."""
    return torch.zeros_like(x) if g is None else torch.zeros_like(x) + g.detach()


class Sample:
    """A sample in Weft's terms, with PyTorch's results."""

    def __init__(self, ops, number, info, sample, kind, order):
        self.number = number
        self.title, self.kind, self.key = f"{title_of(info)} {kind} {number}", kind, title_of(info)
        prefix = f"s{number}"
        self.inputs, self.steps, self.gradients, self.checks = {}, [], [], []  # checks: stage, name, wanted
        program = Program(prefix, ops)
        tensors = []

        def symbol(tensor):
            name = f"{prefix}_in{len(tensors)}"
            tensors.append(tensor)
            self.inputs[name] = tensor.detach()
            return Value(name, tensor.shape, tensor.dtype)

        arguments = (sample.input, *sample.args)
        given = mapped((arguments, sample.kwargs), symbol)
        if any(t.numel() > ELEMENTS_MAX for t in tensors):
            raise Untranslated("a large input")
        if any(t.dtype not in TYPE_OF for t in tensors):
            raise Untranslated("a type that Weft has not")
        results = flat(TABLE[self.key](program, *given[0], **given[1]))
        self.steps = program.steps
        if not any(isinstance(r, Value) for r in results):
            raise Untranslated("no results")

        # PyTorch, in f64 for floats; gradients flow to these.
        wide = iter([t.detach().to(torch.float64).requires_grad_(order > 0) if t.dtype.is_floating_point else t for t in tensors])
        leaves = []

        def widened(tensor):
            made = next(wide)
            leaves.append(made)
            return made
        again = mapped((arguments, sample.kwargs), widened)
        again[1].pop("dtype", None) if isinstance(again[1].get("dtype"), torch.dtype) and again[1]["dtype"].is_floating_point else None
        wanted = flat(info.op(*again[0], **again[1]))
        if len(wanted) != len(results):
            raise Untranslated(f"{len(wanted)} results in PyTorch and {len(results)} here")
        for i, (result, value) in enumerate(zip(results, wanted)):
            if result is not None:
                self.checks.append(("forward", result.name, value.detach()))
        if order == 0:
            return
        floats = [(f"{prefix}_in{i}", leaf) for i, leaf in enumerate(leaves) if leaf.requires_grad]
        of = next(((r, y) for r, y in zip(results, wanted) if r is not None and y.requires_grad), None)
        if not floats or of is None or of[1].numel() == 0:
            return
        generator = torch.Generator().manual_seed(5)

        def weight_of(like, name):
            w = torch.rand(like.shape, generator=generator, dtype=torch.float64) + 0.5
            if kind != "f64":
                w = w.to(TYPES[kind]).to(torch.float64)
            self.inputs[name] = w.to(TYPES[kind])
            return w
        w = weight_of(of[1], f"{prefix}_w")
        names = [n for n, _ in floats]
        grads = torch.autograd.grad(of[1], [x for _, x in floats], w, create_graph=order > 1, allow_unused=True)
        outputs = [f"{prefix}_g{i}" for i in range(len(floats))]
        self.gradients.append({"of": of[0].name, "weight": f"{prefix}_w", "with_respect_to": names, "outputs": outputs})
        for output, g, (_, x) in zip(outputs, grads, floats):
            self.checks.append(("backward", output, gradient_of(x, g)))
        if order < 2:
            return
        for i, (output, g) in enumerate(zip(outputs, grads)):
            if g is None or not g.requires_grad:
                continue
            v = weight_of(g, f"{prefix}_v{i}")
            hs = torch.autograd.grad(g, [x for _, x in floats], v, retain_graph=True, allow_unused=True)
            seconds = [f"{output}_{j}" for j in range(len(hs))]
            self.gradients.append({"of": output, "weight": f"{prefix}_v{i}", "with_respect_to": names, "outputs": seconds})
            for name, h, (_, x) in zip(seconds, hs, floats):
                self.checks.append(("second", name, gradient_of(x, h)))


# ---- Files in safetensors, which has bf16 ------------------------------------------------------------------------------------

def save(path, tensors):
    header, offset, parts = {}, 0, []
    for name, tensor in tensors.items():
        raw = tensor.contiguous()
        data = (raw.view(torch.int16) if raw.dtype == torch.bfloat16 else raw).numpy().tobytes()
        header[name] = {"dtype": NAMES[TYPE_OF[tensor.dtype]], "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


NUMPY = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I32": np.int32, "I64": np.int64, "I8": np.int8, "I16": np.int16, "U8": np.uint8, "U32": np.uint32,
         "U16": np.uint16, "U64": np.uint64, "BOOL": np.bool_}


def load(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header, body, arrays = json.loads(data[8:8 + size]), data[8 + size:], {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        part = body[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(part, NUMPY[entry["dtype"]])
        arrays[name] = array.reshape(entry["shape"])
    return arrays


def evaluated(judge, samples):
    """For each sample its arrays, or the message with which Weft refuses it."""
    refused, arrays = {}, None
    while arrays is None and len(refused) < len(samples):
        rest = [s for s in samples if s.number not in refused]
        answer = evaluate_program(judge, rest)
        if not isinstance(answer, str):
            arrays = answer
            break
        # The message names the step, and so the sample; where it names none, each half is run alone.
        named = re.search(r'"s(\d+)_', answer)
        if named and int(named[1]) in {s.number for s in rest}:
            refused[int(named[1])] = answer.splitlines()[0]
        elif len(rest) == 1:
            refused[rest[0].number] = answer.splitlines()[0] if answer else "no message"
        else:
            half = len(rest) // 2
            halves = dict(zip((s.number for s in rest), evaluated(judge, rest[:half]) + evaluated(judge, rest[half:])))
            return [refused.get(s.number) or halves[s.number] for s in samples]
    return [refused.get(s.number) or arrays for s in samples]


def evaluate_program(judge, samples):
    """The arrays of all samples, or a message."""
    inputs = {k: v for s in samples for k, v in s.inputs.items()}
    program = {"steps": [step for s in samples for step in s.steps], "gradients": [g for s in samples for g in s.gradients],
               "outputs": list(dict.fromkeys(name for s in samples for _, name, _ in s.checks))}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "program.json").write_text(json.dumps(program))
        save(folder / "in.safetensors", inputs)
        done = subprocess.run([judge.weft, "eval", folder / "program.json", "--inputs", folder / "in.safetensors", "--out", folder / "out.safetensors", "--device", judge.device],
                              capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr.strip()}"
        return load(folder / "out.safetensors")


def difference(got, wanted, kind, stage, factor):
    """None, or what differs."""
    wanted = (wanted.to(torch.float32) if wanted.dtype == torch.bfloat16 else wanted).numpy()
    if got.shape != wanted.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    if (got.dtype.kind == "b") != (wanted.dtype.kind == "b"):
        return f"{got.dtype} instead of {wanted.dtype}"
    if got.size == 0:
        return None
    if kind not in TOLERANCE or wanted.dtype.kind in "biu":
        if got.dtype.kind != "f":
            return None if np.array_equal(got.astype(np.int64), wanted.astype(np.int64)) else f"{got.ravel()[:4]} instead of {wanted.ravel()[:4]}"
        relative, of_largest = TOLERANCE["f32"]
    else:
        relative, of_largest = TOLERANCE[kind]
    factor *= {"forward": 1, "backward": 2, "second": 10}[stage]
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    size = np.abs(np.where(np.isfinite(wanted), wanted, 0))
    allowed = factor * (relative * size + of_largest * size.max() + (1e-14 if kind == "f64" else 1e-11))  # what cancels to 0
    largest = {"f16": 65504.0, "f32": 3.4e38, "bf16": 3.3e38}.get(kind, np.inf)
    with np.errstate(invalid="ignore"):
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(wanted) & (np.abs(got - wanted) <= allowed))
        same |= (np.abs(wanted) >= largest) & (np.sign(got) == np.sign(wanted)) & (np.abs(got) >= largest * 0.99)  # beyond the type
    if same.all():
        return None
    if got.dtype.kind == "f" and not got.shape:
        return f"{got!r} instead of {wanted!r}"
    at = tuple(np.argwhere(~same)[0])
    return f"{got[at]!r} instead of {wanted[at]!r} at {list(map(int, at))}, {np.count_nonzero(~same)} of {same.size}"


class Tally:
    def __init__(self, judge):
        self.judge, self.used = judge, collections.Counter()
        self.drawn = self.skipped = 0
        self.by_type = collections.Counter()
        self.counts, self.reasons, self.uncovered = collections.Counter(), collections.Counter(), set()
        self.waiting, self.found = [], collections.defaultdict(list)

    def add(self, sample):
        self.waiting.append(sample)
        if len(self.waiting) >= PER_PROGRAM:
            self.flush()

    def flush(self):
        for sample, arrays in zip(self.waiting, evaluated(self.judge, self.waiting) if self.waiting else []):
            stages = list(dict.fromkeys(stage for stage, _, _ in sample.checks))
            wrong = {}
            if isinstance(arrays, str) and not self.judge.on_cpu and re.search(r"does not hold [if]64|has no kernel for it", arrays):
                self.skipped += 1
                self.reasons[f"{sample.key}: a type or a kernel that the device has not"] += 1
                continue
            if isinstance(arrays, str) and sample.kind not in ("f32", "f64") and re.search(r"takes (floats|f32|numbers|integers|bits)|is not a number of type", arrays):
                self.skipped += 1
                self.reasons[f"{sample.key}: not for {sample.kind} in Weft"] += 1
                continue
            if isinstance(arrays, str):
                wrong = {"forward": arrays}
            else:
                for stage, name, wanted in sample.checks:
                    known = KNOWN.get((sample.key, stage)) or KNOWN.get((sample.key, stage, sample.kind))
                    text = difference(arrays[name], wanted, sample.kind, stage, 1)
                    if text and known and known[0] != "differs":
                        self.used[(sample.key, stage)] += 1
                        self.used[(sample.key, stage, sample.kind)] += 1
                        text = difference(arrays[name], wanted, sample.kind, stage, known[0])
                    if text:
                        wrong.setdefault(stage, text)
            for stage in stages:
                if stage not in wrong:
                    self.counts[stage] += 1
                    self.by_type[stage, sample.kind] += 1
                    continue
                known = [k for k in ((sample.key, stage), (sample.key, stage, sample.kind)) if KNOWN.get(k, ("",))[0] == "differs"]
                for k in known:
                    self.used[k] += 1
                if not known:
                    self.found[(sample.key, stage, sample.kind)].append(f"{sample.title}, {stage}: {wrong[stage]}")
                if stage == "forward" and isinstance(arrays, str):
                    break
        self.waiting = []


def run(judge, kinds, per_op, gradient_kinds, second, least, every=1):
    """Samples of every `every`-th operator, at most `per_op` of each in each type; `least` is how many must agree at each stage."""
    tally = Tally(judge)
    number = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in database()[::every]:
            if title_of(info) not in TABLE:
                tally.uncovered.add(title_of(info))
                continue
            for kind in kinds:
                # Narrow types are drawn in f32 and rounded.
                drawn_in = torch.float32 if kind in ("f16", "bf16") else TYPES[kind]
                if drawn_in not in info.dtypes:
                    continue
                torch.manual_seed(1)
                try:
                    samples = list(info.sample_inputs("cpu", drawn_in, requires_grad=False))
                except Exception:
                    continue  # does not draw here: a module that is missing, a newer Python
                for sample in samples[:per_op]:
                    tally.drawn += 1
                    try:
                        if drawn_in != TYPES[kind]:
                            narrow = lambda t: t.to(TYPES[kind]) if t.dtype == torch.float32 else t
                            sample.input, sample.args, sample.kwargs = mapped((sample.input, sample.args, sample.kwargs), narrow)
                        number += 1
                        order = (2 if kind == "f64" and second else 1) if kind in gradient_kinds and info.supports_autograd else 0
                        try:
                            made = Sample(judge.ops, number, info, sample, kind, order)
                        except RuntimeError:
                            if order == 0:
                                raise
                            made = Sample(judge.ops, number, info, sample, kind, order - 1)  # PyTorch has no such derivative
                    except Untranslated as reason:
                        tally.skipped += 1
                        tally.reasons[f"{title_of(info)}: {reason}"] += 1
                    except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
                        tally.skipped += 1
                        tally.reasons[f"{title_of(info)}: PyTorch: {str(error).splitlines()[0][:80]}"] += 1
                    else:
                        tally.add(made)
    tally.flush()
    judge.comparisons += sum(tally.counts.values())
    for texts in tally.found.values():
        judge.failures.append(texts[0] + (f" (and {len(texts) - 1} more samples)" if len(texts) > 1 else ""))
    print(f"  {tally.drawn} samples drawn, {tally.skipped} not translated")
    for stage in ("forward", "backward", "second"):
        kinds_of = ", ".join(f"{kind} {n}" for (s, kind), n in tally.by_type.items() if s == stage)
        print(f"  agree {stage}: {tally.counts[stage]}" + (f" ({kinds_of})" if kinds_of else ""))
    for stage, count in least.items():
        if tally.counts[stage] < count:
            judge.failures.append(f"only {tally.counts[stage]} samples agree {stage}; {count} did")
    return tally


def quick(judge):
    """Two samples of each operator; on a software GPU, which compiles each kernel for long, one of every eighth operator."""
    if judge.on_cpu:
        run(judge, ["f32", "i32"], 2, ["f32"], False, {"forward": 600, "backward": 250})
    else:
        run(judge, ["f32"], 1, [], False, {"forward": 30}, every=8)


def whole(judge):
    """All samples in all types. For script/test --long."""
    tally = run(judge, list(TYPES), 10_000, ["f32", "f64"], True, {"forward": 12_000, "backward": 6_000, "second": 2_000})
    for key, (_, reason) in KNOWN.items():
        if not tally.used[key]:
            judge.failures.append(f"{key} is listed in opinfo_known.py ({reason}), and nothing differs any more: remove it")
    for reason, count in sorted(tally.reasons.items()):
        print(f"  not translated, {count:>4}: {reason}")
    left_out = {pattern: reason for reason, patterns in LEFT_OUT.items() for pattern in patterns.split()}
    listed = {pattern: fnmatch.filter(tally.uncovered, pattern) for pattern in left_out}
    for pattern, names in listed.items():
        if not names:
            judge.failures.append(f"{pattern} is listed in opinfo_left_out.py, and nothing is left out: remove it")
    for name in sorted(tally.uncovered - {name for names in listed.values() for name in names}):
        judge.failures.append(f"{name} has no translation, and no reason in opinfo_left_out.py")


SUBJECTS = [quick]
LONG_SUBJECTS = [whole]
