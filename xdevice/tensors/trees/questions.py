"""Questions about a tree: its devices, its frameworks, and the errors that name its tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from xdevice.device import Device
from xdevice.errors import MixedDeviceError, NotATensorError, listed, several_devices
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Known, devices_of_tensors, known_of
from xdevice.hardware.devices import as_device, is_device
from xdevice.tensors.trees.leaves import Leaf, devices_of_leaf, framework_of, is_data, known_leaf
from xdevice.tensors.trees.tree import FlatTree, Tree, is_leaf

T = TypeVar("T")


def devices_in(tree: Tree, skip: Collection[str | int] = ()) -> set[Device]:
    """All devices on which tensors of the tree are; `NotATensorError` if it has none."""
    return set().union(*_ask_tensors(FlatTree(tree, skip), devices_of_leaf).values())


def frameworks_in(tree: Tree) -> dict[Backend, str]:
    """Each framework of the tree's tensors, with the path of one tensor."""
    flat = FlatTree(tree)
    owners = _ask_tensors(flat, framework_of)
    examples: dict[Backend, str] = {}
    for path, leaf in flat.named():
        if id(leaf) in owners:
            examples.setdefault(owners[id(leaf)], path)
    return examples


def _ask_tensors(flat: FlatTree, question: Callable[[Leaf, Known], T]) -> dict[int, T]:
    """The answer for each leaf that moves, by the leaf's id; `NotATensorError` if there is none.

    Plain data such as NumPy's scalars counts only if the tree has no other tensors.
    """
    answers: dict[int, T] = {}
    answers_of_data: dict[int, T] = {}

    def ask(leaf: Leaf) -> None:
        known = known_leaf(leaf)
        if known is not None:
            kept = answers_of_data if is_data(leaf, known) else answers
            kept[id(leaf)] = question(leaf, known)

    flat.for_each(ask)
    if not answers and not answers_of_data:
        raise not_a_tensor(flat.tree)
    return answers or answers_of_data


def not_on_one_device(
    objs: tuple[tuple[str, Tree], ...], skip: Collection[str | int] = ()
) -> MixedDeviceError:
    """The error for named objects on several devices, with the paths of their tensors."""
    all_devices: set[Device] = set()
    paths_by_devices: dict[str, list[str]] = {}
    for name, obj in objs:
        for path, devices in _placements(name, obj, skip):
            all_devices |= devices
            paths_by_devices.setdefault(listed(devices), []).append(path.lstrip(".") or "it")
    placements = "; ".join(
        f"on {device}: {_shortened(paths)}" for device, paths in sorted(paths_by_devices.items())
    )
    return several_devices(
        f"one device was expected, but there are {len(all_devices)}: {placements}", all_devices
    )


def _placements(
    name: str, obj: Tree, skip: Collection[str | int]
) -> Iterator[tuple[str, set[Device]]]:
    """The path and the devices of each tensor in an object, also of each tensor of a model."""
    if is_device(obj):
        yield name, {as_device(obj)}
        return
    for path, leaf in FlatTree(obj, skip).named():
        known = known_leaf(leaf)
        if known is None or is_data(leaf, known):
            continue
        if known.category == "model" and known.backend is not None:
            for tensor_name, tensor in known.backend.models.tensors_of(leaf):
                yield f"{name}{path}.{tensor_name}", devices_of_tensors([tensor])
        else:
            yield name + path, devices_of_leaf(leaf, known)


def not_a_tensor(obj: Tree) -> NotATensorError:
    """The error for an object without a tensor, with what a container holds instead."""
    type_name = type(obj).__name__
    if is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    if is_leaf(obj):
        return NotATensorError(
            f"no framework owns this {type_name}; pass a tensor, a model, or containers of these"
        )
    leaves = list(FlatTree(obj).named())
    for path, leaf in leaves:
        if known_of(type(leaf)).category in ("tensor", "model"):
            return NotATensorError(
                f"a {type_name} is not a tensor; pass what is in it one by one, "
                f"at {path} for example"
            )
    if not leaves:
        return NotATensorError(f"no tensor in this {type_name}: it is empty")
    contents = [f"{path} is of type {type(leaf).__name__}" for path, leaf in leaves]
    return NotATensorError(f"no tensor in this {type_name}: {_shortened(contents)}")


def _shortened(items: list[str], most: int = 5) -> str:
    text = ", ".join(items[:most])
    if len(items) > most:
        text += f" and {len(items) - most} more"
    return text
