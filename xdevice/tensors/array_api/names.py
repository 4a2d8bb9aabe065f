"""The names of the array API standard that a namespace has: those that its type declares."""

from xdevice.typing import FourierTransforms, LinearAlgebra, Namespace

CONSTANTS = {
    "e": 2.718281828459045,
    "inf": float("inf"),
    "nan": float("nan"),
    "newaxis": None,
    "pi": 3.141592653589793,
    "__array_api_version__": "2025.12",
}

DTYPES: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
"""The standard's dtypes, by their kind."""

DTYPE_NAMES: tuple[str, ...] = tuple(name for names in DTYPES.values() for name in names)

FACTORIES = ("arange", "asarray", "empty", "eye", "from_dlpack", "full", "linspace", "ones", "zeros")
LIKE = ("empty_like", "full_like", "ones_like", "zeros_like")
MADE_WITH = {
    **{name: name for name in ("arange", "empty", "full", "ones", "zeros")},
    **dict.fromkeys(("asarray", "eye", "linspace"), "tensor"),
}
"""What makes the tensors of a factory: a function of the capability `creation`. The others are the framework's own."""

TUPLES = ("broadcast_arrays", "meshgrid", "unstack")
"""Functions that return a tuple of tensors."""


def _declared(cls: type) -> tuple[str, ...]:
    found = (*cls.__annotations__, *vars(cls))
    return tuple(name for name in found if not name.startswith("_") or name.startswith("__array_"))


NAMES = _declared(Namespace)
"""Every name that means the same under every framework."""

LINALG, FFT = _declared(LinearAlgebra), _declared(FourierTransforms)
FFT_FACTORIES = ("fftfreq", "rfftfreq")
EXTENSIONS = {"fft": FFT, "linalg": LINALG}
