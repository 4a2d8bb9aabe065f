"""Virtual GPUs: torch's PrivateUse1 device, named ``vgpu``, whose memory is the host's.

A tensor on ``vgpu:1`` uses memory allocated for a CPU tensor; only the device label differs. An
operation runs on CPU tensors that share the memory of its arguments, so results equal the CPU's
bit for bit. A compiled plug-in does that (`compiled`). Where the plug-in cannot be built, Python
code does it (`in_python`), which is five times slower for small operations. torch allows one
PrivateUse1 device per process, and it cannot be removed.

Virtual GPUs that stand in for real GPUs use the CUDA device type instead; that needs the plug-in.

Virtual GPUs can be enabled at any time; existing tensors stay where they are.
"""

import re
from typing import Any

import torch

from xdevice.backends.torch import hardware, placement
from xdevice.backends.torch.private_names import names as names_of_the_adapter
from xdevice.contract import MemoryUse, Request
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.framework.import_hook import after_import
from xdevice.virtual.plugins import Recipe
from xdevice.virtual.torch.private_names import core, names


def recipe() -> Recipe:
    _check_version()
    from xdevice.virtual.torch import compiled

    return compiled.recipe()


def enable(request: Request) -> None:
    _check_version()
    n = request.number
    device_type, real_gpus = hardware.gpus()
    if real_gpus and not request.force:
        plural, pronoun = ("s", "them") if real_gpus > 1 else ("", "it")
        raise VirtualDeviceError(
            f"virtual_gpus({n}) would hide {real_gpus} real GPU{plural} ({device_type}); "
            f"use {pronoun}, or write virtual_gpus({n}, force=True)"
        )
    sections = ("STAND_IN",) if request.stand_in else ("VIRTUAL", "VGPU")
    for private_names in (names, names_of_the_adapter):
        private_names.check(*sections, "OTHERS", imported_only=True)
    privateuse1_name = core._get_privateuse1_backend_name()
    if privateuse1_name != "privateuseone":
        raise VirtualDeviceError(
            f"virtual GPUs need torch's PrivateUse1, which {privateuse1_name!r} has taken in this "
            "process; start again without importing the package that provides "
            f"{privateuse1_name!r}"
        )
    from xdevice.virtual.torch import start  # late: it imports much of torch

    virtual = start.start(request)
    hardware.replace_gpus(virtual.name, n)
    placement.forget()
    if not request.stand_in:
        _keep_name_in_keras()


def _keep_name_in_keras() -> None:
    """Make Keras accept ``vgpu:1``, which Keras 3.15 turns into ``vcuda:1``."""

    def change(module: Any) -> None:
        # "gpu:1" and "cuda:1" mean virtual GPUs too, since there are no real ones
        parse = module._parse_device_input
        module._parse_device_input = lambda name: re.sub(r"^v?cuda\b", "vgpu", parse(name))

    after_import("keras.src.backend.torch.core", change)


def find_races() -> None:
    from xdevice.virtual.torch.cuda import races

    races.find_races()


def measure_memory(soft_limit: int, stop_after: int | None, computes: bool, totals: Any) -> None:
    from xdevice.virtual.torch.cuda import memory_use

    memory_use.measure(soft_limit, stop_after, computes, totals)


def memory_use() -> MemoryUse:
    from xdevice.virtual.torch.cuda import memory_use

    return memory_use.result()


def _check_version() -> None:
    # since torch 2.10 the PrivateUse1 device can be written in Python
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < (2, 10):
        raise NotSupportedError(
            f"virtual GPUs need torch 2.10 or newer, and this is {torch.__version__}; "
            "pip install --upgrade torch"
        )
