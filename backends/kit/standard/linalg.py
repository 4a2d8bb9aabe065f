"""Products, and the standard's extension ``linalg``.

The extension uses a framework's own decompositions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from xdevice.backends.kit.standard.axes import (
    Axes,
    Function,
    Functions,
    Tensor,
    axes_of,
    joint_shape,
    least_axes,
    size_of,
)
from xdevice.backends.kit.standard.dtypes import (
    COMPLEX,
    Dtypes,
    Operand,
    Operations,
    one_of,
)
from xdevice.contract import NativeDtype
from xdevice.errors import ArgumentError

Norm: TypeAlias = float | str
"""A norm's order: a number, ``"fro"`` or ``"nuc"``."""


class Eig(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class Eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class Slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


def linear_algebra(raw: Functions, f: Functions, dtypes: Dtypes) -> dict[str, Function]:
    """The functions by name.

    They are composed of the decompositions ``raw`` and the main namespace
    ``f``.
    """
    functions = dict(_LinearAlgebra(raw, f, dtypes))
    for name in {"eig", "eigvals"} - raw.keys():  # of a framework without complex numbers
        del functions[name]
    products = ("matmul", "matrix_transpose", "tensordot", "vecdot")
    return functions | {name: f[name] for name in products}


class Products(Operations):
    """The products of the main namespace."""

    def matmul(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        x1, x2 = self._promote(x1, x2)
        if not x1.shape or not x2.shape:
            raise ArgumentError("matmul was given a single number; use multiply")
        added_axes = []  # of vectors, which become a row and a column
        if len(x1.shape) == 1:
            x1 = self._raw["expand_dims"](x1, 0)
            added_axes.append(-2)
        if len(x2.shape) == 1:
            x2 = self._raw["expand_dims"](x2, 1)
            added_axes.append(-1)
        product = self._raw["matmul"](x1, x2)
        if not added_axes:
            return product
        return self._raw["squeeze"](product, axes_of(added_axes, len(product.shape)))

    def matrix_transpose(self, x: Tensor, /) -> Tensor:
        ndim = least_axes(x, 2, "matrix_transpose")
        return self._raw["permute_dims"](x, (*range(ndim - 2), ndim - 1, ndim - 2))

    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        if self._kind(x1) == COMPLEX:
            x1 = self._raw["conj"](x1)
        n1 = x1.shape[axes_of(axis, len(x1.shape))[0]]
        n2 = x2.shape[axes_of(axis, len(x2.shape))[0]]
        if n1 != n2 and None not in (n1, n2):
            raise ArgumentError(
                f"vecdot of vectors of {n1} and {n2} numbers; give some of one length"
            )
        product = self._f["multiply"](x1, x2)
        return self._raw["sum"](product, axes_of(axis, len(product.shape)), False)

    def tensordot(
        self,
        x1: Tensor,
        x2: Tensor,
        /,
        *,
        axes: int | Sequence[Sequence[int]] = 2,
    ) -> Tensor:
        x1, x2 = self._promote(x1, x2)
        n1, n2 = len(x1.shape), len(x2.shape)
        if isinstance(axes, int):
            axes = (range(n1 - axes, n1), range(axes))
        summed1 = axes_of(tuple(axes[0]), n1)
        summed2 = axes_of(tuple(axes[1]), n2)
        free1 = [axis for axis in range(n1) if axis not in summed1]
        free2 = [axis for axis in range(n2) if axis not in summed2]
        length = size_of(x1.shape, summed1)
        rows = size_of(x1.shape, free1)
        columns = size_of(x2.shape, free2)
        left = self._matrix(x1, (*free1, *summed1), (rows, length))
        right = self._matrix(x2, (*summed2, *free2), (length, columns))
        shape = [x1.shape[axis] for axis in free1]
        shape += [x2.shape[axis] for axis in free2]
        product = self._raw["matmul"](left, right)
        return self._raw["reshape"](product, tuple(shape))

    def _matrix(self, x: Tensor, order: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
        return self._raw["reshape"](self._raw["permute_dims"](x, order), shape)


class _LinearAlgebra(Operations):
    """Functions of matrices, which are in the last two axes.

    Other axes are a stack of them.
    """

    def cholesky(self, x: Tensor, /, *, upper: bool = False) -> Tensor:
        lower = self._raw["cholesky"](_square(x, "cholesky"))
        if upper:
            return self._adjoint(lower)
        return lower

    def det(self, x: Tensor, /) -> Tensor:
        return self._raw["det"](_square(x, "det"))

    def slogdet(self, x: Tensor, /) -> Slogdet:
        sign, logabsdet = self._several("slogdet", _square(x, "slogdet"))
        return Slogdet(sign, self._f["real"](logabsdet))  # some frameworks' is complex

    def inv(self, x: Tensor, /) -> Tensor:
        return self._raw["inv"](_square(x, "inv"))

    def eig(self, x: Tensor, /) -> Eig:
        return Eig(*self._several("eig", _square(self._real(x), "eig")))

    def eigvals(self, x: Tensor, /) -> Tensor:
        return self._raw["eigvals"](_square(self._real(x), "eigvals"))

    def eigh(self, x: Tensor, /) -> Eigh:
        values, vectors = self._several("eigh", _square(x, "eigh"))
        return Eigh(self._f["real"](values), vectors)  # some frameworks' values are complex

    def eigvalsh(self, x: Tensor, /) -> Tensor:
        return self.eigh(x).eigenvalues

    def qr(self, x: Tensor, /, *, mode: str = "reduced") -> QR:
        one_of(mode, ("reduced", "complete"), "mode")
        least_axes(x, 2, "qr")
        return QR(*self._several("qr", x, mode == "complete"))

    def svd(self, x: Tensor, /, *, full_matrices: bool = True) -> SVD:
        least_axes(x, 2, "svd")
        is_square = x.shape[-1] == x.shape[-2]
        return SVD(*self._several("svd", x, full_matrices and not is_square))

    def svdvals(self, x: Tensor, /) -> Tensor:
        return self.svd(x, full_matrices=False).S

    def solve(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        x1, x2 = self._promote(x1, x2)
        _square(x1, "solve")
        is_vector = len(x2.shape) == 1
        right = self._f["expand_dims"](x2, -1) if is_vector else x2
        stack = joint_shape(tuple(x1.shape[:-2]), tuple(right.shape[:-2]))
        left = self._f["broadcast_to"](x1, (*stack, *x1.shape[-2:]))
        right = self._f["broadcast_to"](right, (*stack, *right.shape[-2:]))
        solution = self._raw["solve"](left, right)
        if is_vector:
            return self._f["squeeze"](solution, -1)
        return solution

    def diagonal(self, x: Tensor, /, *, offset: int = 0) -> Tensor:
        ndim = least_axes(x, 2, "diagonal")
        rows, columns = x.shape[-2:]
        flat = self._f["reshape"](x, (*x.shape[:-2], rows * columns))
        length = min(rows + min(offset, 0), columns - max(offset, 0))
        if length <= 0:
            return self._sliced(flat, ndim - 2, slice(0, 0))
        first = -offset * columns if offset < 0 else offset
        last = first + (length - 1) * (columns + 1)
        return self._sliced(flat, ndim - 2, slice(first, last + 1, columns + 1))

    def trace(self, x: Tensor, /, *, offset: int = 0, dtype: NativeDtype = None) -> Tensor:
        return self._f["sum"](self.diagonal(x, offset=offset), axis=-1, dtype=dtype)

    def outer(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        column = self._f["reshape"](x1, (-1, 1))
        row = self._f["reshape"](x2, (1, -1))
        return self._f["multiply"](column, row)

    def cross(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        x1, x2 = self._promote(x1, x2)
        shape = joint_shape(tuple(x1.shape), tuple(x2.shape))
        x1, x2 = (self._f["broadcast_to"](x, shape) for x in (x1, x2))
        if x1.shape[axes_of(axis, len(x1.shape))[0]] != 3:
            raise ArgumentError(
                f"cross along axis {axis} of shape {tuple(x1.shape)}; give vectors of 3 numbers"
            )
        roll, multiply = self._f["roll"], self._f["multiply"]
        minuend = multiply(roll(x1, -1, axis=axis), roll(x2, -2, axis=axis))
        subtrahend = multiply(roll(x1, -2, axis=axis), roll(x2, -1, axis=axis))
        return self._f["subtract"](minuend, subtrahend)

    def matrix_power(self, x: Tensor, n: int, /) -> Tensor:
        base = self.inv(x) if n < 0 else _square(x, "matrix_power")
        if n == 0:
            ones = self._f["ones_like"](base)
            return self._f["tril"](self._f["triu"](ones))  # the identity
        matmul = self._f["matmul"]
        power = base
        for digit in f"{abs(n):b}"[1:]:  # by repeated squaring
            power = matmul(power, power)
            if digit == "1":
                power = matmul(power, base)
        return power

    def matrix_rank(self, x: Tensor, /, *, rtol: Operand = None) -> Tensor:
        values = self.svdvals(x)
        is_positive = self._f["greater"](values, self._tolerance(x, values, rtol))
        return self._f["sum"](is_positive, axis=-1)

    def pinv(self, x: Tensor, /, *, rtol: Operand = None) -> Tensor:
        u, s, vh = self.svd(x, full_matrices=False)
        where = self._f["where"]
        is_positive = self._f["greater"](s, self._tolerance(x, s, rtol))
        divisor = where(is_positive, s, 1.0)
        inverse = where(is_positive, self._f["reciprocal"](divisor), 0.0)
        columns = self._f["multiply"](self._adjoint(vh), self._f["expand_dims"](inverse, -2))
        return self._f["matmul"](columns, self._adjoint(u))

    def vector_norm(
        self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2
    ) -> Tensor:
        size = self._f["abs"](self._real(x))
        options = {"axis": axis, "keepdims": keepdims}
        if ord == math.inf:
            return self._f["max"](size, **options)
        if ord == -math.inf:
            return self._f["min"](size, **options)
        if ord == 0:
            count = self._f["sum"](self._f["not_equal"](size, 0), **options)
            return self._kept(count, self._dtypes.dtype_name(size))
        if ord == 1:
            return self._f["sum"](size, **options)
        if ord == 2:
            squares = self._f["square"](size)
            return self._f["sqrt"](self._f["sum"](squares, **options))
        powers = self._f["pow"](size, ord)
        return self._f["pow"](self._f["sum"](powers, **options), 1 / ord)

    def matrix_norm(self, x: Tensor, /, *, keepdims: bool = False, ord: Norm = "fro") -> Tensor:
        one_of(ord, ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf), "ord")
        least_axes(x, 2, "matrix_norm")
        x = self._real(x)
        if ord == "fro":
            return self.vector_norm(x, axis=(-2, -1), keepdims=keepdims)
        if ord == "nuc":
            norm = self._f["sum"](self.svdvals(x), axis=-1)
        else:
            norm = self._norm_of_order(x, float(ord))
        if keepdims:
            return self._f["expand_dims"](norm, (-2, -1))
        return norm

    def _norm_of_order(self, x: Tensor, order: float) -> Tensor:
        """The largest or smallest singular value, or sum of a column or row."""
        if abs(order) == 2:
            sizes = self.svdvals(x)
        elif abs(order) == 1:  # sums of columns
            sizes = self._f["sum"](self._f["abs"](x), axis=-2)
        else:  # sums of rows
            sizes = self._f["sum"](self._f["abs"](x), axis=-1)
        if order > 0:
            return self._f["max"](sizes, axis=-1)
        return self._f["min"](sizes, axis=-1)

    def _tolerance(self, x: Tensor, values: Tensor, rtol: Operand) -> Tensor:
        """The singular value up to which ``values`` count as 0, for each matrix."""
        if rtol is None:
            is_double = self._dtypes.dtype_name(values) == "float64"
            eps = 2.0**-52 if is_double else 2.0**-23
            rtol = max(x.shape[-2:]) * eps
        elif self._dtypes.dtype_name(rtol) is not None:
            rtol = self._f["expand_dims"](rtol, -1)
        largest = self._f["max"](values, axis=-1, keepdims=True)
        return self._f["multiply"](largest, rtol)

    def _adjoint(self, x: Tensor) -> Tensor:
        transpose = self._f["matrix_transpose"](x)
        if self._kind(x) != COMPLEX:
            return transpose
        return self._f["conj"](transpose)


def _square(x: Tensor, function: str) -> Tensor:
    """The tensor, if it has square matrices in the last two axes."""
    least_axes(x, 2, function)
    if x.shape[-1] != x.shape[-2]:
        raise ArgumentError(
            f"{function} was given a tensor of shape {tuple(x.shape)}; give square matrices"
        )
    return x
