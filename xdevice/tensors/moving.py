"""The work behind `to_device`: check every leaf, move, and rebuild the tree.

The devices and the permission to copy are checked before the first move. If a
framework fails in the middle, or the tree cannot be rebuilt, what was moved in
place is moved back.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

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
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Known, classes, devices_of_tensors, known_of
from xdevice.hardware.devices import native_of
from xdevice.tensors.trees.leaves import (
    Leaf,
    devices_of_leaf,
    framework_of,
    is_data,
    known_leaf,
    move_with_own_method,
)
from xdevice.tensors.trees.questions import not_a_tensor
from xdevice.tensors.trees.tree import Flat, Tree, at_path

_known = classes.get


def move_tensors(
    tensors: list[Tensor], owner: Backend, target: Device, non_blocking: bool
) -> list[Tensor]:
    """The tensors, of one framework, on a device that it has; it is checked that they are there."""
    placement = owner.placement
    try:
        if len(tensors) > 1 and owner.load("placement").has("move_many"):
            new_tensors = owner.placement.move_many(tensors, target, non_blocking)
        else:
            new_tensors = [placement.move(tensor, target, non_blocking) for tensor in tensors]
    except XDeviceError:
        raise
    except Exception as error:
        for tensor in tensors:
            if _lacks_dtype_of(tensor, target, owner, error):
                raise ArgumentError(
                    f"{target} has no {tensor.dtype} under {owner}, so a tensor of that dtype "
                    "cannot be moved to it; convert it first"
                ) from error
        raise
    device_of = placement.device_of
    for tensor in new_tensors:
        if device_of(tensor) is not target:
            raise misplaced(owner, target, {device_of(tensor)})
    return new_tensors


class Move:
    """One call of `to_device`, for a tree or a single leaf of any kind."""

    def __init__(self, target: Device, copy: bool | None, non_blocking: bool) -> None:
        self.target = target
        self.copy = copy
        self.non_blocking = non_blocking
        # What has to move, by id.
        self._tensors: dict[Backend, dict[int, Tensor]] = {}
        self._models: dict[Backend, dict[int, Model]] = {}
        self._objects: dict[int, Leaf] = {}
        self._origins: dict[int, Device | None] = {}  # of the tensors; `None`: several devices
        self._new_leaves: dict[int, Leaf] = {}  # by the id of the old leaf
        self._undo: list[Callable[[], object]] = []

    def __call__(self, tree: Tree, skip: Collection[str] = ()) -> Tree:
        flat = Flat(tree, skip)
        has_others = len(flat.leaves) > 1
        for leaf in flat.leaves:
            try:
                known = _known(type(leaf))
                if known is None or known.device_of is None or known.is_data is not None:
                    self._add_other(leaf, has_others, leaf is tree)
                else:
                    self._add_tensor(leaf, known, has_others)
            except XDeviceError as error:
                raise at_path(error, flat.path_to(leaf)) from error.__cause__
        if not (self._tensors or self._models or self._objects):
            return tree
        try:
            for owner, models in self._models.items():
                self._move_models(owner, list(models.values()))
            for leaf in self._objects.values():
                self._move_object(leaf)
            for owner, tensors in self._tensors.items():
                self._move_tensors(owner, tensors)
            return flat.replace(self._new_leaves)
        except BaseException:
            for undo in reversed(self._undo):
                with suppress(Exception):  # the error that stopped the move says more
                    undo()
            raise

    def _add_tensor(self, tensor: Tensor, known: Known, has_others: bool) -> None:
        """Check a tensor, and keep it if it has to move."""
        owner: Any = known.backend
        locate: Any = known.device_of
        try:
            device = locate(tensor)
            if device is self.target and not self.copy:
                return
        except MixedDeviceError as error:  # one tensor on several devices, to be moved to one
            device = None
            self._check_move(owner, "tensor", error.devices, has_others)
        tensors = self._tensors.get(owner)
        if tensors is None or self.copy is False:
            if device is not None and device is not self.target:
                self._check_move(owner, "tensor", (device,), has_others)
            tensors = self._tensors.setdefault(owner, {})
        tensors[id(tensor)] = tensor
        self._origins[id(tensor)] = device

    def _add_other(self, leaf: Leaf, has_others: bool, is_root: bool) -> None:
        """Check another leaf, and keep it if it has to move."""
        known = known_leaf(leaf)
        if known is None:
            if is_root:
                raise not_a_tensor(leaf)
            return
        if known.device_of is not None:
            if is_root or not is_data(leaf, known):
                self._add_tensor(leaf, known, has_others)
            return
        devices = devices_of_leaf(leaf, known)
        is_elsewhere = bool(devices - {self.target})
        if not is_elsewhere and not self.copy:
            return
        if is_elsewhere:
            category = "model" if known.category == "model" else "object"
            self._check_move(framework_of(leaf, known), category, devices, has_others)
        if known.backend is not None:
            self._models.setdefault(known.backend, {})[id(leaf)] = leaf
        elif devices:
            self._objects[id(leaf)] = leaf

    def _check_move(
        self, owner: Backend, category: str, devices: Collection[Device], has_others: bool
    ) -> None:
        if self.copy is False:
            raise CopyNeededError(
                f"copy=False, but the {category} is on {listed(devices)} and only a copy "
                f"gets it to {self.target}; leave copy out"
            )
        try:
            native_of(owner, self.target)
        except DeviceNotFoundError as error:
            if has_others and owner.hardware.kinds() == ("cpu",):
                raise DeviceNotFoundError(f"{error}, or name it in skip=") from error
            raise

    def _move_models(self, owner: Backend, models: list[Model]) -> None:
        """Move all models of one framework, so that copies share what the originals share."""
        sources = owner.models.copy_models(models) if self.copy else models
        for old_model, source in zip(models, sources, strict=True):
            model = source
            old_tensors = _tensors_of(old_model, owner)
            if devices_of_tensors(old_tensors) - {self.target}:
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
            elif not self._tensors.get(owner, {}).keys().isdisjoint(map(id, old_tensors)):
                raise NotSupportedError(
                    "a model has other tensors after its move than before, so it cannot be told "
                    "which of them the tree shares with it; move the model alone"
                )

    def _move_object(self, leaf: Leaf) -> None:
        """Move an object with its own method ``to``; some libraries move it in place."""
        known = known_of(type(leaf))
        origins = devices_of_leaf(leaf, known)
        moved = move_with_own_method(leaf, self.target, bool(self.copy))
        if moved is leaf and len(origins) == 1:
            (origin,) = origins
            self._undo.append(lambda: move_with_own_method(leaf, origin, False))
        new_known = known_leaf(moved)
        devices = set() if new_known is None else devices_of_leaf(moved, new_known)
        if devices - {self.target}:
            raise misplaced(framework_of(leaf, known), self.target, devices)
        self._new_leaves[id(leaf)] = moved

    def _move_tensors(self, owner: Backend, tensors: dict[int, Tensor]) -> None:
        """Move all tensors of one framework that did not move with a model."""
        placement, origins = owner.placement, self._origins
        if self._models:
            tensors = {key: t for key, t in tensors.items() if key not in self._new_leaves}
            for key, tensor in tensors.items():
                if origins[key] is not None:
                    # a model may have moved it in place: the variable of an optimizer
                    origins[key] = placement.device_of(tensor)
        if self.copy:  # before the move, because a parameter may be moved in place
            self._new_leaves |= {key: placement.copy(tensor) for key, tensor in tensors.items()}
            tensors = {key: self._new_leaves[key] for key in tensors}
        elsewhere = {key: t for key, t in tensors.items() if origins[key] is not self.target}

        def move_back() -> None:
            for key, tensor in elsewhere.items():
                origin = origins[key]
                if origin is not None and placement.device_of(tensor) is not origin:
                    placement.move(tensor, origin, False)

        self._undo.append(move_back)
        moved = move_tensors(list(elsewhere.values()), owner, self.target, self.non_blocking)
        self._new_leaves.update(zip(elsewhere, moved, strict=True))


def _tensors_of(model: Model, owner: Backend) -> list[Tensor]:
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
