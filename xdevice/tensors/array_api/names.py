"""The names of the array API standard that a namespace has."""

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

GROUPS: dict[str, tuple[str, ...]] = {
    "constants": tuple(CONSTANTS),
    "dtypes": DTYPE_NAMES,
    "about dtypes": ("astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type", "__array_namespace_info__"),
    "creation": (*FACTORIES, *LIKE, "meshgrid", "tril", "triu"),
    "arithmetic": (
        *("abs", "add", "ceil", "clip", "copysign", "divide", "floor", "floor_divide", "hypot", "maximum", "minimum"),
        *("multiply", "negative", "nextafter", "positive", "pow", "reciprocal", "remainder", "round", "sign"),
        *("signbit", "sqrt", "square", "subtract", "trunc"),
    ),
    "exponentials and trigonometry": (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10"),
        *("log1p", "log2", "logaddexp", "sin", "sinh", "tan", "tanh"),
    ),
    "bits": ("bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor"),
    "complex numbers": ("conj", "imag", "real"),
    "comparison and logic": (
        *("equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "isfinite", "isinf", "isnan"),
        *("logical_and", "logical_not", "logical_or", "logical_xor", "where"),
    ),
    "along axes": (
        *("all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod"),
        *("std", "sum", "var"),
    ),
    "matrices": ("matmul", "matrix_transpose", "tensordot", "vecdot"),
    "shape": (
        *("broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis"),
        *("permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack"),
    ),
    "indexing": ("take", "take_along_axis"),
    "sorting and searching": ("argmax", "argmin", "argsort", "nonzero", "searchsorted", "sort"),
    "sets": ("isin", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    "extensions": ("fft", "linalg"),
}
"""The names by what they are for."""

NAMES: tuple[str, ...] = tuple(name for group in GROUPS.values() for name in group)
"""Every name that means the same under every framework."""

LINALG: tuple[str, ...] = (
    *("cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm"),
    *("matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals"),
    *("tensordot", "trace", "vecdot", "vector_norm"),
)
"""The names in ``linalg``."""

FFT_FACTORIES = ("fftfreq", "rfftfreq")
FFT: tuple[str, ...] = (
    *("fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fftshift", "ifftshift"),
    *FFT_FACTORIES,
)
"""The names in ``fft``."""

EXTENSIONS: dict[str, tuple[str, ...]] = {"fft": FFT, "linalg": LINALG}
