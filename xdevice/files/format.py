"""The safetensors format: the package that implements it, its names of dtypes, and our key in its metadata."""

from types import ModuleType

from xdevice.errors import BackendNotInstalledError

OURS = "xdevice"
"""The key of the structure in the metadata."""

_PAIRS = """
BF16=bfloat16 BOOL=bool C64=complex64 F16=float16 F32=float32 F64=float64 F8_E4M3=float8_e4m3fn
F8_E4M3FNUZ=float8_e4m3fnuz F8_E5M2=float8_e5m2 F8_E5M2FNUZ=float8_e5m2fnuz F8_E8M0=float8_e8m0fnu
I8=int8 I16=int16 I32=int32 I64=int64 U8=uint8 U16=uint16 U32=uint32 U64=uint64
"""
DTYPES = {word: name for word, _, name in (pair.partition("=") for pair in _PAIRS.split())}
"""The NumPy name of each of the format's dtypes."""


def library() -> ModuleType:
    """The package safetensors; `BackendNotInstalledError` says how to get it."""
    try:
        import safetensors
    except ModuleNotFoundError as error:
        raise BackendNotInstalledError(
            "files are written and read by the package safetensors, which is not installed; pip install safetensors",
            name="safetensors",
        ) from error
    if not hasattr(safetensors, "TensorSpec"):
        raise BackendNotInstalledError(
            f"files need safetensors 0.8 or later, and {safetensors.__version__} is installed; "
            "pip install -U safetensors",
            name="safetensors",
        )
    return safetensors
