"""Trees on several devices: copies of one, made by `replicate`, and their reduction, `all_reduce`."""

from collections.abc import Sequence
from typing import Any

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    NotSupportedError,
    did_you_mean,
    shortened,
)
from xdevice.framework.ownership import owned_by, tensor_owner
from xdevice.hardware.devices import as_device, is_device
from xdevice.parallel.vectors import Column, in_order, reduced
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.placement import devices_of, to_device
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike

__all__ = ["Replicas", "all_reduce", "replicate"]

OPERATIONS = ("sum", "mean", "max", "min")
PASSING = (type(None), str)  # leaves that may stand in a tree beside its tensors


class Replicas(list[Any]):
    """The result of `replicate`: a list of trees of equal structure, one for each device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     replicas = xdevice.replicate({"w": xdevice.ones(2)}, ["cpu", "cpu"])
    >>> halves = xdevice.Replicas({"w": copy["w"] / 2} for copy in replicas)
    >>> len(halves), halves[1]["w"].tolist()
    (2, [0.5, 0.5])
    """

    __slots__ = ()


def replicate(tree: Any, devices: Sequence[DeviceLike]) -> Replicas:
    """Copy a tree to each device, even if it is already there, and once per mention of a device.

    Floating-point tensors in the copies require gradients, in the framework's own way, and are detached. A
    leaf that appears twice is shared within each replica. Models are copied as by `to_device`.

    Raises
    ------
    ArgumentError
        No devices.
    ArgumentTypeError
        ``devices`` is not a list, or the tree has a set in it.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not name one.
    NotATensorError
        No tensor in the tree.
    NotSupportedError
        Inside `value_and_grad`, where its gradients would be lost.

    Examples
    --------
    >>> import numpy, xdevice
    >>> parameters = {"w": numpy.ones(2)}
    >>> replicas = xdevice.replicate(parameters, ["cpu", "cpu"])
    >>> len(replicas), replicas[0]["w"] is replicas[1]["w"], replicas[0]["w"] is parameters["w"]
    (2, False, False)
    """
    if differentiating():
        raise NotSupportedError("replicate has no gradient; make replicas outside value_and_grad")
    wanted = checked_devices(devices)
    if flatten(tree).unordered:
        raise ArgumentTypeError(
            "replicate was given a set, whose order differs from replica to replica; give a list"
        )
    devices_of(tree)  # raises where there is nothing to copy
    return Replicas(flatten(to_device(tree, device, copy=True)).map(_ready) for device in wanted)


def checked_devices(devices: Any) -> list[Device]:
    """The devices in a list, of which there must be one at least."""
    if is_device(devices) or not hasattr(devices, "__iter__"):
        raise ArgumentTypeError(
            f"devices={shortened(devices)} is not a list of devices; write ['gpu:0', 'gpu:1']"
        )
    found = [as_device(device) for device in devices]
    if not found:
        raise ArgumentError("there is no device in the list; try_all_gpus() is never empty")
    return found


def check_alike(flats: Sequence[Flat]) -> None:
    """Raise an error unless the trees have the same structure, in a definite order."""
    for i, flat in enumerate(flats):
        if flat.unordered:
            raise ArgumentTypeError(
                f"tree {i} has a set in it, whose order differs from tree to tree; give a list"
            )
        if not flats[0].same_structure(flat):
            first, other = [
                [path or "a single leaf" for path in each.paths] for each in (flats[0], flat)
            ]
            path = next(
                iter([p for p in first if p not in other] or [p for p in other if p not in first]),
                None,
            )
            if path is None:
                raise ArgumentError(
                    f"tree 0 and tree {i} have containers of different structure; make them alike"
                )
            having, lacking = (0, i) if path in first else (i, 0)
            raise ArgumentError(
                f"tree {having} has {path} and tree {lacking} has not; give trees of one structure"
            )


def _ready(tensor: Any) -> Any:
    """A leaf that was just copied, ready for gradients if it is a tensor."""
    owner = tensor_owner(tensor)
    return tensor if owner is None else owner.collectives.leaf(tensor)


