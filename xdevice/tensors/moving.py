"""`to_device`: check every leaf, move, and rebuild the tree.

The devices and the permission to copy are checked before the first move. If a
framework fails in the middle, or the tree cannot be rebuilt, what was moved in
place is moved back, except an object with its own method ``to``, or a tensor, that was on
several devices.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from xdevice.contract import Model, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    CopyNeededError,
    DeviceNotFoundError,
    MixedDeviceError,
    NotSupportedError,
    XDeviceError,
    listed,
    misplaced,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Known, check_arrival, devices_of_tensors, known_of
from xdevice.hardware.devices import as_device, native_of
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.arguments import check_dtypes_exist
from xdevice.tensors.trees.leaves import (
    Leaf,
    check_nothing_inside,
    devices_of_leaf,
    framework_of,
    known_leaf,
    move_with_own_method,
)
from xdevice.tensors.trees.questions import not_a_tensor
from xdevice.tensors.trees.tree import FlatTree, Tree, at_path
from xdevice.typing import DeviceLike

__all__ = ["to_device"]

T = TypeVar("T")

Leaves: TypeAlias = dict[int, tuple[Leaf, Device | None]]
"""Leaves by id, each with the device that it is on; ``None`` for one that is on several."""

Groups: TypeAlias = dict[tuple[str | None, Backend], Leaves]
"""The leaves of each category (``tensor``, ``model``, ``movable``) and framework."""


def to_device(
    obj: T,
    device: DeviceLike,
    *,
    copy: bool | None = None,
    non_blocking: bool = False,
    skip: Collection[str | int] = (),
) -> T:
    """The tensor, parameter, model or tree on the device; the same object if it is there already.

    Gradients flow through a move. A tree keeps its types, a leaf that appears twice is moved once,
    and plain data passes through. An object with a method ``to`` is moved by that method. A model
    is moved as its framework moves it, in place under most. The framework stays the same.

    Parameters
    ----------
    obj
        What to move. It is not modified, except for what moves in place: a model, if its framework
        does so, and an object, if its own method ``to`` does.
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
        target = as_device(device)
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


def move_tensor(tensor: Tensor, owner: Backend, target: Device, non_blocking: bool) -> Tensor:
    """The tensor on a device that its framework has; the result's device is checked."""
    try:
        new_tensor = owner.placement.move(tensor, target, non_blocking)
    except Exception as error:
        check_dtypes_exist([tensor], target, owner, error)
        raise
    return check_arrival(new_tensor, owner, target)


def move_tensors(
    tensors: list[Tensor], owner: Backend, target: Device, non_blocking: bool
) -> list[Tensor]:
    """The same for tensors of one framework, together if it can move them so."""
    if len(tensors) < 2 or not owner.has("placement", "move_many"):
        return [move_tensor(tensor, owner, target, non_blocking) for tensor in tensors]
    try:
        new_tensors = owner.placement.move_many(tensors, target, non_blocking)
    except Exception as error:
        check_dtypes_exist(tensors, target, owner, error)
        raise
    device_of = owner.placement.device_of
    for tensor in new_tensors:
        if device_of(tensor) is not target:
            raise misplaced(owner, target, {device_of(tensor)})
    return new_tensors


def move_tree(
    tree: Tree, target: Device, copy: bool | None, non_blocking: bool, skip: Collection[str | int]
) -> Tree:
    """The tree, or a single leaf of any kind, on the target."""
    flat = FlatTree(tree, skip)
    groups = _leaves_to_move(flat, target, copy)
    return _Move(groups, target, copy, non_blocking).run(flat) if groups else tree


def _leaves_to_move(flat: FlatTree, target: Device, copy: bool | None) -> Groups:
    """The leaves that are elsewhere, or are to be copied; an error if one of them may not move."""
    groups: Groups = {}
    for leaf in flat.leaves:
        known = known_of(type(leaf))
        locate = known.device_of
        device: Device | None = None
        try:
            if locate is None:
                if known_leaf(leaf) is None:
                    if leaf is flat.tree:
                        raise not_a_tensor(leaf)
                    continue
                devices = devices_of_leaf(leaf, known)
                if not _has_to_move(devices, known, target, copy):
                    continue
                device = next(iter(devices)) if len(devices) == 1 else None
            elif known.is_data is not None and leaf is not flat.tree and known.is_data(leaf):
                check_nothing_inside(leaf)
                continue
            else:
                try:
                    device = locate(leaf)
                except MixedDeviceError:
                    pass  # it is on several devices, and is moved to one
                if device is target and not copy:
                    continue
            if copy is False:
                raise _copy_needed(leaf, known, target)
            owner = known.backend or framework_of(leaf, known)
            leaves = groups.setdefault((known.category, owner), {})
            if locate is None or not leaves:  # one tensor of a framework is enough
                _check_device(owner, target, flat)
        except XDeviceError as error:
            raise at_path(error, flat.path_to(leaf)) from error.__cause__
        leaves[id(leaf)] = leaf, device
    return groups


def _has_to_move(devices: set[Device], known: Known, target: Device, copy: bool | None) -> bool:
    """Whether a model or an object is elsewhere, or is to be copied."""
    if not devices:  # a model without parameters may have something else to move
        return known.category == "model" and copy is not False
    return bool(copy) or devices != {target}


