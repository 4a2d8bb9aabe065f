"""The private names of MXNet that the adapter replaces or reads: see ``names.txt``."""

from xdevice.backends.kit.private_names import PrivateNames

LAST_TRIED = {"1.9.1": "3.10 3.11"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

# Modules that make text for the library with ``str``: of operators, symbols, iterators and
# key-value stores
TEXT = (
    "_ctypes.ndarray",
    "_ctypes.symbol",
    "io.io",
    "kvstore.base",
    "ndarray.ndarray",
    "ndarray.numpy._op",
    "symbol.numpy._symbol",
    "symbol.symbol",
)

# The modules of TEXT get this attribute under NumPy 2; under NumPy 1 they get it where virtual GPUs
# stand in.
ADDED = ("str",)
_text_names = " ".join(f"{module}:str" for module in TEXT)
names = PrivateNames(__file__, "mxnet", "mxnet", LAST_TRIED, TEXT=_text_names)
NAMES = names.of()
