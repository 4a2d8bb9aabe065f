"""NumPy: the CPU.

Surprises: arrays know no other device, and before NumPy 2 have no ``device`` at all; the default
number is a 64-bit float, where the other frameworks take 32 bits.
"""

import numpy as numpy

CANNOT: dict[str, str] = {
    "gradients": "it has no automatic differentiation; choose another framework with use('torch')",
    "virtual": "its arrays are on the CPU and nowhere else; choose another framework with use('torch')",
    "mixing": "its arrays are on the CPU and nowhere else",
    "engine": "it computes in one process; start with engine='mpi', or choose another framework",
    "models": "NumPy has no models; a tree of arrays will do",
    "trees": "NumPy keeps no registry of containers; register a class with optree",
}
"""What this framework cannot do, and why."""
