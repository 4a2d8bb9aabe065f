"""Copies of a tree on several devices, and their reductions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from xdevice.contract import Tree
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    NotSupportedError,
    XDeviceError,
    did_you_mean,
    shortened,
)
from xdevice.framework.choosing import using
from xdevice.framework.ownership import known_of, tensor_owner
from xdevice.hardware.devices import as_device, is_device
from xdevice.hardware.scopes import scope
from xdevice.parallel.vectors import Column, reduce_columns, results_of
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.moving import to_device
from xdevice.tensors.placement import backend_of, device_of, devices_of
from xdevice.tensors.trees.by_place import LeavesByPlace, check_ordered
from xdevice.tensors.trees.tree import FlatTree, at_path
from xdevice.typing import DeviceLike

__all__ = ["Replicas", "all_reduce", "replicate"]

Leaf: TypeAlias = Any

OPERATIONS = ("sum", "mean", "max", "min")
PASSING = (type(None), str)  # leaves that `all_reduce` returns as they are


class Replicas(list[Any]):
    """The result of `replicate`: a list with a tree for each device.

    The trees have the same structure.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     replicas = xdevice.replicate({"w": xdevice.ones(2)}, ["cpu", "cpu"])
    >>> halves = replicas.map(lambda params: {"w": params["w"] / 2})
    >>> len(halves), halves[1]["w"].tolist()
    (2, [0.5, 0.5])
    """

    __slots__ = ()

    def map(self, fn: Callable[..., Tree], *others: Sequence[Tree]) -> "Replicas":
        """``fn(replica, *others)`` for each replica, in a `scope` of its device.

        Each of ``others``, such as the gradients of a step, has one value for
        each replica. The results are the new replicas. Without the scope,
        TensorFlow would compute them on its default device.

        Raises
        ------
        ArgumentError
            One of ``others`` has another length.
        """
        for other in others:
            if len(other) != len(self):
                raise ArgumentError(
                    f"there are {len(self)} replicas and {len(other)} values for them; give one "
                    "for each, such as the gradients that a step on these replicas returns"
                )
        results = Replicas()
        for replica, *values in zip(self, *others, strict=True):
            with using(backend_of(replica)), scope(device_of(replica)):
                results.append(fn(replica, *values))
        return results


def replicate(tree: Tree, devices: Sequence[DeviceLike]) -> Replicas:
    """Copy a tree to each device, even if it is already there.

    A device that is listed twice gets two copies.

    Floating-point tensors in the copies are detached, and require gradients in
    the framework's own way. A leaf that appears twice is shared within each
    replica. Models are copied as by `to_device`.

    Raises
    ------
    ArgumentError
        There are no devices.
    ArgumentTypeError
        ``devices`` is not a list, or the tree contains a set.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not
        name one.
    NotATensorError
        The tree contains no tensor.
    NotSupportedError
        The call is inside `value_and_grad`, where gradients would be lost.

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
    destinations = checked_devices(devices)
    check_ordered(FlatTree(tree))
    devices_of(tree)  # raises an error if there is nothing to copy
    copies = (to_device(tree, device, copy=True) for device in destinations)
    return Replicas(FlatTree(copy).map(_ready_for_gradients) for copy in copies)


def checked_devices(devices: Any) -> list[Device]:
    """The devices in a list; an error if it is not a list, or empty."""
    if is_device(devices) or not hasattr(devices, "__iter__"):
        raise ArgumentTypeError(
            f"devices={shortened(devices)} is not a list of devices; write ['gpu:0', 'gpu:1']"
        )
    destinations = [as_device(device) for device in devices]
    if not destinations:
        raise ArgumentError("there is no device in the list; try_all_gpus() is never empty")
    return destinations


def check_alike(flats: Sequence[LeavesByPlace]) -> None:
    """Raise an error unless the trees have leaves at the same places."""
    for i, flat in enumerate(flats):
        if flat.paths != flats[0].paths:
            raise _different_structure_error(flats[0], flat, i)


def _different_structure_error(first: LeavesByPlace, other: LeavesByPlace, i: int) -> ArgumentError:
    """The error with a path that only tree 0 or only tree ``i`` has."""
    first_paths = [path or "a single leaf" for path in first.paths]
    other_paths = [path or "a single leaf" for path in other.paths]
    for path in first_paths:
        if path not in other_paths:
            return ArgumentError(
                f"tree 0 has {path} and tree {i} has not; give trees of one structure"
            )
    for path in other_paths:
        if path not in first_paths:
            return ArgumentError(
                f"tree {i} has {path} and tree 0 has not; give trees of one structure"
            )
    return ArgumentError(
        f"tree 0 and tree {i} have containers of different structure; make them alike"
    )


def _ready_for_gradients(leaf: Leaf) -> Leaf:
    """A leaf that was just copied.

    A tensor becomes a leaf of the framework's graph.
    """
    owner = tensor_owner(leaf)
    if owner is None:
        return leaf
    return owner.collectives.leaf(leaf)


