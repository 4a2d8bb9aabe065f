"""`to_device`: check every leaf, move, and rebuild the tree.

The devices and the permission to copy are checked before the first move. If a
framework fails in the middle, or the tree cannot be rebuilt, what was moved in
place is moved back, except an object with its own method ``to``, or a tensor, that was on
several devices.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, TypeVar

from xdevice.contract import Model, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
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
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.trees.leaves import (
    Leaf,
    devices_of_leaf,
    framework_of,
    is_data,
    known_leaf,
    move_with_own_method,
)
from xdevice.tensors.trees.questions import not_a_tensor
from xdevice.tensors.trees.tree import FlatTree, Tree, at_path, is_leaf
from xdevice.typing import DeviceLike

__all__ = ["to_device"]

T = TypeVar("T")


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


def move_tensor(tensor: Tensor, owner: Backend, target: Device, non_blocking: bool) -> Tensor:
    """The tensor on a device that its framework has; the result's device is checked."""
    placement = owner.placement
    try:
        new_tensor = placement.move(tensor, target, non_blocking)
    except Exception as error:
        _check_dtypes([tensor], target, owner, error)
        raise
    return check_arrival(new_tensor, owner, target)


def move_tensors(
    tensors: list[Tensor], owner: Backend, target: Device, non_blocking: bool
) -> list[Tensor]:
    """The same for tensors of one framework, together if it can move them so."""
    if len(tensors) < 2 or not owner.load("placement").has("move_many"):
        return [move_tensor(tensor, owner, target, non_blocking) for tensor in tensors]
    placement = owner.placement
    try:
        new_tensors = placement.move_many(tensors, target, non_blocking)
    except Exception as error:
        _check_dtypes(tensors, target, owner, error)
        raise
    device_of = placement.device_of
    for tensor in new_tensors:
        if device_of(tensor) is not target:
            raise misplaced(owner, target, {device_of(tensor)})
    return new_tensors


def move_tree(
    tree: Tree, target: Device, copy: bool | None, non_blocking: bool, skip: Collection[str | int]
) -> Tree:
    """The tree, or a single leaf of any kind, on the target."""
    flat = FlatTree(tree, skip)
    groups, origins = _leaves_to_move(flat, target, copy)
    return _Move(target, copy, non_blocking, origins)(flat, groups) if groups else tree


def _leaves_to_move(
    flat: FlatTree, target: Device, copy: bool | None
) -> tuple[dict[Known, dict[int, Leaf]], dict[int, Device]]:
    """The leaves that are elsewhere or are to be copied, by class and id; errors if one cannot move.

    And where the tensors are, by id, but for those that are on several devices.
    """
    groups: dict[Known, dict[int, Leaf]] = {}
    origins: dict[int, Device] = {}
    cls: type | None = None
    leaf = flat.tree
    try:
        for leaf in flat.leaves:
            if type(leaf) is not cls:
                cls = type(leaf)
                known = known_of(cls)
                device_of, has_data = known.device_of, known.is_data
                group = groups.get(known)
            if device_of is not None and (has_data is None or not has_data(leaf)):
                try:
                    origin = device_of(leaf)
                    if origin is target and not copy:
                        continue
                    origins[id(leaf)] = origin
                except MixedDeviceError:
                    pass  # it is on several devices, and is moved to one
            elif not _has_to_move(leaf, flat.tree, target, copy):
                continue
            if group is None or known.backend is None:
                _check_move(leaf, target, copy, has_others=len(flat.leaves) > 1)
                group = groups.setdefault(known, {})
            group[id(leaf)] = leaf
    except XDeviceError as error:
        raise at_path(error, flat.path_to(leaf)) from error.__cause__
    return groups, origins


def _has_to_move(leaf: Leaf, tree: Tree, target: Device, copy: bool | None) -> bool:
    """Whether a leaf that may be no tensor is elsewhere, or is to be copied."""
    known = known_leaf(leaf)
    if known is None:
        if leaf is tree:
            raise not_a_tensor(leaf)
        return False
    if leaf is not tree and is_data(leaf, known):
        return False
    devices = devices_of_leaf(leaf, known)
    if known.backend is None or copy is False:
        return bool(devices if copy else devices - {target})
    return bool(copy) or devices != {target}  # a model without parameters moves, too


def _check_move(leaf: Leaf, target: Device, copy: bool | None, *, has_others: bool) -> None:
    """Raise an error if a leaf may not move, or its framework does not have the device."""
    known = known_of(type(leaf))
    if copy is False:
        category = "object" if known.category == "movable" else known.category
        raise CopyNeededError(
            f"copy=False, but the {category} is on {listed(devices_of_leaf(leaf, known))}, and "
            f"its data would be copied to {target}; leave copy out"
        )
    owner = framework_of(leaf, known)
    try:
        native_of(owner, target)
    except DeviceNotFoundError as error:
        if has_others and owner.hardware.kinds() == ("cpu",):
            raise DeviceNotFoundError(f"{error}, or name it in skip=") from error
        raise


