"""What the machine itself has, read without any framework; ``None`` is unknown.

NVIDIA's GPUs are asked of NVML (the optional package ``nvidia-ml-py``), else read from the driver's
own files; AMD's are read from its driver's files. Other makers are not looked for. Packages are
imported when they are first needed, since the core imports this module.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypedDict

    class Gpu(TypedDict):
        """One GPU. ``index`` is the driver's, which ignores CUDA_VISIBLE_DEVICES: join by ``uuid``."""

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
        driver_error: str | None  # NVML's error, where it gave one
        given: bool  # False in a container that was not given the machine's GPUs

    class Host(TypedDict):
        """The CPU, and memory in bytes."""

        name: str | None
        cores: int | None  # physical
        threads: int | None  # those that this process may use
        total_memory: int | None
        available_memory: int | None


def host_memory() -> tuple[int | None, int | None]:
    """Total and available memory of the host in bytes; available is known only with psutil."""
    psutil = _optional("psutil")
    if psutil is not None:
        memory = psutil.virtual_memory()
        return memory.total, memory.available
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None, None


def host(root: str = "/") -> Host:
    total, available = host_memory()
    psutil = _optional("psutil")
    cores = None if psutil is None else psutil.cpu_count(logical=False)
    fields = (line.partition(":") for line in _read(root, "proc/cpuinfo").splitlines())
    name = next((value.strip() for key, _, value in fields if key.strip() == "model name"), None)
    if name is None:
        import platform

        name = platform.processor() or platform.machine() or None
    threads = usable_threads()
    return {
        "name": name,
        "cores": cores,
        "threads": threads,
        "total_memory": total,
        "available_memory": available,
    }


def _optional(package: str) -> Any:
    """The package, of the extra `cli`; ``None`` if it is not installed."""
    from importlib import import_module

    try:
        return import_module(package)
    except ModuleNotFoundError:
        return None


def usable_threads() -> int | None:
    """How many hardware threads this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count()


def gpus(root: str = "/") -> Gpus:
    """The machine's GPUs, visible to frameworks or not; makes no GPU context.

    ``root`` is where the system's files are read from.
    """
    found, drivers, error = _ask_nvml() if root == "/" else ([], {}, None)
    asked = bool(found)
    if not asked:
        found = _nvidia_files(root)
        version = "proc/driver/nvidia/version"
        if os.path.exists(os.path.join(root, version)):
            # a line such as "NVRM version: … Kernel Module  535.104.05  Sat …"
            words = _read(root, version).partition("\n")[0].split()
            number = next(
                (word for word in words if "." in word and word.replace(".", "").isdigit()), None
            )
            drivers.setdefault("nvidia", number)
    found += _amd_files(root)
    if os.path.exists(os.path.join(root, "sys/module/amdgpu")):
        drivers["amd"] = _read(root, "sys/module/amdgpu/version") or None
    if (
        "nvidia" not in drivers
    ):  # a card may be there without a loaded driver, which would report it
        found += [_gpu("nvidia", i) for i in range(_nvidia_on_the_bus(root))]
    # a GPU has a device node, which a container may lack (under WSL it is /dev/dxg)
    nodes = _folders(root, "dev")
    there = "dxg" in nodes or any(
        node.startswith("nvidia") and node[len("nvidia") :].isdigit() for node in nodes
    )
    given = asked or "nvidia" not in drivers or there
    return {"gpus": found, "drivers": drivers, "driver_error": error, "given": given}


def holders() -> list[Holder]:
    """The processes that hold memory of NVIDIA's GPUs, as far as NVML tells: of a container, perhaps its own alone."""
    pynvml, _ = _nvml()
    if pynvml is None:
        return []
    found: list[Holder] = []
    for i in range(_answer(pynvml, pynvml.nvmlDeviceGetCount) or 0):
        handle = _answer(pynvml, pynvml.nvmlDeviceGetHandleByIndex, i)
        if handle is not None:
            uuid = _text(_answer(pynvml, pynvml.nvmlDeviceGetUUID, handle))
            for each in _answer(pynvml, pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []:
                name = _read("/", f"proc/{each.pid}/comm") or None
                found.append(
                    {
                        "gpu": i,
                        "uuid": uuid,
                        "pid": each.pid,
                        "memory": each.usedGpuMemory,
                        "name": name,
                    }
                )
    pynvml.nvmlShutdown()
    return found


def same_gpu(uuid: str | None, other: str | None) -> bool:
    """Whether two reports mean one GPU: NVML writes ``GPU-1f2e…``, some frameworks only ``1f2e…``."""
    return uuid is not None and other is not None and bare_uuid(uuid) == bare_uuid(other)


def bare_uuid(uuid: str) -> str:
    """The UUID without the maker's prefix, in lower case."""
    return uuid.lower().removeprefix("gpu-")


def _gpu(maker: str, index: int, **known: Any) -> Gpu:
    found: Any = {
        "maker": maker,
        "index": index,
        "name": None,
        "uuid": None,
        "total_memory": None,
        "free_memory": None,
    }
    gpu: Gpu = found | known
    return gpu


def _nvml() -> tuple[Any, str | None]:
    """NVML, begun, if it is there, and its error if it gave one."""
    pynvml = _optional("pynvml")
    if pynvml is None:
        return None, None
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):  # no NVIDIA GPU
        return None, None
    except pynvml.NVMLError as error:
        return None, _said(error)
    return pynvml, None


