"""The machine's hardware and drivers, read without any framework.

``None`` means unknown.

NVIDIA's GPUs are read through NVML (the optional package ``nvidia-ml-py``),
otherwise from the driver's own files; AMD's are read from its driver's files.
Other makers are not looked for. Packages are imported when they are first
needed, since the core imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from types import ModuleType
from typing import Any, TypeAlias, TypedDict, TypeVar

T = TypeVar("T")
Nvml: TypeAlias = Any  # the module ``pynvml``
NvmlDevice: TypeAlias = Any  # a handle of NVML's, which has no Python type


class Gpu(TypedDict):
    """One GPU.

    Join by ``uuid``: the driver's ``index`` ignores CUDA_VISIBLE_DEVICES.
    """

    maker: str  # "nvidia" or "amd"
    index: int
    name: str | None
    uuid: str | None
    total_memory: int | None
    free_memory: int | None


class Holder(TypedDict):
    """A process that holds memory of a GPU, in bytes."""

    gpu: int  # the driver's index
    uuid: str | None  # the GPU's
    pid: int
    name: str | None
    memory: int | None


class Gpus(TypedDict):
    """The GPUs, and the drivers that serve them."""

    gpus: list[Gpu]
    drivers: dict[str, str | None]  # version by maker, of the drivers that are loaded
    driver_error: str | None  # NVML's error, if it gave one
    given: bool  # False in a container that was not given the machine's GPUs


class Host(TypedDict):
    """The CPU, and memory in bytes."""

    name: str | None
    cores: int | None  # physical
    threads: int | None  # those that this process may use
    total_memory: int | None
    available_memory: int | None


# The host


def host_memory() -> tuple[int | None, int | None]:
    """Total and available memory of the host in bytes.

    Available is known only with psutil.
    """
    psutil = _import_optional("psutil")
    if psutil is not None:
        memory = psutil.virtual_memory()
        return memory.total, memory.available
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None, None
    return total, None


def host(root: str = "/") -> Host:
    """The CPU and the memory.

    ``root`` is where the system's files are read from.
    """
    total, available = host_memory()
    psutil = _import_optional("psutil")
    return {
        "name": _processor_name(root),
        "cores": None if psutil is None else psutil.cpu_count(logical=False),
        "threads": usable_threads(),
        "total_memory": total,
        "available_memory": available,
    }


def _processor_name(root: str) -> str | None:
    name = _fields(_read_text(root, "proc/cpuinfo")).get("model name")
    if name is not None:
        return name
    import platform

    return platform.processor() or platform.machine() or None


def usable_threads() -> int | None:
    """How many hardware threads this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count()


# The GPUs


def gpus(root: str = "/") -> Gpus:
    """The machine's GPUs, visible to frameworks or not; makes no GPU context.

    ``root`` is where the system's files are read from.
    """
    gpus: list[Gpu] = []
    drivers: dict[str, str | None] = {}
    error = None
    if root == "/":
        gpus, drivers, error = _nvml_gpus()
    nvml_has_gpus = bool(gpus)
    if not nvml_has_gpus:
        gpus = _nvidia_gpus_in_proc(root)
        if os.path.exists(os.path.join(root, _NVIDIA_VERSION)):
            drivers.setdefault("nvidia", _nvidia_version_in_proc(root))
    gpus += _amd_gpus_in_sys(root)
    if os.path.exists(os.path.join(root, "sys/module/amdgpu")):
        drivers["amd"] = _read_text(root, "sys/module/amdgpu/version") or None
    if "nvidia" not in drivers:  # a driver that is not loaded does not report its cards
        gpus += [_gpu("nvidia", index) for index in range(_nvidia_cards_on_bus(root))]
    are_given = nvml_has_gpus or "nvidia" not in drivers or _has_nvidia_nodes(root)
    return {"gpus": gpus, "drivers": drivers, "driver_error": error, "given": are_given}


