"""What translations of PyTorch's operators are made of. For each entry of PyTorch's operator database, a function with the operator's signature.

A function gets a program `w` and the sample's arguments, with `Value`s in place of tensors. It returns a Value, or a list of them
for an operator with several results (None: a result that is not compared). It raises Untranslated for a sample that uses what Weft
does not have, and says what that is.
"""
import torch


KINDS = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool"}


class Untranslated(Exception):
    """What a sample uses that Weft has not."""


class Value:
    """A value of the program. Shapes and dtypes are known for inputs only."""

    def __init__(self, name, shape=None, dtype=None):
        self.name, self.shape, self.dtype = name, None if shape is None else tuple(shape), dtype

    @property
    def rank(self):
        return len(self.shape)


class Program:
    """Steps of one sample."""

    def __init__(self, prefix, ops):
        """ops: the table of ops, by name."""
        self.prefix, self.ops, self.steps = prefix, ops, []

    def many(self, op, count, *inputs, **attributes):
        need(op in self.ops, f"no {op} in Weft")
        for given, declared in zip(inputs, self.ops[op]["inputs"]):
            kind = KINDS.get(given.dtype) if isinstance(given, Value) else None
            need(kind is None or kind in declared["dtypes"].split(), f"{kind}, which {op} does not take")
        names = [i.name if isinstance(i, Value) else i for i in inputs]
        outputs = [f"{self.prefix}_{len(self.steps)}_{k}" for k in range(count)]
        step = {"op": op, "inputs": names, "attributes": {k: number(v) for k, v in attributes.items() if v is not None}}
        step.update({"output": outputs[0]} if count == 1 else {"output": outputs})
        self.steps.append(step)
        return [Value(o) for o in outputs]

    def __call__(self, op, *inputs, **attributes):
        value = self.many(op, 1, *inputs, **attributes)[0]
        value.shape = tuple(attributes["shape"]) if "shape" in attributes else None
        return value


def number(v):
    if isinstance(v, float) and v != v:
        return "nan"
    if isinstance(v, float) and v in (float("inf"), -float("inf")):
        return "inf" if v > 0 else "-inf"
    return v


def need(condition, what):
    if not condition:
        raise Untranslated(what)


def scalar(v):
    """An operand: a Value, or a number."""
    if isinstance(v, Value):
        return v
    need(isinstance(v, (int, float)) and not isinstance(v, complex), "a complex number")
    return number(v)


def ints(v):
    return [int(i) for i in v] if isinstance(v, (tuple, list, torch.Size)) else [int(v)]


def axis_of(x, dim):
    need(x.rank > 0, "an axis of a scalar")
    return int(dim)


TABLE = {}


def op(*names):
    def add(function):
        for name in names:
            TABLE[name] = function
        return function
    return add
