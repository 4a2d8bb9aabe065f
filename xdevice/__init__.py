"""One small language for where tensors live, under every framework.

>>> import xdevice
>>> xdevice.use("numpy")
>>> x = xdevice.ones((2, 3), device=xdevice.try_gpu())
>>> xdevice.device_of(x)
Device('cpu:0')
"""

from xdevice.creation import arange, empty, full, ones, rand, randn, seed, tensor, zeros
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendNotInstalledError,
    BrokenBackendError,
    CopyNeededError,
    DeviceFallbackWarning,
    DeviceNotFoundError,
    DeviceSpellingError,
    DeviceTypeError,
    DistributedError,
    DistributedTimeoutError,
    FileFormatError,
    MisplacedError,
    MixedDeviceError,
    NotATensorError,
    NotPortableWarning,
    NotSupportedError,
    OutOfMemoryError,
    ScopeError,
    UnknownBackendError,
    UnknownPlacementError,
    VirtualDeviceError,
    XDeviceError,
)
from xdevice.exchange import to_numpy
from xdevice.files import load, save
from xdevice.gradients import value_and_grad
from xdevice.hardware import (
    as_device,
    count,
    cpu,
    devices,
    gpu,
    native,
    num_gpus,
    properties,
    synchronize,
    try_all_gpus,
    try_gpu,
)
from xdevice.maths import namespace
from xdevice.memory import empty_cache, find_batch_size, is_out_of_memory, memory_stats
from xdevice.mixing import strict
from xdevice.parallel import data_parallel, split_batch
from xdevice.placement import check_same_device, device_of, devices_of, is_same_device, to_device
from xdevice.reducing import all_reduce
from xdevice.registry import available, backend, use, using
from xdevice.replicas import Replicas, replicate
from xdevice.scopes import scope
from xdevice.timing import Benchmark, Timer
from xdevice.virtual import virtual_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from xdevice import distributed as distributed

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BackendNotInstalledError",
    "Benchmark",
    "BrokenBackendError",
    "CopyNeededError",
    "Device",
    "DeviceFallbackWarning",
    "DeviceNotFoundError",
    "DeviceSpellingError",
    "DeviceTypeError",
    "DistributedError",
    "DistributedTimeoutError",
    "FileFormatError",
    "MisplacedError",
    "MixedDeviceError",
    "NotATensorError",
    "NotPortableWarning",
    "NotSupportedError",
    "OutOfMemoryError",
    "Replicas",
    "ScopeError",
    "Timer",
    "UnknownBackendError",
    "UnknownPlacementError",
    "VirtualDeviceError",
    "XDeviceError",
    "all_reduce",
    "arange",
    "as_device",
    "available",
    "backend",
    "check_same_device",
    "count",
    "cpu",
    "data_parallel",
    "device_of",
    "devices",
    "devices_of",
    "empty",
    "empty_cache",
    "find_batch_size",
    "full",
    "gpu",
    "is_out_of_memory",
    "is_same_device",
    "load",
    "memory_stats",
    "namespace",
    "native",
    "num_gpus",
    "ones",
    "properties",
    "rand",
    "randn",
    "replicate",
    "save",
    "scope",
    "seed",
    "split_batch",
    "strict",
    "synchronize",
    "tensor",
    "to_device",
    "to_numpy",
    "try_all_gpus",
    "try_gpu",
    "use",
    "using",
    "value_and_grad",
    "virtual_gpus",
    "zeros",
]


def __getattr__(name: str) -> "ModuleType":
    """``xdevice.distributed`` is imported when it is first asked for: most scripts never do."""
    if name == "distributed":
        from importlib import import_module

        return import_module("xdevice.distributed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
