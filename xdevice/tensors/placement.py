"""The device and the framework of tensors, models and trees, and `to_device`.

The device of a tensor takes one dictionary look-up by type and one call of the adapter.
"""

from collections.abc import Collection
from typing import Any, TypeAlias, TypeVar

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    MixedDeviceError,
    NotATensorError,
    TracedTensorError,
    XDeviceError,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import devices_of_owned, known_of, tensor_owner
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.hardware.traced import TRACED, TracedDevice
from xdevice.tensors.moving import move_tensor, move_tree
from xdevice.tensors.trees.questions import (
    devices_in,
    frameworks_in,
    not_a_tensor,
    not_on_one_device,
)
from xdevice.tensors.trees.tree import is_leaf
from xdevice.typing import DeviceLike

__all__ = [
    "backend_of",
    "check_same_device",
    "device_of",
    "devices_of",
    "is_same_device",
    "to_device",
]

T = TypeVar("T")
TensorOrTree: TypeAlias = Any
"""A tensor, parameter or model of any framework, or nested containers of these."""


def device_of(obj: TensorOrTree, *, skip: Collection[str] = ()) -> Device:
    """The device on which a tensor, parameter, model or tree is.

    A model is where its parameters and buffers are; a tree is where its tensors are. Plain data
    has no device. For a tensor that a framework's compiler or transformation traces, the result is
    a device that is not known yet: ``device=`` takes it, and every other use raises
    `UnknownPlacementError`.

    Parameters
    ----------
    obj
        A tensor, a model, or nested containers of these.
    skip
        Names of keys and attributes of a tree, or paths in it, to leave out.

    Raises
    ------
    MixedDeviceError
        The tensors are on several devices; the error lists them with their paths.
    UnknownPlacementError
        The device cannot be known: a tensor is symbolic or deleted, or a model is not built yet.
    NotATensorError
        ``obj`` contains no tensor, or an object that may hold one and cannot be opened.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.device_of(numpy.ones(3))
    Device('cpu:0')
    """
    try:
        locate = known_of(type(obj)).device_of
        if locate is not None:
            return locate(obj)
        devices = devices_of(obj, skip=skip)
    except TracedTensorError:
        return TRACED
    if len(devices) > 1:
        raise not_on_one_device((("", obj),), skip)
    return next(iter(devices))


def devices_of(obj: TensorOrTree, *, skip: Collection[str] = ()) -> frozenset[Device]:
    """All devices on which a tensor, parameter, model or tree is; ``skip`` is that of `device_of`.

    Raises
    ------
    UnknownPlacementError
        The device cannot be known, as for `device_of`.
    NotATensorError
        ``obj`` contains no tensor, or an object that may hold one and cannot be opened.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.devices_of({"x": numpy.ones(3), "label": "one"})
    frozenset({Device('cpu:0')})
    """
    known = known_of(type(obj))
    is_owned = known.category in ("tensor", "model")
    devices = devices_of_owned(obj, known) if is_owned else devices_in(obj, skip)
    if not devices:
        raise NotATensorError(
            f"this {type(obj).__name__} has no parameters, so it has no device; ask about its input"
        )
    return frozenset(devices)


def is_same_device(*objs: TensorOrTree | DeviceLike) -> bool:
    """Whether all arguments, of any framework, are on one device; an argument may be a device.

    Raises
    ------
    UnknownPlacementError
        The device cannot be known, as for `device_of`.
    NotATensorError
        There is no argument, or one contains no tensor.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.is_same_device(numpy.ones(3), [numpy.zeros(2)], "cpu")
    True
    """
    if len(objs) == 2:  # by far the most frequent
        first, second = objs
        locate_first = known_of(type(first)).device_of
        locate_second = known_of(type(second)).device_of
        if locate_first is not None and locate_second is not None:
            try:
                return locate_first(first) is locate_second(second)
            except MixedDeviceError:
                return False
    return len(_devices_of_all(objs)) == 1


def check_same_device(*objs: TensorOrTree | DeviceLike) -> Device:
    """The device of all arguments; an error if they are on several devices.

    Raises
    ------
    MixedDeviceError
        They are on several devices; the error lists each argument and path.
    UnknownPlacementError, NotATensorError
        As for `device_of`; also if there is no argument.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.check_same_device(numpy.ones(3), numpy.zeros(2))
    Device('cpu:0')
    """
    devices = _devices_of_all(objs)
    if len(devices) == 1:
        return next(iter(devices))
    named = tuple((f"argument {i}", obj) for i, obj in enumerate(objs))
    raise not_on_one_device(named)


