"""Virtual GPUs under JAX: host devices, of which the first stays the CPU.

``gpu:i`` is JAX's ``CpuDevice(id=i+1)``. Each has memory of its own, and JAX refuses to mix them. JAX's lists leave
out the CPU (`lists`), and its own names for GPUs mean them where they stand in (`stand_in`).
"""

from typing import Any

import jax

from xdevice.backends.jax import hardware, private_names
from xdevice.backends.jax.virtual import lists
from xdevice.device import Device, spell
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit import virtual_memory
from xdevice.kit.private_names import check
from xdevice.machine import gpus

_ByJax: Any = jax.Device


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    if virtual_memory.limit() is not None:
        raise NotSupportedError(
            f"{virtual_memory.ENV} asks for a limit, and jax cannot limit the memory of one CPU device; leave it out"
        )
    settings: Any = jax.config  # JAX has left it without types
    compute = hardware.build()["compute"]
    asked = settings.jax_platforms.split(",") if settings.jax_platforms else []  # none means all that there are
    real = len(gpus()["gpus"]) if compute != "cpu" and asked != ["cpu"] else 0
    without_host = bool(asked) and "cpu" not in asked
    if real and not force:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but this machine has {real} real and jax its {compute} plug-in; "
            f"use these, or hide them with virtual_gpus({n}, force=True)"
        )
    if without_host and not force and not stand_in:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but jax_platforms={settings.jax_platforms} leaves out the host, which "
            f"provides them; start with JAX_PLATFORMS=cpu, or ask for virtual_gpus({n}, force=True)"
        )
    if not hasattr(settings, "jax_num_cpu_devices"):
        raise NotSupportedError(f"jax {jax.__version__} has no setting for several host devices; install jax>=0.5.1")
    names = private_names.STAND_IN if stand_in else private_names.VIRTUAL
    check(names, "jax", jax.__version__, private_names.LAST_TRIED, imported_only=False)
    try:
        settings.update("jax_num_cpu_devices", n + 1)
    except RuntimeError as error:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for jax, which has started; ask for them before jax is first used, "
            f"or start with XDEVICE_VIRTUAL_GPUS={n}"
        ) from error
    if real or without_host:
        settings.update("jax_platforms", "cpu")
    hardware.virtual.number, hardware.virtual.stand_in = n, stand_in
    if stand_in:
        from xdevice.backends.jax.virtual import stand_in as gpus_of_jax  # replaces parts of JAX, so only on request

        gpus_of_jax.start()
    else:
        lists.leave_out_the_cpu()
        _name(n)


def _name(n: int) -> None:
    """Let JAX print virtual GPUs as such: what it prints would otherwise read back as a CPU."""
    name, show = _ByJax.__str__, _ByJax.__repr__

    def named(device: Any, word: str, otherwise: Any) -> str:
        is_own = device.platform == "cpu" and device.process_index == jax.process_index()
        found = hardware.as_device(device) if is_own else None
        return word.format(found.index) if found and found.kind == "gpu" else str(otherwise(device))

    _ByJax.__str__ = lambda device: named(device, "vgpu:{}", name)
    _ByJax.__repr__ = lambda device: named(device, "VgpuDevice(id={})", show)
    for i in range(n):  # how older text, and other versions, call it
        spell(Device("gpu", i), [f"TFRT_CPU_{i + 1}", f"CpuDevice(id={i + 1})"])
