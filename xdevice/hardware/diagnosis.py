"""Why a framework does not see the machine's GPU: the first rule that applies, of what can never work first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from xdevice.contract import Build
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.machine import bare_uuid, gpus

if TYPE_CHECKING:
    from xdevice.machine import Gpu, Gpus

VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""The environment variables that can hide a maker's GPUs; NVIDIA_VISIBLE_DEVICES acts on containers."""

MAKERS = {
    "cuda": "nvidia",
    "rocm": "amd",
}  # the maker whose GPUs a framework built for the toolkit can use
MINIMUM_DRIVER = {
    "13": "580", "12": "525.60.13", "11.1": "450.80.02", "11.0": "450.36.06", "10.2": "440.33", "10.1": "418.39",
    "10.0": "410.48", "9.2": "396.26", "9.1": "390.46", "9.0": "384.81", "8.0": "375.26",
}  # fmt: skip
"""The oldest Linux driver that each CUDA runs on. From 11.1 on the first driver of a major version serves all its minor
ones. From the CUDA Toolkit Release Notes, table "CUDA Toolkit and Corresponding Driver Versions", and NVIDIA's "CUDA
Compatibility", chapter "Minor Version Compatibility". Windows asks for slightly newer ones."""


@dataclass(frozen=True, slots=True)
class Facts:
    backend: str
    compute: str | None = "cpu"  # as in contract.Build; None: unknown
    toolkit: str | None = None
    gpu_kind: bool = True  # whether the framework can have GPUs at all
    cpu_kind: bool = True  # whether it computes on the CPU, too
    seen: int = 0  # how many it sees
    gpu_build: str | None = None  # what to type to get a build for GPUs, as the adapter says
    environment: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # those of VARIABLES that are set
    gpus: tuple[Gpu, ...] = ()
    drivers: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    driver_error: str | None = None
    given: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the GPU is not seen, and what to type; ``wrong`` is False where nothing needs to be repaired."""

    reason: str
    cure: str
    wrong: bool = True


def facts_of(backend: Backend, machine: Gpus | None = None) -> Facts:
    """The facts about this framework on this machine; imports the framework."""
    reported: dict[str, Any] = {**(machine or gpus())}
    reported["gpus"] = tuple(reported["gpus"])
    hardware, build = backend.hardware, build_of(backend)
    return Facts(
        **reported,
        backend=str(backend),
        compute=build["compute"] or None,
        toolkit=build["toolkit"],
        gpu_kind="gpu" in hardware.kinds(),
        cpu_kind="cpu" in hardware.kinds(),
        seen=hardware.count("gpu"),
        gpu_build=getattr(backend.adapter, "GPU_BUILD", None),
        environment={
            n: os.environ[n] for n in sorted({*chain(*VARIABLES.values())}) if n in os.environ
        },
    )


def build_of(backend: Backend) -> Build:
    """How the framework was built; empty words where a third party's adapter does not tell."""
    try:
        return backend.hardware.build()
    except NotSupportedError:
        return {"version": "", "compute": "", "toolkit": None}


def diagnose(facts: Facts) -> Problem | None:
    """The first rule that explains why no GPU is seen; ``None`` if one is, or the machine has none and a CPU serves."""
    if facts.seen or (facts.cpu_kind and not _makers(facts)):
        return None
    return next(chain(_of_build(facts), _of_machine(facts)), None) or _unexplained(facts)


def _of_build(facts: Facts) -> Iterator[Problem]:
    name, makers = facts.backend, _makers(facts)
    if not makers:
        cure = "choose a framework that computes on the CPU, with use('numpy') for example"
        yield Problem(f"{name} has no CPU, and this machine has no GPU", cure, wrong=False)
    if not facts.gpu_kind:
        cure = "choose another framework, xdevice info lists them"
        yield Problem(f"{name} computes on the CPU only", cure, wrong=False)
    if facts.compute == "cpu":
        cure = facts.gpu_build or f"install a build of {name} for GPUs"
        yield Problem(f"this {name} is built for the CPU only", cure)
    elif facts.compute is not None and MAKERS.get(facts.compute) not in makers:
        there = " and ".join(sorted(maker.upper() for maker in makers))
        cure = f"install a build of {name} for {there} GPUs"
        yield Problem(f"this {name} is built for {facts.compute}, the GPU is {there}'s", cure)


