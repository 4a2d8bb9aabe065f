"""What devices there are: count them, name them, wait for them."""

from typing import Any, NoReturn, cast

from xdevice.contract import Properties
from xdevice.device import Device, as_kind, check_index, is_own_word, parse
from xdevice.errors import DeviceNotFoundError, DeviceTypeError, UnknownPlacementError, shortened
from xdevice.framework.adapters import Backend, find, imported
from xdevice.framework.choosing import backend, decided
from xdevice.framework.ownership import ownership_of
from xdevice.hardware.virtual import is_virtual, provider, why_none
from xdevice.hooks import hooks
from xdevice.machine import host_memory
from xdevice.tracing import constant
from xdevice.typing import DeviceLike

__all__ = [
    "as_device",
    "count",
    "cpu",
    "devices",
    "gpu",
    "native",
    "num_gpus",
    "properties",
    "synchronize",
]

_CPU = Device("cpu", 0)
_backend = backend  # `native` has a parameter of that name


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
    return Device("gpu", check_index(i))


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
    wanted = as_kind(kind)
    return backend().hardware.count(wanted)


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
    wanted = None if kind is None else as_kind(kind)
    return devices_of(backend(), wanted)


def as_device(obj: DeviceLike) -> Device:
    """The device that ``obj`` names: a `Device`, any framework's spelling, or a native device.

    A native device without an index means what its framework means by it: its current device.

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
        obj.unknown()
    spelled = parse(obj) if isinstance(obj, str) else None
    named = (device_named(obj) or spelled) if spelled is None or is_own_word(spelled) else spelled
    if named is None:
        known = "gpu(1), 'gpu:1' or a framework's own device object"
        raise DeviceTypeError(f"{shortened(obj)} is not a device; write {known}")
    return named


def is_device(obj: Any) -> bool:
    """Whether the object names a device, rather than being on one."""
    return isinstance(obj, (Device, str)) or (
        (owned := ownership_of(type(obj))) is not None and owned.is_device
    )


def native(device: DeviceLike, backend: str | None = None) -> Any:
    """The framework's own object for the device, which its calls accept.

    A device object, a place or a context; a string where the framework's calls take strings.

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
    """What the chosen framework knows of the device: name, memory in bytes, compute capability, UUID.

    What is not known is ``None``.

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
    chosen, where = backend(), as_device(device)
    require(chosen, where)
    return properties_of(chosen, where)


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
    chosen = backend()
    wanted = [as_device(d) for d in devices] or devices_of(chosen)
    for device in wanted:
        require(chosen, device)
    chosen.hardware.synchronize(wanted)
    for callback in hooks.after_synchronizing:
        callback(wanted)


def properties_of(owner: Backend, device: Device) -> Properties:
    """The properties of an existing device; a virtual one has the host's memory."""
    import platform  # not at import

    unknown = dict.fromkeys(("total_memory", "compute_capability", "uuid"))
    if not is_virtual(owner, device):
        found = {"name": platform.processor() or platform.machine(), **unknown, "virtual": False}
        return cast("Properties", {**found, **owner.hardware.properties(device)})
    name = provider().name_of(device)
    return cast(
        "Properties", {"name": name, **unknown, "total_memory": host_memory()[0], "virtual": True}
    )


def native_of(owner: Backend, device: Device) -> Any:
    """The native device of a framework, kept once it is known to exist."""
    try:
        return owner.native_devices[device]
    except KeyError:
        require(owner, device)
        return owner.native_devices.setdefault(device, owner.hardware.native(device))


def require(owner: Backend, device: Device, what: str = "") -> None:
    """Raise `DeviceNotFoundError`, which lists what there is, unless the framework has the device."""
    if device.index >= owner.hardware.count(device.kind):
        raise DeviceNotFoundError(_missing(str(owner), device.kind, device.index, what))


def has_cpu(owner: Backend) -> bool:
    """Whether the framework computes on the CPU too: some know GPUs alone."""
    return "cpu" in owner.hardware.kinds()


@constant
def _missing(name: str, kind: str, index: int, what: str) -> str:
    owner = find(name)
    there = ", ".join(f"virtual {d}" if is_virtual(owner, d) else f"{d}" for d in devices_of(owner))
    if not there:
        from xdevice.hardware.diagnosis import (
            diagnose,
            facts_of,
        )  # reads the machine: only for an error

        problem = diagnose(facts_of(owner))
        why = f"{problem.reason}; {problem.cure}" if problem else "xdevice doctor may know why"
        return f"{kind}:{index} does not exist under {owner}, which sees no device{what}: {why}"
    hint = "use one of these"
    if kind == "gpu" and has_cpu(owner):
        fall_back = f"use try_gpu({index}) to fall back to the CPU"
        hint = _for_another(owner) or why_none(owner) or fall_back
    return f"{kind}:{index} does not exist under {owner}, which sees {there}{what}; {hint}"


def _for_another(owner: Backend) -> str:
    """What to write of an array that is on the CPU always, where another framework is chosen."""
    chosen = decided()
    if chosen is None or chosen == owner or owner.hardware.kinds() != ("cpu",):
        return ""
    cure = f"make a tensor of it with xdevice.convert(x, {str(chosen)!r})"
    return f"what {owner} makes is on the CPU always: {cure}"


def devices_of(owner: Backend, kind: str | None = None) -> list[Device]:
    """All devices that the framework can use now, or those of one kind."""
    kinds = owner.hardware.kinds() if kind is None else (kind,)
    return [Device(k, i) for k in kinds for i in range(owner.hardware.count(k))]


def device_named(obj: Any) -> Device | None:
    """The device that a framework's own object names; ``None`` if it is not one.

    A string is one where the chosen framework's native devices are strings: then ``role(str)`` is ``device``.
    """
    if isinstance(obj, str):
        chosen = decided()
        if chosen is None or chosen not in imported() or chosen.placement.role(str) != "device":
            return None
        return chosen.hardware.as_device(obj)
    owned = ownership_of(type(obj))
    return owned.backend.hardware.as_device(obj) if owned is not None and owned.is_device else None


class TracedDevice(Device):
    """The device of a traced tensor, which is known when the compiled function runs.

    A factory takes it as ``device=`` and leaves the placement to the compiler. Whatever would need to know the
    device raises `UnknownPlacementError`: its kind, a comparison, a scope.
    """

    __slots__ = ()

    def __new__(cls) -> "TracedDevice":
        return object.__new__(cls)

    def __repr__(self) -> str:
        return "<device of a traced tensor, known when the compiled function runs>"

    def __str__(self) -> str:
        return repr(self)

    def unknown(self, *_: object, **__: object) -> NoReturn:
        cure = "pass it on as device=, or ask outside jax.jit, jax.vmap and tf.function"
        raise UnknownPlacementError(
            f"the device of a traced tensor is known when the compiled function runs; {cure}"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = unknown  # all raise
    __enter__ = __reduce__ = unknown
    kind: Any = property(unknown)
    index: Any = property(unknown)


TRACED = TracedDevice()  # one is enough: nothing is known of any of them


hooks.device_named = device_named
