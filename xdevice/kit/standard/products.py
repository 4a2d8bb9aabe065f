"""Products of vectors and matrices."""

from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of, least_axes, size_of
from xdevice.kit.standard.promotion import COMPLEX, Operations, kind_of


class Products(Operations):
    def matmul(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2)
        if not x1.shape or not x2.shape:
            raise ArgumentError("matmul was given a single number; use multiply")
        row, column = len(x1.shape) == 1, len(x2.shape) == 1
        left = self._raw["expand_dims"](x1, 0) if row else x1
        right = self._raw["expand_dims"](x2, 1) if column else x2
        found = self._raw["matmul"](left, right)
        ndim = len(found.shape)
        flat = ((ndim - 2,) if row else ()) + ((ndim - 1,) if column else ())
        return self._raw["squeeze"](found, flat) if flat else found

    def matrix_transpose(self, x: Any, /) -> Any:
        ndim = least_axes(x, 2, "matrix_transpose")
        return self._raw["permute_dims"](x, (*range(ndim - 2), ndim - 1, ndim - 2))

    def vecdot(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        if kind_of(self._dtypes.dtype_name(x1)) == COMPLEX:
            x1 = self._raw["conj"](x1)
        sizes = [x.shape[axes_of(axis, len(x.shape))[0]] for x in (x1, x2)]
        if sizes[0] != sizes[1] and None not in sizes:
            raise ArgumentError(f"vecdot of vectors of {sizes[0]} and {sizes[1]} numbers; give some of one length")
        product = self._f["multiply"](x1, x2)
        return self._raw["sum"](product, axes_of(axis, len(product.shape)), False)

    def tensordot(self, x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
        x1, x2 = self._promote(x1, x2)
        n1, n2 = len(x1.shape), len(x2.shape)
        if isinstance(axes, int):
            axes = (range(n1 - axes, n1), range(axes))
        over1, over2 = axes_of(tuple(axes[0]), n1), axes_of(tuple(axes[1]), n2)
        rest1, rest2 = ([i for i in range(n) if i not in over] for n, over in ((n1, over1), (n2, over2)))
        middle = size_of(x1.shape, over1)
        left = self._matrix(x1, (*rest1, *over1), (size_of(x1.shape, tuple(rest1)), middle))
        right = self._matrix(x2, (*over2, *rest2), (middle, size_of(x2.shape, tuple(rest2))))
        shape = (*(x1.shape[i] for i in rest1), *(x2.shape[i] for i in rest2))
        return self._raw["reshape"](self._raw["matmul"](left, right), shape)

    def _matrix(self, x: Any, order: tuple[int, ...], shape: tuple[int, int]) -> Any:
        return self._raw["reshape"](self._raw["permute_dims"](x, order), shape)
