"""array-api-strict: the reference implementation of the array API standard, on several devices.

Notes: it computes with NumPy, and refuses what the standard does not promise: two devices in one
operation, dtypes that do not promote, a ``float64`` on ``no_float64``. Its other devices are no
GPUs, and have its own names: ``device1``, ``device2``, ``no_float64``, ``no_x64``. The default
dtypes depend on the device; on ``cpu`` the default float has 64 bits. It has no current device, so
its own factories ignore a scope.
"""

import array_api_strict as array_api_strict

CANNOT: dict[str, str] = {
    "numerics": "it computes as NumPy does, on the CPU; there is nothing to set",
    "gradients": "it has no automatic differentiation; choose another framework with use('torch')",
    "share": "its arrays are always in the host's memory",
    "transfers": (
        "its arrays are always in the host's memory; watch copies under use('torch'), "
        "with virtual_gpus(2)"
    ),
    "engine": "it computes in one process; choose another framework",
    "models": "array-api-strict has no models; use a tree of arrays",
    "storage": "it is not needed: NumPy has all of array-api-strict's dtypes",
}
