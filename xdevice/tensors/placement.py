"""The device and the framework of tensors, models and trees.

The device of a tensor takes one dictionary look-up by type and one call of the adapter.
"""

from collections.abc import Collection
from typing import Any, TypeAlias

from xdevice.device import Device
from xdevice.errors import (
    ArgumentTypeError,
    MixedDeviceError,
    NotATensorError,
    TracedTensorError,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import devices_of_owned, known_of, tensor_owner
from xdevice.hardware.devices import as_device, is_device
from xdevice.hardware.traced import TRACED
from xdevice.tensors.trees.questions import (
    devices_in,
    frameworks_in,
    not_a_tensor,
    not_on_one_device,
)
from xdevice.typing import DeviceLike

__all__ = [
    "backend_of",
    "check_same_device",
    "device_of",
    "devices_of",
    "is_same_device",
]

TensorOrTree: TypeAlias = Any
"""A tensor, parameter or model of any framework, or nested containers of these."""


def device_of(obj: TensorOrTree, *, skip: Collection[str | int] = ()) -> Device:
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


def devices_of(obj: TensorOrTree, *, skip: Collection[str | int] = ()) -> frozenset[Device]:
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
