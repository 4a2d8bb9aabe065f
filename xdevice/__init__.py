"""One small language for where tensors live, under every framework.

>>> import xdevice
>>> xdevice.use("numpy")
>>> x = xdevice.ones((2, 3), device=xdevice.try_gpu())
>>> xdevice.device_of(x)
Device('cpu:0')

PYTEST_DONT_REWRITE. This word is for pytest, which rewrites the asserts of
plugins, and warns about a file that was imported before. Here are no asserts.
"""

# ruff: noqa: F403  (a star imports the names in the `__all__` of a module)

from __future__ import annotations

from os import environ as _environ

from xdevice._version import __version__ as __version__
from xdevice.hooks import hooks as _hooks

# The public names, by the module that defines them. The module is imported
# when one of its names is first used, so that `import xdevice` stays light. A
# test compares the names with its `__all__`.
_PUBLIC_NAMES = {
    "xdevice.device": "Device",
    "xdevice.errors": """
        ArgumentError ArgumentTypeError AxisError BackendNotInstalledError
        BrokenBackendError CopyNeededError DeviceFallbackWarning DeviceNotFoundError
        DeviceSpellingError DeviceTypeError DistributedError DistributedTimeoutError
        FileFormatError MisplacedError MissingNameError MixedDeviceError NotATensorError
        NotPortableWarning NotSupportedError OutOfMemoryError ScopeError TooLateError
        TracedTensorError TransferError UnknownBackendError UnknownPlacementError
        VirtualDeviceError XDeviceError
    """,
    "xdevice.framework.choosing": "backend use using",
    "xdevice.framework.adapters": "available",
    "xdevice.framework.watched": "strict",
    "xdevice.hardware.devices": """
        as_device count cpu devices gpu native num_gpus properties synchronize
    """,
    "xdevice.hardware.fallback": "try_all_gpus try_gpu",
    "xdevice.hardware.virtual": "virtual_gpus",
    "xdevice.hardware.scopes": "scope",
    "xdevice.hardware.memory": "empty_cache is_out_of_memory memory_stats",
    "xdevice.hardware.batch_size": "find_batch_size",
    "xdevice.hardware.sharing": "share_gpus",
    "xdevice.hardware.timing": "Benchmark Timer",
    "xdevice.tensors.placement": """
        backend_of check_same_device device_of devices_of is_same_device to_device
    """,
    "xdevice.tensors.creation": "arange empty full ones rand randn seed tensor zeros",
    "xdevice.tensors.composing.calls": "compose",
    "xdevice.tensors.exchange": "convert to_numpy",
    "xdevice.tensors.gradients": "value_and_grad",
    "xdevice.tensors.namespace": "namespace",
    "xdevice.transfers.guard": "transfer_guard",
    "xdevice.transfers.report": "watch_transfers",
    "xdevice.parallel.batches": "split_batch",
    "xdevice.parallel.data_parallel": "data_parallel",
    "xdevice.parallel.prefetch": "prefetch",
    "xdevice.parallel.replicas": "Replicas all_reduce replicate",
    "xdevice.files.save_load": "load save",
}

TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers and editors take the names from each module's `__all__`
    from types import ModuleType

    from xdevice import distributed as distributed
    from xdevice.device import *
    from xdevice.errors import *
    from xdevice.files.save_load import *
    from xdevice.framework.adapters import *
    from xdevice.framework.choosing import *
    from xdevice.framework.watched import *
    from xdevice.hardware.batch_size import *
    from xdevice.hardware.devices import *
    from xdevice.hardware.fallback import *
    from xdevice.hardware.memory import *
    from xdevice.hardware.scopes import *
    from xdevice.hardware.sharing import *
    from xdevice.hardware.timing import *
    from xdevice.hardware.virtual import *
    from xdevice.parallel.batches import *
    from xdevice.parallel.data_parallel import *
    from xdevice.parallel.prefetch import *
    from xdevice.parallel.replicas import *
    from xdevice.tensors.composing.calls import *
    from xdevice.tensors.creation import *
    from xdevice.tensors.exchange import *
    from xdevice.tensors.gradients import *
    from xdevice.tensors.namespace import *
    from xdevice.tensors.placement import *
    from xdevice.transfers.guard import *
    from xdevice.transfers.report import *
else:
    _MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names.split()}
    __all__ = list(_MODULE_OF)

    def __getattr__(name: str) -> object:
        """Import a public name, and keep it for the next use."""
        if name == "distributed":
            return _import("xdevice.distributed")
        if name not in _MODULE_OF:
            this_module = _import(__name__)
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=this_module)
        value = getattr(_import(_MODULE_OF[name]), name)
        # a compiler that traces this may refuse `globals()`
        setattr(_import(__name__), name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "distributed"})


def _import(module: str) -> ModuleType:
    from importlib import import_module

    return import_module(module)


def _connect() -> None:
    """Import the module that registers the functions of `hooks`.

    `scopes` registers those of ``with device:``, and imports `devices`, which
    registers that of ``device == obj``.
    """
    _import("xdevice.hardware.scopes")


_hooks.connect = _connect

if _environ.get("XDEVICE_VIRTUAL_GPUS", "0") not in ("", "0"):
    _import("xdevice.hardware.virtual").apply_environment()
