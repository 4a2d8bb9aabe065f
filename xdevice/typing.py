"""Types for the signatures of your own functions.

Results are ``Any``, since the framework is chosen at run time.

>>> from xdevice.typing import DeviceLike, Namespace, Tensor
>>> def softplus(x: Tensor, xp: Namespace, device: DeviceLike = "cpu") -> object: ...
"""

# declarations only
# mypy: disable-error-code=empty-body
# pyright: reportReturnType=false

# Another project's xdevice/__init__.py puts this folder on `sys.path` and
# imports `typing`.
if __name__ == "typing":
    raise ImportError(
        "the package 'xdevice', another project with the same import name, has overwritten xdevice/__init__.py; "
        "pip uninstall -y xdevice, then pip install --force-reinstall --no-deps xdevice-tensors"
    )

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from xdevice.device import Device

__all__ = ["DeviceLike", "Namespace", "Tensor"]


class Tensor(Protocol):
    """Any framework's tensor: what has a shape and a dtype."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


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
_dtype: Any = None


class LinearAlgebra:
    """The standard's extension ``linalg``."""

    def cholesky(self, x: Tensor, /, *, upper: Flag = False) -> Any: ...
    def cross(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Any: ...
    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Any: ...
    def det(self, x: Tensor, /) -> Any: ...
    def diagonal(self, x: Tensor, /, *, offset: int = 0) -> Any: ...
    def matmul(self, x1: Tensor, x2: Tensor, /) -> Any: ...
    def matrix_norm(
        self,
        x: Tensor,
        /,
        *,
        keepdims: Flag = False,
        ord: float | Literal["fro", "nuc"] | None = "fro",
    ) -> Any: ...
    def matrix_power(self, x: Tensor, n: int, /) -> Any: ...
    def matrix_rank(self, x: Tensor, /, *, rtol: Operand | None = None) -> Any: ...
    def pinv(self, x: Tensor, /, *, rtol: Operand | None = None) -> Any: ...
    def qr(self, x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> Any: ...
    def svd(self, x: Tensor, /, *, full_matrices: Flag = True) -> Any: ...
    def tensordot(
        self, x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
    ) -> Any: ...
    def trace(self, x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Any: ...
    def vector_norm(
        self, x: Tensor, /, *, axis: Axes = None, keepdims: Flag = False, ord: float = 2
    ) -> Any: ...

    # the same parameters
    eig = eigh = eigvals = eigvalsh = inv = matrix_transpose = slogdet = svdvals = det
    outer = solve = matmul


class FourierTransforms:
    """The standard's extension ``fft``."""

    def fft(
        self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
    ) -> Any: ...
    def fftn(
        self, x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward"
    ) -> Any: ...
    def fftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Any: ...
    def ifftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Any: ...
    def fftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: Place = None
    ) -> Any: ...
    def rfftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: Place = None
    ) -> Any: ...

    # the same parameters
    ifft = rfft = irfft = hfft = ihfft = fft
    ifftn = rfftn = irfftn = fftn


class Info(Protocol):
    """What the standard's inspection functions tell of a namespace."""

    def capabilities(self) -> dict[str, Any]: ...
    def default_device(self) -> Device: ...
    def default_dtypes(self, *, device: Place = None) -> dict[str, Any]: ...
    def dtypes(
        self, *, device: Place = None, kind: Kind | tuple[Kind, ...] | None = None
    ) -> dict[str, Any]: ...
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
        self, x: Tensor, dtype: Any, /, *, copy: Flag = True, device: Place = None
    ) -> Any: ...
    def can_cast(self, from_: Any, to: Any, /) -> Flag: ...
    def finfo(self, type: Any, /) -> Any: ...
    def iinfo(self, type: Any, /) -> Any: ...
    def isdtype(self, dtype: Any, kind: Any) -> Flag: ...
    def result_type(self, *arrays_and_dtypes: Any) -> Any: ...
    def __array_namespace_info__(self) -> Info: ...
    def arange(
        self,
        start: float,
        /,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: Any = None,
        device: Place = None,
    ) -> Any: ...
    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: Place = None, copy: Flag | None = None
    ) -> Any: ...
    def from_dlpack(self, x: Any, /, *, device: Place = None, copy: Flag | None = None) -> Any: ...
    def empty(self, shape: Shape, *, dtype: Any = None, device: Place = None) -> Any: ...
    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: Any = None,
        device: Place = None,
    ) -> Any: ...
    def full(
        self, shape: Shape, fill_value: complex, *, dtype: Any = None, device: Place = None
    ) -> Any: ...
    def linspace(  # noqa: PLR0913  (the standard's)
        self,
        start: complex,
        stop: complex,
        /,
        num: int,
        *,
        dtype: Any = None,
        device: Place = None,
        endpoint: Flag = True,
    ) -> Any: ...
    def empty_like(self, x: Tensor, /, *, dtype: Any = None, device: Place = None) -> Any: ...
    def full_like(
        self, x: Tensor, /, fill_value: complex, *, dtype: Any = None, device: Place = None
    ) -> Any: ...
    def meshgrid(
        self, *arrays: Tensor, indexing: Literal["xy", "ij"] = "xy"
    ) -> tuple[Any, ...]: ...
    def tril(self, x: Tensor, /, *, k: int = 0) -> Any: ...
    def triu(self, x: Tensor, /, *, k: int = 0) -> Any: ...
    def abs(self, x: Tensor, /) -> Any: ...
    def add(self, x1: Operand, x2: Operand, /) -> Any: ...
    def clip(self, x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Any: ...
    def where(self, condition: Tensor, x1: Operand, x2: Operand, /) -> Any: ...
    def all(self, x: Tensor, /, *, axis: Axes = None, keepdims: Flag = False) -> Any: ...
    def cumulative_prod(
        self,
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        include_initial: Flag = False,
    ) -> Any: ...
    def diff(
        self,
        x: Tensor,
        /,
        *,
        axis: int = -1,
        n: int = 1,
        prepend: Tensor | None = None,
        append: Tensor | None = None,
    ) -> Any: ...
    def prod(
        self, x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: Flag = False
    ) -> Any: ...
    def sum(
        self, x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: Flag = False
    ) -> Any: ...
    def std(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Flag = False
    ) -> Any: ...
    def var(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Flag = False
    ) -> Any: ...
    def matmul(self, x1: Tensor, x2: Tensor, /) -> Any: ...
    def tensordot(
        self, x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
    ) -> Any: ...
    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Any: ...
    def broadcast_arrays(self, *arrays: Tensor) -> tuple[Any, ...]: ...
    def broadcast_shapes(self, *shapes: tuple[int, ...]) -> tuple[int, ...]: ...
    def broadcast_to(self, x: Tensor, /, shape: Shape) -> Any: ...
    def concat(self, arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Any: ...
    def expand_dims(self, x: Tensor, /, axis: int) -> Any: ...
    def flip(self, x: Tensor, /, *, axis: Axes = None) -> Any: ...
    def moveaxis(
        self, x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
    ) -> Any: ...
    def permute_dims(self, x: Tensor, /, axes: Sequence[int]) -> Any: ...
    def repeat(self, x: Tensor, repeats: Operand, /, *, axis: int | None = None) -> Any: ...
    def reshape(self, x: Tensor, /, shape: Shape, *, copy: Flag | None = None) -> Any: ...
    def roll(self, x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Any: ...
    def squeeze(self, x: Tensor, /, axis: int | tuple[int, ...]) -> Any: ...
    def stack(self, arrays: Sequence[Tensor], /, *, axis: int = 0) -> Any: ...
    def tile(self, x: Tensor, repetitions: Sequence[int], /) -> Any: ...
    def unstack(self, x: Tensor, /, *, axis: int = 0) -> tuple[Any, ...]: ...
    def take(self, x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Any: ...
    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Any: ...
    def argmax(self, x: Tensor, /, *, axis: int | None = None, keepdims: Flag = False) -> Any: ...
    def argmin(self, x: Tensor, /, *, axis: int | None = None, keepdims: Flag = False) -> Any: ...
    def argsort(
        self, x: Tensor, /, *, axis: int = -1, descending: Flag = False, stable: Flag = True
    ) -> Any: ...
    def sort(
        self, x: Tensor, /, *, axis: int = -1, descending: Flag = False, stable: Flag = True
    ) -> Any: ...
    def nonzero(self, x: Tensor, /) -> tuple[Any, ...]: ...
    def searchsorted(
        self,
        x1: Tensor,
        x2: Operand,
        /,
        *,
        side: Literal["left", "right"] = "left",
        sorter: Tensor | None = None,
    ) -> Any: ...
    def isin(self, x1: Operand, x2: Operand, /, *, invert: Flag = False) -> Any: ...

    # the same parameters
    ones = zeros = empty
    ones_like = zeros_like = empty_like
    ceil = floor = negative = positive = reciprocal = round = sign = signbit = sqrt = square = (
        trunc
    ) = acos = abs
    acosh = asin = asinh = atan = atanh = cos = cosh = exp = expm1 = log = log10 = log1p = log2 = (
        sin
    ) = sinh = tan = abs
    tanh = bitwise_invert = conj = imag = real = isfinite = isinf = isnan = logical_not = (
        matrix_transpose
    ) = abs
    unique_all = unique_counts = unique_inverse = unique_values = abs
    copysign = divide = floor_divide = hypot = maximum = minimum = multiply = nextafter = pow = (
        remainder
    ) = add
    subtract = atan2 = logaddexp = bitwise_and = bitwise_left_shift = bitwise_or = (
        bitwise_right_shift
    ) = add
    bitwise_xor = equal = greater = greater_equal = less = less_equal = not_equal = logical_and = (
        logical_or
    ) = add
    logical_xor = add
    any = count_nonzero = max = mean = min = all
    cumulative_sum = cumulative_prod
