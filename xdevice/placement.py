"""Where tensors are, and moving them.

The fast path of every question is one dictionary look-up by type and one call of the adapter.
"""

from __future__ import annotations

from xdevice.device import Device
from xdevice.errors import ArgumentError, MixedDeviceError, NotATensorError, XDeviceError
from xdevice.hardware import as_device
from xdevice.registry import ATOMS, role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, TypeVar

    from xdevice.adapters import Backend

    T = TypeVar("T")

_OPENED = frozenset({dict, list, tuple})

where_by_type: dict[type, Callable[[Any], Device]] = {}
"""The fast path: each type of tensor seen so far, with its adapter's `device_of`."""


def device_of(obj: Any) -> Device:
    """The device on which a tensor, parameter, model or tree is.

    A model is where its parameters and buffers are; a tree is where its tensors are, and its other
    leaves are passed over.

    >>> import numpy, xdevice
    >>> xdevice.device_of(numpy.ones(3))
    Device('cpu:0')

    Raises
    ------
    MixedDeviceError
        On several devices: each is named with its path.
    UnknownPlacementError
        It cannot be known: symbolic in a graph, deleted, a model not built yet.
    NotATensorError
        No tensor in it.
    """
    try:
        where = where_by_type[type(obj)]
    except KeyError:
        found = devices_of(obj)
        if len(found) > 1:
            raise _explain().mixed((("", obj),)) from None
        return next(iter(found))
    return where(obj)


def devices_of(obj: Any) -> frozenset[Device]:
    """All devices on which a tensor, parameter, model or tree is.

    >>> import numpy, xdevice
    >>> xdevice.devices_of({"x": numpy.ones(3), "label": "one"})
    frozenset({Device('cpu:0')})

    Raises
    ------
    UnknownPlacementError
        It cannot be known: symbolic in a graph, deleted, a model not built yet.
    NotATensorError
        No tensor in it.
    """
    found = places_of(obj)
    if not found:
        raise NotATensorError(f"this {type(obj).__name__} has no parameters, so it is nowhere; ask about its input")
    return frozenset(found)


def is_same_device(*objs: Any) -> bool:
    """Whether everything given is on one device; frameworks may differ, and devices may be given.

    >>> import numpy, xdevice
    >>> xdevice.is_same_device(numpy.ones(3), [numpy.zeros(2)], "cpu")
    True

    Raises
    ------
    NotATensorError
        Nothing was given, or something without a tensor.
    UnknownPlacementError
        It cannot be known: symbolic in a graph, deleted, a model not built yet.
    """
    if len(objs) == 2:  # by far the most frequent, and worth its own path
        a, b = where_by_type.get(type(objs[0])), where_by_type.get(type(objs[1]))
        if a is not None and b is not None:
            try:
                return a(objs[0]) is b(objs[1])
            except MixedDeviceError:
                return False
    return len(_union(objs)) == 1


def check_same_device(*objs: Any) -> Device:
    """The one device on which everything given is.

    >>> import numpy, xdevice
    >>> xdevice.check_same_device(numpy.ones(3), numpy.zeros(2))
    Device('cpu:0')

    Raises
    ------
    MixedDeviceError
        On several devices: each is named with its argument and path.
    NotATensorError, UnknownPlacementError
        As `is_same_device`.
    """
    found = _union(objs)
    if len(found) == 1:
        return next(iter(found))
    raise _explain().mixed(tuple((f"argument {i}", obj) for i, obj in enumerate(objs)))


