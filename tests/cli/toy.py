"""A third party's framework and adapter, written into a folder for the real command to find.

It has two GPUs, or misbehaves in the way that it is told to.
"""

import os
import sys
import textwrap

UUID = "GPU-1f2e3d4c-0000-1111-2222-333344445555"

ADAPTER = {
    "xdevice_toy/__init__.py": "import toy\n",
    "xdevice_toy/hardware.py": f"""
        import os
        def build(): return {{"version": "1.5", "compute": os.environ.get("TOY_COMPUTE", "cuda"), "toolkit": "12.6"}}
        def kinds(): return tuple(os.environ.get("TOY_KINDS", "cpu gpu").split())
        def count(kind): return {{"cpu": 1, "gpu": int(os.environ.get("TOY_GPUS", "2"))}}.get(kind, 0)
        def properties(device):
            uuid = {UUID[4:]!r} if device.index == 0 else "another"
            known = {{"name": "Toy GPU", "total_memory": 2**34, "compute_capability": "9.0", "virtual": False}}
            return {{**known, "uuid": uuid}}
    """,
    "xdevice_toy-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: xdevice-toy\nVersion: 1\n",
    "xdevice_toy-1.dist-info/entry_points.txt": "[xdevice.backends]\ntoy = xdevice_toy\nghost = xdevice_ghost\n",
}

FRAMEWORKS = {
    "good": "print('toy says hello on stdout')",
    "changed": "class Tensor: pass",
    "newer": "_start = len\nclass Tensor: pass",
    "segfaults": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "exits": "import os; os._exit(0)",
    "hangs": "import time; time.sleep(600)",
    "broken": "raise OSError('libtoy.so: cannot open shared object file')",
}

# What the adapter needs of the toy that is changed, which has none of it, and of the newer one, which starts.
PRIVATE_NAMES = """
    from xdevice.backends.kit.private_names import PrivateName
    LAST_TRIED = "1.4"
    NAMES = [
        PrivateName("toy:_start", "a start", essential=True),
        PrivateName("toy:Tensor._device", "placement"),
        PrivateName("toy:Tensor._place", "placement"),
    ]
"""

# What `pynvml` answers on a machine with one H200 whose driver is fresh.
NVML = f"""
    class NVMLError(Exception): pass
    class NVMLError_LibraryNotFound(NVMLError): pass
    class NVMLError_DriverNotLoaded(NVMLError): pass
    class Memory: total, free = 150754820096, 149000000000
    def nvmlInit(): pass
    def nvmlShutdown(): pass
    def nvmlSystemGetDriverVersion(): return b"570.86.15"
    def nvmlDeviceGetCount(): return 1
    def nvmlDeviceGetHandleByIndex(i): return i
    def nvmlDeviceGetName(handle): return "NVIDIA H200"
    def nvmlDeviceGetUUID(handle): return {UUID!r}
    def nvmlDeviceGetMemoryInfo(handle): return Memory
    def nvmlDeviceGetComputeRunningProcesses(handle): return []
"""


def write(folder, framework, nvml=True):
    """Write it all; the environment in which Python finds it comes back."""
    files = {**ADAPTER, "toy.py": FRAMEWORKS[framework]}
    if framework in ("changed", "newer"):
        files["xdevice_toy/private_names.py"] = PRIVATE_NAMES
    if nvml:
        files["pynvml.py"] = NVML
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("XDEVICE", "CUDA", "HIP", "ROCR", "NVIDIA"))
    }
    return {**clean, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
