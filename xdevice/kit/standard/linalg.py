"""Products, and the array API standard's extension ``linalg`` over a framework's own decompositions."""

# every field may be any framework's tensor
# pyright: reportUntypedNamedTuple=false

import math
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of, joint_shape, least_axes, size_of
from xdevice.kit.standard.dtypes import COMPLEX, Dtypes, Operations, one_of

# what the functions of several results return
Eig = namedtuple("Eig", "eigenvalues eigenvectors")
Eigh = namedtuple("Eigh", "eigenvalues eigenvectors")
QR = namedtuple("QR", "Q R")
Slogdet = namedtuple("Slogdet", "sign logabsdet")
SVD = namedtuple("SVD", "U S Vh")


def linear_algebra(raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes) -> dict[str, Any]:
    """The functions, each by its name: of the decompositions ``raw``, and of the functions of the main namespace."""
    made = dict(_LinearAlgebra(raw, f, dtypes))
    for name in {"eig", "eigvals"} - raw.keys():  # of a framework without complex numbers
        del made[name]
    return made | {name: f[name] for name in ("matmul", "matrix_transpose", "tensordot", "vecdot")}


class Products(Operations):
    """The products of the main namespace."""

    def matmul(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2)
        if not x1.shape or not x2.shape:
            raise ArgumentError("matmul was given a single number; use multiply")
        row, column = len(x1.shape) == 1, len(x2.shape) == 1
        left = self._raw["expand_dims"](x1, 0) if row else x1
        right = self._raw["expand_dims"](x2, 1) if column else x2
        found = self._raw["matmul"](left, right)
        flat = (-2,) * row + (-1,) * column
        return self._raw["squeeze"](found, axes_of(flat, len(found.shape))) if flat else found

    def matrix_transpose(self, x: Any, /) -> Any:
        ndim = least_axes(x, 2, "matrix_transpose")
        return self._raw["permute_dims"](x, (*range(ndim - 2), ndim - 1, ndim - 2))

    def vecdot(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        if self._kind(x1) == COMPLEX:
            x1 = self._raw["conj"](x1)
        sizes = [x.shape[axes_of(axis, len(x.shape))[0]] for x in (x1, x2)]
        if sizes[0] != sizes[1] and None not in sizes:
            raise ArgumentError(
                f"vecdot of vectors of {sizes[0]} and {sizes[1]} numbers; give some of one length"
            )
        product = self._f["multiply"](x1, x2)
        return self._raw["sum"](product, axes_of(axis, len(product.shape)), False)

    def tensordot(self, x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
        x1, x2 = self._promote(x1, x2)
        n1, n2 = len(x1.shape), len(x2.shape)
        if isinstance(axes, int):
            axes = (range(n1 - axes, n1), range(axes))
        over1, over2 = axes_of(tuple(axes[0]), n1), axes_of(tuple(axes[1]), n2)
        rest1, rest2 = (
            [i for i in range(n) if i not in over] for n, over in ((n1, over1), (n2, over2))
        )
        middle = size_of(x1.shape, over1)
        left = self._matrix(x1, (*rest1, *over1), (size_of(x1.shape, tuple(rest1)), middle))
        right = self._matrix(x2, (*over2, *rest2), (middle, size_of(x2.shape, tuple(rest2))))
        shape = (*(x1.shape[i] for i in rest1), *(x2.shape[i] for i in rest2))
        return self._raw["reshape"](self._raw["matmul"](left, right), shape)

    def _matrix(self, x: Any, order: tuple[int, ...], shape: tuple[int, int]) -> Any:
        return self._raw["reshape"](self._raw["permute_dims"](x, order), shape)


class _LinearAlgebra(Operations):
    """Functions of matrices in the last two axes; those before them are a stack of matrices."""

    def cholesky(self, x: Any, /, *, upper: bool = False) -> Any:
        found = self._raw["cholesky"](_square(x, "cholesky"))
        return self._adjoint(found) if upper else found

    def det(self, x: Any, /) -> Any:
        return self._raw["det"](_square(x, "det"))

    def slogdet(self, x: Any, /) -> Slogdet:
        sign, size = self._raw["slogdet"](_square(x, "slogdet"))
        return Slogdet(sign, self._f["real"](size))  # frameworks give a complex one too

    def inv(self, x: Any, /) -> Any:
        return self._raw["inv"](_square(x, "inv"))

    def eig(self, x: Any, /) -> Eig:
        return Eig(*self._raw["eig"](_square(self._real(x), "eig")))

    def eigvals(self, x: Any, /) -> Any:
        return self._raw["eigvals"](_square(self._real(x), "eigvals"))

    def eigh(self, x: Any, /) -> Eigh:
        return Eigh(*self._raw["eigh"](_square(x, "eigh")))

    def eigvalsh(self, x: Any, /) -> Any:
        return self.eigh(x).eigenvalues

    def qr(self, x: Any, /, *, mode: str = "reduced") -> QR:
        one_of(mode, ("reduced", "complete"), "mode")
        least_axes(x, 2, "qr")
        return QR(*self._raw["qr"](x, mode == "complete"))

    def svd(self, x: Any, /, *, full_matrices: bool = True) -> SVD:
        least_axes(x, 2, "svd")
        return SVD(*self._raw["svd"](x, full_matrices and x.shape[-1] != x.shape[-2]))

    def svdvals(self, x: Any, /) -> Any:
        return self.svd(x, full_matrices=False).S

    def solve(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2)
        _square(x1, "solve")
        vector = len(x2.shape) == 1
        right = self._f["expand_dims"](x2, -1) if vector else x2
        front = joint_shape(tuple(x1.shape[:-2]), tuple(right.shape[:-2]))
        left = self._f["broadcast_to"](x1, (*front, *x1.shape[-2:]))
        found = self._raw["solve"](
            left, self._f["broadcast_to"](right, (*front, *right.shape[-2:]))
        )
        return self._f["squeeze"](found, -1) if vector else found

    def diagonal(self, x: Any, /, *, offset: int = 0) -> Any:
        least_axes(x, 2, "diagonal")
        rows, columns = x.shape[-2:]
        first = -offset * columns if offset < 0 else offset
        length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        flat = self._f["reshape"](x, (*x.shape[:-2], rows * columns))
        cut = flat[(..., slice(first, first + length * columns))]
        if length and cut.shape[-1] < length * columns:  # the last row ends after the diagonal
            cut = flat[(..., slice(first, None))]
        return cut[(..., slice(None, None, columns + 1))] if length else cut

    def trace(self, x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
        return self._f["sum"](self.diagonal(x, offset=offset), axis=-1, dtype=dtype)

    def outer(self, x1: Any, x2: Any, /) -> Any:
        return self._f["multiply"](self._f["reshape"](x1, (-1, 1)), self._f["reshape"](x2, (1, -1)))

    def cross(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        x1, x2 = self._f["broadcast_arrays"](*self._promote(x1, x2))
        if x1.shape[axes_of(axis, len(x1.shape))[0]] != 3:
            raise ArgumentError(
                f"cross along axis {axis} of shape {tuple(x1.shape)}; give vectors of 3 numbers"
            )
        roll, multiply = self._f["roll"], self._f["multiply"]
        forth = multiply(roll(x1, -1, axis=axis), roll(x2, -2, axis=axis))
        return self._f["subtract"](
            forth, multiply(roll(x1, -2, axis=axis), roll(x2, -1, axis=axis))
        )

    def matrix_power(self, x: Any, n: int, /) -> Any:
        base = self.inv(x) if n < 0 else _square(x, "matrix_power")
        one = self._f["tril"](self._f["triu"](self._f["ones_like"](base)))
        found, exponent = one, abs(n)
        while exponent:
            if exponent & 1:
                found = base if found is one else self._f["matmul"](found, base)
            exponent >>= 1
            base = self._f["matmul"](base, base) if exponent else base
        return found

    def matrix_rank(self, x: Any, /, *, rtol: Any = None) -> Any:
        values = self.svdvals(x)
        return self._f["sum"](self._f["greater"](values, self._least(x, values, rtol)), axis=-1)

    def pinv(self, x: Any, /, *, rtol: Any = None) -> Any:
        u, s, vh = self.svd(x, full_matrices=False)
        kept = self._f["greater"](s, self._least(x, s, rtol))
        inverse = self._f["where"](kept, self._f["reciprocal"](self._f["where"](kept, s, 1.0)), 0.0)
        columns = self._f["multiply"](self._adjoint(vh), self._f["expand_dims"](inverse, -2))
        return self._f["matmul"](columns, self._adjoint(u))

    def vector_norm(
        self, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
    ) -> Any:
        size = self._f["abs"](self._real(x))
        options = {"axis": axis, "keepdims": keepdims}
        if ord in (math.inf, -math.inf):
            return self._f["max" if ord > 0 else "min"](size, **options)
        if ord == 0:
            return self._kept(
                self._f["sum"](self._f["not_equal"](size, 0), **options),
                self._dtypes.dtype_name(size),
            )
        if ord == 1:
            return self._f["sum"](size, **options)
        if ord == 2:
            return self._f["sqrt"](self._f["sum"](self._f["square"](size), **options))
        return self._f["pow"](self._f["sum"](self._f["pow"](size, ord), **options), 1 / ord)

    def matrix_norm(self, x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
        one_of(ord, ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf), "ord")
        least_axes(x, 2, "matrix_norm")
        x = self._real(x)
        if ord == "fro":
            return self.vector_norm(x, axis=(-2, -1), keepdims=keepdims)
        if ord in ("nuc", 2, -2):
            function = "sum" if ord == "nuc" else "max" if ord > 0 else "min"
            found = self._f[function](self.svdvals(x), axis=-1)
        else:
            lines = self._f["sum"](self._f["abs"](x), axis=-2 if abs(ord) == 1 else -1)
            found = self._f["max" if ord > 0 else "min"](lines, axis=-1)
        return self._f["expand_dims"](found, (-2, -1)) if keepdims else found

    def _least(self, x: Any, values: Any, rtol: Any) -> Any:
        """The least singular value that does not count as 0, for each matrix."""
        if rtol is None:
            rtol = max(x.shape[-2:]) * (
                2.0**-52 if self._dtypes.dtype_name(values) == "float64" else 2.0**-23
            )
        elif self._dtypes.dtype_name(rtol) is not None:
            rtol = self._f["expand_dims"](rtol, -1)
        return self._f["multiply"](self._f["max"](values, axis=-1, keepdims=True), rtol)

    def _adjoint(self, x: Any) -> Any:
        turned = self._f["matrix_transpose"](x)
        return self._f["conj"](turned) if self._kind(x) == COMPLEX else turned


def _square(x: Any, what: str) -> Any:
    least_axes(x, 2, what)
    if x.shape[-1] != x.shape[-2]:
        raise ArgumentError(
            f"{what} was given a tensor of shape {tuple(x.shape)}; give square matrices"
        )
    return x
