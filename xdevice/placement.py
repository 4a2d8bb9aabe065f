"""Where tensors are, and moving them.

The fast path of every question is one dictionary look-up by type and one call of the adapter.
"""

from __future__ import annotations

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    CopyNeededError,
    MisplacedError,
    MixedDeviceError,
    NotATensorError,
    XDeviceError,
)
from xdevice.hardware import as_device, require
from xdevice.registry import role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from xdevice.registry import Backend

    T = TypeVar("T")

_where: dict[type, Callable[[Any], Device]] = {}  # each tensor type seen so far: its adapter's device_of


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
    where = _where.get(type(obj))
    if where is not None:
        return where(obj)
    found = devices_of(obj)
    if len(found) == 1:
        return next(iter(found))
    raise _mixed((("", obj),))


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
    found = _devices_of(obj)
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
        a, b = _where.get(type(objs[0])), _where.get(type(objs[1]))
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
    raise _mixed(tuple((f"argument {i}", obj) for i, obj in enumerate(objs)))


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
    where = _where.get(type(obj))
    if where is not None and copy is None and where(obj) is target:
        return obj
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={copy!r} is none of True, False and None")
    moved: T = _Move(target, copy, non_blocking)(obj)
    return moved


class _Move:
    """One call of `to_device`: everything is checked before anything is moved."""

    def __init__(self, target: Device, copy: bool | None, non_blocking: bool) -> None:
        self.target, self.copy, self.non_blocking = target, copy, non_blocking
        self.moved: dict[int, Any] = {}  # id of a leaf: what has become of it
        self.undo: list[Callable[[], object]] = []

    def __call__(self, obj: Any) -> Any:
        owned = _owned(obj)
        if owned is not None:
            self._check(obj, *owned)
            return self._move_all([(obj, *owned)])[id(obj)]
        from xdevice.tree import is_container, leaves, map_leaves

        if not is_container(obj):
            raise _not_a_tensor(obj)
        todo = self._what_to_do(leaves(obj), obj)
        if not todo:
            return obj
        moved = self._move_all(todo)
        return map_leaves(lambda leaf: moved.get(id(leaf), leaf), obj)

    def _what_to_do(self, leaves: list[Any], tree: Any) -> list[tuple[Any, Backend, str]]:
        todo: dict[int, tuple[Any, Backend, str]] = {}
        for leaf in leaves:
            try:
                where = _where.get(type(leaf))
                if where is not None and self.copy is not True and where(leaf) is self.target:
                    continue
                owned = _owned(leaf)
                if owned is not None and id(leaf) not in todo:
                    self._check(leaf, *owned)
                    todo[id(leaf)] = (leaf, *owned)
            except MixedDeviceError:
                raise
            except XDeviceError as error:
                raise type(error)(f"{error} (at {_path_of(leaf, tree)})") from error
        return list(todo.values())

    def _check(self, obj: Any, owner: Backend, role: str) -> None:
        here = _devices_of(obj)
        if here and here != {self.target}:
            if self.copy is False:
                raise CopyNeededError(
                    f"copy=False, but the {role} is on {_listed(here)} and only a copy gets it to "
                    f"{self.target}; leave copy out"
                )
            require(owner, self.target)

    def _move_all(self, todo: list[tuple[Any, Backend, str]]) -> dict[int, Any]:
        """Move loose tensors, then models, then tensors of those models, which have then arrived."""
        models = [item for item in todo if item[2] == "model"]
        inside = {id(t) for model, owner, _ in models for _, t in owner.placement.tensors_of(model)}
        tensors = [item for item in todo if item[2] != "model"]
        try:
            for obj, owner, _ in tensors:
                if id(obj) not in inside:
                    self.moved[id(obj)] = self._move_tensor(obj, owner)
            for obj, owner, _ in models:
                self.moved[id(obj)] = self._move_model(obj, owner)
            for obj, owner, _ in tensors:
                if id(obj) in inside:
                    self.moved[id(obj)] = self._move_tensor(obj, owner)
        except BaseException:
            for undo in reversed(self.undo):
                undo()
            raise
        return self.moved

    def _move_tensor(self, tensor: Any, owner: Backend) -> Any:
        if _devices_of(tensor) != {self.target}:
            moved = owner.placement.move(tensor, self.target, self.non_blocking)
        elif self.copy:
            moved = owner.placement.copy(tensor)
        else:
            return tensor
        return self._verified(moved, owner)

    def _move_model(self, model: Any, owner: Backend) -> Any:
        here = _devices_of(model)
        if self.copy:
            model = owner.placement.copy_model(model)
        if not here or here == {self.target}:
            return model
        if not self.copy and len(here) == 1:
            self.undo.append(lambda: owner.placement.move_model(model, *here))
        return self._verified(owner.placement.move_model(model, self.target), owner)

    def _verified(self, moved: Any, owner: Backend) -> Any:
        there = _devices_of(moved)
        if there != {self.target}:
            raise misplaced(owner, self.target, there)
        return moved