def _copy_needed(leaf: Leaf, known: Known, target: Device) -> CopyNeededError:
    category = "object" if known.category == "movable" else known.category
    return CopyNeededError(
        f"copy=False, but the {category} is on {listed(devices_of_leaf(leaf, known))}, and "
        f"its data would be copied to {target}; leave copy out"
    )


def _check_device(owner: Backend, target: Device, flat: FlatTree) -> None:
    """Raise an error if a leaf's framework does not have the device."""
    try:
        native_of(owner, target)
    except DeviceNotFoundError as error:
        if len(flat.leaves) > 1 and owner.hardware.kinds() == ("cpu",):
            raise DeviceNotFoundError(f"{error}, or name it in skip=") from None
        raise


@dataclass
class _Move:
    """A move of leaves that were checked. If it fails, what was moved in place is moved back."""

    groups: Groups
    target: Device
    copy: bool | None
    non_blocking: bool
    new_leaves: dict[int, Leaf] = field(default_factory=dict)  # by the ids of the old ones
    undo: list[Callable[[], object]] = field(default_factory=list)

    def run(self, flat: FlatTree) -> Tree:
        try:
            for owner, leaves in self._of("model"):
                self._move_models(owner, leaves)
            for owner, leaves in self._of("movable"):
                for leaf, device in leaves.values():
                    try:
                        self._move_object(leaf, owner, device)
                    except XDeviceError as error:
                        raise at_path(error, flat.path_to(leaf)) from error.__cause__
            for owner, leaves in self._of("tensor"):
                self._move_tensors(owner, leaves)
            return flat.replace(self.new_leaves)
        except BaseException:
            for undo in reversed(self.undo):
                with suppress(Exception):  # the error that stopped the move says more
                    undo()
            raise

    def _of(self, category: str) -> list[tuple[Backend, Leaves]]:
        groups = self.groups.items()
        return [(owner, leaves) for (kind, owner), leaves in groups if kind == category]

    def _move_models(self, owner: Backend, leaves: Leaves) -> None:
        """Move all models of one framework together, so that copies share what the originals share.

        A tensor beside them in the tree may be a parameter, as in ``[net, net.weight]``: that
        place gets the weight of the moved model.
        """
        models = [model for model, _ in leaves.values()]
        beside = [tensor for tensor, _ in self.groups.get(("tensor", owner), {}).values()]
        sources = owner.models.copy_models(models) if self.copy else models
        for model, source in zip(models, sources, strict=True):
            old_tensors = _tensors_of(model, owner)
            if not self.copy:  # a copy is dropped
                self.undo.append(owner.models.keep(source))
            new_model = owner.models.move_model(source, self.target)
            new_tensors = _tensors_of(new_model, owner)
            devices = devices_of_tensors(new_tensors)
            if devices - {self.target}:
                raise misplaced(owner, self.target, devices)
            self.new_leaves[id(model)] = new_model
            self.new_leaves.update(_replaced(old_tensors, new_tensors, beside))
        if not self.copy:  # a model may move further tensors in place, such as its optimizer's
            for tensor in beside:
                if devices_of_tensors([tensor]) == {self.target}:
                    self.new_leaves.setdefault(id(tensor), tensor)

    def _move_object(self, leaf: Leaf, owner: Backend, device: Device | None) -> None:
        """Move an object with its own method ``to``; some libraries move it in place."""

        def move_back() -> None:
            if device is not None:
                move_with_own_method(leaf, owner, device, copy=False)

        if not self.copy:  # a copy is dropped
            self.undo.append(move_back)  # before the move, which may fail halfway
        new_leaf = move_with_own_method(leaf, owner, self.target, bool(self.copy))
        new_known = known_leaf(new_leaf)
        devices = set() if new_known is None else devices_of_leaf(new_leaf, new_known)
        if devices - {self.target}:
            raise misplaced(owner, self.target, devices)
        self.new_leaves[id(leaf)] = new_leaf

    def _move_tensors(self, owner: Backend, tensors: Leaves) -> None:
        """Move the tensors of one framework that are not a moved model's."""
        placement = owner.placement
        elsewhere: dict[int, Tensor] = {}
        for key, (tensor, device) in tensors.items():
            if key in self.new_leaves:
                continue
            source = placement.copy(tensor) if self.copy else tensor
            if device is self.target:
                self.new_leaves[key] = source
            else:
                elsewhere[key] = source

        def move_back() -> None:  # those that the framework has moved in place
            for key, source in elsewhere.items():
                device = tensors[key][1]
                if device is not None and placement.device_of(source) is not device:
                    placement.move(source, device, False)

        self.undo.append(move_back)
        moved = move_tensors(list(elsewhere.values()), owner, self.target, self.non_blocking)
        self.new_leaves.update(zip(elsewhere, moved, strict=True))


def _tensors_of(model: Model, owner: Backend) -> list[Tensor]:
    return [tensor for _, tensor in owner.models.tensors_of(model)]


def _replaced(
    old_tensors: list[Tensor], new_tensors: list[Tensor], beside: list[Tensor]
) -> dict[int, Tensor]:
    """A moved model's tensors, by the ids of the old ones. Their order is the same, not their names."""
    old_ids = list(map(id, old_tensors))
    if len(new_tensors) == len(old_ids):
        return dict(zip(old_ids, new_tensors, strict=True))
    if set(old_ids).isdisjoint(map(id, beside)):
        return {}
    raise NotSupportedError(
        "a model has other tensors after its move than before, so it cannot be told "
        "which of them the tree shares with it; move the model alone"
    )