def all_reduce(tensors: Sequence[Tree], op: str = "sum") -> list[Tree]:
    """Reduce tensors over devices.

    The result is one new tensor per input, on that input's device, with the
    reduced value. Trees of equal structure may be given instead of tensors;
    they travel as one vector per device and dtype. Results share no memory,
    even on one device, and the inputs are not changed. The mean of equal
    numbers is that number, bit for bit. `xdevice.distributed.all_reduce`
    reduces over processes: it takes the process's own tensor or tree.

    Parameters
    ----------
    tensors
        A list of tensors, or of trees of tensors, one for each device; for
        `Replicas` the result is `Replicas`. ``None`` and strings in a tree
        pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.

    Raises
    ------
    ArgumentError
        The operation is unknown, the list is empty, or the trees differ in
        structure, shapes, dtypes or frameworks.
    ArgumentTypeError
        A tensor is not of numbers or not a plain array (it is sparse, for
        example), the mean is of integers, or there is a set in a tree.
    NotATensorError
        A leaf is not a tensor, or there are no tensors.
    NotSupportedError
        The call is inside `value_and_grad`.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.all_reduce([numpy.array([1.0, 2.0]), numpy.array([3.0, 4.0])], op="mean")
    [array([2., 3.]), array([2., 3.])]
    """
    check_operation(op)
    if known_of(type(tensors)).category is not None or not isinstance(tensors, (list, tuple)):
        raise ArgumentTypeError(
            f"all_reduce got an object of type {type(tensors).__name__}; give a list, with one "
            "tensor or tree of them for each device"
        )
    if not tensors:
        raise ArgumentError(
            "all_reduce was given an empty list; give one tensor, or tree of them, for each device"
        )
    flats = [LeavesByPlace(tree) for tree in tensors]
    if differentiating():
        raise NotSupportedError(
            "all_reduce has no gradient; call it outside value_and_grad, on the gradients"
        )
    results = _reduce_trees(flats, op)
    if isinstance(tensors, Replicas):
        return Replicas(results)
    return results


def _reduce_trees(flats: list[LeavesByPlace], op: str) -> list[Tree]:
    columns = _checked_columns(flats, op)
    # a leaf that appears twice in every tree is reduced once, and shared in
    # the results
    distinct: dict[tuple[int, ...], Column] = {}
    for column in columns:
        if not isinstance(column[0], PASSING):
            distinct[_identity(column)] = column
    weights = None
    if op == "mean":
        op = "sum"
        weights = [1 / len(flats)] * len(flats)
    buckets = reduce_columns(list(distinct.values()), op, weights)
    trees = []
    for i, flat in enumerate(flats):
        new_leaves = dict(zip(distinct, results_of(buckets, i), strict=True))
        trees.append(
            flat.rebuild(new_leaves.get(_identity(column), column[i]) for column in columns)
        )
    return trees


def _identity(column: Column) -> tuple[int, ...]:
    return tuple(map(id, column))


def not_reducible(kind: str, op: str) -> str:
    """The reason why numbers of that kind cannot be reduced.

    Empty if they can.
    """
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


def check_operation(op: object, operations: tuple[str, ...] = OPERATIONS) -> None:
    if op not in operations:
        names = ", ".join(map(repr, operations))
        hint = did_you_mean(op, operations, f"there are {names}")
        raise ArgumentError(f"no operation {shortened(op)}; {hint}")


def _checked_columns(flats: list[LeavesByPlace], op: str) -> list[Column]:
    """The corresponding leaves of alike trees, if they can be reduced."""
    check_alike(flats)
    for path, leaf in zip(flats[0].paths, flats[0].leaves, strict=True):
        try:
            _check_reducible(leaf, op)
        except XDeviceError as error:
            raise at_path(error, path) from error.__cause__
    columns: list[Column] = list(zip(*[flat.leaves for flat in flats], strict=True))
    for n, column in enumerate(columns):
        first = column[0]
        signature = _signature(first)
        for i, leaf in enumerate(column):
            if _signature(leaf) != signature:
                raise ArgumentError(
                    f"all_reduce was given {_description(first)}{flats[0].at(n)} in tree 0, and "
                    f"{_description(leaf)} in tree {i}; give trees of the same shapes, dtypes and "
                    "framework"
                )
    if all(isinstance(column[0], PASSING) for column in columns):
        trees = shortened([flat.tree for flat in flats])
        raise NotATensorError(
            f"there is no tensor to reduce in {trees}; give tensors, or trees of them"
        )
    return columns


def _check_reducible(leaf: Leaf, op: str) -> None:
    owner = tensor_owner(leaf)
    if owner is None:
        if not isinstance(leaf, PASSING):
            raise NotATensorError(
                f"all_reduce got an object of type {type(leaf).__name__}; give tensors"
            )
        return
    reason = not_reducible(owner.collectives.kind(leaf), op)
    if reason:
        raise ArgumentTypeError(f"all_reduce({op!r}) of {leaf.dtype}: {reason}")


def _signature(leaf: Leaf) -> tuple[object, ...]:
    """A value that is equal for leaves that can be reduced together."""
    owner = tensor_owner(leaf)
    if owner is None:
        return (type(leaf),)
    return owner, leaf.dtype, *leaf.shape


def _description(leaf: Leaf) -> str:
    owner = tensor_owner(leaf)
    if owner is None:
        return f"an object of type {type(leaf).__name__}"
    return f"a tensor of {owner}, {leaf.dtype} and shape {tuple(leaf.shape)}"
