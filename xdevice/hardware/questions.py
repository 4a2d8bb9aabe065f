"""What devices there are: count them, describe them, wait for them."""

import platform
from collections.abc import Callable
from typing import Any, cast

from xdevice.contract import Properties
from xdevice.device import Device, as_kind
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, devices_under, native_of, require
from xdevice.hardware.virtual import is_virtual, provider
from xdevice.machine import host_memory
from xdevice.typing import DeviceLike

__all__ = ["count", "devices", "native", "num_gpus", "properties", "synchronize"]

after_synchronizing: list[Callable[[list[Device]], None]] = []
"""Functions of upper layers, called with the devices for which the program has waited."""

_backend = backend  # `native` has a parameter of that name


def count(kind: str = "gpu") -> int:
    """The number of devices of a kind that the chosen framework can use now: visible, logical ones.

    0 if there are none; never raises because of missing hardware or drivers.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.count("gpu"), xdevice.count("cpu")
    (0, 1)
    """
    parsed_kind = as_kind(kind)
    return backend().hardware.count(parsed_kind)


def num_gpus() -> int:
    """The number of GPUs that the chosen framework can use now: short for ``count("gpu")``.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.num_gpus()
    0
    """
    return count("gpu")


def devices(kind: str | None = None) -> list[Device]:
    """All devices that the chosen framework can use now, or those of one kind.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.devices()
    [Device('cpu:0')]
    """
    parsed_kind = None if kind is None else as_kind(kind)
    return devices_under(backend(), parsed_kind)


def native(device: DeviceLike, backend: str | None = None) -> Any:
    """The framework's own object for the device, which its calls accept.

    A device object, a place or a context; a string where the framework's calls
    take strings.

    Raises
    ------
    DeviceNotFoundError
        That framework does not have the device.
    DeviceSpellingError
        No spelling of a device.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.native("cpu:0", "numpy")
    'cpu'
    """
    return native_of(_backend(backend), as_device(device))


def properties(device: DeviceLike) -> Properties:
    """The device's name, memory in bytes, compute capability and UUID, as the framework knows them.

    Unknown ones are ``None``.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.properties("cpu")["virtual"]
    False
    """
    owner = backend()
    parsed_device = as_device(device)
    require(owner, parsed_device)
    return properties_of(owner, parsed_device)


def synchronize(*devices: DeviceLike) -> None:
    """Wait until all work queued on the devices is done; without arguments, on all devices.

    It does nothing on a CPU where the framework computes synchronously.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have a device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.synchronize()
    """
    owner = backend()
    parsed_devices = [as_device(device) for device in devices]
    if not parsed_devices:
        parsed_devices = devices_under(owner)
    for device in parsed_devices:
        require(owner, device)
    owner.hardware.synchronize(parsed_devices)
    for callback in after_synchronizing:
        callback(parsed_devices)


def properties_of(owner: Backend, device: Device) -> Properties:
    """The properties of an existing device; a virtual one has the host's memory."""
    properties: dict[str, object] = {
        "name": platform.processor() or platform.machine(),
        "total_memory": None,
        "compute_capability": None,
        "uuid": None,
        "virtual": False,
    }
    if is_virtual(owner, device):
        total_memory, _ = host_memory()
        name = provider().name_of(owner, device)
        properties.update(name=name, total_memory=total_memory, virtual=True)
    else:
        properties.update(owner.hardware.properties(device))
    return cast("Properties", properties)
