"""The exceptions, and the phrases that their messages share.

Every exception is an `XDeviceError` and also the builtin that a caller
expects. Each message is one line: what was asked, what exists, what to type
next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_LONGEST = 80  # characters of an object in a message


class XDeviceError(Exception):
    """The base class of every exception that xdevice itself raises."""

    def _render_traceback_(self) -> list[str]:  # IPython calls it; nothing else does
        from xdevice.tracebacks import rendered

        return rendered(self)


class DeviceSpellingError(XDeviceError, ValueError):
    """The value does not spell a device: malformed, negative or too large."""


class DeviceTypeError(DeviceSpellingError, TypeError):
    """The value cannot be a device or an index.

    For example a float, a bool, an arbitrary object.
    """


class DeviceNotFoundError(XDeviceError, LookupError):
    """The spelling is valid, but the framework does not have the device."""


class MixedDeviceError(XDeviceError, RuntimeError):
    """Tensors are on several devices where one was needed.

    ``devices`` is the set of them.
    """

    def __init__(self, message: str, devices: Iterable[Device] = ()) -> None:
        super().__init__(message)
        self.devices = frozenset(devices)

    def __reduce__(self) -> tuple[type[MixedDeviceError], tuple[str, frozenset[Device]]]:
        return type(self), (str(self), self.devices)


class UnknownPlacementError(XDeviceError, RuntimeError):
    """The placement cannot be known.

    For example of a symbolic tensor, a deleted buffer, an unbuilt model.
    """


class TracedTensorError(UnknownPlacementError):
    """A compiler traces the tensor.

    Its placement is known when the compiled function runs.
    """


class MisplacedError(XDeviceError, RuntimeError):
    """The framework placed a tensor on another device than the requested one.

    It did so without an error.
    """


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
    """The framework is installed but fails to import.

    ``__cause__`` is its error.
    """


class NotSupportedError(XDeviceError, NotImplementedError):
    """The framework cannot do this; the message gives the reason."""


class MissingNameError(NotSupportedError, AttributeError):
    """The framework lacks a function or dtype that others have.

    The message gives the reason.
    """


class OutOfMemoryError(XDeviceError, MemoryError):
    """A file or the smallest batch does not fit in memory.

    Its cause is the framework's error.
    """


class VirtualDeviceError(XDeviceError, RuntimeError):
    """There are no virtual GPUs.

    It is too late, real GPUs exist, or the number is already fixed.
    """


class TooLateError(XDeviceError, RuntimeError):
    """The setting must be made before the framework is used.

    The message names the framework.
    """


class DistributedError(XDeviceError, RuntimeError):
    """Another process failed, ended, or made a different call.

    The message names its rank.
    """

    rank: int | None = None  # of that process


class DistributedTimeoutError(DistributedError, TimeoutError):
    """Another process of the job did not arrive in time.

    The message names its rank.
    """


class FileFormatError(XDeviceError, ValueError):
    """The file is not a complete safetensors file, or cannot be loaded."""


class DeviceFallbackWarning(UserWarning):
    """`try_gpu` or `try_all_gpus` returned the CPU, but there is a GPU."""


class NotPortableWarning(UserWarning):
    """A name of a `namespace` is the framework's own.

    Other frameworks may not have it.
    """


def shortened(obj: object) -> str:
    """The object as text for a message.

    A short repr, the beginning of a string, or the type's name.
    """
    if isinstance(obj, str):
        return repr(obj) if len(obj) <= _LONGEST else f"{obj[:_LONGEST]!r}…"
    # Python does not print an int of over 4300 digits
    if isinstance(obj, int) and obj.bit_length() > 1000:
        return f"<integer of {obj.bit_length()} bits>"
    type_name = f"an object of type {type(obj).__name__}"
    try:
        if _has_many_parts(obj):
            return type_name
        text = in_one_line(repr(obj))
    except Exception:  # the object may contain such an int, or its repr fails
        return type_name
    return text if len(text) <= _LONGEST else type_name


def _has_many_parts(obj: object) -> bool:
    """Whether the object is nested containers whose repr is longer than `_LONGEST`.

    The repr of containers that share others may be too long to be written at all.
    """
    parts = [obj]
    for part in parts:  # containers in it are added to its end
        if isinstance(part, dict):
            parts += islice(part.values(), _LONGEST)
        elif isinstance(part, (list, tuple, set, frozenset)):
            parts += islice(part, _LONGEST)
        if len(parts) > _LONGEST:
            return True
    return False


def in_one_line(text: str) -> str:
    """The text of a repr without line breaks.

    A message has one line, and a tensor's repr has several.
    """
    return " ".join(line.strip() for line in text.splitlines()) if "\n" in text else text


def listed(devices: Iterable[Device]) -> str:
    """The devices in order: ``cpu:0 and gpu:1``."""
    return " and ".join(map(str, sorted(set(devices))))


def did_you_mean(word: object, options: Iterable[str], otherwise: str, least: float = 0.5) -> str:
    """The end of a message: the option most like the word, or ``otherwise``."""
    matches = get_close_matches(str(word).lower(), list(options), 1, least)
    return f"did you mean {matches[0]!r}?" if matches else otherwise


def misplaced(owner: str, requested: Device, actual: Iterable[Device]) -> MisplacedError:
    """The error for a tensor on another device than the requested one."""
    return MisplacedError(
        f"asked for {requested}, but {owner} chose {listed(actual)}; "
        f"it cannot hold this on {requested}"
    )


def mixed(operation: str, devices: Iterable[Device]) -> MixedDeviceError:
    """The error for an operation on tensors of several devices.

    The operation has its framework's name.
    """
    places = set(devices)
    return several_devices(f"{operation} was given tensors on {listed(places)}", places)


def several_devices(problem: str, devices: Iterable[Device]) -> MixedDeviceError:
    """The error for tensors on several devices, with the remedy."""
    places = sorted(set(devices))
    target = next((device for device in places if device.kind == "gpu"), places[0])
    return MixedDeviceError(
        f"{problem}; bring them together first, with to_device(x, '{target}')", places
    )
