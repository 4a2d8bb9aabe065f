"""Types for the signatures of your own functions.

A namespace's results are `Tensor`: the framework is chosen at run time.

>>> from xdevice.typing import DeviceLike, Namespace, Tensor
>>> def softplus(x: Tensor, xp: Namespace, device: DeviceLike = "cpu") -> object: ...
"""

# declarations only
# mypy: disable-error-code=empty-body

# Another project's xdevice/__init__.py puts this folder on `sys.path` and
# imports `typing`.
if __name__ == "typing":
    raise ImportError(
        "the package 'xdevice', another project with the same import name, has overwritten "
        "xdevice/__init__.py; "
        "pip uninstall -y xdevice, then pip install --force-reinstall --no-deps xdevice-tensors"
    )

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from xdevice.device import Device

__all__ = ["DeviceLike", "Namespace", "Tensor"]


# The result of an operator. pyright reads this condition and takes the second line: for it, comparing
# a framework's class with operators whose results have operators, too, takes minutes. mypy does not
# read the condition and takes the first line: for it, `Any` may not be returned as a `Tensor`.
if os.name == "none":
    _Result: TypeAlias = "Tensor | Any"
else:
    _Result: TypeAlias = Any  # type: ignore[misc, no-redef]  # see above


class Tensor(Protocol):  # noqa: PLW1641  (some frameworks' tensors have no hash)
    """Any framework's tensor: its shape and dtype, operators and indexing.

    These are the same under every framework. A second operand is a tensor of
    the same framework and device, or a number; those of ``@`` are matrices.

    Examples
    --------
    >>> from xdevice.typing import Tensor
    >>> def scaled(x: Tensor) -> Tensor:
    ...     return (x - x[0]) / 2
    """

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    def __getitem__(self, key: Any, /) -> _Result: ...
    def __neg__(self) -> _Result: ...
    def __abs__(self) -> _Result: ...
    def __add__(self, other: Any, /) -> _Result: ...
    def __radd__(self, other: Any, /) -> _Result: ...
    def __sub__(self, other: Any, /) -> _Result: ...
    def __rsub__(self, other: Any, /) -> _Result: ...
    def __mul__(self, other: Any, /) -> _Result: ...
    def __rmul__(self, other: Any, /) -> _Result: ...
    def __truediv__(self, other: Any, /) -> _Result: ...
    def __rtruediv__(self, other: Any, /) -> _Result: ...
    def __mod__(self, other: Any, /) -> _Result: ...
    def __pow__(self, other: Any, /) -> _Result: ...
    def __matmul__(self, other: Any, /) -> _Result: ...
    def __and__(self, other: Any, /) -> _Result: ...
    def __or__(self, other: Any, /) -> _Result: ...
    def __lt__(self, other: Any, /) -> _Result: ...
    def __le__(self, other: Any, /) -> _Result: ...
    def __gt__(self, other: Any, /) -> _Result: ...
    def __ge__(self, other: Any, /) -> _Result: ...
    # `object` compares to a bool, and a tensor elementwise
    def __eq__(self, other: Any, /) -> _Result: ...  # type: ignore[override]
    def __ne__(self, other: Any, /) -> _Result: ...  # type: ignore[override]
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...


class _Typed(Protocol):  # PyTorch's devices
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


class _OfPlatform(Protocol):  # JAX's
    @property
    def platform(self) -> str: ...
    @property
    def id(self) -> int: ...


class _Context(Protocol):  # MXNet's and TensorFlow's
    @property
    def device_type(self) -> str: ...


class _Place(Protocol):  # PaddlePaddle's
    def is_cpu_place(self) -> bool: ...
    def gpu_device_id(self) -> int: ...


DeviceLike: TypeAlias = Device | str | _Typed | _OfPlatform | _Context | _Place
"""What names a device.

A `Device`, any framework's spelling, or a native device, by its attributes. A
tensor does not name a device.

Examples
--------
>>> from xdevice.typing import DeviceLike
>>> def load_batch(path: str, device: DeviceLike = "cpu") -> object: ...
"""

# The rest of this file is `Namespace`, the standard's functions with their parameters: type
# checkers read it, and `xdevice.tensors.namespace` takes the names from it.

