"""The array API standard's extension ``fft``, over a framework's transforms along the last axis.

The adapter gives four *raw* transforms of stacks of vectors: ``fft`` and ``ifft`` of complex numbers,
``rfft`` of real ones, and ``irfft`` with the length of its result. They are scaled as the standard's
``norm="backward"``: the inverse ones are divided by the length.
"""

import math
from collections.abc import Mapping
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of, one_of
from xdevice.kit.standard.promotion import COMPLEX, COMPLEX_NAMES, REAL_NAMES, Dtypes, Operations, kind_of, real

NORMS = ("backward", "ortho", "forward")
_OPPOSITE: dict[str, str] = dict(zip(NORMS, reversed(NORMS), strict=True))


def fourier_transforms(raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes) -> dict[str, Any]:
    """The functions, each by its name: of the transforms ``raw``, and of the functions of the main namespace."""
    return dict(_Fourier(raw, f, dtypes))


class _Fourier(Operations):
    def fft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._along("fft", self._complex(x), n, axis, norm)

    def ifft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._along("ifft", self._complex(x), n, axis, norm)

    def rfft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._along("rfft", self._real(x, "rfft"), n, axis, norm)

    def irfft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._along("irfft", self._complex(x), n, axis, norm)

    def hfft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._along("irfft", self._f["conj"](self._complex(x)), n, axis, _OPPOSITE.get(norm, norm))

    def ihfft(self, x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return self._f["conj"](self._along("rfft", self._real(x, "ihfft"), n, axis, _OPPOSITE.get(norm, norm)))

    def fftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return self._each("fft", self._complex(x), _lengths(x, s, axes), norm)

    def ifftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return self._each("ifft", self._complex(x), _lengths(x, s, axes), norm)

    def rfftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        *others, (last, n) = _lengths(x, s, axes)
        return self._each("fft", self._along("rfft", self._real(x, "rfftn"), n, last, norm), others, norm)

    def irfftn(self, x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        *others, (last, n) = _lengths(x, s, axes)
        return self._along("irfft", self._each("ifft", self._complex(x), others, norm), n, last, norm)

    def fftshift(self, x: Any, /, *, axes: Any = None) -> Any:
        along = axes_of(axes, len(x.shape))
        return self._f["roll"](x, tuple(x.shape[axis] // 2 for axis in along), axis=along) if along else x

    def ifftshift(self, x: Any, /, *, axes: Any = None) -> Any:
        along = axes_of(axes, len(x.shape))
        return self._f["roll"](x, tuple(-(x.shape[axis] // 2) for axis in along), axis=along) if along else x

    def _each(self, name: str, x: Any, lengths: list[tuple[int, int | None]], norm: str) -> Any:
        for axis, n in reversed(lengths):
            x = self._along(name, x, n, axis, norm)
        return x

    def _along(self, name: str, x: Any, n: int | None, axis: int, norm: str) -> Any:
        one_of(norm, NORMS, "norm")
        (axis,) = axes_of(axis, len(x.shape))
        given = x.shape[axis]
        length = n if n is not None else 2 * (given - 1) if name == "irfft" else given
        if length < 1:
            raise ArgumentError(f"{name} of {length!r} numbers along axis {axis}; give n=, 1 or more")
        x = self._f["moveaxis"](self._fitted(x, axis, length // 2 + 1 if name == "irfft" else length), axis, -1)
        found = self._transformed(name, x, length)
        factor = _factor(name in ("ifft", "irfft"), norm, length)
        return self._f["moveaxis"](found if factor == 1 else self._f["multiply"](found, factor), -1, axis)

    def _transformed(self, name: str, x: Any, length: int) -> Any:
        """The transform along the last axis; not called without vectors, since some frameworks then fail."""
        if math.prod(x.shape):
            return self._raw[name](x, length) if name == "irfft" else self._raw[name](x)
        shape = (*x.shape[:-1], length // 2 + 1 if name == "rfft" else length)
        own = self._dtypes.dtype_name(x)
        wanted = self._counterpart(own) if name in ("rfft", "irfft") else own
        return self._f["reshape"](self._dtypes.cast(self._f["real"](x), wanted), shape)

    def _fitted(self, x: Any, axis: int, length: int) -> Any:
        """The tensor cut, or padded with zeros, to that length along the axis."""
        lacking, front = length - x.shape[axis], (slice(None),) * axis
        if lacking <= 0:
            return x[(*front, slice(0, length))] if lacking else x
        shape = tuple(lacking if i == axis else n for i, n in enumerate(x.shape))
        zero = self._dtypes.number(0, str(self._dtypes.dtype_name(x)), x)
        return self._f["concat"]([x, self._f["broadcast_to"](zero, shape)], axis=axis)

    def _complex(self, x: Any) -> Any:
        x = real(x, self._dtypes)
        name = self._dtypes.dtype_name(x)
        return x if kind_of(name) == COMPLEX else self._dtypes.cast(x, self._counterpart(name))

    def _real(self, x: Any, what: str) -> Any:
        name = self._dtypes.dtype_name(x)
        if kind_of(name) == COMPLEX:
            raise ArgumentError(f"{what} is a transform of real numbers, not of {name}; give real(x), or use fft")
        return real(x, self._dtypes)

    def _counterpart(self, name: str | None) -> str:
        """The complex dtype of a real one, and vice versa."""
        pairs: dict[str, str] = dict(zip(REAL_NAMES + COMPLEX_NAMES, COMPLEX_NAMES + REAL_NAMES, strict=True))
        return pairs.get(str(name), COMPLEX_NAMES[0])


def _factor(inverse: bool, norm: str, length: int) -> float:
    """The factor from ``norm="backward"`` to another norm."""
    if norm == "backward":
        return 1
    size = math.sqrt(length) if norm == "ortho" else float(length)
    return size if inverse else 1 / size


def _lengths(x: Any, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """The axes of a transform of several, each with its length where one is given."""
    ndim = len(x.shape)
    if axes is None and s is not None:
        axes = tuple(range(ndim - len(s), ndim))
    along = axes_of(axes if axes is None else tuple(axes), ndim)
    if not along or (s is not None and len(s) != len(along)):
        raise ArgumentError(f"s={s!r} and axes={axes!r} of a tensor of {ndim} axes; give one length for each axis")
    return list(zip(along, s if s is not None else (None,) * len(along), strict=True))
