"""Why a framework does not see the machine's GPU: rules, applied to facts.

The first rule that applies gives the reason. The rules about the framework's
build come first, because no setting of the machine changes a build.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import DeviceNotFoundError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import decided
from xdevice.hardware.virtual import is_virtual, why_none
from xdevice.machine import bare_uuid, gpus

if TYPE_CHECKING:
    from xdevice.machine import Gpu, Gpus

VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""The environment variables that can hide a maker's GPUs.

NVIDIA_VISIBLE_DEVICES only has an effect when a container starts.
"""

MAKERS = {"cuda": "nvidia", "rocm": "amd"}
"""The maker of the GPUs that a build for a toolkit can use."""

MINIMUM_DRIVER = {
    "13": "580",
    "12": "525.60.13",
    "11.1": "450.80.02",
    "11.0": "450.36.06",
    "10.2": "440.33",
}
"""The oldest Linux driver for each version of CUDA; MXNet has builds for the oldest.

From CUDA 11.1 on, a driver for a major version works with all of its minor
versions. Sources: the table "CUDA Toolkit and Corresponding Driver Versions"
in the CUDA Toolkit Release Notes, and the chapter "Minor Version
Compatibility" of NVIDIA's "CUDA Compatibility". Windows needs slightly newer
drivers.
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a framework and of the machine's GPUs."""

    backend: str
    compute: str | None = "cpu"  # as in contract.Build; None if unknown
    toolkit: str | None = None
    supports_gpus: bool = True
    supports_cpu: bool = True
    visible_gpus: int = 0  # the number of GPUs that the framework sees
    # the command that installs a build for GPUs, from the adapter
    gpu_build_command: str | None = None
    # the variables of VARIABLES that are set
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    gpus: tuple[Gpu, ...] = ()
    # the version of each maker's driver, of those that are loaded
    drivers: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    driver_error: str | None = None  # from NVML
    # False in a container that was started without the machine's GPUs
    gpus_are_given: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the GPU is not seen, and what to type.

    ``wrong`` is False if nothing needs to be repaired.
    """

    reason: str
    cure: str
    wrong: bool = True


def facts_of(backend: Backend, machine: Gpus | None = None) -> Facts:
    """The facts about a framework on this machine; imports the framework."""
    machine = machine or gpus()
    build = build_of(backend)
    kinds = backend.hardware.kinds()
    variables = sorted({*chain(*VARIABLES.values())})
    return Facts(
        backend=str(backend),
        compute=build["compute"] or None,
        toolkit=build["toolkit"],
        supports_gpus="gpu" in kinds,
        supports_cpu="cpu" in kinds,
        visible_gpus=backend.hardware.count("gpu"),
        gpu_build_command=getattr(backend.adapter, "GPU_BUILD", None),
        environment={name: os.environ[name] for name in variables if name in os.environ},
        gpus=tuple(machine["gpus"]),
        drivers=machine["drivers"],
        driver_error=machine["driver_error"],
        gpus_are_given=machine["given"],
    )


def build_of(backend: Backend) -> Build:
    """How the framework was built; empty strings if its adapter cannot tell."""
    try:
        return backend.hardware.build()
    except NotSupportedError:
        return {"version": "", "compute": "", "toolkit": None}


def diagnose(facts: Facts) -> Problem | None:
    """The first rule that explains why the framework sees no GPU.

    ``None`` if it sees a GPU, or if the machine has none and the framework
    computes on the CPU.
    """
    if facts.visible_gpus:
        return None
    makers = _makers_of_gpus(facts)
    if facts.supports_cpu and not makers:
        return None
    problems = chain(
        _problems_of_build(facts, makers),
        _problems_of_driver(facts, _usable_makers(facts, makers)),
        _hiding_variables(facts, _usable_makers(facts, makers)),
        _problems_of_driver_version(facts),
        [_unexplained(facts)],
    )
    return next(problems)


def not_found(
    owner: Backend, device: Device, existing: list[Device], details: str
) -> DeviceNotFoundError:
    """The error for a device that the framework does not have; it lists those that exist."""
    problem = f"{device} does not exist under {owner}, which sees"
    if not existing:
        cause = diagnose(facts_of(owner))
        why = f"{cause.reason}; {cause.cure}" if cause else "xdevice doctor may know why"
        return DeviceNotFoundError(f"{problem} no device{details}: {why}")
    hint = "use one of these"
    if device.kind == "gpu" and "cpu" in owner.hardware.kinds():
        hint = why_none(owner) or f"use try_gpu({device.index}) to fall back to the CPU"
        chosen = decided()
        if chosen is not None and chosen != owner and owner.hardware.kinds() == ("cpu",):
            call = f"xdevice.convert(x, {str(chosen)!r})"
            hint = f"what {owner} makes is on the CPU always: make a tensor of it with {call}"
    names = [f"virtual {d}" if is_virtual(owner, d) else str(d) for d in existing]
    return DeviceNotFoundError(f"{problem} {', '.join(names)}{details}; {hint}")


def _makers_of_gpus(facts: Facts) -> set[str]:
    """The makers of this machine's GPUs.

    If NVIDIA's driver fails, the machine has a GPU of NVIDIA, even if none is
    listed.
    """
    makers = {gpu["maker"] for gpu in facts.gpus}
    if facts.driver_error:
        makers.add("nvidia")
    return makers


def _usable_makers(facts: Facts, makers: set[str]) -> set[str]:
    """The makers whose GPUs the framework is built for.

    All makers if it is not known what the framework is built for.
    """
    if facts.compute in MAKERS:
        return makers & {MAKERS[facts.compute]}
    return makers


def _problems_of_build(facts: Facts, makers: set[str]) -> Iterator[Problem]:
    name = facts.backend
    if not makers:
        cure = "choose a framework that computes on the CPU, with use('numpy') for example"
        yield Problem(f"{name} has no CPU, and this machine has no GPU", cure, wrong=False)
    if not facts.supports_gpus:
        cure = "choose another framework, xdevice info lists them"
        yield Problem(f"{name} computes on the CPU only", cure, wrong=False)
    if facts.compute == "cpu":
        cure = facts.gpu_build_command or f"install a build of {name} for GPUs"
        yield Problem(f"this {name} is built for the CPU only", cure)
    elif facts.compute is not None and MAKERS.get(facts.compute) not in makers:
        brands = " and ".join(sorted(maker.upper() for maker in makers))
        cure = f"install a build of {name} for {brands} GPUs"
        yield Problem(f"this {name} is built for {facts.compute}, the GPU is {brands}'s", cure)


def _problems_of_driver(facts: Facts, makers: set[str]) -> Iterator[Problem]:
    if facts.driver_error and "nvidia" in makers:
        yield driver_problem(facts.driver_error)
    if not facts.drivers.keys() & makers:
        command = "Ubuntu: sudo ubuntu-drivers install; elsewhere nvidia.com/drivers"
        yield Problem(
            "the machine has an NVIDIA GPU, but no NVIDIA driver is loaded",
            f"install it ({command}) and restart",
        )
    if not facts.gpus_are_given and "nvidia" in makers:
        cure = "start it with docker run --gpus all (and nvidia-container-toolkit)"
        yield Problem("this container was not given the machine's GPU", cure)


def _hiding_variables(facts: Facts, makers: set[str]) -> Iterator[Problem]:
    """A problem for each environment variable that hides all GPUs of a maker."""
    for maker in sorted(makers):
        gpus_of_maker = [gpu for gpu in facts.gpus if gpu["maker"] == maker]
        number = len(gpus_of_maker)
        hidden = "the machine's GPU" if number == 1 else f"all {number} GPUs"
        all_indices = ",".join(map(str, range(number)))
        for variable in VARIABLES[maker]:
            value = facts.environment.get(variable)
            if value is not None and _hides_all(variable, value, gpus_of_maker):
                cure = f"unset {variable}, or export {variable}={all_indices}"
                yield Problem(f"{variable}={value!r} hides {hidden}", cure)


def _hides_all(variable: str, value: str, gpus: list[Gpu]) -> bool:
    """Whether the variable hides every GPU.

    CUDA reads the list up to the first entry that names no GPU.
    """
    first = value.partition(",")[0].strip()
    if variable == "NVIDIA_VISIBLE_DEVICES":
        # unset or empty: no container runtime has set it
        return first in ("void", "none")
    if first.isascii() and first.lstrip("+-").isdigit():
        return not 0 <= int(first) < len(gpus)
    if first.upper().startswith("MIG-"):
        return False  # the parts of a GPU are not listed
    if first.upper().startswith("GPU-"):
        uuids = [bare_uuid(gpu["uuid"]) for gpu in gpus if gpu["uuid"]]
        are_all_known = len(uuids) == len(gpus)
        names_a_gpu = any(uuid.startswith(bare_uuid(first)) for uuid in uuids)
        return are_all_known and not names_a_gpu
    # '', NoDevFiles and none hide all; CUDA reads '0x' as 0
    return not first[:1].isdigit()


def _problems_of_driver_version(facts: Facts) -> Iterator[Problem]:
    driver = facts.drivers.get("nvidia")
    minimum = minimum_driver(facts.toolkit)
    if facts.compute != "cuda" or not driver or not minimum:
        return
    if _version_numbers(driver) < _version_numbers(minimum):
        yield Problem(
            f"the driver {driver} is too old for CUDA {facts.toolkit}, which needs {minimum}",
            f"update the NVIDIA driver to {minimum} or newer, "
            f"or install a {facts.backend} built for an older CUDA",
        )


def _unexplained(facts: Facts) -> Problem:
    target = " ".join(filter(None, (facts.compute, facts.toolkit)))
    ability = f"is built for {target}" if target else "can have GPUs"
    cure = "its log may say why"
    if facts.gpu_build_command:
        cure = f"its GPU libraries may be missing: {facts.gpu_build_command}"
    return Problem(f"{facts.backend} {ability} and nothing hides the GPU, but it finds none", cure)


def driver_problem(error: str) -> Problem:
    """What an error of NVML means."""
    if "mismatch" in error.lower():
        # after an update of the driver, until its kernel modules are reloaded
        return Problem(
            f"the NVIDIA driver's library and kernel module have different versions ({error})",
            "restart the machine, or unload the driver's kernel modules and load them again",
        )
    return Problem(
        f"the NVIDIA driver fails ({error})",
        "nvidia-smi may say more; install the NVIDIA driver again if it fails too",
    )


def minimum_driver(toolkit: str | None) -> str | None:
    """The oldest driver for a version of CUDA; ``None`` if it is not known."""
    if not toolkit:
        return None
    major, minor = [*toolkit.split("."), "0"][:2]
    driver = MINIMUM_DRIVER.get(f"{major}.{minor}")
    if driver is not None:
        return driver
    if major == "11" and minor != "0":
        return MINIMUM_DRIVER["11.1"]
    return MINIMUM_DRIVER.get(major)


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
