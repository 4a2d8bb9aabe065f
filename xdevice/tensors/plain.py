"""The short way of `to_device`: one tensor, or plain dicts, lists and tuples of tensors.

Nothing here explains an error. If a tree is not plain or a move fails, the caller takes the long
way, `moving.Move`, which finds the cause and the path, and moves what has not moved yet. Until then
no tensor has changed: the short way makes new tensors, and moves none in place.
"""

from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.framework.adapters import Backend, Movers, known_movers
from xdevice.framework.ownership import (
    ATOMS,
    leaf_locator_of,
    locators,
    ownership_of,
)
from xdevice.hardware.devices import require

PLAIN_CONTAINERS = frozenset({dict, list, tuple})

Container: TypeAlias = Any
"""A dict, list or tuple."""


class CannotMoveError(Exception):
    """The short way does not lead to the target."""


def plain_tree(
    tree: Any, target: Device | None = None
) -> tuple[list[Container], dict[int, Tensor]]:
    """The containers of a tree, outer ones first, and its tensors that are not on the target.

    The tensors are by id. There are no containers if the tree holds anything that takes more work
    to examine.
    """
    containers: list[Container] = [tree] if type(tree) in PLAIN_CONTAINERS else []
    tensors: dict[int, Tensor] = {}
    opened = {id(tree)}
    tensor_class: type | None = None  # the last one: most trees have tensors of one class
    locate: Any = None
    for container in containers:  # the list grows during the loop
        parts = container
        if type(container) is dict:
            for key in container:
                if type(key) not in ATOMS:
                    return [], {}  # the key may hold a tensor
            parts = container.values()
        for part in parts:
            cls = type(part)
            if cls is tensor_class:
                if locate(part) is not target:
                    tensors[id(part)] = part
            elif cls in PLAIN_CONTAINERS:
                if part and id(part) in opened:
                    return [], {}  # it is shared, or contains itself
                opened.add(id(part))
                containers.append(part)
            elif cls not in ATOMS:
                tensor_class, locate = cls, leaf_locator_of(cls)
                if locate is None:
                    return [], {}
                if locate(part) is not target:
                    tensors[id(part)] = part
    return containers, tensors


def move_tensor(tensor: Tensor, target: Device, non_blocking: bool) -> Tensor:
    """The tensor on the target."""
    movers = _movers(type(tensor), target, non_blocking)
    new_tensor = movers.move(tensor)
    if not movers.has_arrived(new_tensor):
        raise CannotMoveError
    return new_tensor


def move_tensors(
    tensors: dict[int, Tensor],
    target: Device,
    non_blocking: bool,
    new_tensors: dict[int, Tensor],
) -> None:
    """Move the tensors; add each to ``new_tensors``, by the id of the old one, when it has moved.

    The first tensor is moved when it is known that tensors of every class can be.
    """
    classes = set(map(type, tensors.values()))
    movers = [(cls, _movers(cls, target, non_blocking)) for cls in classes]
    for cls, (move, move_list, has_arrived) in movers:
        of_class = tensors
        if len(movers) > 1:  # most trees have tensors of one class
            of_class = {key: tensor for key, tensor in tensors.items() if type(tensor) is cls}
        if move_list is None:
            for key, tensor in of_class.items():
                new_tensor = move(tensor)
                if not has_arrived(new_tensor):
                    raise CannotMoveError
                new_tensors[key] = new_tensor
            continue
        moved = move_list(list(of_class.values()))
        for key, new_tensor in zip(of_class, moved, strict=True):
            if not has_arrived(new_tensor):
                raise CannotMoveError
            new_tensors[key] = new_tensor


def rebuilt(containers: list[Container], new_parts: dict[int, Any]) -> Container:
    """The tree of these containers, outer ones first, with new parts by the ids of the old ones.

    Containers without a new part are returned as they are.
    """
    new_part_of = new_parts.get
    new_container: Container = None
    for container in reversed(containers):  # inner ones first
        is_dict = type(container) is dict
        is_new = False
        parts = []
        for part in container.values() if is_dict else container:
            new_part = new_part_of(id(part))
            if new_part is None:
                parts.append(part)
            else:
                parts.append(new_part)
                is_new = True
        if not is_new:
            continue
        if is_dict:
            new_container = dict(zip(container, parts, strict=True))
        else:
            new_container = tuple(parts) if type(container) is tuple else parts
        new_parts[id(container)] = new_container
    return new_container


def _movers(cls: type, target: Device, non_blocking: bool) -> Movers:
    """The functions that move tensors of this class to the device."""
    try:
        movers = known_movers[cls, target, non_blocking]
    except KeyError:
        ownership = ownership_of(cls)
        if ownership is None:
            raise CannotMoveError from None
        require(ownership.backend, target)
        movers = _new_movers(ownership.backend, cls, target, non_blocking)
        known_movers[cls, target, non_blocking] = movers
    if movers is None:
        raise CannotMoveError
    return movers


def _new_movers(owner: Backend, cls: type, target: Device, non_blocking: bool) -> Movers | None:
    """The adapter's functions for the class; ``None`` if it has none."""
    move = move_list = has_arrived = None
    if owner.load("moving").has("mover"):
        move = owner.moving.mover(cls, target, non_blocking)
    if move is None:
        return None
    if owner.load("list_moving").has("list_mover"):
        move_list = owner.list_moving.list_mover(cls, target, non_blocking)
    if owner.load("arriving").has("arrival"):
        has_arrived = owner.arriving.arrival(cls, target)
    if has_arrived is None:
        locate = locators[cls]
        has_arrived = lambda tensor: locate(tensor) is target  # noqa: E731
    return Movers(move, move_list, has_arrived)
