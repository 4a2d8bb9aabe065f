"""CuPy: NVIDIA's GPUs, and AMD's; no CPU.

Notes: CuPy imports on a machine without a GPU, and then has no device. An operation computes on the
current device, which a scope sets, and not on the device of its arrays. It reads another GPU's
memory if the two GPUs allow that, with a ``PerformanceWarning``. The default float has 64 bits, as
in NumPy. Seeding, and synchronizing or emptying the cache without a device, use every GPU and
create a context on each: CuPy does not report which are in use.
"""

import cupy as cupy

CANNOT: dict[str, str] = {
    "numerics": "TF32 can be left out before the import only, by NVIDIA_TF32_OVERRIDE=0",
    "gradients": "it has no automatic differentiation; choose another framework with use('torch')",
    "compiling": "CuPy computes at once, operation by operation",
    "virtual": "its kernels run on real GPUs alone; choose another framework with use('torch')",
    "mixing": (
        "it computes on the current device, wherever its arrays are, unseen by strict(); "
        "call check_same_device"
    ),
    "share": "it takes memory when it is needed, and limits it by CUPY_GPU_MEMORY_LIMIT",
    "transfers": (
        "its copies are made in compiled code, which shows them to a profiler alone: nsys profile"
    ),
    "engine": "it computes in one process; choose another framework",
    "models": "CuPy has no models; use a tree of arrays",
    **dict.fromkeys(
        ("export", "adopt"),
        "memory is shared on the CPU alone, where it has no arrays; leave copy out",
    ),
}


GPU_BUILD = "pip install 'cupy-cuda12x[ctk]', or cupy-cuda13x for a driver of CUDA 13"
