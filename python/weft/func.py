"""Transforms of functions with PyTorch's names and arguments (torch.func). Arguments and results may be tensors in lists, tuples and
dictionaries; weft.grad and the others under weft take plain tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _transforms, _weft
from ._transforms import keep_history
from ._weft import Tensor, UsageError

_op: Any = _weft.op
__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp", "vmap"]


# ---- Trees of tensors


def _leaves(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [leaf for each in tree.values() for leaf in _leaves(each)]
    return [leaf for each in tree for leaf in _leaves(each)] if isinstance(tree, (list, tuple)) else []


def _filled(tree: Any, leaves: Any) -> Any:
    """The tree with the next tensors of an iterator in place of its own."""
    if isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, Mapping):
        return {key: _filled(each, leaves) for key, each in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [_filled(each, leaves) for each in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


class _Flat:
    """A function of trees as one of lists of tensors."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.function, self.arguments, self.result = function, arguments, None

    def __call__(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        self.result = self.function(*_filled(self.arguments, iter(leaves)))
        return tuple(_leaves(self.result))

    def formed(self, results: Sequence[Tensor]) -> Any:
        return _filled(self.result, iter(results))


# ---- Derivatives


def _chosen(name: str, arguments: tuple[Any, ...], argnums: int | Sequence[int]) -> list[int]:
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for each in numbers:
        if not -len(arguments) <= each < len(arguments):
            raise UsageError(f"{name}: there is no argument {each}; {len(arguments)} are given")
    return numbers


def grad_and_value(func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives (gradient, value) of a function whose result is one number; with has_aux the function gives (number, more),
    and this one (gradient, (number, more))."""

    @functools.wraps(func)
    def both(*arguments: Any, **named: Any) -> Any:
        numbers = _chosen("grad", arguments, argnums)
        parts = [arguments[each] for each in numbers]
        leaves = [each._value() for each in _leaves(parts)]
        given = list(arguments)
        for number, part in zip(numbers, _filled(parts, iter([each._value() for each in leaves]))):
            given[number] = part
        with keep_history():
            result = func(*given, **named)
        value = result[0] if has_aux else result
        if not isinstance(value, Tensor) or value.size != 1:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(f"grad: the function gives {shape}; it must give one number, or use jacrev")
        found = _filled(parts, iter(_weft._grad(value, leaves, None)))
        return (found[0] if isinstance(argnums, int) else tuple(found)), result

    return both


def grad(func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of a function whose result is one number, for the arguments of these numbers; with has_aux
    (gradient, more)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*arguments: Any, **named: Any) -> Any:
        found, result = both(*arguments, **named)
        return (found, result[1]) if has_aux else found

    return gradient


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(result, pull): pull(seeds), in the form of the result, gives a tuple of gradients, one for each argument."""
    aux: list[Any] = []

    def plain(*arguments: Any) -> Any:
        result = func(*arguments)
        if has_aux:
            aux[:] = [result[1]]
            return result[0]
        return result

    flat = _Flat(plain, primals)
    results, back = _transforms.vjp(flat, *_leaves(primals))

    def pull(*seeds: Any) -> Any:
        found = back(*_leaves(seeds))
        return _filled(primals, iter(found if isinstance(found, tuple) else (found,)))

    made = flat.formed(results)
    return (made, pull, aux[0]) if has_aux else (made, pull)


def jvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(result, its change along the tangents), which have the form of the arguments."""
    flat = _Flat(func, tuple(primals))
    results, changes = _transforms.jvp(flat, tuple(_leaves(primals)), tuple(_leaves(tangents)))
    return flat.formed(results), flat.formed(changes)


def _jacobian(func: Callable[..., Any], argnums: int | Sequence[int], forward: bool) -> Callable[..., Any]:
    @functools.wraps(func)
    def all_derivatives(*arguments: Any) -> Any:
        numbers = _chosen("jacobian", arguments, argnums)

        def of(number: int, leaf: int, part: int) -> Tensor:
            leaves = _leaves(arguments[number])

            def one(x: Tensor) -> Tensor:
                given = list(arguments)
                given[number] = _filled(arguments[number], iter([*leaves[:leaf], x, *leaves[leaf + 1:]]))
                return _leaves(func(*given))[part]
            return _weft.jacobian(one, leaves[leaf], forward)

        result = func(*arguments)
        found = [[_filled(arguments[number], iter([of(number, leaf, part) for leaf in range(len(_leaves(arguments[number])))])) for number in numbers]
                 for part in range(len(_leaves(result)))]
        chosen = [each[0] if isinstance(argnums, int) else tuple(each) for each in found]
        if isinstance(result, Tensor):
            return chosen[0]
        return type(result)(chosen) if isinstance(result, (list, tuple)) else dict(zip(result, chosen))

    return all_derivatives


def jacrev(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The function that gives all derivatives, [result's shape, argument's shape], one gradient for each element of the result."""
    return _jacobian(func, argnums, False)


def jacfwd(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The same by forward mode: one pass for each element of the argument."""
    return _jacobian(func, argnums, True)


def hessian(func: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """All second derivatives."""
    return jacfwd(jacrev(func, argnums), argnums)


# ---- Batches


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "same", chunk_size: int | None = None) -> Callable[..., Any]:
    """The function applied to every example, as one computation. in_dims: the axis of examples of all arguments, or of each, or of
    each tensor in an argument; None: every example gets the whole. Random numbers are the same for all examples (randomness="same")."""
    if randomness == "different":
        raise UsageError('vmap: random numbers are the same for all examples; draw them outside, and pass them as an argument')

    @functools.wraps(func)
    def mapped(*arguments: Any, **named: Any) -> Any:
        axes = _axes(in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(arguments), arguments)
        flat = _Flat(functools.partial(func, **named), arguments)
        results = _transforms.vmap(flat, axes, 0)(*_leaves(arguments))
        if out_dims == 0:
            return flat.formed(results)
        places = [out_dims] * len(results) if isinstance(out_dims, int) else list(out_dims)
        return flat.formed([_op("movedim")(each, 0, place) for each, place in zip(results, places)])

    return mapped


def _axes(axes: Any, tree: Any) -> list[int | None]:
    if axes is None or isinstance(axes, int):
        return [axes] * len(_leaves(tree))
    if isinstance(axes, Mapping):
        return [axis for key in tree for axis in _axes(axes[key], tree[key])]
    if len(axes) != len(tree):
        raise UsageError(f"vmap: {len(axes)} in_dims for {len(tree)} arguments")
    return [axis for part, each in zip(axes, tree) for axis in _axes(part, each)]


# ---- Modules


def functional_call(module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Mapping[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with other tensors in place of its parameters and buffers of these names; the module stays as it is."""
    given: dict[str, Tensor] = {}
    for each in parameters_and_buffers if isinstance(parameters_and_buffers, (tuple, list)) else (parameters_and_buffers,):
        given.update(each)
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    unknown = [name for name in given if name not in own]
    if unknown:
        raise UsageError(f"functional_call: {type(module).__name__} has no {unknown[0]!r}")
    if strict and len(given) < len(own):
        raise UsageError(f"functional_call: {next(name for name in own if name not in given)!r} is missing")
    of_variable = {id(own[name]): value for name, value in given.items()} if tie_weights else {}
    inputs = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for prefix, part in module.named_modules():
            table = dict(part.__dict__.get("_parametrized", {}))
            before.append((part, part.__dict__.get("_parametrized")))
            names = [*((name, part._variable(name)) for name in part._parameters), *part._buffers.items()]
            for name, variable in names:
                value = given.get(f"{prefix}.{name}" if prefix else name, of_variable.get(id(variable)))
                if value is not None:
                    table[name] = functools.partial(_itself, value)
            part.__dict__["_parametrized"] = table
        return module(*inputs, **(kwargs or {}))
    finally:
        for part, table in before:
            if table is None:
                part.__dict__.pop("_parametrized", None)
            else:
                part.__dict__["_parametrized"] = table


def _itself(value: Any) -> Any:
    return value


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of modules of one kind, stacked along a new first axis, for vmap over functional_call."""
    if not models:
        raise UsageError("stack_module_state: give at least one module")

    def stacked(kind: str) -> dict[str, Tensor]:
        tables = [dict(getattr(each, kind)()) for each in models]
        return {name: _op("stack")([each[name]._value() for each in tables]).detach() for name in tables[0]}

    return stacked("named_parameters"), stacked("named_buffers")
