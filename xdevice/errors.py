"""The error tree: every error is an ``XDeviceError`` and also the builtin that a caller expects.

Each message is one line: what was asked, what exists, what to type next.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdevice.device import Device


class XDeviceError(Exception):
    """The root: ``except XDeviceError`` catches whatever xdevice itself raises."""


class DeviceSpellingError(XDeviceError, ValueError):
    """What was given does not spell a device: malformed, negative, too large."""


class DeviceTypeError(DeviceSpellingError, TypeError):
    """What was given cannot be a device or an index at all: a float, a bool, an arbitrary object."""


class DeviceNotFoundError(XDeviceError, LookupError):
    """The device is well spelled, but the framework does not have it."""


class MixedDeviceError(XDeviceError, RuntimeError):
    """One device was needed and several were found; ``devices`` is the set of them."""

    def __init__(self, message: str, devices: Iterable[Device] = ()) -> None:
        super().__init__(message)
        self.devices = frozenset(devices)

    def __reduce__(self) -> tuple[type[MixedDeviceError], tuple[str, frozenset[Device]]]:
        return type(self), (str(self), self.devices)


class UnknownPlacementError(XDeviceError, RuntimeError):
    """The place cannot be known: a symbolic tensor, a deleted buffer, a model not built yet."""


class MisplacedError(XDeviceError, RuntimeError):
    """The framework placed a tensor elsewhere than it was told, and said nothing."""


class NotATensorError(XDeviceError, TypeError):
    """The argument is no tensor, model or container that a framework owns."""


class ArgumentError(XDeviceError, ValueError):
    """A shape, seed, size or option with a value that cannot be meant."""


class ArgumentTypeError(ArgumentError, TypeError):
    """A shape, seed, size or option of a type that cannot be meant."""


class CopyNeededError(XDeviceError, ValueError):
    """``copy=False`` was asked where only a copy could do the work."""


class ScopeError(XDeviceError, RuntimeError):
    """A scope was left in another thread or task than it was entered in."""


class UnknownBackendError(XDeviceError, LookupError):
    """No adapter is registered under that name."""


class BackendNotInstalledError(XDeviceError, ImportError):
    """The adapter is there, its framework is not."""


class BrokenBackendError(XDeviceError, ImportError):
    """The framework is installed and fails to import; ``__cause__`` says how."""


class NotSupportedError(XDeviceError, NotImplementedError):
    """This framework cannot do that; the message gives the reason."""


class OutOfMemoryError(XDeviceError, MemoryError):
    """Even the smallest amount of work does not fit; ``__cause__`` is the framework's error."""


class VirtualDeviceError(XDeviceError, RuntimeError):
    """Virtual GPUs cannot be had any more: too late, real ones are there, or their number is fixed."""


class DistributedError(XDeviceError, RuntimeError):
    """Another process of the job has failed, has gone, or does something else; the message names its rank."""

    rank: int | None = None  # that process's


class DistributedTimeoutError(DistributedError, TimeoutError):
    """Another process of the job did not come in time; the message names its rank."""


class FileFormatError(XDeviceError, ValueError):
    """The file is no whole safetensors file, or holds what cannot be loaded."""


class DeviceFallbackWarning(UserWarning):
    """``try_gpu`` or ``try_all_gpus`` fell back to the CPU although the machine has a GPU."""


class NotPortableWarning(UserWarning):
    """A name of `namespace` is not in its list: it is the framework's own, and another may mean something else."""