def all_reduce(tensors: Sequence[Any], op: str = "sum") -> list[Any]:
    """Reduce tensors over devices: one new tensor per input, on that input's device, with the reduced value.

    Trees of equal structure may be given instead of tensors; they travel as one vector per device and dtype. Results
    share no memory, even on one device, and the inputs are not changed. The mean of equal numbers is that number, bit
    for bit. `xdevice.distributed.all_reduce` reduces over processes: it takes the process's own tensor or tree.

    Parameters
    ----------
    tensors
        A list of tensors, or of trees of tensors, one for each device; for `Replicas` the result is `Replicas`.
        ``None`` and strings in a tree pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.

    Raises
    ------
    ArgumentError
        The operation is unknown, the list is empty, or the trees differ in structure, shapes, dtypes or frameworks.
    ArgumentTypeError
        A tensor that is not of numbers or not a plain array (sparse, say), a mean of integers, or a set in a tree.
    NotATensorError
        A leaf is not a tensor, or there are no tensors.
    NotSupportedError
        Inside `value_and_grad`.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.all_reduce([numpy.array([1.0, 2.0]), numpy.array([3.0, 4.0])], op="mean")
    [array([2., 3.]), array([2., 3.])]
    """
    check_operation(op)
    if owned_by(tensors) is not None or not isinstance(tensors, (list, tuple)):
        got = f"all_reduce got an object of type {type(tensors).__name__}"
        raise ArgumentTypeError(
            f"{got}; give a list, with one tensor or tree of them for each device"
        )
    if not tensors:
        raise ArgumentError(
            "all_reduce was given an empty list; give one tensor, or tree of them, for each device"
        )
    flats = [flatten(tree) for tree in tensors]
    if differentiating():
        raise NotSupportedError(
            "all_reduce has no gradient; call it outside value_and_grad, on the gradients"
        )
    columns = _columns(flats, op)
    # a leaf that appears twice in every tree is reduced once, and shared in the results
    distinct = {
        tuple(map(id, column)): column for column in columns if not isinstance(column[0], PASSING)
    }
    weights = [1 / len(flats)] * len(flats) if op == "mean" else None
    buckets = reduced(list(distinct.values()), "sum" if op == "mean" else op, weights)
    results = []
    for i, flat in enumerate(flats):
        new = dict(zip(distinct, in_order(buckets, i), strict=True))
        results.append(
            flat.rebuild(new.get(tuple(map(id, column)), column[i]) for column in columns)
        )
    return Replicas(results) if isinstance(tensors, Replicas) else results


def not_reducible(kind: str, op: str) -> str:
    """Why numbers of that kind cannot be reduced; empty if they can."""
    if kind == "b":
        return "booleans are not numbers; convert them to integers first"
    if kind not in tuple("fiuc"):
        return (
            "that is neither integers nor floating-point numbers; convert it to one of these first"
        )
    if kind == "c" and op in ("max", "min"):
        return "complex numbers have no order; reduce their parts"
    if op == "mean" and kind in "iu":
        return "a mean of integers is not an integer; convert them to floating point first"
    return ""


def check_operation(op: Any, known: tuple[str, ...] = OPERATIONS) -> None:
    if op not in known:
        there = did_you_mean(op, known, f"there are {', '.join(map(repr, known))}")
        raise ArgumentError(f"no operation {shortened(op)}; {there}")


def _columns(flats: list[Flat], op: str) -> list[Column]:
    """Leaf by leaf, what the trees have there, if they are alike and can be reduced."""
    check_alike(flats)
    flats[0].each(lambda _, leaf: _check_reducible(leaf, op))
    columns: list[Column] = list(zip(*[flat.leaves for flat in flats], strict=True))
    for n, column in enumerate(columns):
        first = _described(column[0])
        for i, leaf in enumerate(column):
            if _described(leaf) != first:
                raise ArgumentError(
                    f"all_reduce was given {_said(column[0])}{flats[0].at(n)} in tree 0, and {_said(leaf)} in "
                    f"tree {i}; give trees of the same shapes, dtypes and framework"
                )
    if all(isinstance(column[0], PASSING) for column in columns):
        trees = shortened([flat.tree for flat in flats])
        raise NotATensorError(
            f"there is no tensor to reduce in {trees}; give tensors, or trees of them"
        )
    return columns


def _check_reducible(leaf: Any, op: str) -> None:
    owner = tensor_owner(leaf)
    if owner is not None and (why_not := not_reducible(owner.collectives.kind(leaf), op)):
        raise ArgumentTypeError(f"all_reduce({op!r}) of {leaf.dtype}: {why_not}")
    if owner is None and not isinstance(leaf, PASSING):
        raise NotATensorError(
            f"all_reduce got an object of type {type(leaf).__name__}; give tensors"
        )


def _described(leaf: Any) -> tuple[Any, ...]:
    """What must be equal in leaves that are reduced together."""
    owner = tensor_owner(leaf)
    return (owner, leaf.dtype, *leaf.shape) if owner is not None else (type(leaf),)


def _said(leaf: Any) -> str:
    found = _described(leaf)
    if len(found) == 1:
        return f"an object of type {type(leaf).__name__}"
    return f"a tensor of {found[0]}, {found[1]} and shape {found[2:]}"
