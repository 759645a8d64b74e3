"""Linear algebra under PyTorch's names of torch.linalg. The functions are those of weft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _weft
from ._ops import (
    cholesky as cholesky,
    cond as cond,
    cross as cross,
    det as det,
    diagonal as diagonal,
    eigh as eigh,
    eigvalsh as eigvalsh,
    householder_product as householder_product,
    lstsq as lstsq,
    lu as lu,
    lu_factor as lu_factor,
    lu_solve as lu_solve,
    matmul as matmul,
    matrix_exp as matrix_exp,
    matrix_norm as matrix_norm,
    matrix_power as matrix_power,
    matrix_rank as matrix_rank,
    multi_dot as multi_dot,
    pinv as pinv,
    qr as qr,
    slogdet as slogdet,
    svdvals as svdvals,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
    vander as vander,
    vecdot as vecdot,
)
from ._weft import Tensor, UsageError

_op: Any = _weft.op


def inv(a: Tensor) -> Tensor:
    """The inverse of square matrices."""
    return _op("inverse")(a)


def svd(a: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """u, singular values and v^T of a = u diag(s) v^T."""
    if full_matrices and a.shape[-1] != a.shape[-2]:
        raise UsageError(f"svd: a {list(a.shape)} is not square; give full_matrices=False")
    return tuple(_op("svd")(a))  # type: ignore[return-value]


def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """x of a x = b, for matrices [..., n, columns] or vectors b; with left=False of x a = b."""
    if not left:
        return _op("transpose")(solve(_op("transpose")(a), _op("transpose")(b)))
    if b.ndim == 1 or b.shape == a.shape[:-1]:
        return _op("solve")(a, b.unsqueeze(-1)).squeeze(-1)
    return _op("solve")(a, b)


def vector_norm(x: Tensor, ord: float = 2.0, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:  # noqa: A002
    """(sum |x_i|^ord)^(1/ord) over a dim, or over all elements."""
    return _op("vector_norm")(x, ord, () if dim is None else dim, keepdim)


def norm(x: Tensor, ord: Any = None, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:  # noqa: A002
    """The norm of vectors along one dim, of matrices along two; without an order, of all elements."""
    if ord is None or (dim is None and x.ndim == 1) or isinstance(dim, int):
        return vector_norm(x, 2.0 if ord is None else ord, dim, keepdim)
    axes = (-2, -1) if dim is None else tuple(dim)
    return vector_norm(x, ord, axes, keepdim) if len(axes) == 1 else _op("matrix_norm")(x, ord, axes, keepdim)


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """x of a x = b, or with left=False of x a = b, for a triangular matrix a."""
    if left:
        return _op("solve_triangular")(a, b, upper=upper, unit=unitriangular)
    turned = _op("transpose")
    return turned(_op("solve_triangular")(turned(a), turned(b), upper=not upper, unit=unitriangular))
