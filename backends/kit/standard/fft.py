"""The array API standard's extension ``fft``, over a framework's transforms.

The adapter provides four *raw* transforms along the last axis: ``fft`` and
``ifft`` of complex numbers, ``rfft`` of real ones, and ``irfft`` with the
length of its result. They are scaled as with the standard's
``norm="backward"``: the inverse transforms are divided by the length.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdevice.backends.kit.standard.axes import Axes, Function, Functions, Tensor, axes_of
from xdevice.backends.kit.standard.dtypes import (
    COMPLEX,
    COMPLEXES,
    REALS,
    Dtypes,
    Operations,
    one_of,
)
from xdevice.errors import ArgumentError

Sizes: TypeAlias = Sequence[int] | None

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE: dict[str, str] = dict(zip(_NORMS, reversed(_NORMS), strict=True))
_COUNTERPARTS: dict[str, str] = dict(zip(REALS + COMPLEXES, COMPLEXES + REALS, strict=True))


def fourier_transforms(raw: Functions, f: Functions, dtypes: Dtypes) -> dict[str, Function]:
    """The functions by name.

    They are composed of the transforms ``raw`` and the main namespace ``f``.
    """
    return dict(_Fourier(raw, f, dtypes))


def _of_one_axis(name: str) -> Callable[..., Tensor]:
    def transform(
        self: "_Fourier",
        x: Tensor,
        /,
        *,
        n: int | None = None,
        axis: int = -1,
        norm: str = "backward",
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
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward"
    ) -> Tensor:
        return self._along_each("fft", x, _lengths(x, s, axes), norm)

    def ifftn(
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward"
    ) -> Tensor:
        return self._along_each("ifft", x, _lengths(x, s, axes), norm)

    def rfftn(
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward"
    ) -> Tensor:
        *first_axes, (last, n) = _lengths(x, s, axes)
        x = self._along("rfft", self._reals(x, "rfftn"), n, last, norm)
        return self._along_each("fft", x, first_axes, norm)

    def irfftn(
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward"
    ) -> Tensor:
        *first_axes, (last, n) = _lengths(x, s, axes)
        x = self._along_each("ifft", x, first_axes, norm)
        return self._along("irfft", x, n, last, norm)

    def fftshift(self, x: Tensor, /, *, axes: Axes = None) -> Tensor:
        along = axes_of(axes, len(x.shape))
        if not along:
            return x
        shifts = tuple(x.shape[axis] // 2 for axis in along)
        return self._f["roll"](x, shifts, axis=along)

    def ifftshift(self, x: Tensor, /, *, axes: Axes = None) -> Tensor:
        along = axes_of(axes, len(x.shape))
        if not along:
            return x
        shifts = tuple(-(x.shape[axis] // 2) for axis in along)
        return self._f["roll"](x, shifts, axis=along)

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
        if n is not None:
            length = n
        elif name == "irfft":
            length = 2 * (x.shape[axis] - 1)
        else:
            length = x.shape[axis]
        if length < 1:
            raise ArgumentError(
                f"{name} of {length!r} numbers along axis {axis}; give n=, 1 or more"
            )
        input_length = length // 2 + 1 if name == "irfft" else length
        x = self._f["moveaxis"](self._fitted(x, axis, input_length), axis, -1)
        result = self._transformed(name, x, length)
        if norm != "backward":
            factor = math.sqrt(length) if norm == "ortho" else float(length)
            if name in ("fft", "rfft"):
                factor = 1 / factor
            result = self._f["multiply"](result, factor)
        return self._f["moveaxis"](result, -1, axis)

    def _complexes(self, x: Tensor) -> Tensor:
        x = self._real(x)
        if self._kind(x) == COMPLEX:
            return x
        return self._dtypes.cast(x, self._counterpart(x))

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
        """The transform along the last axis.

        Some frameworks fail for an empty tensor, so they are not given one.
        """
        if math.prod(x.shape):
            if name == "irfft":
                return self._raw[name](x, length)
            return self._raw[name](x)
        result_length = length // 2 + 1 if name == "rfft" else length
        shape = (*x.shape[:-1], result_length)
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
            return self._sliced(x, axis, slice(0, length))
        shape = list(x.shape)
        shape[axis] = padding
        zeros = self._f["broadcast_to"](self._number(0, x), tuple(shape))
        return self._f["concat"]([x, zeros], axis=axis)


def _lengths(x: Tensor, s: Sizes, axes: Sizes) -> list[tuple[int, int | None]]:
    """The axes of a transform of several axes, each with its length.

    The length is ``None`` if ``s`` is.
    """
    ndim = len(x.shape)
    if axes is not None:
        axes = tuple(axes)
    elif s is not None:
        axes = tuple(range(ndim - len(s), ndim))
    along = axes_of(axes, ndim)
    if not along or (s is not None and len(s) != len(along)):
        raise ArgumentError(
            f"s={s!r} and axes={axes!r} of a tensor of {ndim} axes; give one length for each axis"
        )
    if s is None:
        return [(axis, None) for axis in along]
    return list(zip(along, s, strict=True))
