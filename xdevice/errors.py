"""The exceptions, and the phrases that their messages share.

Every exception is an `XDeviceError` and also the builtin that a caller expects. Each message is one
line: what was asked, what exists, what to type next.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdevice.device import Device

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BackendNotInstalledError",
    "BrokenBackendError",
    "CopyNeededError",
    "DeviceFallbackWarning",
    "DeviceNotFoundError",
    "DeviceSpellingError",
    "DeviceTypeError",
    "DistributedError",
    "DistributedTimeoutError",
    "FileFormatError",
    "MisplacedError",
    "MissingNameError",
    "MixedDeviceError",
    "NotATensorError",
    "NotPortableWarning",
    "NotSupportedError",
    "OutOfMemoryError",
    "ScopeError",
    "TooLateError",
    "TracedTensorError",
    "TransferError",
    "UnknownBackendError",
    "UnknownPlacementError",
    "VirtualDeviceError",
    "XDeviceError",
]


class XDeviceError(Exception):
    """The base class: ``except XDeviceError`` catches every exception that xdevice itself raises."""

    def _render_traceback_(self) -> list[str]:  # IPython calls it; nothing else does
        from xdevice.tracebacks import rendered

        return rendered(self)


class DeviceSpellingError(XDeviceError, ValueError):
    """The value does not spell a device: malformed, negative or too large."""


class DeviceTypeError(DeviceSpellingError, TypeError):
    """The value cannot be a device or an index: a float, a bool, an arbitrary object."""


class DeviceNotFoundError(XDeviceError, LookupError):
    """The spelling is valid, but the framework does not have the device."""


class MixedDeviceError(XDeviceError, RuntimeError):
    """Tensors are on several devices where one was needed; ``devices`` is the set of them."""

    def __init__(self, message: str, devices: Iterable[Device] = ()) -> None:
        super().__init__(message)
        self.devices = frozenset(devices)

    def __reduce__(self) -> tuple[type[MixedDeviceError], tuple[str, frozenset[Device]]]:
        return type(self), (str(self), self.devices)


class UnknownPlacementError(XDeviceError, RuntimeError):
    """The placement cannot be known: a symbolic tensor, a deleted buffer, a model that is not built yet."""


class TracedTensorError(UnknownPlacementError):
    """A compiler traces the tensor: its placement is known when the compiled function runs."""


class MisplacedError(XDeviceError, RuntimeError):
    """The framework placed a tensor on another device than the one requested, without an error."""


class NotATensorError(XDeviceError, TypeError):
    """The argument is not a tensor, a model, or a container of these."""


class ArgumentError(XDeviceError, ValueError):
    """A shape, seed, size or option has an invalid value."""


class AxisError(ArgumentError, IndexError):
    """A tensor does not have the axis."""


class ArgumentTypeError(ArgumentError, TypeError):
    """A shape, seed, size or option has an invalid type."""


class TransferError(XDeviceError, RuntimeError):
    """A copy between devices is forbidden here: `transfer_guard`."""


class CopyNeededError(XDeviceError, ValueError):
    """``copy=False`` was given where a copy is needed."""


class ScopeError(XDeviceError, RuntimeError):
    """A scope was exited in a thread or task that did not enter it."""


class UnknownBackendError(XDeviceError, LookupError):
    """No adapter is registered under the name."""


class BackendNotInstalledError(XDeviceError, ImportError):
    """The adapter is registered, but its framework is not installed."""


class BrokenBackendError(XDeviceError, ImportError):
    """The framework is installed but fails to import; ``__cause__`` is its error."""


class NotSupportedError(XDeviceError, NotImplementedError):
    """The framework cannot do this; the message gives the reason."""


class MissingNameError(NotSupportedError, AttributeError):
    """The framework has no function or dtype of that name, which others have; the message gives the reason."""


class OutOfMemoryError(XDeviceError, MemoryError):
    """Even the smallest batch, or a file, does not fit in memory; ``__cause__`` is the framework's error."""


class VirtualDeviceError(XDeviceError, RuntimeError):
    """Virtual GPUs are not possible: it is too late, real GPUs exist, or their number is already fixed."""


class TooLateError(XDeviceError, RuntimeError):
    """The setting must be made before the framework is used; the message names the framework."""


class DistributedError(XDeviceError, RuntimeError):
    """Another process of the job failed, ended, or made a different call; the message names its rank."""

    rank: int | None = None  # of that process


class DistributedTimeoutError(DistributedError, TimeoutError):
    """Another process of the job did not arrive in time; the message names its rank."""


class FileFormatError(XDeviceError, ValueError):
    """The file is not a complete safetensors file, or its contents cannot be loaded."""


class DeviceFallbackWarning(UserWarning):
    """``try_gpu`` or ``try_all_gpus`` fell back to the CPU although the machine has a GPU."""


class NotPortableWarning(UserWarning):
    """A name taken from a `namespace` is the framework's own: other frameworks may lack it or mean something else."""


def shortened(obj: object) -> str:
    """The object for a message: its repr if that is short, else its type; of a long string its beginning."""
    if isinstance(obj, str):
        return repr(obj) if len(obj) <= 80 else f"{obj[:80]!r}…"
    if (
        isinstance(obj, int) and obj.bit_length() > 1000
    ):  # Python does not print an int of over 4300 digits
        return f"<integer of {obj.bit_length()} bits>"
    try:
        text = repr(obj)
    except Exception:  # an object may hold such an int, or be broken
        return f"an object of type {type(obj).__name__}"
    return text if len(text) <= 80 else f"an object of type {type(obj).__name__}"


def listed(devices: Iterable[Device]) -> str:
    """The devices in order: ``cpu:0 and gpu:1``."""
    return " and ".join(map(str, sorted(set(devices))))


def did_you_mean(given: object, known: Iterable[str], otherwise: str, least: float = 0.5) -> str:
    """The last part of a message: the known word most like the one given, or ``otherwise``."""
    from difflib import get_close_matches  # 3 ms

    close = get_close_matches(str(given).lower(), list(known), 1, least)
    return f"did you mean {close[0]!r}?" if close else otherwise


def misplaced(owner: str, asked: Device, found: Iterable[Device]) -> MisplacedError:
    """The error for a framework that put a tensor on another device than the one requested."""
    return MisplacedError(
        f"asked for {asked}, but {owner} chose {listed(found)}; it cannot hold this on {asked}"
    )


def mixed(operation: str, devices: Iterable[Device]) -> MixedDeviceError:
    """The error for an operation, by its framework's name, on tensors of several devices."""
    found = set(devices)
    return mixed_devices(f"{operation} was given tensors on {listed(found)}", found)


def mixed_devices(what: str, devices: Iterable[Device]) -> MixedDeviceError:
    """The error that says ``what`` is on several devices, and how to bring it together."""
    found = sorted(set(devices))
    target = next((device for device in found if device.kind == "gpu"), found[0])
    return MixedDeviceError(
        f"{what}; bring them together first, with to_device(x, '{target}')", found
    )
