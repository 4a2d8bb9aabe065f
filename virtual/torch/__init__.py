"""Virtual GPUs: torch's PrivateUse1 device, named ``vgpu``, whose memory is the host's.

A tensor on ``vgpu:1`` uses memory allocated for a CPU tensor; only the device label differs. An operation
runs on CPU tensors that share the memory of its arguments, so results equal the CPU's bit for bit. A plug-in does that
(`compiled`), and where none can be had Python (`in_python`), five times slower for small operations. torch allows one
PrivateUse1 device per process, and it cannot be removed.

While they stand in for real GPUs, the device type is CUDA's instead; that needs the plug-in.

Virtual GPUs can be enabled at any time; existing tensors stay where they are.
"""

import re
from typing import Any

import torch

from xdevice.backends.torch import hardware, placement
from xdevice.backends.torch.private_names import names as names_of_the_adapter
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit.import_hook import after_import
from xdevice.virtual.plugins import Recipe
from xdevice.virtual.torch.private_names import core, names


def recipe() -> Recipe:
    _check_version()
    from xdevice.virtual.torch import compiled

    return compiled.recipe()


def enable(n: int, force: bool, stand_in: bool) -> None:
    _check_version()
    kind, real = hardware.gpus()
    if real and not force:
        raise VirtualDeviceError(
            f"virtual_gpus({n}) would hide {real} real GPU{'s' * (real > 1)} ({kind}); "
            f"use {'them' if real > 1 else 'it'}, or write virtual_gpus({n}, force=True)"
        )
    mode = ("STAND_IN",) if stand_in else ("VIRTUAL", "VGPU")
    for listed in (names, names_of_the_adapter):
        listed.check(*mode, "OTHERS", imported_only=True)
    taken = core._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise VirtualDeviceError(
            f"virtual GPUs need torch's PrivateUse1, which {taken!r} has taken in this process; "
            f"start again without importing the package that provides {taken!r}"
        )
    from xdevice.virtual.torch import start  # which imports much of torch

    made = start.start(n, stand_in)
    hardware.replace_gpus(made.name, n)
    placement.forget()
    if not stand_in:
        _name_in_keras()


def _name_in_keras() -> None:
    """Let Keras pass PyTorch's name for virtual GPUs on: Keras 3.15 makes ``vcuda:1`` of ``vgpu:1``."""

    def change(module: Any) -> None:
        # "gpu:1" and "cuda:1" mean them too, since there are no real GPUs
        parse = module._parse_device_input
        module._parse_device_input = lambda name: re.sub(r"^v?cuda\b", "vgpu", parse(name))

    after_import("keras.src.backend.torch.core", change)


def find_races() -> None:
    from xdevice.virtual.torch.cuda import faithful

    faithful.find_races()


def _check_version() -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < (
        2,
        10,
    ):  # whose PrivateUse1 device can be written in Python
        raise NotSupportedError(
            f"virtual GPUs need torch 2.10 or newer, and this is {torch.__version__}; pip install --upgrade torch"
        )
