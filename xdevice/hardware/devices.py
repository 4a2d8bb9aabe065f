"""From what names a device to the `Device`, and from it to the framework's own object."""

from typing import Any

from xdevice.contract import NativeDevice
from xdevice.device import Device, check_index, is_common, parse
from xdevice.errors import DeviceTypeError, shortened
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import decided
from xdevice.framework.ownership import known_of, tensor_owner
from xdevice.hardware.traced import TracedDevice
from xdevice.typing import DeviceLike

__all__ = ["as_device", "cpu", "gpu"]

_CPU = Device("cpu", 0)


def cpu() -> Device:
    """The CPU: all cores, all memory of the host.

    Examples
    --------
    >>> from xdevice import cpu
    >>> cpu()
    Device('cpu:0')
    """
    return _CPU


def gpu(i: int = 0) -> Device:
    """GPU number ``i``, whether or not it exists; `try_gpu` checks.

    Raises
    ------
    DeviceTypeError
        ``i`` is not an integer.
    DeviceSpellingError
        ``i`` is negative or over ``2**31 - 1``.

    Examples
    --------
    >>> from xdevice import gpu
    >>> gpu(1)
    Device('gpu:1')
    """
    return Device("gpu", check_index(i))  # checked here, since Device takes None for no index


def as_device(obj: DeviceLike) -> Device:
    """The device that ``obj`` names: a `Device`, any framework's spelling, or a native device.

    A native device without an index means what its framework means by it: its
    current device.

    Raises
    ------
    DeviceSpellingError
        A malformed string.
    DeviceTypeError
        Anything else that is not a device.

    Examples
    --------
    >>> from xdevice import as_device
    >>> as_device("/device:GPU:2")
    Device('gpu:2')
    """
    if type(obj) is Device:
        return obj
    if isinstance(obj, TracedDevice):
        obj.unknown()  # always raises an error
    device = device_named(obj)
    if device is None:
        if tensor_owner(obj) is not None:
            raise DeviceTypeError(
                "a tensor is not a device; write to_device(x, device), device_of(x), or like=x "
                "where a tensor is made"
            )
        examples = "gpu(1), 'gpu:1' or a framework's own device object"
        raise DeviceTypeError(f"{shortened(obj)} is not a device; write {examples}")
    return device


def is_device(obj: Any) -> bool:
    """Whether the object names a device, rather than being on one."""
    if isinstance(obj, (Device, str)):
        return True
    return known_of(type(obj)).category == "device"


def native_of(owner: Backend, device: Device) -> NativeDevice:
    """The native device of a framework; it is kept once it is known to exist."""
    native = owner.native_devices.get(device)
    if native is None:
        require(owner, device)
        native = owner.native_devices.setdefault(device, owner.hardware.native(device))
    return native


def require(owner: Backend, device: Device, details: str = "") -> None:
    """Raise `DeviceNotFoundError`, which lists the framework's devices, unless it has this one."""
    if device.index >= owner.hardware.count(device.kind):
        from xdevice.hardware.diagnosis import not_found  # only for an error

        raise not_found(owner, device, devices_under(owner), details)


def has_cpu(owner: Backend) -> bool:
    """Whether the framework computes on the CPU, too; some only support GPUs."""
    return "cpu" in owner.hardware.kinds()


def devices_under(owner: Backend, kind: str | None = None) -> list[Device]:
    """All devices that the framework can use now, or those of one kind."""
    kinds = owner.hardware.kinds() if kind is None else (kind,)
    devices: list[Device] = []
    for device_kind in kinds:
        number = owner.hardware.count(device_kind)
        devices += [Device(device_kind, index) for index in range(number)]
    return devices


def device_named(obj: Any) -> Device | None:
    """The device that a string or a native device names; ``None`` for any other object."""
    if isinstance(obj, str):
        device = parse(obj)
        # the framework that is used may have a word of its own, or mean a GPU by ``cpu:1``
        chosen = None if is_common(device) else decided()
        if chosen is None or chosen not in imported():
            return device
        has_names = chosen.has("hardware", "device_named")
        return chosen.hardware.device_named(obj) if has_names else device
    known = known_of(type(obj))
    if known.category != "device" or known.backend is None:
        return None
    return known.backend.hardware.as_device(obj)
