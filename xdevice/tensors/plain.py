"""The short way of `to_device`: one tensor, or plain dicts, lists and tuples of tensors.

Nothing here explains an error. If a tree is not plain or a move fails, the caller takes the long
way, `moving.Move`, which finds the cause and the path, and moves what has not moved yet. Until then
no tensor has changed: the short way makes new tensors, and moves none in place.
"""

from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.framework.adapters import Backend, ListMover, Mover, Movers
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
) -> tuple[dict[int, Container], dict[int, Tensor]]:
    """The containers of a tree, outer ones first, and its tensors that are not on the target.

    Both are by id. There are no containers if the tree holds anything that takes more work to
    examine.
    """
    containers: dict[int, Container] = {}
    tensors: dict[int, Tensor] = {}
    nodes: list[Any] = [tree] if type(tree) in PLAIN_CONTAINERS else []
    tensor_class: type | None = None  # the last one: most trees have tensors of one class
    locate: Any = None
    for node in nodes:  # the list grows during the loop
        cls = type(node)
        if cls is not tensor_class:
            if cls in PLAIN_CONTAINERS:
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
                continue
            if cls in ATOMS:
                continue
            tensor_class, locate = cls, leaf_locator_of(cls)
            if locate is None:
                return {}, {}
        if locate(node) is not target:
            tensors[id(node)] = node
    return containers, tensors


def move_tensor(tensor: Tensor, target: Device, non_blocking: bool) -> Tensor:
    """The tensor on the target."""
    cls = type(tensor)
    move, _ = _movers(cls, target, non_blocking)
    new_tensor = move(tensor)
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
    classes = set(map(type, tensors.values()))
    movers = {cls: _movers(cls, target, non_blocking) for cls in classes}
    for cls, (move, move_list) in movers.items():
        of_class = tensors
        if len(movers) > 1:  # most trees have tensors of one class
            of_class = {key: tensor for key, tensor in tensors.items() if type(tensor) is cls}
        locate = locators[cls]
        if move_list is None:
            for key, tensor in of_class.items():
                new_tensor = move(tensor)
                if locate(new_tensor) is not target:
                    raise CannotMoveError
                new_tensors[key] = new_tensor
            continue
        moved = move_list(list(of_class.values()))
        for key, new_tensor in zip(of_class, moved, strict=True):
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


def _movers(cls: type, target: Device, non_blocking: bool) -> tuple[Mover, ListMover | None]:
    """The functions that move one tensor of this class to the device, and several of them."""
    ownership = ownership_of(cls)
    if ownership is None:
        raise CannotMoveError
    owner = ownership.backend
    try:
        mover, list_mover = owner.movers[cls, target, non_blocking]
    except KeyError:
        mover, list_mover = _new_movers(owner, cls, target, non_blocking)
    if mover is None:
        raise CannotMoveError
    return mover, list_mover


def _new_movers(owner: Backend, cls: type, target: Device, non_blocking: bool) -> Movers:
    require(owner, target)
    moving = owner.load("moving")
    mover = list_mover = None
    if moving.has("mover"):
        mover = owner.moving.mover(cls, target, non_blocking)
    if moving.has("list_mover"):
        list_mover = owner.moving.list_mover(cls, target, non_blocking)
    owner.movers[cls, target, non_blocking] = mover, list_mover
    return mover, list_mover