def _ask_nvml() -> tuple[list[Gpu], dict[str, str | None], str | None]:
    """The GPUs, the driver's version, and NVML's error if it gave one."""
    pynvml, failed = _nvml()
    if pynvml is None:
        return [], {}, failed
    drivers = {"nvidia": _text(_answer(pynvml, pynvml.nvmlSystemGetDriverVersion))}
    try:
        return [_nvml_gpu(pynvml, i) for i in range(pynvml.nvmlDeviceGetCount())], drivers, None
    except pynvml.NVMLError as error:
        return [], drivers, _said(error)
    finally:
        pynvml.nvmlShutdown()


def _nvml_gpu(pynvml: Any, index: int) -> Gpu:
    handle = _answer(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:  # it has fallen off the bus, or this user may not open it
        return _gpu("nvidia", index)
    memory = _answer(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    sizes = (
        {}
        if memory is None
        else {"total_memory": int(memory.total), "free_memory": int(memory.free)}
    )
    name, uuid = (
        _text(_answer(pynvml, ask, handle))
        for ask in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetUUID)
    )
    return _gpu("nvidia", index, name=name, uuid=uuid, **sizes)


def _answer(pynvml: Any, query: Callable[..., Any], *args: Any) -> Any:
    """NVML's answer, or ``None`` where this GPU or driver has none to this question."""
    try:
        return query(*args)
    except pynvml.NVMLError:
        return None


def _said(error: Exception) -> str:
    return str(error).strip().rstrip(".")  # nvidia-ml-py describes some errors in sentences


def _text(answer: str | bytes | None) -> str | None:
    return (
        answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    )  # bytes before 11.5


def _nvidia_files(root: str) -> list[Gpu]:
    """The GPUs that the loaded driver reports in /proc, one folder per GPU."""
    found: list[Gpu] = []
    for i, folder in enumerate(_folders(root, "proc/driver/nvidia/gpus")):
        text = _read(root, f"proc/driver/nvidia/gpus/{folder}/information")
        fields = {
            k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())
        }
        uuid = fields.get("GPU UUID")
        known = (
            uuid if uuid and "?" not in uuid else None
        )  # question marks until the GPU is first used
        found.append(_gpu("nvidia", i, name=fields.get("Model"), uuid=known))
    return found


def _amd_files(root: str) -> list[Gpu]:
    """The GPUs that the loaded driver reports in /sys. CPUs are nodes too, without a gpu_id."""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    gpu_nodes = [
        n for n in _folders(root, nodes) if _read(root, f"{nodes}/{n}/gpu_id") not in ("", "0")
    ]
    return [
        _gpu("amd", i, name=_read(root, f"{nodes}/{node}/name") or None)
        for i, node in enumerate(gpu_nodes)
    ]


def _nvidia_on_the_bus(root: str) -> int:
    """How many of NVIDIA's display controllers are on the PCI bus. AMD's are often part of a CPU and not counted."""
    slots = [f"sys/bus/pci/devices/{slot}" for slot in _folders(root, "sys/bus/pci/devices")]
    nvidia = [slot for slot in slots if _read(root, f"{slot}/vendor") == "0x10de"]
    return sum(
        _read(root, f"{slot}/class").startswith("0x03") for slot in nvidia
    )  # VGA, 3D and others


def _folders(root: str, path: str) -> list[str]:
    """The names in that folder, sorted; empty if it does not exist."""
    try:
        return sorted(os.listdir(os.path.join(root, path)))
    except OSError:
        return []


def _read(root: str, path: str) -> str:
    """The file's text; empty if there is none to read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