def to_device(obj: T, device: Any, *, copy: bool | None = None, non_blocking: bool = False) -> T:
    """The tensor, parameter, model or tree on the device; the same object if it is there already.

    Gradients flow through a move. A tree keeps its types, a leaf that appears twice is moved once,
    and what is no tensor passes through; a tree in which nothing moves is returned itself. A model
    moves as its framework moves it, in place under most. The framework stays the same.

    Parameters
    ----------
    obj
        What to move. It is not modified, but for a model that its framework moves in place.
    device
        A `Device`, any framework's spelling, or a native device.
    copy
        ``True``: always a copy in memory of its own; ``False``: never one; ``None``: where needed.
    non_blocking
        Let a copy *to* a GPU run on while Python does; from a GPU to the host it always waits.

    >>> import numpy, xdevice
    >>> x = numpy.ones(3)
    >>> xdevice.to_device(x, "cpu") is x
    True
    >>> xdevice.to_device({"x": x}, "cpu", copy=True)["x"] is x
    False

    Raises
    ------
    DeviceNotFoundError
        The tensor's framework does not have the device. Nothing has been moved.
    CopyNeededError
        ``copy=False`` and it is elsewhere. Nothing has been moved.
    NotATensorError
        ``obj`` is itself no tensor, model or container.
    UnknownPlacementError
        Its place cannot be known: symbolic in a graph, deleted, a model not built yet.
    MisplacedError
        The framework did not put it there.
    """
    target = device if type(device) is Device else as_device(device)
    where = where_by_type.get(type(obj))
    if copy is None:
        try:
            if where(obj) is target if where is not None else _tree_is_on(obj, target):
                return obj
        except XDeviceError:
            pass  # spread over several devices, or unknowable: `Move` brings it together, or says what is wrong where
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={copy!r} is none of True, False and None")
    from xdevice.moving import Move  # most calls have nothing to move

    moved: T = Move(target, copy, non_blocking)(obj)
    return moved


def owner_of(obj: Any) -> Backend:
    """The framework that owns this tensor; `NotATensorError` if none does."""
    owned = role_of(type(obj))
    if owned is None or owned[1] != "tensor":
        raise _explain().not_a_tensor(obj)
    return owned[0]


def owned_by(obj: Any) -> tuple[Backend, str] | None:
    """The owner and role of a tensor or model, and the fast path prepared for its like."""
    owned = role_of(type(obj))
    if owned is None or owned[1] == "device":
        return None
    if owned[1] == "tensor":
        where_by_type[type(obj)] = owned[0].placement.device_of
    return owned


def places_of(obj: Any) -> set[Device]:
    """Where all of it is; empty for a model without parameters."""
    owned = owned_by(obj)
    if owned is None:
        return _devices_of_tree(obj)
    owner, role = owned
    if role == "tensor":
        return _devices_of_tensor(obj)
    return set().union(*(places_of(tensor) for _, tensor in owner.models.tensors_of(obj)))


def _tree_is_on(tree: Any, target: Device) -> bool:
    """Whether plain containers hold only tensors that are there; ``False`` also where it takes a closer look."""
    if type(tree) not in _OPENED:
        return False
    nodes: list[Any] = [tree]
    seen: set[int] = set()
    for node in nodes:  # grows while it is walked
        where = where_by_type.get(type(node))
        if where is not None:
            if where(node) is not target:
                return False
        elif type(node) in _OPENED and id(node) not in seen:  # else shared, or it contains itself
            seen.add(id(node))
            nodes += node.values() if type(node) is dict else node
        elif type(node) not in ATOMS:
            return False
    return True


def _devices_of_tensor(tensor: Any) -> set[Device]:
    try:
        return {where_by_type[type(tensor)](tensor)}
    except MixedDeviceError as error:
        return set(error.devices)


def _devices_of_tree(tree: Any) -> set[Device]:
    from xdevice.tree import leaves  # a program may never ask about one

    found: set[Device] = set()
    for leaf in leaves(tree) or ():
        where = where_by_type.get(type(leaf))
        if where is not None:
            found |= _devices_of_tensor(leaf)
        elif owned_by(leaf) is not None:
            found |= places_of(leaf)
    if not found:
        raise _explain().not_a_tensor(tree)
    return found


def _union(objs: tuple[Any, ...]) -> set[Device]:
    if not objs:
        raise NotATensorError("nothing was given; pass the tensors, models or trees to compare")
    found: set[Device] = set()
    for obj in objs:
        found |= {as_device(obj)} if is_device(obj) else devices_of(obj)
    return found


def is_device(obj: Any) -> bool:
    """Whether the object names a device, rather than being on one."""
    if isinstance(obj, (Device, str)):
        return True
    owned = role_of(type(obj))
    return owned is not None and owned[1] == "device"


def _explain() -> ModuleType:
    from xdevice import explain  # long messages: only when something is wrong

    return explain