def holders() -> list[Holder]:
    """The processes that hold memory of NVIDIA's GPUs, as far as NVML tells.

    In a container these may be the container's own processes alone.
    """
    nvml, _ = _open_nvml()
    if nvml is None:
        return []
    processes: list[Holder] = []
    for index in range(_answer(nvml, nvml.nvmlDeviceGetCount) or 0):
        handle = _answer(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        uuid = _text(_answer(nvml, nvml.nvmlDeviceGetUUID, handle))
        for process in _answer(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []:
            holder: Holder = {
                "gpu": index,
                "uuid": uuid,
                "pid": process.pid,
                "memory": process.usedGpuMemory,
                "name": _read_text("/", f"proc/{process.pid}/comm") or None,
            }
            processes.append(holder)
    nvml.nvmlShutdown()
    return processes


def same_gpu(uuid: str | None, other: str | None) -> bool:
    """Whether two UUIDs mean one GPU.

    NVML writes ``GPU-1f2e…``, frameworks write ``1f2e…``.
    """
    if uuid is None or other is None:
        return False
    return bare_uuid(uuid) == bare_uuid(other)


def bare_uuid(uuid: str) -> str:
    """The UUID without the maker's prefix, in lower case."""
    return uuid.lower().removeprefix("gpu-")


def _gpu(maker: str, index: int, name: str | None = None, uuid: str | None = None) -> Gpu:
    return {
        "maker": maker,
        "index": index,
        "name": name,
        "uuid": uuid,
        "total_memory": None,
        "free_memory": None,
    }


# NVIDIA's, through NVML


def _open_nvml() -> tuple[Nvml | None, str | None]:
    """NVML's module, initialized, if there is one.

    And NVML's error, if it gave one.
    """
    nvml: Nvml = _import_optional("pynvml")
    if nvml is None or hasattr(nvml, "IS_VIRTUAL"):  # that of virtual GPUs
        return None, None
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):  # no NVIDIA GPU
        return None, None
    except nvml.NVMLError as error:
        return None, _message(error)
    return nvml, None


def _nvml_gpus() -> tuple[list[Gpu], dict[str, str | None], str | None]:
    """The GPUs, the driver's version, and NVML's error if it gave one."""
    nvml, error_message = _open_nvml()
    if nvml is None:
        return [], {}, error_message
    drivers = {"nvidia": _text(_answer(nvml, nvml.nvmlSystemGetDriverVersion))}
    try:
        count = nvml.nvmlDeviceGetCount()
        return [_nvml_gpu(nvml, index) for index in range(count)], drivers, None
    except nvml.NVMLError as error:
        return [], drivers, _message(error)
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Nvml, index: int) -> Gpu:
    handle = _answer(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # it has fallen off the bus, or this user may not open it
        return _gpu("nvidia", index)
    gpu = _gpu(
        "nvidia",
        index,
        name=_text(_answer(nvml, nvml.nvmlDeviceGetName, handle)),
        uuid=_text(_answer(nvml, nvml.nvmlDeviceGetUUID, handle)),
    )
    memory = _answer(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None:
        gpu["total_memory"] = int(memory.total)
        gpu["free_memory"] = int(memory.free)
    return gpu


def _answer(nvml: Nvml, query: Callable[..., T], *args: NvmlDevice) -> T | None:
    """NVML's answer.

    ``None`` if this GPU or driver cannot answer the query.
    """
    try:
        return query(*args)
    except nvml.NVMLError:
        return None


def _message(error: Exception) -> str:
    return str(error).strip().rstrip(".")  # nvidia-ml-py describes some errors in sentences


def _text(answer: str | bytes | None) -> str | None:
    if isinstance(answer, bytes):  # nvidia-ml-py before 11.5
        return answer.decode(errors="replace")
    return answer


# In the system's files

_NVIDIA_VERSION = "proc/driver/nvidia/version"


def _nvidia_version_in_proc(root: str) -> str | None:
    # a line such as "NVRM version: … Kernel Module  535.104.05  Sat …"
    line = _read_text(root, _NVIDIA_VERSION).partition("\n")[0]
    for word in line.split():
        if "." in word and word.replace(".", "").isdigit():
            return word
    return None


def _nvidia_gpus_in_proc(root: str) -> list[Gpu]:
    """The GPUs that the loaded driver reports in /proc, one folder per GPU."""
    folder = "proc/driver/nvidia/gpus"
    gpus: list[Gpu] = []
    for index, slot in enumerate(_names_in(root, folder)):
        fields = _fields(_read_text(root, f"{folder}/{slot}/information"))
        uuid = fields.get("GPU UUID") or None
        if uuid is not None and "?" in uuid:  # question marks until the GPU is first used
            uuid = None
        gpus.append(_gpu("nvidia", index, name=fields.get("Model"), uuid=uuid))
    return gpus


def _has_nvidia_nodes(root: str) -> bool:
    """Whether GPUs have device nodes, which a container may lack.

    Under WSL /dev/dxg.
    """
    for node in _names_in(root, "dev"):
        if node == "dxg" or (node.startswith("nvidia") and node.removeprefix("nvidia").isdigit()):
            return True
    return False


def _nvidia_cards_on_bus(root: str) -> int:
    """How many of NVIDIA's display controllers are on the PCI bus.

    AMD's are not counted: they are often part of a CPU.
    """
    folder = "sys/bus/pci/devices"
    count = 0
    for slot in _names_in(root, folder):
        is_nvidia = _read_text(root, f"{folder}/{slot}/vendor") == "0x10de"
        # class 0x03: VGA, 3D and other display controllers
        if is_nvidia and _read_text(root, f"{folder}/{slot}/class").startswith("0x03"):
            count += 1
    return count


def _amd_gpus_in_sys(root: str) -> list[Gpu]:
    """The GPUs that the loaded driver reports in /sys.

    CPUs are nodes too, without a gpu_id.
    """
    folder = "sys/class/kfd/kfd/topology/nodes"
    gpus: list[Gpu] = []
    for node in _names_in(root, folder):
        if _read_text(root, f"{folder}/{node}/gpu_id") not in ("", "0"):
            name = _read_text(root, f"{folder}/{node}/name") or None
            gpus.append(_gpu("amd", len(gpus), name=name))
    return gpus


def _names_in(root: str, folder: str) -> list[str]:
    """The names in the folder, sorted; empty if it does not exist."""
    try:
        return sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return []


def _read_text(root: str, path: str) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _fields(text: str) -> dict[str, str]:
    """The values in lines of ``key: value``, the first one for each key."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields


def _import_optional(package: str) -> ModuleType | None:
    """The package, of the extra `cli`; ``None`` if it is not installed."""
    from importlib import import_module

    try:
        return import_module(package)
    except ModuleNotFoundError:
        return None


def is_loopback(host: str) -> bool:
    """Whether the name or address is one of this host's loopback interface.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
