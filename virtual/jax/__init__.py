"""Virtual GPUs under JAX: host devices, of which the first stays the CPU.

``gpu:i`` is JAX's ``CpuDevice(id=i+1)``. Each has memory of its own, and JAX refuses to mix them.
JAX's lists leave out the CPU, as with real GPUs, and its own names for GPUs mean them where they
stand in (`stand_in`): the functions of ``jax._src.xla_bridge`` and every reference of JAX's modules
to them are replaced. xdevice goes on asking the originals, to which `hardware` holds references.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.private_names import names as names_of_the_adapter
from xdevice.device import Device, spell
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.machine import gpus
from xdevice.virtual.jax.private_names import in_place_of, names
from xdevice.virtual.request import refuse_memory_limit, refuse_to_hide

BRIDGE, DEFAULT = "jax._src.xla_bridge", "jax._src.interpreters.pxla:get_default_device"


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    refuse_memory_limit("jax")
    settings: Any = jax.config  # JAX has left it without types
    compute = hardware.build()["compute"]
    asked = (
        settings.jax_platforms.split(",") if settings.jax_platforms else []
    )  # none means all that there are
    real = len(gpus()["gpus"]) if compute != "cpu" and asked != ["cpu"] else 0
    without_host = bool(asked) and "cpu" not in asked
    refuse_to_hide(real, n, f"jax, by its {compute} plug-in,", force)
    if without_host and not force and not stand_in:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but jax_platforms={settings.jax_platforms} leaves out the host, which "
            f"provides them; start with JAX_PLATFORMS=cpu, or ask for virtual_gpus({n}, force=True)"
        )
    if not hasattr(settings, "jax_num_cpu_devices"):
        raise NotSupportedError(
            f"jax {jax.__version__} has no setting for several host devices; install jax>=0.5.1"
        )
    names.check("STAND_IN" if stand_in else "VIRTUAL", "OTHERS")
    names_of_the_adapter.check("OTHERS")
    try:
        settings.update("jax_num_cpu_devices", n + 1)
    except RuntimeError as error:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for jax, which has started; ask for them before jax is first used, "
            f"or start with XDEVICE_VIRTUAL_GPUS={n}"
        ) from error
    if real or without_host:
        settings.update("jax_platforms", "cpu")
    hardware.replaced_gpus.replace(n, under_own_names=stand_in)
    if stand_in:
        from xdevice.virtual.jax import (
            stand_in as gpus_of_jax,
        )  # replaces parts of JAX, so only on request

        gpus_of_jax.start()
    else:
        _leave_out_the_cpu()
        _name(n)


def _name(n: int) -> None:
    """Let JAX print virtual GPUs as such: what it prints would otherwise read back as a CPU."""

    def named(device: Any, word: str, otherwise: Any) -> str:
        is_own = device.platform == "cpu" and device.process_index == jax.process_index()
        found = hardware.as_device(device) if is_own else None
        return word.format(found.index) if found and found.kind == "gpu" else str(otherwise(device))

    for attribute, word in (("__str__", "vgpu:{}"), ("__repr__", "VgpuDevice(id={})")):
        in_place_of(f"jax:Device.{attribute}")(
            lambda show, device, word=word: named(device, word, show)
        )
    for i in range(n):  # how older text, and other versions, call it
        spell(Device("gpu", i), [f"TFRT_CPU_{i + 1}", f"CpuDevice(id={i + 1})"])


def _leave_out_the_cpu() -> None:
    """Lists for which no backend is named have the virtual GPUs only; the default device stays the CPU."""

    def devices(backend: Any = None) -> list[Any]:
        return (
            hardware.every_device(backend)
            if backend is not None
            else gpus_in(hardware.every_device())
        )

    @in_place_of(DEFAULT)
    def get_default_device(of_word: Any) -> Any:
        chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined, unused-ignore]  # it has one
        return of_word() if isinstance(chosen, str) else chosen or hardware.every_local_device()[0]

    replace(lists_from(devices))


def lists_from(devices: Callable[..., list[Any]]) -> dict[str, Callable[..., Any]]:
    """The four functions that list or count devices, made from the first."""

    def local_devices(
        process_index: int | None = None, backend: Any = None, host_id: int | None = None
    ) -> list[Any]:
        asked = process_index if host_id is None else host_id
        here = jax.process_index() if asked is None else asked
        if not 0 <= here < jax.process_count():
            raise ValueError(f"Unknown process_index {here}")
        return [device for device in devices(backend) if device.process_index == here]

    return {
        "devices": devices,
        "local_devices": local_devices,
        "device_count": lambda backend=None: len(devices(backend)),
        "local_device_count": lambda backend=None: len(local_devices(backend=backend)),
    }


def replace(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Put these in place of the functions of that name, wherever a module of JAX's refers to them."""
    for name, function in functions.items():
        path = f"{BRIDGE}:{name}"
        cleared = getattr(names.value(path), "cache_clear", lambda: None)
        vars(function).update(cache_clear=cleared)  # JAX's own clears it
        names.replace_everywhere(path, function)


def gpus_in(devices: list[Any]) -> list[Any]:
    """Those that stand for GPUs, of all processes."""
    return [device for device in devices if hardware.ordinal(device)]