def _of_machine(facts: Facts) -> Iterator[Problem]:
    wanted = _wanted(facts)
    if facts.driver_error and "nvidia" in wanted:
        yield driver_problem(facts.driver_error)
    if not facts.drivers.keys() & wanted:
        cure = "install it (Ubuntu: sudo ubuntu-drivers install; elsewhere nvidia.com/drivers) and restart"
        yield Problem("the machine has an NVIDIA GPU, but no NVIDIA driver is loaded", cure)
    if not facts.given and "nvidia" in wanted:
        cure = "start it with docker run --gpus all (and nvidia-container-toolkit)"
        yield Problem("this container was not given the machine's GPU", cure)
    for maker in sorted(wanted):
        mine = [gpu for gpu in facts.gpus if gpu["maker"] == maker]
        for variable in VARIABLES[maker]:
            value = facts.environment.get(variable)
            if value is not None and _hides_all(variable, value, mine):
                them = "the machine's GPU" if len(mine) == 1 else f"all {len(mine)} GPUs"
                cure = (
                    f"unset {variable}, or export {variable}={','.join(map(str, range(len(mine))))}"
                )
                yield Problem(f"{variable}={value!r} hides {them}", cure)
    driver, needed = facts.drivers.get("nvidia"), minimum_driver(facts.toolkit)
    if facts.compute == "cuda" and driver and needed and _number(driver) < _number(needed):
        cure = f"update the NVIDIA driver to {needed} or newer, or install a {facts.backend} built for an older CUDA"
        yield Problem(
            f"the driver {driver} is too old for CUDA {facts.toolkit}, which needs {needed}", cure
        )


def _unexplained(facts: Facts) -> Problem:
    target = " ".join(filter(None, (facts.compute, facts.toolkit)))
    built = f"is built for {target}" if target else "can have GPUs"
    cure = (
        f"its GPU libraries may be missing: {facts.gpu_build}"
        if facts.gpu_build
        else "its log may say why"
    )
    return Problem(f"{facts.backend} {built} and nothing hides the GPU, but it finds none", cure)


def driver_problem(error: str) -> Problem:
    """What NVML's error means."""
    if (
        "mismatch" in error.lower()
    ):  # after an update of the driver, until its kernel modules are loaded anew
        reason = f"the NVIDIA driver's library and kernel module have different versions ({error})"
        return Problem(
            reason, "restart the machine, or unload the driver's kernel modules and load them again"
        )
    cure = "nvidia-smi may say more; install the NVIDIA driver again if it fails too"
    return Problem(f"the NVIDIA driver fails ({error})", cure)


def minimum_driver(toolkit: str | None) -> str | None:
    """The oldest driver that CUDA of that version runs on, if the table has it."""
    if not toolkit:
        return None
    major, minor = [*toolkit.split("."), "0"][:2]
    by_major = "11.1" if major == "11" and minor != "0" else major
    return MINIMUM_DRIVER.get(f"{major}.{minor}") or MINIMUM_DRIVER.get(by_major)


def _makers(facts: Facts) -> set[str]:
    """The makers of this machine's GPUs; a driver of NVIDIA's that fails has one, though it lists none."""
    return {gpu["maker"] for gpu in facts.gpus} | ({"nvidia"} if facts.driver_error else set())


def _wanted(facts: Facts) -> set[str]:
    """The makers of this machine's GPUs that the framework is built for; all of them if that is unknown."""
    makers = _makers(facts)
    return {MAKERS[facts.compute]} & makers if facts.compute in MAKERS else makers


def _hides_all(variable: str, value: str, mine: list[Gpu]) -> bool:
    """Whether the variable hides every GPU. CUDA reads the list up to the first entry that it does not know."""
    first = value.partition(",")[0].strip()
    if variable == "NVIDIA_VISIBLE_DEVICES":
        return first in ("void", "none")  # unset or empty: no container runtime has set it
    if first.isascii() and first.lstrip("+-").isdigit():
        return not 0 <= int(first) < len(mine)
    if first.upper().startswith(("GPU-", "MIG-")):
        uuids = [bare_uuid(gpu["uuid"]) for gpu in mine if gpu["uuid"]]
        known = len(uuids) == len(mine) and not first.upper().startswith(
            "MIG-"
        )  # MIG parts are not listed
        return known and not any(uuid.startswith(bare_uuid(first)) for uuid in uuids)
    return not first[:1].isdigit()  # '', NoDevFiles, none; CUDA reads '0x' as 0


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
