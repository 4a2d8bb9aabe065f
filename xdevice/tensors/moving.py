"""The work behind `to_device`.

What can be known to fail is found before anything is moved: a device that does not exist, a copy that is
forbidden. Where a framework fails in the middle, what it moved in place is moved back.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from xdevice.device import Device
from xdevice.errors import (
    CopyNeededError,
    DeviceNotFoundError,
    MixedDeviceError,
    NotATensorError,
    listed,
    misplaced,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership, where_in_trees
from xdevice.hardware.devices import require
from xdevice.tensors.trees.leaves import (
    SelfMoving,
    framework_of,
    is_weak,
    moved_by_itself,
    places,
    what_is,
)
from xdevice.tensors.trees.tree import Flat, flatten, not_a_tensor


class Item(NamedTuple):
    """One thing to move: a tensor, a model, or an object that moves itself; and where it is now."""

    obj: Any
    owner: Backend
    role: str
    here: set[Device]


class Move:
    def __init__(self, target: Device, copy: bool | None, non_blocking: bool) -> None:
        self.target, self.copy, self.non_blocking = target, copy, non_blocking
        self.moved: dict[int, Any] = {}  # by the id of a leaf: what has become of it
        self.undo: list[Callable[[], object]] = []
        self._having: set[Backend] = set()  # frameworks that are known to have the device

    def __call__(self, obj: Any, skip: Collection[str] = ()) -> Any:
        flat = flatten(obj, skip)
        if flat.is_leaf and what_is(obj) is None:
            raise not_a_tensor(obj)
        todo: dict[int, Item] = {}

        def look(_: int, leaf: Any) -> None:
            if id(leaf) not in todo and (self.copy or not self._is_there(leaf)):
                what = what_is(leaf)
                if what is not None and (item := self._checked(leaf, what, flat)) is not None:
                    todo[id(leaf)] = item

        flat.each(look)
        if not todo:
            return obj
        moved = self._move_all(list(todo.values()))
        return flat.rebuild(
            leaf if i in flat.skipped else moved.get(id(leaf), leaf)
            for i, leaf in enumerate(flat.leaves)
        )

    def _is_there(self, leaf: Any) -> bool:
        where = where_in_trees.get(type(leaf))
        try:
            return where is not None and where(leaf) is self.target
        except (MixedDeviceError, NotATensorError):
            return False  # one tensor spread over several devices, which is brought together; or plain data

    def _checked(self, obj: Any, what: Ownership | SelfMoving, flat: Flat) -> Item | None:
        """What there is to do for a leaf, if it can be done as far as can be known beforehand."""
        here, several = places(obj, what), len(flat.leaves) > 1
        if isinstance(what, SelfMoving):
            if not here or (here == {self.target} and not self.copy):
                return None
        elif (
            not flat.is_leaf and is_weak(obj, what) and several
        ):  # alone, an array of objects is an array
            return None
        owner = framework_of(obj, what)
        if here and here != {self.target} and self.copy is False:
            where = f"is on {listed(here)} and only a copy gets it to {self.target}"
            raise CopyNeededError(f"copy=False, but the {what.role} {where}; leave copy out")
        if here != {self.target} and owner not in self._having:
            self._require(owner, several)
        return Item(obj, owner, what.role, here)

    def _require(self, owner: Backend, several: bool) -> None:
        try:
            require(owner, self.target)
            self._having.add(owner)
        except DeviceNotFoundError as error:
            if several and owner.hardware.kinds() == ("cpu",):
                raise DeviceNotFoundError(f"{error}, or name it in skip=") from error
            raise

    def _move_all(self, todo: list[Item]) -> dict[int, Any]:
        """Move models, whose own tensors move with them, then loose tensors."""
        models = [item for item in todo if item.role == "model"]
        inside = {
            id(tensor) for item in models for _, tensor in item.owner.models.tensors_of(item.obj)
        }
        try:
            for owner in dict.fromkeys(item.owner for item in models):
                self._move_models([item for item in models if item.owner is owner], owner)
            for item in todo:
                if item.role == "tensor" and id(item.obj) not in inside:
                    # it may have moved with a model: a variable behind one of Keras's, or of an optimizer
                    here = {self.target} if models and self._is_there(item.obj) else item.here
                    self.moved[id(item.obj)] = self._move_tensor(item.obj, item.owner, here)
                elif item.role == "object":
                    self.moved[id(item.obj)] = self._move_object(item)
        except BaseException:
            for undo in reversed(self.undo):
                with suppress(Exception):  # the error that stopped the move says more
                    undo()
            raise
        return self.moved

    def _move_tensor(self, tensor: Any, owner: Backend, here: set[Device]) -> Any:
        source = (
            owner.placement.copy(tensor) if self.copy else tensor
        )  # a parameter may move in place
        if here == {self.target}:
            return self._verified(source, owner)
        moved = owner.placement.move(source, self.target, self.non_blocking)
        if moved is tensor and len(here) == 1:
            self.undo.append(lambda: owner.placement.move(tensor, next(iter(here)), False))
        return self._verified(moved, owner)

    def _move_object(self, item: Item) -> Any:
        """By its own method ``to``; in place under some libraries."""
        moved = moved_by_itself(item.obj, self.target, bool(self.copy))
        if moved is item.obj and len(item.here) == 1:
            self.undo.append(lambda: moved_by_itself(item.obj, next(iter(item.here)), False))
        what = what_is(moved)
        there = places(moved, what) if what is not None else set()
        if there - {self.target}:
            raise misplaced(item.owner, self.target, there)
        return moved

    def _move_models(self, items: list[Item], owner: Backend) -> None:
        """All models of one framework, so that copies share what the originals share."""
        tensors_of, originals = owner.models.tensors_of, [item.obj for item in items]
        before = [list(tensors_of(model)) for model in originals]
        models = owner.models.copy_models(originals) if self.copy else originals
        for item, old, model in zip(items, before, models, strict=True):
            moved = model
            if item.here and item.here != {self.target}:
                if not self.copy:
                    self.undo.append(owner.models.keep(model))
                moved = self._verified(owner.models.move_model(model, self.target), owner)
            self.moved[id(item.obj)] = moved
            new = list(tensors_of(moved))
            if len(new) == len(old):  # in their order: a copy may give them other names
                self.moved.update((id(a), b) for (_, a), (_, b) in zip(old, new, strict=True))

    def _verified(self, moved: Any, owner: Backend) -> Any:
        if not self._is_there(moved):
            what = what_is(moved)
            there = set[Device]() if what is None else places(moved, what)
            if there != {self.target}:
                raise misplaced(owner, self.target, there)
        return moved
