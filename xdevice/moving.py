"""The work behind `to_device`.

What can be known to fail is found before anything is moved: a device that is not there, a copy that
is forbidden. Where a framework fails in the middle, what it moved in place is moved back.
"""

from __future__ import annotations

from xdevice import explain
from xdevice.errors import CopyNeededError, MixedDeviceError, XDeviceError
from xdevice.hardware import require
from xdevice.placement import owned_by, places_of, where_by_type
from xdevice.tree import leaves, map_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from xdevice.adapters import Backend
    from xdevice.device import Device

    Item = tuple[Any, Backend, str, set[Device]]  # what to move, whose it is, its role, and where it is


class Move:
    """One call of `to_device`."""

    def __init__(self, target: Device, copy: bool | None, non_blocking: bool) -> None:
        self.target, self.copy, self.non_blocking = target, copy, non_blocking
        self.moved: dict[int, Any] = {}  # id of a leaf: what has become of it
        self.undo: list[Callable[[], object]] = []

    def __call__(self, obj: Any) -> Any:
        owned = owned_by(obj)
        if owned is not None:
            return self._move_all([self._checked(obj, *owned)])[id(obj)]
        flat = leaves(obj)
        if flat is None:
            raise explain.not_a_tensor(obj)
        todo = self._what_to_do(flat, obj)
        if not todo:
            return obj
        moved = self._move_all(todo)
        return map_leaves(lambda leaf: moved.get(id(leaf), leaf), obj)

    def _what_to_do(self, flat: list[Any], tree: Any) -> list[Item]:
        todo: dict[int, Item] = {}
        for leaf in flat:
            try:
                if id(leaf) in todo or (not self.copy and self._is_there(leaf)):
                    continue
                owned = owned_by(leaf)
                if owned is not None:
                    todo[id(leaf)] = self._checked(leaf, *owned)
            except XDeviceError as error:
                raise type(error)(f"{error} (at {explain.path_of(leaf, tree)})") from error
        return list(todo.values())

    def _is_there(self, leaf: Any) -> bool:
        where = where_by_type.get(type(leaf))
        try:
            return where is not None and where(leaf) is self.target
        except MixedDeviceError:
            return False  # one tensor spread over several devices: it is brought together

    def _checked(self, obj: Any, owner: Backend, role: str) -> Item:
        """What there is to do for a tensor or model, if it can be done as far as one can know before."""
        here = places_of(obj)
        if here != {self.target}:
            if here and self.copy is False:
                raise CopyNeededError(
                    f"copy=False, but the {role} is on {explain.listed(here)} and only a copy gets it to "
                    f"{self.target}; leave copy out"
                )
            require(owner, self.target)
        return obj, owner, role, here

    def _move_all(self, todo: list[Item]) -> dict[int, Any]:
        """Move loose tensors, then models, which take those tensors along that are theirs."""
        models = [item for item in todo if item[2] == "model"]
        inside = {id(tensor) for model, owner, _, _ in models for _, tensor in owner.models.tensors_of(model)}
        try:
            for obj, owner, role, here in todo:
                if role == "tensor" and id(obj) not in inside:
                    self.moved[id(obj)] = self._move_tensor(obj, owner, here)
            for owner in dict.fromkeys(item[1] for item in models):
                self._move_models([item for item in models if item[1] is owner], owner)
        except BaseException:
            self._move_back()
            raise
        return self.moved

    def _move_tensor(self, tensor: Any, owner: Backend, here: set[Device]) -> Any:
        source = owner.placement.copy(tensor) if self.copy else tensor  # a parameter may move in place
        if here == {self.target}:
            return self._verified(source, owner)
        moved = owner.placement.move(source, self.target, self.non_blocking)
        if moved is tensor and len(here) == 1:
            self.undo.append(lambda: owner.placement.move(tensor, next(iter(here)), False))
        return self._verified(moved, owner)

    def _move_models(self, items: list[Item], owner: Backend) -> None:
        """All models of one framework, so that copies share what the originals share."""
        tensors_of = owner.models.tensors_of
        originals = [item[0] for item in items]
        before = [[tensor for _, tensor in tensors_of(model)] for model in originals]
        models = owner.models.copy_models(originals) if self.copy else originals
        for (original, _, _, here), old, model in zip(items, before, models, strict=True):
            self.moved[id(original)] = self._move_model(model, owner, here)
            new = [tensor for _, tensor in tensors_of(self.moved[id(original)])]
            self.moved.update(zip(map(id, old), new, strict=True))

    def _move_model(self, model: Any, owner: Backend, here: set[Device]) -> Any:
        if not here or here == {self.target}:
            return model
        if not self.copy and len(here) == 1:
            self.undo.append(lambda: owner.models.move_model(model, next(iter(here))))
        return self._verified(owner.models.move_model(model, self.target), owner)

    def _move_back(self) -> None:
        for undo in reversed(self.undo):
            try:
                undo()
            except Exception:  # the error that stopped the move says more
                continue

    def _verified(self, moved: Any, owner: Backend) -> Any:
        if not self._is_there(moved) and places_of(moved) != {self.target}:
            raise explain.misplaced(owner, self.target, places_of(moved))
        return moved
