"""The short way of `to_device`: one tensor, or plain dicts, lists and tuples of tensors.

Nothing here explains an error. If a tree is not plain or a move fails, the caller takes the long
way, `moving.Move`, which finds the cause and the path, and moves what has not moved yet. Until then
no tensor has changed: the short way makes new tensors, and moves none in place.
"""

from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.framework.adapters import Backend, Mover
from xdevice.framework.ownership import (
    ATOMS,
    leaf_locator_of,
    leaf_locators,
    locators,
    ownership_of,
)
from xdevice.hardware.devices import require

PLAIN_CONTAINERS = frozenset({dict, list, tuple})

Container: TypeAlias = Any
"""A dict, list or tuple."""

_locator_of = leaf_locators.get  # Python does not speed up calls of a method of an imported name


class CannotMoveError(Exception):
    """The short way does not lead to the target."""


def plain_tree(
    tree: Any, target: Device | None = None
) -> tuple[dict[int, Container], dict[int, Tensor]]:
    """The containers of a tree, outer ones first, and its tensors that are not on the target.

    Both are by id. There are no containers if the tree holds anything that takes more work to
    examine.
    """
    containers: dict[int, Container] = {}
    tensors: dict[int, Tensor] = {}
    nodes: list[Any] = [tree] if type(tree) in PLAIN_CONTAINERS else []
    for node in nodes:  # the list grows during the loop
        cls = type(node)
        locate = _locator_of(cls)
        if locate is not None:
            if locate(node) is not target:
                tensors[id(node)] = node
        elif cls in PLAIN_CONTAINERS:
            if id(node) in containers and node:
                return {}, {}  # it is shared, or contains itself
            containers[id(node)] = node
            if cls is dict:
                for key in node:
                    if type(key) not in ATOMS:
                        return {}, {}  # the key may hold a tensor
                nodes += node.values()
            else:
                nodes += node
        elif cls not in ATOMS:
            if leaf_locator_of(cls) is None:
                return {}, {}
            nodes.append(node)  # again, now that its class is known
    return containers, tensors


def move_tensor(tensor: Tensor, target: Device, non_blocking: bool) -> Tensor:
    """The tensor on the target."""
    cls = type(tensor)
    new_tensor = _mover(cls, target, non_blocking)(tensor)
    if locators[cls](new_tensor) is not target:
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
    movers = {cls: _mover(cls, target, non_blocking) for cls in set(map(type, tensors.values()))}
    for cls, move in movers.items():  # most trees have tensors of one class
        locate = locators[cls]
        for key, tensor in tensors.items():
            if type(tensor) is cls:
                new_tensor = move(tensor)
                if locate(new_tensor) is not target:
                    raise CannotMoveError
                new_tensors[key] = new_tensor


def rebuilt(tree: Container, containers: dict[int, Container], new_parts: dict[int, Any]) -> Any:
    """The tree of these containers, with new parts by the ids of the old ones.

    Containers without a new part are returned as they are.
    """
    new_part_of = new_parts.get
    for key, container in reversed(containers.items()):  # inner ones first
        is_dict = type(container) is dict
        new_container: Any = None
        for place, part in container.items() if is_dict else enumerate(container):
            new_part = new_part_of(id(part))
            if new_part is not None:
                if new_container is None:
                    new_container = dict(container) if is_dict else list(container)
                new_container[place] = new_part
        if new_container is not None:
            is_tuple = type(container) is tuple
            new_parts[key] = tuple(new_container) if is_tuple else new_container
    return new_parts[id(tree)]


def _mover(cls: type, target: Device, non_blocking: bool) -> Mover:
    """The function that moves tensors of this class to the device."""
    ownership = ownership_of(cls)
    if ownership is None:
        raise CannotMoveError
    owner = ownership.backend
    try:
        mover = owner.movers[cls, target, non_blocking]
    except KeyError:
        mover = _new_mover(owner, cls, target, non_blocking)
    if mover is None:
        raise CannotMoveError
    return mover


def _new_mover(owner: Backend, cls: type, target: Device, non_blocking: bool) -> Mover | None:
    require(owner, target)
    mover = None
    if owner.load("moving").has("mover"):
        mover = owner.moving.mover(cls, target, non_blocking)
    owner.movers[cls, target, non_blocking] = mover
    return mover