Array: TypeAlias = Tensor
"""A result: a tensor of the framework that is chosen at run time."""


class Eigen(NamedTuple):
    """What ``eig`` and ``eigh`` return."""

    eigenvalues: Array
    eigenvectors: Array


class SVD(NamedTuple):
    """What ``svd`` returns."""

    U: Array
    S: Array
    Vh: Array


class QR(NamedTuple):
    """What ``qr`` returns."""

    Q: Array
    R: Array


class Slogdet(NamedTuple):
    """What ``slogdet`` returns."""

    sign: Array
    logabsdet: Array


class UniqueAll(NamedTuple):
    """What ``unique_all`` returns."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` returns."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` returns."""

    values: Array
    inverse_indices: Array


NativeDtype: TypeAlias = Any
"""A dtype of that framework."""

DtypeKind: TypeAlias = Any
"""A kind of dtypes, a tuple of kinds, or a dtype."""

ArrayLike: TypeAlias = Any
"""A tensor of any framework, a number, or nested sequences of numbers."""

Exporter: TypeAlias = Any
"""An object with ``__dlpack__``."""

NumberInfo: TypeAlias = Any
"""The limits of a dtype, as ``finfo`` and ``iinfo`` return them."""

Operand: TypeAlias = Tensor | complex
Axes: TypeAlias = int | tuple[int, ...] | None
Norm = Literal["backward", "ortho", "forward"]
Kind = Literal[
    "bool",
    "signed integer",
    "unsigned integer",
    "integral",
    "real floating",
    "complex floating",
    "numeric",
]
Shape: TypeAlias = int | Sequence[int]
Sizes: TypeAlias = Sequence[int] | None
Place: TypeAlias = DeviceLike | None
Flag = bool  # within a namespace, `bool` is the standard's dtype
_dtype: NativeDtype = None


class LinearAlgebra:
    """The standard's extension ``linalg``."""

    def cholesky(self, x: Tensor, /, *, upper: Flag = False) -> Array: ...
    def cross(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array: ...
    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array: ...
    def det(self, x: Tensor, /) -> Array: ...
    def diagonal(self, x: Tensor, /, *, offset: int = 0) -> Array: ...
    def matmul(self, x1: Tensor, x2: Tensor, /) -> Array: ...
    def matrix_norm(
        self,
        x: Tensor,
        /,
        *,
        keepdims: Flag = False,
        ord: float | Literal["fro", "nuc"] | None = "fro",
    ) -> Array: ...
    def matrix_power(self, x: Tensor, n: int, /) -> Array: ...
    def matrix_rank(self, x: Tensor, /, *, rtol: Operand | None = None) -> Array: ...
    def pinv(self, x: Tensor, /, *, rtol: Operand | None = None) -> Array: ...
    def eigh(self, x: Tensor, /) -> Eigen: ...
    def slogdet(self, x: Tensor, /) -> Slogdet: ...
    def qr(self, x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QR: ...
    def svd(self, x: Tensor, /, *, full_matrices: Flag = True) -> SVD: ...
    def tensordot(
        self, x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
    ) -> Array: ...
    def trace(self, x: Tensor, /, *, offset: int = 0, dtype: NativeDtype = None) -> Array: ...
    def vector_norm(
        self, x: Tensor, /, *, axis: Axes = None, keepdims: Flag = False, ord: float = 2
    ) -> Array: ...

    # the same parameters
    eig = eigh
    eigvals = eigvalsh = inv = matrix_transpose = svdvals = det
    outer = solve = matmul


class FourierTransforms:
    """The standard's extension ``fft``."""

    def fft(
        self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
    ) -> Array: ...
    def fftn(
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward"
    ) -> Array: ...
    def fftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array: ...
    def ifftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array: ...
    def fftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: NativeDtype = None, device: Place = None
    ) -> Array: ...
    def rfftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: NativeDtype = None, device: Place = None
    ) -> Array: ...

    # the same parameters
    ifft = rfft = irfft = hfft = ihfft = fft
    ifftn = rfftn = irfftn = fftn


