"""One small language for where tensors live, under every framework.

>>> import xdevice
>>> xdevice.use("numpy")
>>> x = xdevice.ones((2, 3), device=xdevice.try_gpu())
>>> xdevice.device_of(x)
Device('cpu:0')

It asserts nothing, so pytest need not rewrite it where it was imported before (PYTEST_DONT_REWRITE).
"""

# ruff: noqa: F405  (the errors are imported by a star, for checkers)

from __future__ import annotations

from os import environ as _environ

from xdevice._version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from xdevice import distributed as distributed
    from xdevice.device import Device
    from xdevice.errors import *  # noqa: F403  (those of its `__all__`)
    from xdevice.files.save_load import load, save
    from xdevice.framework.adapters import available
    from xdevice.framework.choosing import backend, use, using
    from xdevice.framework.watched import strict
    from xdevice.hardware.devices import (
        as_device,
        count,
        cpu,
        devices,
        gpu,
        native,
        num_gpus,
        properties,
        synchronize,
    )
    from xdevice.hardware.fallback import try_all_gpus, try_gpu
    from xdevice.hardware.memory import (
        empty_cache,
        find_batch_size,
        is_out_of_memory,
        memory_stats,
        share_gpus,
    )
    from xdevice.hardware.scopes import scope
    from xdevice.hardware.timing import Benchmark, Timer
    from xdevice.hardware.virtual import virtual_gpus
    from xdevice.parallel.batches import split_batch
    from xdevice.parallel.data_parallel import data_parallel
    from xdevice.parallel.prefetch import prefetch
    from xdevice.parallel.replicas import Replicas, all_reduce, replicate
    from xdevice.tensors.creation import arange, empty, full, ones, rand, randn, seed, tensor, zeros
    from xdevice.tensors.exchange import convert, to_numpy
    from xdevice.tensors.gradients import value_and_grad
    from xdevice.tensors.namespace import namespace
    from xdevice.tensors.placement import (
        backend_of,
        check_same_device,
        device_of,
        devices_of,
        is_same_device,
        to_device,
    )
    from xdevice.tensors.transfers.guard import transfer_guard
    from xdevice.tensors.transfers.report import watch_transfers

_HOMES = {
    "device": "Device",
    "framework.choosing": "backend use using",
    "framework.adapters": "available",
    "framework.watched": "strict",
    "hardware.devices": "as_device count cpu devices gpu native num_gpus properties synchronize",
    "hardware.fallback": "try_all_gpus try_gpu",
    "hardware.virtual": "virtual_gpus",
    "hardware.scopes": "scope",
    "hardware.memory": "empty_cache find_batch_size is_out_of_memory memory_stats share_gpus",
    "hardware.timing": "Benchmark Timer",
    "tensors.placement": "backend_of check_same_device device_of devices_of is_same_device to_device",
    "tensors.creation": "arange empty full ones rand randn seed tensor zeros",
    "tensors.exchange": "convert to_numpy",
    "tensors.gradients": "value_and_grad",
    "tensors.namespace": "namespace",
    "tensors.transfers.guard": "transfer_guard",
    "tensors.transfers.report": "watch_transfers",
    "parallel.batches": "split_batch",
    "parallel.data_parallel": "data_parallel",
    "parallel.prefetch": "prefetch",
    "parallel.replicas": "Replicas all_reduce replicate",
    "files.save_load": "load save",
}
"""Where each public name but the errors is from: a module is imported when one of its names is first used."""

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BackendNotInstalledError",
    "Benchmark",
]
__all__ += [
    "BrokenBackendError",
    "CopyNeededError",
    "Device",
    "DeviceFallbackWarning",
    "DeviceNotFoundError",
]
__all__ += [
    "DeviceSpellingError",
    "DeviceTypeError",
    "DistributedError",
    "DistributedTimeoutError",
    "FileFormatError",
]
__all__ += [
    "MisplacedError",
    "MissingNameError",
    "MixedDeviceError",
    "NotATensorError",
    "NotPortableWarning",
]
__all__ += [
    "NotSupportedError",
    "OutOfMemoryError",
    "Replicas",
    "ScopeError",
    "Timer",
    "TooLateError",
]
__all__ += [
    "TracedTensorError",
    "TransferError",
    "UnknownBackendError",
    "UnknownPlacementError",
    "VirtualDeviceError",
]
__all__ += [
    "XDeviceError",
    "all_reduce",
    "arange",
    "as_device",
    "available",
    "backend",
    "backend_of",
]
__all__ += [
    "check_same_device",
    "convert",
    "count",
    "cpu",
    "data_parallel",
    "device_of",
    "devices",
    "devices_of",
]
__all__ += [
    "empty",
    "empty_cache",
    "find_batch_size",
    "full",
    "gpu",
    "is_out_of_memory",
    "is_same_device",
    "load",
]
__all__ += [
    "memory_stats",
    "namespace",
    "native",
    "num_gpus",
    "ones",
    "prefetch",
    "properties",
    "rand",
    "randn",
]
__all__ += [
    "replicate",
    "save",
    "scope",
    "seed",
    "share_gpus",
    "split_batch",
    "strict",
    "synchronize",
    "tensor",
]
__all__ += [
    "to_device",
    "to_numpy",
    "transfer_guard",
    "try_all_gpus",
    "try_gpu",
    "use",
    "using",
    "value_and_grad",
]
__all__ += ["virtual_gpus", "watch_transfers", "zeros"]

_HOME_OF = {
    **{name: "xdevice.errors" for name in __all__ if name.endswith(("Error", "Warning"))},
    **{name: f"xdevice.{module}" for module, names in _HOMES.items() for name in names.split()},
}


def _load(module: str) -> ModuleType:
    from importlib import import_module

    return import_module(module)


if not TYPE_CHECKING:  # a checker that saw it would take every misspelt name for a public one

    def __getattr__(name: str) -> object:
        """A public name, from the module that has it; kept, so that this is asked once for each."""
        home = _HOME_OF.get(name)
        if home is not None:
            found = globals()[name] = getattr(_load(home), name)
            return found
        if name == "distributed":
            return _load("xdevice.distributed")
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=_load(__name__)
        )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "distributed"})


if _environ.get("XDEVICE_VIRTUAL_GPUS", "0") not in ("", "0"):
    _load("xdevice.hardware.virtual").apply_environment()