class _Move:
    """A move of leaves that were checked. If it fails, what was moved in place is moved back."""

    def __init__(
        self, target: Device, copy: bool | None, non_blocking: bool, origins: dict[int, Device]
    ) -> None:
        self.target = target
        self.copy = copy
        self.non_blocking = non_blocking
        self.origins = origins
        self._new_leaves: dict[int, Leaf] = {}  # by the ids of the old ones
        self._undo: list[Callable[[], object]] = []

    def __call__(self, flat: FlatTree, groups: dict[Known, dict[int, Leaf]]) -> Tree:
        models: dict[Backend, dict[int, Model]] = {}
        tensors: dict[Backend, dict[int, Tensor]] = {}
        objects: dict[int, Leaf] = {}
        for known, leaves in groups.items():
            if known.backend is None:
                objects.update(leaves)
            elif known.device_of is None:
                models.setdefault(known.backend, {}).update(leaves)
            else:
                tensors.setdefault(known.backend, {}).update(leaves)
        try:
            for owner, its_models in models.items():
                self._move_models(owner, list(its_models.values()), tensors.get(owner, {}))
            for obj in objects.values():
                self._move_object(obj)
            for owner, its_tensors in tensors.items():
                self._move_tensors(owner, its_tensors)
            return flat.replace(self._new_leaves)
        except BaseException:
            for undo in reversed(self._undo):
                with suppress(Exception):  # the error that stopped the move says more
                    undo()
            raise

    def _move_models(self, owner: Backend, models: list[Model], others: dict[int, Tensor]) -> None:
        """Move all models of one framework, so that copies share what the originals share.

        The others are tensors of the tree, which a model may have as well.
        """
        sources = owner.models.copy_models(models) if self.copy else models
        for old_model, source in zip(models, sources, strict=True):
            model = source
            old_tensors = _tensors_of(old_model, owner) if others or self.copy else []
            # a copy may be there already
            if not self.copy or devices_of_tensors(old_tensors) - {self.target}:
                if not self.copy:
                    self._undo.append(owner.models.keep(source))
                model = owner.models.move_model(source, self.target)
            tensors = _tensors_of(model, owner)
            devices = devices_of_tensors(tensors)
            if devices - {self.target}:
                raise misplaced(owner, self.target, devices)
            self._new_leaves[id(old_model)] = model
            # In the same order, but a copy may have other names.
            if len(tensors) == len(old_tensors):
                self._new_leaves.update(zip(map(id, old_tensors), tensors, strict=True))
            elif not others.keys().isdisjoint(map(id, old_tensors)):
                raise NotSupportedError(
                    "a model has other tensors after its move than before, so it cannot be told "
                    "which of them the tree shares with it; move the model alone"
                )

    def _move_object(self, leaf: Leaf) -> None:
        """Move an object with its own method ``to``; some libraries move it in place."""
        known = known_of(type(leaf))
        origins = devices_of_leaf(leaf, known)

        def move_back() -> None:
            if len(origins) == 1:
                move_with_own_method(leaf, next(iter(origins)), copy=False)

        self._undo.append(move_back)  # before the move, which may fail halfway
        moved = move_with_own_method(leaf, self.target, bool(self.copy))
        new_known = known_leaf(moved)
        devices = set() if new_known is None else devices_of_leaf(moved, new_known)
        if devices - {self.target}:
            raise misplaced(framework_of(leaf, known), self.target, devices)
        self._new_leaves[id(leaf)] = moved

    def _move_tensors(self, owner: Backend, tensors: dict[int, Tensor]) -> None:
        """Move all tensors of one framework that did not move with a model."""
        placement = owner.placement
        if (
            self._new_leaves
        ):  # a model may have moved others in place, too: an optimizer's variables
            tensors = {
                key: tensor
                for key, tensor in tensors.items()
                if key not in self._new_leaves
                and (self.copy or devices_of_tensors([tensor]) != {self.target})
            }
        elsewhere = tensors
        if self.copy:  # before the move, because a parameter may be moved in place
            copies = {key: placement.copy(tensor) for key, tensor in tensors.items()}
            self._new_leaves |= copies
            elsewhere = {
                key: new_tensor
                for key, new_tensor in copies.items()
                if self.origins.get(key) is not self.target
            }
        else:
            self._undo.append(lambda: self._move_back(owner, elsewhere))
        moved = move_tensors(list(elsewhere.values()), owner, self.target, self.non_blocking)
        self._new_leaves.update(zip(elsewhere, moved, strict=True))

    def _move_back(self, owner: Backend, tensors: dict[int, Tensor]) -> None:
        """Move back the tensors that their framework has moved in place."""
        for key, tensor in tensors.items():
            origin = self.origins.get(key)
            if origin is not None and owner.placement.device_of(tensor) is not origin:
                owner.placement.move(tensor, origin, False)


def _tensors_of(model: Model, owner: Backend) -> list[Tensor]:
    return [tensor for _, tensor in owner.models.tensors_of(model)]


def _check_dtypes(tensors: list[Tensor], device: Device, owner: Backend, error: Exception) -> None:
    """Raise an error if a move failed because the device lacks a dtype, as Apple's GPUs lack float64."""
    if isinstance(error, XDeviceError) or not owner.load("creation").has("ones"):
        return
    memory = owner.load("memory")
    if memory.has("is_out_of_memory") and memory.is_out_of_memory(error):
        return
    try:
        owner.creation.ones((1,), owner.creation.dtype("float32"), device)
    except Exception:  # the device itself has failed, and has no dtype at all
        return
    for tensor in tensors:
        try:
            owner.creation.ones((1,), tensor.dtype, device)
        except Exception:  # each framework raises its own
            raise ArgumentError(
                f"{device} has no {tensor.dtype} under {owner}, so a tensor of that dtype cannot "
                "be moved to it; convert it first"
            ) from error
