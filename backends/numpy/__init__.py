"""NumPy: the CPU.

Notes: arrays are always on the CPU, and have no ``device`` attribute before NumPy 2. The default
float has 64 bits; in the other frameworks it has 32.
"""

import numpy as numpy

CANNOT: dict[str, str] = {
    "numerics": "NumPy computes in the dtype of its arrays, on the CPU; there is nothing to set",
    "gradients": "it has no automatic differentiation; choose another framework with use('torch')",
    "compiling": "NumPy computes at once, operation by operation",
    "virtual": "its arrays are always on the CPU; choose another framework with use('torch')",
    "mixing": "its arrays are always on the CPU",
    "share": "its arrays are always on the CPU",
    "transfers": "its arrays are always on the CPU, so nothing is copied between devices",
    "engine": "it computes in one process; choose another framework",
    "models": "NumPy has no models; use a tree of arrays",
}
