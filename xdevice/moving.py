"""The work behind `to_device`: everything is checked before anything is moved."""

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

    Item = tuple[Any, Backend, str]  # what to move, whose it is, and its role


class Move:
    """One call of `to_device`: everything is checked before anything is moved."""

    def __init__(self, target: Device, copy: bool | None, non_blocking: bool) -> None:
        self.target, self.copy, self.non_blocking = target, copy, non_blocking
        self.moved: dict[int, Any] = {}  # id of a leaf: what has become of it
        self.undo: list[Callable[[], object]] = []

    def __call__(self, obj: Any) -> Any:
        owned = owned_by(obj)
        if owned is not None:
            self._check(obj, *owned)
            return self._move_all([(obj, *owned)])[id(obj)]
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
                if self.copy is not True and self._is_there(leaf):
                    continue
                owned = owned_by(leaf)
                if owned is not None and id(leaf) not in todo:
                    self._check(leaf, *owned)
                    todo[id(leaf)] = (leaf, *owned)
            except XDeviceError as error:
                raise type(error)(f"{error} (at {explain.path_of(leaf, tree)})") from error
        return list(todo.values())

    def _is_there(self, leaf: Any) -> bool:
        where = where_by_type.get(type(leaf))
        try:
            return where is not None and where(leaf) is self.target
        except MixedDeviceError:
            return False  # one tensor spread over several devices: it is brought together

    def _check(self, obj: Any, owner: Backend, role: str) -> None:
        here = places_of(obj)
        if here and here != {self.target}:
            if self.copy is False:
                raise CopyNeededError(
                    f"copy=False, but the {role} is on {explain.listed(here)} and only a copy gets it to "
                    f"{self.target}; leave copy out"
                )
            require(owner, self.target)

    def _move_all(self, todo: list[Item]) -> dict[int, Any]:
        """Move loose tensors, then models, then tensors of those models, which have then arrived."""
        models = [item for item in todo if item[2] == "model"]
        inside = {id(t) for model, owner, _ in models for _, t in owner.models.tensors_of(model)}
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
            self._move_back()
            raise
        return self.moved

    def _move_back(self) -> None:
        for undo in reversed(self.undo):
            try:
                undo()
            except Exception:  # the error that stopped the move says more
                continue

    def _move_tensor(self, tensor: Any, owner: Backend) -> Any:
        here = places_of(tensor)
        source = owner.placement.copy(tensor) if self.copy else tensor  # a parameter may move in place
        if here == {self.target}:
            return self._verified(source, owner)
        moved = owner.placement.move(source, self.target, self.non_blocking)
        if moved is tensor and len(here) == 1:
            self.undo.append(lambda: owner.placement.move(tensor, next(iter(here)), False))
        return self._verified(moved, owner)

    def _move_model(self, model: Any, owner: Backend) -> Any:
        here = places_of(model)
        if self.copy:
            model = owner.models.copy_model(model)
        if not here or here == {self.target}:
            return model
        if not self.copy and len(here) == 1:
            self.undo.append(lambda: owner.models.move_model(model, next(iter(here))))
        return self._verified(owner.models.move_model(model, self.target), owner)

    def _verified(self, moved: Any, owner: Backend) -> Any:
        there = places_of(moved)
        if there != {self.target}:
            raise explain.misplaced(owner, self.target, there)
        return moved
