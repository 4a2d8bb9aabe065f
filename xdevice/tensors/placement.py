"""Where tensors are, whose they are, and moving them.

The fast path of every question is one dictionary look-up by type and one call of the adapter.
"""

from collections.abc import Collection
from types import ModuleType
from typing import Any, TypeVar

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    MixedDeviceError,
    NotATensorError,
    TracedTensorError,
    XDeviceError,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import (
    ATOMS,
    owned_by,
    ownership_of,
    places_of,
    tensor_owner,
    where_by_type,
    where_in_tree,
    where_in_trees,
)
from xdevice.hardware.devices import TRACED, TracedDevice, as_device, is_device
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

_OPENED = frozenset({dict, list, tuple})
# Bound once: Python does not speed up calls of a method of an imported name.
_where, _where_in_trees = where_by_type.get, where_in_trees.get


def device_of(obj: Any, *, skip: Collection[str] = ()) -> Device:
    """The device on which a tensor, parameter, model or tree is.

    A model is where its parameters and buffers are; a tree is where its tensors are. Plain data in it has no device.
    For a tensor that a framework's compiler or transformation traces the answer is a device that is not known yet:
    ``device=`` takes it, and every other use raises `UnknownPlacementError`.

    Parameters
    ----------
    obj
        A tensor, a model, or nested containers of these.
    skip
        Names of keys and attributes, or paths, of a tree that are to be left out.

    Raises
    ------
    MixedDeviceError
        On several devices: each is named with its path.
    UnknownPlacementError
        It cannot be known: symbolic in a graph, deleted, a model that is not built yet.
    NotATensorError
        No tensor in it, or an object that may hold one and cannot be opened.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.device_of(numpy.ones(3))
    Device('cpu:0')
    """
    try:
        try:
            where = where_by_type[type(obj)]
        except KeyError:
            if tensor_owner(obj) is None:
                found = devices_of(obj, skip=skip)
                if len(found) > 1:
                    raise _trees().mixed((("", obj),), skip) from None
                return next(iter(found))
            where = where_by_type[type(obj)]
        return where(obj)
    except TracedTensorError:
        return TRACED


def devices_of(obj: Any, *, skip: Collection[str] = ()) -> frozenset[Device]:
    """All devices on which a tensor, parameter, model or tree is; ``skip`` is that of `device_of`.

    Raises
    ------
    UnknownPlacementError
        It cannot be known, as for `device_of`.
    NotATensorError
        No tensor in it, or an object that may hold one and cannot be opened.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.devices_of({"x": numpy.ones(3), "label": "one"})
    frozenset({Device('cpu:0')})
    """
    owned = owned_by(obj)
    if owned is not None:
        found = places_of(obj, owned)
        if found:
            return frozenset(found)
        raise NotATensorError(
            f"this {type(obj).__name__} has no parameters, so it has no device; ask about its input"
        )
    try:
        plain = None if skip else _plain_places(obj)
    except XDeviceError:
        plain = None  # a tensor on several devices, or on an unknown one
    return frozenset(plain or _trees().devices_in(obj, skip))


def is_same_device(*objs: Any) -> bool:
    """Whether all arguments, of any framework, are on one device; an argument may be a device.

    Raises
    ------
    UnknownPlacementError
        It cannot be known, as for `device_of`.
    NotATensorError
        No argument, or one without a tensor.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.is_same_device(numpy.ones(3), [numpy.zeros(2)], "cpu")
    True
    """
    if len(objs) == 2:  # by far the most frequent
        a, b = _where(type(objs[0])), _where(type(objs[1]))
        if a is not None and b is not None:
            try:
                return a(objs[0]) is b(objs[1])
            except MixedDeviceError:
                return False
    return len(_union(objs)) == 1


def check_same_device(*objs: Any) -> Device:
    """The device of all arguments; an error if they are on several devices.

    Raises
    ------
    MixedDeviceError
        On several devices: each is named with its argument and path.
    UnknownPlacementError, NotATensorError
        As `device_of`; also where nothing is given.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.check_same_device(numpy.ones(3), numpy.zeros(2))
    Device('cpu:0')
    """
    found = _union(objs)
    if len(found) == 1:
        return next(iter(found))
    raise _trees().mixed(tuple((f"argument {i}", obj) for i, obj in enumerate(objs)))


