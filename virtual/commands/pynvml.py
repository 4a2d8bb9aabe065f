"""NVIDIA's ``pynvml`` for virtual GPUs that stand in: it knows what this ``nvidia-smi`` does.

`xdevice.virtual.children` puts this folder first on ``PYTHONPATH``. What is not
known raises NVML's own "Not Supported", as a real GPU does.
"""

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from xdevice.framework.adapters import imported
from xdevice.virtual import nvidia_smi
from xdevice.virtual.nvidia_smi import Gpu
from xdevice.virtual.request import of_environment

IS_VIRTUAL = True
"""By this xdevice's own search for real GPUs knows that these are none."""


class NVMLError(Exception):
    """NVML's errors; ``value`` is its code."""

    value = 999
    words = "Unknown Error"

    def __str__(self) -> str:
        return self.words


class NVMLError_InvalidArgument(NVMLError):
    value, words = 2, "Invalid Argument"


class NVMLError_NotSupported(NVMLError):
    value, words = 3, "Not Supported"


class NVMLError_DriverNotLoaded(NVMLError):
    value, words = 9, "Driver Not Loaded"


class NVMLError_LibraryNotFound(NVMLError):
    value, words = 12, "NVML Shared Library Not Found"


class c_nvmlMemory_t(NamedTuple):
    total: int
    free: int
    used: int


class c_nvmlProcessInfo_t(NamedTuple):
    pid: int
    usedGpuMemory: int


def nvmlInit() -> None: ...


def nvmlInitWithFlags(flags: int) -> None: ...


def nvmlShutdown() -> None: ...


def nvmlDeviceGetCount() -> int:
    return len(nvidia_smi.gpus(of_environment()))


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """The GPU's number, which is its handle here."""
    if not 0 <= index < nvmlDeviceGetCount():
        raise NVMLError_InvalidArgument
    return index


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> int:
    name = uuid.decode() if isinstance(uuid, bytes) else uuid
    found = [gpu.number for gpu in nvidia_smi.gpus(of_environment()) if gpu.uuid == name]
    if not found:
        raise NVMLError_InvalidArgument
    return found[0]


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetName(handle: int) -> str:
    return _gpu(handle).name


def nvmlDeviceGetUUID(handle: int) -> str:
    return _gpu(handle).uuid


def nvmlDeviceGetCudaComputeCapability(handle: int) -> tuple[int, int]:
    major, _, minor = _gpu(handle).capability.partition(".")
    if not minor:
        raise NVMLError_NotSupported
    return int(major), int(minor)


def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> c_nvmlMemory_t:
    """The memory of a GPU with a limit or a model; PyTorch alone counts what is in use."""
    gpu = _gpu(handle)
    used = gpu.used
    if used is None and {str(each) for each in imported()} <= {"torch", "numpy"}:
        used = 0  # PyTorch has not used a GPU yet
    if gpu.total is None or used is None:
        raise NVMLError_NotSupported
    return c_nvmlMemory_t(gpu.total, max(gpu.total - used, 0), used)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[c_nvmlProcessInfo_t]:
    return [
        c_nvmlProcessInfo_t(process, size)
        for number, process, size in nvidia_smi.processes(of_environment())
        if number == handle
    ]


def _gpu(handle: int) -> Gpu:
    return nvidia_smi.gpus(of_environment())[handle]


def _not_supported(*_: object) -> NoReturn:
    raise NVMLError_NotSupported


def __getattr__(name: str) -> Callable[..., NoReturn] | int:
    """Any other function of NVML is not supported, and a constant is only given to these."""
    if name.startswith("nvml"):
        return _not_supported
    if name.startswith("NVML_"):
        return 0
    raise AttributeError(f"module 'pynvml' of xdevice's virtual GPUs has no {name!r}")
