"""What JAX's lists of devices say while there are virtual GPUs: these alone are peers, as real GPUs would be.

With real GPUs, ``jax.devices()`` has the GPUs and not the CPU, and meshes are made from it. The functions of
``jax._src.xla_bridge`` and every reference of JAX's modules to them are replaced. xdevice goes on asking the
originals, to which `hardware` holds references.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import jax

from xdevice.backends.jax import hardware

bridge: Any = import_module("jax._src.xla_bridge")
_pxla: Any = import_module("jax._src.interpreters.pxla")


def leave_out_the_cpu() -> None:
    """Lists for which no backend is named have the virtual GPUs only; the default device stays the CPU."""

    def devices(backend: Any = None) -> list[Any]:
        return hardware.every_device(backend) if backend is not None else gpus_in(hardware.every_device())

    of_word = _pxla.get_default_device

    def get_default_device() -> Any:
        chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined, unused-ignore]  # it has one
        return of_word() if isinstance(chosen, str) else chosen or hardware.every_local_device()[0]

    replace(lists_from(devices))
    _pxla.get_default_device = get_default_device


def lists_from(devices: Callable[..., list[Any]]) -> dict[str, Callable[..., Any]]:
    """The four functions that list or count devices, made from the first."""

    def local_devices(process_index: int | None = None, backend: Any = None, host_id: int | None = None) -> list[Any]:
        asked = process_index if host_id is None else host_id
        here = bridge.process_index() if asked is None else asked
        if not 0 <= here < bridge.process_count():
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
    originals = {name: getattr(bridge, name) for name in functions}
    for name, original in originals.items():
        vars(functions[name]).update(cache_clear=getattr(original, "cache_clear", lambda: None))  # JAX's own clears it
    for module in [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "jax" and m]:
        for key, value in list(vars(module).items()):
            for name, original in originals.items():
                if value is original:
                    setattr(module, key, functions[name])


def gpus_in(devices: list[Any]) -> list[Any]:
    """Those that stand for GPUs, of all processes."""
    return [device for device in devices if hardware.ordinal(device)]