def to_device(
    obj: T,
    device: DeviceLike,
    *,
    copy: bool | None = None,
    non_blocking: bool = False,
    skip: Collection[str] = (),
) -> T:
    """The tensor, parameter, model or tree on the device; the same object if it is there already.

    Gradients flow through a move. A tree keeps its types, a leaf that appears twice is moved once, and plain data
    passes through. An object with a method ``to`` of its own is moved by that, and a model as its framework moves it,
    in place under most. The framework stays the same.

    Parameters
    ----------
    obj
        What to move. It is not modified, except for a model that its framework moves in place.
    device
        A `Device`, any framework's spelling, or a native device.
    copy
        ``True``: always a copy in memory of its own; ``False``: never one; ``None``: where needed.
    non_blocking
        Let a copy *to* a GPU run on while Python does; from a GPU to the host it always waits.
    skip
        Names of keys and attributes, or paths, of a tree that stay as they are.

    Raises
    ------
    DeviceNotFoundError
        The tensor's framework does not have the device. Nothing was moved.
    CopyNeededError
        ``copy=False`` and it is elsewhere. Nothing was moved.
    NotATensorError
        ``obj`` is not a tensor, model or container, or holds an object that cannot be moved.
    UnknownPlacementError, MisplacedError
        It cannot be known where it is, as for `device_of`; the framework did not put it there.

    Examples
    --------
    >>> import numpy, xdevice
    >>> x = numpy.ones(3)
    >>> xdevice.to_device(x, "cpu") is x
    True
    >>> xdevice.to_device({"x": x}, "cpu", copy=True)["x"] is x
    False
    """
    if isinstance(device, TracedDevice) and not copy:
        return obj  # the compiler brings it to the traced tensor with which it is used
    target = device if type(device) is Device else _target(obj, device)
    where = _where(type(obj))
    if copy is None and not skip:
        try:
            if (
                where(obj) is target
                if where is not None
                else _plain_places(obj, target) is not None
            ):
                return obj
        except XDeviceError:
            pass  # on several devices, or unknown: `Move` brings it together, or raises an error with the path
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={copy!r} is not True, False or None")
    from xdevice.tensors.moving import Move  # most calls have nothing to move

    moved: T = Move(target, copy, non_blocking)(obj, skip)
    return moved


def backend_of(obj: Any) -> Backend:
    """The framework that owns a tensor, parameter or model, or the tensors of a tree.

    Beside tensors of another framework, what NumPy has that is plain data does not count.

    Raises
    ------
    NotATensorError
        No tensor in it, or an object that may hold one and cannot be opened.
    ArgumentTypeError
        Tensors of several frameworks: each is named with its path.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.backend_of(numpy.ones(3))
    'numpy'
    >>> xdevice.backend_of({"x": numpy.ones(3), "label": "one"})
    'numpy'
    """
    owned = owned_by(obj)
    if owned is not None:
        return owned.backend
    return one_of({owner: f"at {path}" for owner, path in _trees().frameworks_in(obj).items()})


def one_of(found: dict[Backend, str]) -> Backend:
    """The one framework that tensors are of; an error that says where one of each is, if they are of several."""
    if len(found) > 1:
        listed = ", ".join(f"{owner} ({where})" for owner, where in found.items())
        raise ArgumentTypeError(
            f"tensors of several frameworks: {listed}; bring them to one with convert"
        )
    return next(iter(found))


def owner_of(obj: Any) -> Backend:
    """The framework that owns this tensor; `NotATensorError` if none does."""
    owner = tensor_owner(obj)
    if owner is None:
        raise _trees().not_a_tensor(obj)
    return owner


def _target(obj: Any, device: Any) -> Device:
    try:
        return as_device(device)
    except XDeviceError:
        if is_device(obj) and (type(device) in _OPENED or ownership_of(type(device)) is not None):
            raise ArgumentTypeError(
                "to_device was given the device first; write to_device(x, device)"
            ) from None
        raise


def _plain_places(tree: Any, only: Device | None = None) -> set[Device] | None:
    """The devices of the tensors in plain containers; ``None`` where it takes a closer look, or one is elsewhere."""
    if type(tree) not in _OPENED:
        return None
    nodes: list[Any] = [tree]
    seen: set[int] = set()
    found: set[Device] = set()
    last = only
    for node in nodes:  # grows while it is walked
        cls = type(node)
        where = _where_in_trees(cls)
        if where is None and cls not in _OPENED and cls not in ATOMS:
            where = where_in_tree(cls)  # the first of its type
            if where is None:
                return None
        if where is not None:
            here = where(node)
            if here is not last:
                if only is not None:
                    return None
                found.add(here)
                last = here
        elif cls in _OPENED:
            if id(node) in seen or (cls is dict and not ATOMS.issuperset(map(type, node))):
                return None  # shared, or it contains itself; or a key may hold a tensor
            seen.add(id(node))
            nodes += node.values() if cls is dict else node
    return found


def _union(objs: tuple[Any, ...]) -> set[Device]:
    if not objs:
        raise NotATensorError("nothing was given; pass the tensors, models or trees to compare")
    return set().union(*({as_device(obj)} if is_device(obj) else devices_of(obj) for obj in objs))


def _trees() -> ModuleType:
    from xdevice.tensors.trees import tree  # many programs never need it

    return tree
