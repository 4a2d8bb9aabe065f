"""The array API standard's extension ``fft``, over a framework's transforms along the last axis.

The adapter provides four *raw* transforms of stacks of vectors: ``fft`` and
``ifft`` of complex numbers, ``rfft`` of real ones, and ``irfft`` with the
length of its result. They are scaled as with the standard's
``norm="backward"``: the inverse transforms are divided by the length.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of
from xdevice.kit.standard.dtypes import COMPLEX, COMPLEXES, REALS, Dtypes, Operations, one_of

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE: dict[str, str] = dict(zip(_NORMS, reversed(_NORMS), strict=True))
_COUNTERPARTS: dict[str, str] = dict(zip(REALS + COMPLEXES, COMPLEXES + REALS, strict=True))


def fourier_transforms(
    raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes
) -> dict[str, Any]:
    """The functions by name, composed of the transforms ``raw`` and the main namespace ``f``."""
    return dict(_Fourier(raw, f, dtypes))


def _of_one_axis(name: str) -> Callable[..., Any]:
    def transform(
        self: Any, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        return self._along(name, x, n, axis, norm)

    transform.__name__ = name
    transform.__qualname__ = f"_Fourier.{name}"
    return transform


class _Fourier(Operations):
    fft, ifft, rfft, irfft = map(_of_one_axis, ("fft", "ifft", "rfft", "irfft"))

    def hfft(
        self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        conjugate = self._f["conj"](self._real(x))
        return self._along("irfft", conjugate, n, axis, _OPPOSITE.get(norm, norm))

    def ihfft(
        self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        x = self._reals(x, "ihfft")
        return self._f["conj"](self._along("rfft", x, n, axis, _OPPOSITE.get(norm, norm)))

    def fftn(
        self, x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        return self._along_each("fft", x, _lengths(x, s, axes), norm)

    def ifftn(
        self, x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        return self._along_each("ifft", x, _lengths(x, s, axes), norm)

    def rfftn(
        self, x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        *first_axes, (last, n) = _lengths(x, s, axes)
        x = self._along("rfft", self._reals(x, "rfftn"), n, last, norm)
        return self._along_each("fft", x, first_axes, norm)

    def irfftn(
        self, x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Tensor:
        *first_axes, (last, n) = _lengths(x, s, axes)
        x = self._along_each("ifft", x, first_axes, norm)
        return self._along("irfft", x, n, last, norm)

    def fftshift(self, x: Tensor, /, *, axes: Any = None) -> Tensor:
        along = axes_of(axes, len(x.shape))
        if not along:
            return x
        return self._f["roll"](x, tuple(x.shape[axis] // 2 for axis in along), axis=along)

    def ifftshift(self, x: Tensor, /, *, axes: Any = None) -> Tensor:
        along = axes_of(axes, len(x.shape))
        if not along:
            return x
        return self._f["roll"](x, tuple(-(x.shape[axis] // 2) for axis in along), axis=along)

    def _along_each(
        self, name: str, x: Tensor, lengths: list[tuple[int, int | None]], norm: str
    ) -> Tensor:
        for axis, n in reversed(lengths):
            x = self._along(name, x, n, axis, norm)
        return x

    def _along(self, name: str, x: Tensor, n: int | None, axis: int, norm: str) -> Tensor:
        x = self._reals(x, name) if name == "rfft" else self._complexes(x)
        one_of(norm, _NORMS, "norm")
        (axis,) = axes_of(axis, len(x.shape))
        length = x.shape[axis] if n is None else n
        if n is None and name == "irfft":
            length = 2 * (length - 1)
        if length < 1:
            raise ArgumentError(
                f"{name} of {length!r} numbers along axis {axis}; give n=, 1 or more"
            )
        needed = length // 2 + 1 if name == "irfft" else length
        x = self._f["moveaxis"](self._fitted(x, axis, needed), axis, -1)
        result = self._transformed(name, x, length)
        if norm != "backward":
            size = math.sqrt(length) if norm == "ortho" else float(length)
            is_inverse = name in ("ifft", "irfft")
            result = self._f["multiply"](result, size if is_inverse else 1 / size)
        return self._f["moveaxis"](result, -1, axis)

    def _complexes(self, x: Tensor) -> Tensor:
        x = self._real(x)
        return x if self._kind(x) == COMPLEX else self._dtypes.cast(x, self._counterpart(x))

    def _counterpart(self, x: Tensor) -> str:
        """The complex dtype for real numbers, and vice versa."""
        return _COUNTERPARTS.get(str(self._dtypes.dtype_name(x)), COMPLEXES[0])

    def _reals(self, x: Tensor, function: str) -> Tensor:
        if self._kind(x) == COMPLEX:
            name = self._dtypes.dtype_name(x)
            raise ArgumentError(
                f"{function} is a transform of real numbers, not of {name}; "
                "give real(x), or use fft"
            )
        return self._real(x)

    def _transformed(self, name: str, x: Tensor, length: int) -> Tensor:
        """The transform along the last axis. An empty tensor is not given to the framework.

        Some frameworks fail then.
        """
        if math.prod(x.shape):
            return self._raw[name](x, length) if name == "irfft" else self._raw[name](x)
        shape = (*x.shape[:-1], length // 2 + 1 if name == "rfft" else length)
        dtype = self._dtypes.dtype_name(x)
        if name in ("rfft", "irfft"):
            dtype = self._counterpart(x)
        return self._f["reshape"](self._dtypes.cast(self._f["real"](x), dtype), shape)

    def _fitted(self, x: Tensor, axis: int, length: int) -> Tensor:
        """The tensor, cut or padded with zeros to that length along the axis."""
        padding = length - x.shape[axis]
        if padding == 0:
            return x
        if padding < 0:
            return x[(*(slice(None),) * axis, slice(0, length))]
        shape = tuple(padding if i == axis else n for i, n in enumerate(x.shape))
        zeros = self._f["broadcast_to"](self._number(0, x), shape)
        return self._f["concat"]([x, zeros], axis=axis)


def _lengths(x: Tensor, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """The axes of a transform of several axes, each with its length if ``s`` gives lengths."""
    ndim = len(x.shape)
    if axes is None and s is not None:
        axes = tuple(range(ndim - len(s), ndim))
    along = axes_of(axes if axes is None else tuple(axes), ndim)
    if not along or (s is not None and len(s) != len(along)):
        raise ArgumentError(
            f"s={s!r} and axes={axes!r} of a tensor of {ndim} axes; give one length for each axis"
        )
    lengths = (None,) * len(along) if s is None else s
    return list(zip(along, lengths, strict=True))
