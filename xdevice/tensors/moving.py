"""The work behind `to_device`.

The device and the permission to copy are checked before the first move. If a framework fails in the
middle, or the tree cannot be rebuilt, what was moved in place is moved back.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from xdevice.contract import Model, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    CopyNeededError,
    DeviceNotFoundError,
    MixedDeviceError,
    NotATensorError,
    NotSupportedError,
    XDeviceError,
    listed,
    misplaced,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership, leaf_locators, places_of_tensors
from xdevice.hardware.devices import require
from xdevice.tensors.trees.leaves import (
    Leaf,
    LeafOwnership,
    SelfMoving,
    devices_of_leaf,
    framework_of,
    is_checked_data,
    leaf_ownership,
    move_with_own_method,
)
from xdevice.tensors.trees.tree import Flat, flatten, not_a_tensor


class Item(NamedTuple):
    """A leaf to move: a tensor, a model, or an object that moves itself."""

    leaf: Leaf
    owner: Backend
    role: str
    devices: set[Device]
    """Where the leaf is before the move."""
    tensors: list[Tensor]
    """The tensors of a model before the move; empty for other leaves."""


class Move:
    """One call of `to_device`.

    ``new_tensors`` are those that have moved already, by the ids of the old ones.
    """

    def __init__(
        self,
        target: Device,
        copy: bool | None,
        non_blocking: bool,
        new_tensors: dict[int, Tensor],
    ) -> None:
        self.target = target
        self.copy = copy
        self.non_blocking = non_blocking
        self._new_leaves: dict[int, Leaf] = dict(new_tensors)  # by the id of the old leaf
        self._undo: list[Callable[[], object]] = []
        self._checked_frameworks: set[Backend] = set()  # those that have the device

    def __call__(self, obj: Any, skip: Collection[str] = ()) -> Any:
        flat = flatten(obj, skip)
        if flat.is_leaf and leaf_ownership(obj) is None:
            raise not_a_tensor(obj)
        items: dict[int, Item] = {}

        def add_item(_: int, leaf: Leaf) -> None:
            if id(leaf) in items or id(leaf) in self._new_leaves:
                return
            if not self.copy and self._is_on_target(leaf):
                return
            ownership = leaf_ownership(leaf)
            if ownership is None:
                return
            item = self._item_for(leaf, ownership, flat)
            if item is not None:
                items[id(leaf)] = item

        flat.each(add_item)
        if not (items or self._new_leaves):
            return obj
        try:
            self._move_all(list(items.values()))
            return flat.rebuild(
                leaf if i in flat.skipped else self._new_leaves.get(id(leaf), leaf)
                for i, leaf in enumerate(flat.leaves)
            )
        except BaseException:
            self._move_back()
            raise

    def _is_on_target(self, leaf: Leaf) -> bool:
        locate = leaf_locators.get(type(leaf))
        try:
            return locate is not None and locate(leaf) is self.target
        except (MixedDeviceError, NotATensorError):
            return False  # one tensor on several devices, to be moved to one; or plain data

    def _item_for(self, leaf: Leaf, ownership: LeafOwnership, flat: Flat) -> Item | None:
        """The item of a leaf that has to be moved, after all checks; ``None`` for other leaves."""
        tensors: list[Tensor] = []
        if isinstance(ownership, Ownership) and ownership.is_model:
            tensors = _tensors_of_model(leaf, ownership.backend)
            devices = places_of_tensors(tensors)
        else:
            devices = devices_of_leaf(leaf, ownership)
        is_elsewhere = devices != {self.target}
        if isinstance(ownership, SelfMoving):
            stays = not devices or not (is_elsewhere or self.copy)
        else:
            stays = _is_data_among_others(leaf, ownership, flat)
        if stays:
            return None
        owner = framework_of(leaf, ownership)
        if devices and is_elsewhere and self.copy is False:
            raise CopyNeededError(
                f"copy=False, but the {ownership.role} is on {listed(devices)} and only a copy "
                f"gets it to {self.target}; leave copy out"
            )
        if is_elsewhere and owner not in self._checked_frameworks:
            self._require_target(owner, can_be_skipped=len(flat.leaves) > 1)
        return Item(leaf, owner, ownership.role, devices, tensors)

    def _require_target(self, owner: Backend, can_be_skipped: bool) -> None:
        try:
            require(owner, self.target)
        except DeviceNotFoundError as error:
            if can_be_skipped and owner.hardware.kinds() == ("cpu",):
                raise DeviceNotFoundError(f"{error}, or name it in skip=") from error
            raise
        self._checked_frameworks.add(owner)

    def _move_back(self) -> None:
        """Undo what was done in place."""
        for undo in reversed(self._undo):
            with suppress(Exception):  # the error that stopped the move says more
                undo()

    def _move_all(self, items: list[Item]) -> None:
        """Move the models with their tensors, and then the other leaves."""
        models = [item for item in items if item.role == "model"]
        tensors_of_models = {id(tensor) for item in models for tensor in item.tensors}
        for owner in dict.fromkeys(item.owner for item in models):
            self._move_models([item for item in models if item.owner is owner], owner)
        for item in items:
            if item.role == "object":
                self._new_leaves[id(item.leaf)] = self._move_object(item)
            elif id(item.leaf) in self._new_leaves:
                continue  # a tensor of a model, which moved it
            elif id(item.leaf) in tensors_of_models:
                raise NotSupportedError(
                    "a model has other tensors after its move than before, so it cannot be told "
                    "which of them the tree shares with it; move the model alone"
                )
            elif item.role == "tensor":
                devices = item.devices
                if models and self._is_on_target(item.leaf):
                    # a model moved it: the variable behind one of Keras's, or of an optimizer
                    devices = {self.target}
                new_tensor = self._move_tensor(item.leaf, item.owner, devices)
                self._new_leaves[id(item.leaf)] = new_tensor

    def _move_tensor(self, tensor: Leaf, owner: Backend, devices: set[Device]) -> Leaf:
        source = tensor
        if self.copy:  # before the move, because a parameter may be moved in place
            source = owner.placement.copy(tensor)
        if devices == {self.target}:
            return self._checked_arrival(source, owner)
        try:
            moved = owner.placement.move(source, self.target, self.non_blocking)
        except XDeviceError:
            raise
        except Exception as error:
            if _lacks_dtype_of(tensor, self.target, owner, error):
                raise ArgumentError(
                    f"{self.target} has no {tensor.dtype} under {owner}, so a tensor of that dtype "
                    "cannot be moved to it; convert it first"
                ) from error
            raise
        if moved is tensor and len(devices) == 1:
            (origin,) = devices
            self._undo.append(lambda: owner.placement.move(tensor, origin, False))
        return self._checked_arrival(moved, owner)

    def _move_object(self, item: Item) -> Leaf:
        """Move an object with its own method ``to``; some libraries move it in place."""
        moved = move_with_own_method(item.leaf, self.target, bool(self.copy))
        if moved is item.leaf and len(item.devices) == 1:
            (origin,) = item.devices
            self._undo.append(lambda: move_with_own_method(item.leaf, origin, False))
        devices = _devices_after_move(moved)
        if devices - {self.target}:
            raise misplaced(item.owner, self.target, devices)
        return moved

    def _move_models(self, items: list[Item], owner: Backend) -> None:
        """Move all models of one framework, so that copies share what the originals share."""
        models = [item.leaf for item in items]
        if self.copy:
            models = owner.models.copy_models(models)
        for item, model in zip(items, models, strict=True):
            moved = model
            if item.devices and item.devices != {self.target}:
                if not self.copy:
                    self._undo.append(owner.models.keep(model))
                moved = owner.models.move_model(model, self.target)
            new_tensors = _tensors_of_model(moved, owner)
            devices = places_of_tensors(new_tensors)
            if devices - {self.target}:
                raise misplaced(owner, self.target, devices)
            self._new_leaves[id(item.leaf)] = moved
            # in the same order, but a copy may have other names; a tensor that the tree shares with
            # a model is an error if their numbers differ
            if len(new_tensors) == len(item.tensors):
                self._new_leaves.update(zip(map(id, item.tensors), new_tensors, strict=True))

    def _checked_arrival(self, moved: Leaf, owner: Backend) -> Leaf:
        """The leaf, if it is on the target; else `MisplacedError`."""
        if not self._is_on_target(moved):
            devices = _devices_after_move(moved)
            if devices != {self.target}:
                raise misplaced(owner, self.target, devices)
        return moved


def _is_data_among_others(leaf: Leaf, ownership: Ownership, flat: Flat) -> bool:
    """Whether it is plain data beside other leaves; alone, an array of objects is a tensor."""
    if flat.is_leaf:
        return False
    return is_checked_data(leaf, ownership) and len(flat.leaves) > 1


def _tensors_of_model(model: Model, owner: Backend) -> list[Tensor]:
    return [tensor for _, tensor in owner.models.tensors_of(model)]


def _lacks_dtype_of(tensor: Leaf, device: Device, owner: Backend, error: Exception) -> bool:
    """Whether a move failed because the device does not have the tensor's dtype.

    Apple's GPUs have no float64, for example.
    """
    memory = owner.load("memory")
    if memory.has("is_out_of_memory") and memory.is_out_of_memory(error):
        return False
    if not owner.load("creation").has("ones"):
        return False
    try:
        owner.creation.ones((1,), tensor.dtype, device)
    except Exception:  # each framework raises its own
        return True
    return False


def _devices_after_move(leaf: Leaf) -> set[Device]:
    ownership = leaf_ownership(leaf)
    return set() if ownership is None else devices_of_leaf(leaf, ownership)