def misplaced(owner: Backend, asked: Device, found: set[Device]) -> MisplacedError:
    """The error for a framework that has put a tensor elsewhere in silence."""
    return MisplacedError(
        f"asked for {asked}, but {owner} silently chose {_listed(found)}; it cannot hold this on {asked}"
    )


def owner_of(obj: Any) -> Backend:
    """The framework that owns this tensor; `NotATensorError` if none does."""
    owned = role_of(type(obj))
    if owned is None or owned[1] != "tensor":
        raise _not_a_tensor(obj)
    return owned[0]


def _owned(obj: Any) -> tuple[Backend, str] | None:
    """The owner and role of a tensor or model, and the fast path prepared for its like."""
    owned = role_of(type(obj))
    if owned is None or owned[1] == "device":
        return None
    if owned[1] == "tensor":
        _where[type(obj)] = owned[0].placement.device_of
    return owned


def _devices_of(obj: Any) -> set[Device]:
    """Where all of it is; empty for a model without parameters."""
    owned = _owned(obj)
    if owned is None:
        return _devices_of_tree(obj)
    owner, role = owned
    if role == "tensor":
        return _devices_of_tensor(obj)
    return set().union(*(_devices_of(tensor) for _, tensor in owner.placement.tensors_of(obj)))


def _devices_of_tensor(tensor: Any) -> set[Device]:
    try:
        return {_where[type(tensor)](tensor)}
    except MixedDeviceError as error:
        return set(error.devices)


def _devices_of_tree(tree: Any) -> set[Device]:
    from xdevice.tree import is_container, leaves

    found: set[Device] = set()
    if not is_container(tree):
        raise _not_a_tensor(tree)
    for leaf in leaves(tree):
        if _owned(leaf) is not None:
            found |= _devices_of(leaf)
    if not found:
        raise _not_a_tensor(tree)
    return found


def _union(objs: tuple[Any, ...]) -> set[Device]:
    if not objs:
        raise NotATensorError("nothing was given; pass the tensors, models or trees to compare")
    found: set[Device] = set()
    for obj in objs:
        found |= {as_device(obj)} if _is_device(obj) else devices_of(obj)
    return found


def _is_device(obj: Any) -> bool:
    if isinstance(obj, (Device, str)):
        return True
    owned = role_of(type(obj))
    return owned is not None and owned[1] == "device"


def _placements(path: str, obj: Any) -> Iterator[tuple[str, set[Device]]]:
    """Where each tensor in the object is, with its path: for messages, so at leisure."""
    from xdevice.tree import named_leaves

    owned = _owned(obj)
    if _is_device(obj):
        yield path, {as_device(obj)}
    elif owned is None:
        for key, leaf in named_leaves(obj):
            if _owned(leaf) is not None:
                yield from _placements(path + key, leaf)
    elif owned[1] == "tensor":
        yield path, _devices_of_tensor(obj)
    else:
        for name, tensor in owned[0].placement.tensors_of(obj):
            yield f"{path}.{name}", _devices_of(tensor)


def _mixed(objs: tuple[tuple[str, Any], ...]) -> MixedDeviceError:
    placed = [(path, found) for name, obj in objs for path, found in _placements(name, obj)]
    devices: set[Device] = set().union(*(found for _, found in placed))
    groups: dict[str, list[str]] = {}
    for path, found in placed:
        groups.setdefault(_listed(found), []).append(path.lstrip(".") or "it")
    where = "; ".join(f"on {device}: {_shortened(paths)}" for device, paths in sorted(groups.items()))
    return MixedDeviceError(
        f"one device was expected, but there are {len(devices)}: {where}; "
        f"bring them together with to_device(…, '{min(devices)}'), or ask devices_of",
        devices,
    )


def _not_a_tensor(obj: Any) -> NotATensorError:
    from xdevice.tree import is_container, named_leaves

    kind = type(obj).__name__
    if _is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    if not is_container(obj):
        return NotATensorError(
            f"no framework owns this {kind}; pass a tensor, a model, or containers of these"
        )
    inside = [f"{path} is a {type(leaf).__name__}" for path, leaf in named_leaves(obj)]
    return NotATensorError(f"no tensor in this {kind}: {_shortened(inside) if inside else 'it is empty'}")


def _path_of(leaf: Any, tree: Any) -> str:
    from xdevice.tree import named_leaves

    return next(path for path, other in named_leaves(tree) if other is leaf)


def _listed(devices: set[Device]) -> str:
    return " and ".join(map(str, sorted(devices)))


def _shortened(items: list[str], most: int = 5) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
