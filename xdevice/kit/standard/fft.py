"""The array API standard's extension ``fft``, over a framework's transforms along the last axis.

The adapter gives four *raw* transforms of stacks of vectors: ``fft`` and ``ifft`` of complex numbers,
``rfft`` of real ones, and ``irfft`` with the length of its result. They are scaled as the standard's
``norm="backward"``: the inverse ones are divided by the length.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of
from xdevice.kit.standard.dtypes import COMPLEX, COMPLEXES, REALS, Dtypes, Operations, one_of

_NORMS = ("backward", "ortho", "forward")
_OPPOSITE: dict[str, str] = dict(zip(_NORMS, reversed(_NORMS), strict=True))
_COUNTERPARTS: dict[str, str] = dict(zip(REALS + COMPLEXES, COMPLEXES + REALS, strict=True))


def fourier_transforms(
    raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes
) -> dict[str, Any]:
    """The functions, each by its name: of the transforms ``raw``, and of the functions of the main namespace."""
    return dict(_Fourier(raw, f, dtypes))


def _of_one_axis(name: str) -> Callable[..., Any]:
    def transform(
        self: Any, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Any:
        return self._along(name, x, n, axis, norm)

    transform.__name__, transform.__qualname__ = name, f"_Fourier.{name}"
    return transform


class _Fourier(Operations):
    fft, ifft, rfft, irfft = map(_of_one_axis, ("fft", "ifft", "rfft", "irfft"))

    def hfft(
        self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Any:
        return self._along(
            "irfft", self._f["conj"](self._real(x)), n, axis, _OPPOSITE.get(norm, norm)
        )

    def ihfft(
        self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Any:
        return self._f["conj"](
            self._along("rfft", self._reals(x, "ihfft"), n, axis, _OPPOSITE.get(norm, norm))
        )

    def fftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return self._each("fft", x, _lengths(x, s, axes), norm)

    def ifftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return self._each("ifft", x, _lengths(x, s, axes), norm)

    def rfftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        *others, (last, n) = _lengths(x, s, axes)
        return self._each(
            "fft", self._along("rfft", self._reals(x, "rfftn"), n, last, norm), others, norm
        )

    def irfftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        *others, (last, n) = _lengths(x, s, axes)
        return self._along("irfft", self._each("ifft", x, others, norm), n, last, norm)

    def fftshift(self, x: Any, /, *, axes: Any = None) -> Any:
        along = axes_of(axes, len(x.shape))
        return (
            self._f["roll"](x, tuple(x.shape[axis] // 2 for axis in along), axis=along)
            if along
            else x
        )

    def ifftshift(self, x: Any, /, *, axes: Any = None) -> Any:
        along = axes_of(axes, len(x.shape))
        return (
            self._f["roll"](x, tuple(-(x.shape[axis] // 2) for axis in along), axis=along)
            if along
            else x
        )

    def _each(self, name: str, x: Any, lengths: list[tuple[int, int | None]], norm: str) -> Any:
        for axis, n in reversed(lengths):
            x = self._along(name, x, n, axis, norm)
        return x

    def _along(self, name: str, x: Any, n: int | None, axis: int, norm: str) -> Any:
        x = self._reals(x, name) if name == "rfft" else self._complexes(x)
        one_of(norm, _NORMS, "norm")
        (axis,) = axes_of(axis, len(x.shape))
        given = x.shape[axis]
        length = n if n is not None else 2 * (given - 1) if name == "irfft" else given
        if length < 1:
            raise ArgumentError(
                f"{name} of {length!r} numbers along axis {axis}; give n=, 1 or more"
            )
        x = self._f["moveaxis"](
            self._fitted(x, axis, length // 2 + 1 if name == "irfft" else length), axis, -1
        )
        found = self._transformed(name, x, length)
        if norm != "backward":
            size = math.sqrt(length) if norm == "ortho" else float(length)
            found = self._f["multiply"](found, size if name in ("ifft", "irfft") else 1 / size)
        return self._f["moveaxis"](found, -1, axis)

    def _complexes(self, x: Any) -> Any:
        x = self._real(x)
        return x if self._kind(x) == COMPLEX else self._dtypes.cast(x, self._counterpart(x))

    def _counterpart(self, x: Any) -> str:
        """The complex dtype for real numbers, and vice versa."""
        return _COUNTERPARTS.get(str(self._dtypes.dtype_name(x)), COMPLEXES[0])

    def _reals(self, x: Any, what: str) -> Any:
        if self._kind(x) == COMPLEX:
            name = self._dtypes.dtype_name(x)
            raise ArgumentError(
                f"{what} is a transform of real numbers, not of {name}; give real(x), or use fft"
            )
        return self._real(x)

    def _transformed(self, name: str, x: Any, length: int) -> Any:
        """The transform along the last axis; not called without vectors, since some frameworks then fail."""
        if math.prod(x.shape):
            return self._raw[name](x, length) if name == "irfft" else self._raw[name](x)
        shape = (*x.shape[:-1], length // 2 + 1 if name == "rfft" else length)
        wanted = self._counterpart(x) if name in ("rfft", "irfft") else self._dtypes.dtype_name(x)
        return self._f["reshape"](self._dtypes.cast(self._f["real"](x), wanted), shape)

    def _fitted(self, x: Any, axis: int, length: int) -> Any:
        """The tensor cut, or padded with zeros, to that length along the axis."""
        lacking = length - x.shape[axis]
        if lacking <= 0:
            return x[(*(slice(None),) * axis, slice(0, length))] if lacking else x
        shape = tuple(lacking if i == axis else n for i, n in enumerate(x.shape))
        return self._f["concat"]([x, self._f["broadcast_to"](self._number(0, x), shape)], axis=axis)


def _lengths(x: Any, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """The axes of a transform of several, each with its length where one is given."""
    ndim = len(x.shape)
    if axes is None and s is not None:
        axes = tuple(range(ndim - len(s), ndim))
    along = axes_of(axes if axes is None else tuple(axes), ndim)
    if not along or (s is not None and len(s) != len(along)):
        raise ArgumentError(
            f"s={s!r} and axes={axes!r} of a tensor of {ndim} axes; give one length for each axis"
        )
    return list(zip(along, s if s is not None else (None,) * len(along), strict=True))
