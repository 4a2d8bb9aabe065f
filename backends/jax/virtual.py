"""Virtual GPUs under JAX: host devices, of which the first stays the CPU.

``gpu:i`` is JAX's ``CpuDevice(id=i+1)``. Each has memory of its own, and JAX refuses to mix them.
"""

from __future__ import annotations

from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.machine import gpus


def enable(n: int, force: bool) -> None:
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
    if without_host and not force:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but jax_platforms={settings.jax_platforms} leaves the host out, which "
            f"lends them; start with JAX_PLATFORMS=cpu, or ask for virtual_gpus({n}, force=True)"
        )
    if not hasattr(settings, "jax_num_cpu_devices"):
        raise NotSupportedError(f"jax {jax.__version__} has no setting for several host devices; install jax>=0.5")
    try:
        settings.update("jax_num_cpu_devices", n + 1)
    except RuntimeError as error:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for jax, which has started; ask for them before jax is first used, "
            f"or start with XDEVICE_VIRTUAL_GPUS={n}"
        ) from error
    if real or without_host:
        settings.update("jax_platforms", "cpu")
    hardware.name_virtual(n)