def to_device(
    obj: T,
    device: DeviceLike,
    *,
    copy: bool | None = None,
    non_blocking: bool = False,
    skip: Collection[str] = (),
) -> T:
    """The tensor, parameter, model or tree on the device; the same object if it is there already.

    Gradients flow through a move. A tree keeps its types, a leaf that appears twice is moved once,
    and plain data passes through. An object with a method ``to`` is moved by that method. A model
    is moved as its framework moves it, in place under most. The framework stays the same.

    Parameters
    ----------
    obj
        What to move. It is not modified, except for a model that its framework moves in place.
    device
        A `Device`, any framework's spelling, or a native device.
    copy
        ``True``: always a copy in memory of its own; ``False``: never one; ``None``: where needed.
    non_blocking
        Let a copy *to* a GPU run while Python continues; a copy to the host always waits. JAX's
        and MXNet's arrays are futures: their copies never wait.
    skip
        Names of keys and attributes of a tree, or paths in it, that stay as they are.

    Raises
    ------
    DeviceNotFoundError
        The tensor's framework does not have the device. Nothing was moved.
    CopyNeededError
        ``copy=False``, and a tensor is on another device. Nothing was moved.
    NotATensorError
        ``obj`` is not a tensor, model or container, or holds an object that cannot be moved.
    ArgumentError
        The device does not have the dtype of a tensor.
    UnknownPlacementError
        The device cannot be known, as for `device_of`.
    MisplacedError
        The framework put a tensor on another device.

    Examples
    --------
    >>> import numpy, xdevice
    >>> x = numpy.ones(3)
    >>> xdevice.to_device(x, "cpu") is x
    True
    >>> xdevice.to_device({"x": x}, "cpu", copy=True)["x"] is x
    False
    """
    if type(device) is Device:
        target = device
    elif isinstance(device, TracedDevice) and not copy:
        return obj  # the compiler moves it to the device of the traced tensor with which it is used
    else:
        target = _as_target(device, obj)
    known = known_of(type(obj))
    if copy is None and known.device_of is not None and known.backend is not None:
        # the common case: one tensor
        try:
            if known.device_of(obj) is target:
                return obj
        except MixedDeviceError:
            pass  # it is on several devices, and is moved to one
        else:
            native_of(known.backend, target)  # raises an error if the framework does not have it
            moved: T = move_tensor(obj, known.backend, target, non_blocking)
            return moved
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={shortened(copy)} is not True, False or None")
    moved_tree: T = move_tree(obj, target, copy, non_blocking, skip)
    return moved_tree


def backend_of(obj: TensorOrTree) -> Backend:
    """The framework that owns a tensor, parameter or model, or the tensors of a tree.

    NumPy scalars and arrays of text count only if the tree has no other tensors.

    Raises
    ------
    NotATensorError
        ``obj`` contains no tensor, or an object that may hold one and cannot be opened.
    ArgumentTypeError
        The tensors are of several frameworks; the error lists them with their paths.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.backend_of(numpy.ones(3))
    'numpy'
    >>> xdevice.backend_of({"x": numpy.ones(3), "label": "one"})
    'numpy'
    """
    known = known_of(type(obj))
    if known.backend is not None and known.category in ("tensor", "model"):
        return known.backend
    paths = frameworks_in(obj)
    return only_framework({owner: f"at {path}" for owner, path in paths.items()})


def only_framework(examples: dict[Backend, str]) -> Backend:
    """The only framework in ``examples``, which maps each framework to a place of one tensor.

    If there are several frameworks, an `ArgumentTypeError` lists them with these places.
    """
    if len(examples) > 1:
        listed = ", ".join(f"{owner} ({place})" for owner, place in examples.items())
        raise ArgumentTypeError(
            f"tensors of several frameworks: {listed}; bring them to one with convert"
        )
    return next(iter(examples))


def owner_of(obj: Any) -> Backend:
    """The framework that owns this tensor; `NotATensorError` if none does."""
    owner = tensor_owner(obj)
    if owner is None:
        raise not_a_tensor(obj)
    return owner


def _as_target(device: DeviceLike, obj: Any) -> Device:
    """The device to move ``obj`` to; the error for swapped arguments says so."""
    try:
        return as_device(device)
    except XDeviceError:
        if not is_device(obj):
            raise
        if not is_leaf(device) or known_of(type(device)).backend is not None:
            raise ArgumentTypeError(
                "to_device was given the device first; write to_device(x, device)"
            ) from None
        raise


def _devices_of_all(objs: tuple[TensorOrTree | DeviceLike, ...]) -> set[Device]:
    if not objs:
        raise NotATensorError("nothing was given; pass the tensors, models or trees to compare")
    devices: set[Device] = set()
    for obj in objs:
        if is_device(obj):
            devices.add(as_device(obj))
        else:
            devices |= devices_of(obj)
    return devices
