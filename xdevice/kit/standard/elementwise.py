"""Functions applied element by element: arithmetic, parts of complex numbers, bits, dtypes."""

from typing import Any

from xdevice.errors import ArgumentTypeError
from xdevice.kit.standard.promotion import COMPLEX, FLOAT, INTEGER, Operations, kind_of, truth


class Elementwise(Operations):
    def positive(self, x: Any, /) -> Any:
        return x

    def square(self, x: Any, /) -> Any:
        return self._f["multiply"](x, x)

    def reciprocal(self, x: Any, /) -> Any:
        return self._f["divide"](1, x)

    def where(self, condition: Any, x1: Any, x2: Any, /) -> Any:
        if self._dtypes.dtype_name(x1) is None and self._dtypes.dtype_name(x2) is None:  # Python's numbers
            least = FLOAT if isinstance(x1, float) or isinstance(x2, float) else INTEGER
            x1 = self._dtypes.number(x1, least, condition)
        return self._raw["where"](truth(condition, self._dtypes), *self._promote(x1, x2))

    def clip(self, x: Any, /, min: Any = None, max: Any = None) -> Any:
        name = self._dtypes.dtype_name(x)
        for bound, limit in ((min, "maximum"), (max, "minimum")):
            if bound is not None:
                x = self._f[limit](x, bound)
        return self._kept(x, name)

    def hypot(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = (self._f["abs"](x) for x in self._promote(x1, x2, least=FLOAT))
        high, low = self._f["maximum"](x1, x2), self._f["minimum"](x1, x2)
        # scaled, so that the squares stay within the dtype; where both are 0 or one is infinite there is no ratio
        plain = self._f["logical_and"](self._f["isfinite"](high), self._f["greater"](high, 0))
        ratio = self._f["divide"](self.where(plain, low, 0.0), self.where(plain, high, 1.0))
        length = self._f["multiply"](high, self._f["sqrt"](self._f["add"](self.square(ratio), 1)))
        infinite = self._f["logical_or"](self._f["isinf"](x1), self._f["isinf"](x2))
        return self.where(infinite, float("inf"), length)

    def logaddexp(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        # the difference of equal numbers is 0, also where both are infinite
        apart = self.where(self._f["equal"](x1, x2), 0.0, self._f["abs"](self._f["subtract"](x1, x2)))
        return self._f["add"](self._f["maximum"](x1, x2), self._f["log1p"](self._f["exp"](self._f["negative"](apart))))

    def signbit(self, x: Any, /) -> Any:
        # 1 divided by -0.0 is -inf, the only difference from 0.0 that every framework computes
        return self._f["logical_or"](self._f["less"](x, 0), self._f["less"](self.reciprocal(x), 0))

    def copysign(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        size = self._f["abs"](x1)
        return self.where(self._f.get("signbit", self.signbit)(x2), self._f["negative"](size), size)

    def real(self, x: Any, /) -> Any:
        return self._raw["real"](x) if kind_of(self._dtypes.dtype_name(x)) == COMPLEX else x

    def imag(self, x: Any, /) -> Any:
        is_complex = kind_of(self._dtypes.dtype_name(x)) == COMPLEX
        return self._raw["imag"](x) if is_complex else self._f["zeros_like"](x)

    def conj(self, x: Any, /) -> Any:
        return self._raw["conj"](x) if kind_of(self._dtypes.dtype_name(x)) == COMPLEX else x

    def full_like(self, x: Any, /, fill_value: Any, *, dtype: Any = None) -> Any:
        zeros = self._f["zeros_like"](x, dtype=dtype)
        if self._dtypes.dtype_name(zeros) == "bool":
            return self._f["equal"](zeros, not fill_value)
        return self._f["add"](zeros, fill_value)

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        given, wanted = self._dtypes.dtype_name(x), self._dtypes.name_of(dtype)
        if kind_of(given) == COMPLEX > kind_of(wanted):
            raise ArgumentTypeError(f"{given} does not become {wanted}; give real(x), imag(x) or abs(x)")
        return x if given == wanted and not copy else self._dtypes.cast(x, dtype)