class Info(Protocol):
    """What the standard's inspection functions tell of a namespace."""

    def capabilities(self) -> dict[str, Any]: ...
    def default_device(self) -> Device: ...
    def default_dtypes(self, *, device: Place = None) -> dict[str, NativeDtype]: ...
    def dtypes(
        self, *, device: Place = None, kind: Kind | tuple[Kind, ...] | None = None
    ) -> dict[str, NativeDtype]: ...
    def devices(self) -> tuple[Device, ...]: ...


class Namespace:
    """The array API standard's functions, constants and dtypes."""

    e: float
    inf: float
    nan: float
    newaxis: None
    pi: float
    __array_api_version__: str
    __name__: str
    linalg: LinearAlgebra
    fft: FourierTransforms
    bool = int8 = int16 = int32 = int64 = uint8 = uint16 = uint32 = uint64 = _dtype
    float32 = float64 = complex64 = complex128 = _dtype

    def astype(
        self, x: Tensor, dtype: NativeDtype, /, *, copy: Flag = True, device: Place = None
    ) -> Array: ...
    def can_cast(self, from_: Tensor | NativeDtype, to: NativeDtype, /) -> Flag: ...
    def finfo(self, type: Tensor | NativeDtype, /) -> NumberInfo: ...
    def iinfo(self, type: Tensor | NativeDtype, /) -> NumberInfo: ...
    def isdtype(self, dtype: NativeDtype, kind: DtypeKind) -> Flag: ...
    def result_type(self, *arrays_and_dtypes: Operand | NativeDtype) -> NativeDtype: ...
    def __array_namespace_info__(self) -> Info: ...
    def arange(
        self,
        start: float,
        /,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: NativeDtype = None,
        device: Place = None,
    ) -> Array: ...
    def asarray(
        self,
        obj: ArrayLike,
        /,
        *,
        dtype: NativeDtype = None,
        device: Place = None,
        copy: Flag | None = None,
    ) -> Array: ...
    def from_dlpack(
        self, x: Exporter, /, *, device: Place = None, copy: Flag | None = None
    ) -> Array: ...
    def empty(self, shape: Shape, *, dtype: NativeDtype = None, device: Place = None) -> Array: ...
    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: NativeDtype = None,
        device: Place = None,
    ) -> Array: ...
    def full(
        self, shape: Shape, fill_value: complex, *, dtype: NativeDtype = None, device: Place = None
    ) -> Array: ...
    def linspace(  # noqa: PLR0913  (the standard's)
        self,
        start: complex,
        stop: complex,
        /,
        num: int,
        *,
        dtype: NativeDtype = None,
        device: Place = None,
        endpoint: Flag = True,
    ) -> Array: ...
    def empty_like(
        self, x: Tensor, /, *, dtype: NativeDtype = None, device: Place = None
    ) -> Array: ...
    def full_like(
        self, x: Tensor, /, fill_value: complex, *, dtype: NativeDtype = None, device: Place = None
    ) -> Array: ...
    def meshgrid(
        self, *arrays: Tensor, indexing: Literal["xy", "ij"] = "xy"
    ) -> tuple[Array, ...]: ...
    def tril(self, x: Tensor, /, *, k: int = 0) -> Array: ...
    def triu(self, x: Tensor, /, *, k: int = 0) -> Array: ...
    def abs(self, x: Tensor, /) -> Array: ...
    def add(self, x1: Operand, x2: Operand, /) -> Array: ...
    def clip(
        self, x: Tensor, /, min: Operand | None = None, max: Operand | None = None
    ) -> Array: ...
    def where(self, condition: Tensor, x1: Operand, x2: Operand, /) -> Array: ...
    def all(self, x: Tensor, /, *, axis: Axes = None, keepdims: Flag = False) -> Array: ...
    def cumulative_prod(
        self,
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: NativeDtype = None,
        include_initial: Flag = False,
    ) -> Array: ...
    def diff(
        self,
        x: Tensor,
        /,
        *,
        axis: int = -1,
        n: int = 1,
        prepend: Tensor | None = None,
        append: Tensor | None = None,
    ) -> Array: ...
    def prod(
        self, x: Tensor, /, *, axis: Axes = None, dtype: NativeDtype = None, keepdims: Flag = False
    ) -> Array: ...
    def sum(
        self, x: Tensor, /, *, axis: Axes = None, dtype: NativeDtype = None, keepdims: Flag = False
    ) -> Array: ...
    def std(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Flag = False
    ) -> Array: ...
    def var(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Flag = False
    ) -> Array: ...
    def matmul(self, x1: Tensor, x2: Tensor, /) -> Array: ...
    def tensordot(
        self, x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
    ) -> Array: ...
    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array: ...
    def broadcast_arrays(self, *arrays: Tensor) -> tuple[Array, ...]: ...
    def broadcast_shapes(self, *shapes: tuple[int, ...]) -> tuple[int, ...]: ...
    def broadcast_to(self, x: Tensor, /, shape: Shape) -> Array: ...
    def concat(self, arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Array: ...
    def expand_dims(self, x: Tensor, /, axis: int) -> Array: ...
    def flip(self, x: Tensor, /, *, axis: Axes = None) -> Array: ...
    def moveaxis(
        self, x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
    ) -> Array: ...
    def permute_dims(self, x: Tensor, /, axes: Sequence[int]) -> Array: ...
    def repeat(self, x: Tensor, repeats: Operand, /, *, axis: int | None = None) -> Array: ...
    def reshape(self, x: Tensor, /, shape: Shape, *, copy: Flag | None = None) -> Array: ...
    def roll(self, x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Array: ...
    def squeeze(self, x: Tensor, /, axis: int | tuple[int, ...]) -> Array: ...
    def stack(self, arrays: Sequence[Tensor], /, *, axis: int = 0) -> Array: ...
    def tile(self, x: Tensor, repetitions: Sequence[int], /) -> Array: ...
    def unstack(self, x: Tensor, /, *, axis: int = 0) -> tuple[Array, ...]: ...
    def take(self, x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array: ...
    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Array: ...
    def argmax(self, x: Tensor, /, *, axis: int | None = None, keepdims: Flag = False) -> Array: ...
    def argmin(self, x: Tensor, /, *, axis: int | None = None, keepdims: Flag = False) -> Array: ...
    def argsort(
        self, x: Tensor, /, *, axis: int = -1, descending: Flag = False, stable: Flag = True
    ) -> Array: ...
    def sort(
        self, x: Tensor, /, *, axis: int = -1, descending: Flag = False, stable: Flag = True
    ) -> Array: ...
    def nonzero(self, x: Tensor, /) -> tuple[Array, ...]: ...
    def searchsorted(
        self,
        x1: Tensor,
        x2: Operand,
        /,
        *,
        side: Literal["left", "right"] = "left",
        sorter: Tensor | None = None,
    ) -> Array: ...
    def unique_all(self, x: Tensor, /) -> UniqueAll: ...
    def unique_counts(self, x: Tensor, /) -> UniqueCounts: ...
    def unique_inverse(self, x: Tensor, /) -> UniqueInverse: ...
    def isin(self, x1: Operand, x2: Operand, /, *, invert: Flag = False) -> Array: ...

    # the same parameters
    ones = zeros = empty
    ones_like = zeros_like = empty_like
    acos = acosh = asin = asinh = atan = atanh = bitwise_invert = ceil = abs
    conj = cos = cosh = exp = expm1 = floor = imag = isfinite = isinf = abs
    isnan = log = log10 = log1p = log2 = logical_not = matrix_transpose = abs
    negative = positive = real = reciprocal = round = sign = signbit = abs
    sin = sinh = sqrt = square = tan = tanh = trunc = unique_values = abs
    atan2 = bitwise_and = bitwise_left_shift = bitwise_or = add
    bitwise_right_shift = bitwise_xor = copysign = divide = equal = add
    floor_divide = greater = greater_equal = hypot = less = less_equal = add
    logaddexp = logical_and = logical_or = logical_xor = maximum = add
    minimum = multiply = nextafter = not_equal = pow = remainder = add
    subtract = add
    any = count_nonzero = max = mean = min = all
    cumulative_sum = cumulative_prod
