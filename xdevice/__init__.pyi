"""The public names, by the module that defines them. `__init__.py` imports a name when it is first used."""

from xdevice import distributed as distributed
from xdevice._version import __version__ as __version__
from xdevice.device import Device as Device
from xdevice.errors import (
    ArgumentError as ArgumentError,
    ArgumentTypeError as ArgumentTypeError,
    AxisError as AxisError,
    BackendNotInstalledError as BackendNotInstalledError,
    BrokenBackendError as BrokenBackendError,
    CopyNeededError as CopyNeededError,
    DeviceFallbackWarning as DeviceFallbackWarning,
    DeviceNotFoundError as DeviceNotFoundError,
    DeviceSpellingError as DeviceSpellingError,
    DeviceTypeError as DeviceTypeError,
    DistributedError as DistributedError,
    DistributedTimeoutError as DistributedTimeoutError,
    FileFormatError as FileFormatError,
    MisplacedError as MisplacedError,
    MissingNameError as MissingNameError,
    MixedDeviceError as MixedDeviceError,
    NotATensorError as NotATensorError,
    NotPortableWarning as NotPortableWarning,
    NotSupportedError as NotSupportedError,
    OutOfMemoryError as OutOfMemoryError,
    ScopeError as ScopeError,
    TooLateError as TooLateError,
    TracedTensorError as TracedTensorError,
    TransferError as TransferError,
    UnknownBackendError as UnknownBackendError,
    UnknownPlacementError as UnknownPlacementError,
    VirtualDeviceError as VirtualDeviceError,
    XDeviceError as XDeviceError,
)
from xdevice.files.save_load import load as load, save as save
from xdevice.framework.registry import available as available
from xdevice.framework.choosing import backend as backend, use as use, using as using
from xdevice.framework.watched import strict as strict
from xdevice.hardware.batch_size import find_batch_size as find_batch_size
from xdevice.hardware.devices import as_device as as_device, cpu as cpu, gpu as gpu
from xdevice.hardware.questions import (
    count as count,
    devices as devices,
    native as native,
    num_gpus as num_gpus,
    properties as properties,
    synchronize as synchronize,
)
from xdevice.hardware.fallback import try_all_gpus as try_all_gpus, try_gpu as try_gpu
from xdevice.hardware.memory import (
    empty_cache as empty_cache,
    is_out_of_memory as is_out_of_memory,
    memory_stats as memory_stats,
)
from xdevice.hardware.scopes import scope as scope
from xdevice.hardware.sharing import share_gpus as share_gpus
from xdevice.hardware.timing import Benchmark as Benchmark, Timer as Timer
from xdevice.hardware.virtual import virtual_gpus as virtual_gpus
from xdevice.parallel.batches import split_batch as split_batch
from xdevice.parallel.data_parallel import data_parallel as data_parallel
from xdevice.parallel.prefetch import prefetch as prefetch
from xdevice.parallel.replicas import (
    Replicas as Replicas,
    all_reduce as all_reduce,
    replicate as replicate,
)
from xdevice.tensors.creation import (
    arange as arange,
    empty as empty,
    full as full,
    ones as ones,
    rand as rand,
    randn as randn,
    seed as seed,
    tensor as tensor,
    zeros as zeros,
)
from xdevice.tensors.exchange import convert as convert, to_numpy as to_numpy
from xdevice.tensors.gradients import value_and_grad as value_and_grad
from xdevice.tensors.namespace import namespace as namespace
from xdevice.tensors.moving import to_device as to_device
from xdevice.tensors.placement import (
    backend_of as backend_of,
    check_same_device as check_same_device,
    device_of as device_of,
    devices_of as devices_of,
    is_same_device as is_same_device,
)
from xdevice.transfers.guard import transfer_guard as transfer_guard
from xdevice.transfers.report import watch_transfers as watch_transfers
