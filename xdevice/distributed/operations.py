"""Collectives over trees of tensors.

The tensors travel as one vector per framework, dtype and device.
"""

import re
from collections.abc import Callable
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Engine
from xdevice.distributed.deadlines import WORST_BANDWIDTH, WORST_BANDWIDTH_ON_ONE_HOST
from xdevice.distributed.group import Group, current
from xdevice.distributed.messages import Fingerprint
from xdevice.errors import ArgumentTypeError, NotATensorError, NotSupportedError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import known_of
from xdevice.integers import whole_number
from xdevice.parallel.replicas import PASSING, check_operation, not_reducible
from xdevice.parallel.vectors import Pack, packs_of
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.trees.by_place import check_ordered
from xdevice.tensors.trees.tree import FlatTree

Tensor: TypeAlias = Any
Vector: TypeAlias = Any
Action: TypeAlias = Callable[[Engine, Vector], list[Vector]]


def all_reduce(tree: Any, op: str = "sum") -> Any:
    """The tree with each tensor reduced over all processes.

    The results are new tensors, on the same devices.

    `xdevice.all_reduce` reduces over the devices of this process: it takes a
    list, with a tensor of each device.

    Every process gives a tree of the same structure, shapes and dtypes, which
    travels as one vector per dtype and device. Returns when the result is
    there. Gradients do not flow through: reduce gradients, outside the
    function that is differentiated.

    Parameters
    ----------
    tree
        A tensor, or nested containers of tensors. ``None`` and strings in it
        pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. A NaN in any process is
        a NaN in the result. The mean of equal numbers is that number; for it,
        other numbers of processes than 2 and 4 add up float32 in float64.

    Raises
    ------
    DistributedError
        Another process calls another collective, gives other shapes, has
        failed or has gone: its rank is named.
    DistributedTimeoutError
        Another process did not come in time.
    ArgumentTypeError
        Booleans, or a mean of integers.
    NotATensorError
        A leaf is a number or any other object.
    NotSupportedError
        Inside `value_and_grad`.

    Examples
    --------
    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.all_reduce({"w": numpy.array([1.0, 2.0])}, op="mean")
    {'w': array([1., 2.])}
    """
    check_operation(op)

    def action(engine: Engine, vector: Vector) -> list[Vector]:
        return [engine.all_reduce(vector, op)]

    return _collective(f"all_reduce({op!r})", tree, action, op)[0]


def broadcast(tree: Any, root: int = 0) -> Any:
    """The tree of the process with rank ``root``.

    The results are new tensors, on the devices of this process.

    Every process gives a tree of the same structure, shapes and dtypes; what
    is in it counts only on ``root``. Other errors are those of `all_reduce`.

    Raises
    ------
    ArgumentError
        ``root`` is not a rank of the job.

    Examples
    --------
    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.broadcast(numpy.array([1, 2]))
    array([1, 2])
    """
    size = current().job.world_size
    number = whole_number(
        root, f"root={root!r} is not a rank; this job has ranks 0 to {size - 1}", end=size
    )

    def action(engine: Engine, vector: Vector) -> list[Vector]:
        return [engine.broadcast(vector, number)]

    return _collective(f"broadcast({number})", tree, action)[0]


def all_gather(tree: Any) -> list[Any]:
    """The trees of all processes, in the order of ranks.

    The results are new tensors, on the devices of this process.

    Every process gives a tree of the same structure, shapes and dtypes. Errors
    are those of `all_reduce`.

    Examples
    --------
    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.all_gather(numpy.array([1, 2]))
    [array([1, 2])]
    """

    def action(engine: Engine, vector: Vector) -> list[Vector]:
        return engine.all_gather(vector)

    return _collective("all_gather", tree, action, copies=current().job.world_size)


def barrier() -> None:
    """Return when every process has called it.

    Errors are those of `all_reduce`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.barrier()
    """
    group = current()
    if group.membership is not None:
        with group.one_at_a_time("barrier"):
            group.membership.enter(Fingerprint("barrier"))


class _Leaf(NamedTuple):
    """A tensor of the tree, and its path as the end of a sentence."""

    tensor: Tensor
    at_path: str


def _collective(
    name: str, tree: Any, action: Action, op: str | None = None, copies: int = 1
) -> list[Any]:
    """The trees that the collective makes of this tree, as many as ``copies``.

    ``action`` lets an engine make that many vectors of one. ``op`` is given if
    it reduces.
    """
    group = current()
    flat = FlatTree(tree)
    check_ordered(flat)
    if differentiating():
        raise NotSupportedError(
            f"{name} has no gradient; call it outside value_and_grad, on the gradients"
        )
    leaves = _tensors_of(group, name, flat, op)
    packs = packs_of([leaf.tensor for leaf in leaves])
    # For each copy, the new tensors by the id of the tensor in this tree.
    new_tensors: list[dict[int, Tensor]] = [{} for _ in range(copies)]

    def transfer(pack: Pack, engine: Engine | None) -> None:
        vector = pack.packed()
        results = [vector] * copies
        if engine is not None:
            results = action(engine, vector)
        ids = [id(tensor) for tensor in pack.tensors]
        for tensors, result in zip(new_tensors, results, strict=True):
            tensors.update(zip(ids, pack.unpacked(result), strict=True))

    with group.one_at_a_time(name):
        if group.membership is not None:
            group.membership.enter(_fingerprint(name, leaves, packs))
        for pack in packs:
            count = sum(prod(tensor.shape) for tensor in pack.tensors)
            # An empty vector is not sent: it would abort TensorFlow's engine.
            send = partial(transfer, pack, group.engine if count else None)
            if group.membership is None:
                send()
            else:
                group.membership.work(name, send, _extra_seconds(group, pack, count))
    return [flat.replace(tensors) for tensors in new_tensors]


def _extra_seconds(group: Group, pack: Pack, count: int) -> float:
    """How long a transfer may take.

    An engine may send the numbers of all processes to each of them.
    """
    bits = re.search(r"\d+", dtype_name(pack.tensors[0].dtype))
    width = max(1, int(bits[0]) // 8) if bits else 1
    on_one_host = group.job.is_on_one_host
    bandwidth = WORST_BANDWIDTH_ON_ONE_HOST if on_one_host else WORST_BANDWIDTH
    return count * width * group.job.world_size / bandwidth


def _tensors_of(group: Group, name: str, flat: FlatTree, op: str | None) -> list[_Leaf]:
    """The tensors of the tree, each once.

    Errors if the collective cannot take one of them.
    """
    leaves: dict[int, _Leaf] = {}
    for path, leaf in sorted(flat.named(), key=itemgetter(0)):  # dicts may differ in their order
        if id(leaf) in leaves or isinstance(leaf, PASSING):
            continue
        at_path = f" at {path}" if path else ""
        owner = _owner(group, leaf, name, at_path)
        kind = owner.collectives.kind(leaf)  # raises for a tensor that is not a plain array
        reason = not_reducible(kind, op) if op else ""
        if reason:
            raise ArgumentTypeError(f"{name} of {dtype_name(leaf.dtype)}{at_path}: {reason}")
        leaves[id(leaf)] = _Leaf(leaf, at_path)
    if not leaves:
        raise NotATensorError(
            f"{name} was given {shortened(flat.tree)}, which contains no tensor; give tensors"
        )
    return list(leaves.values())


def _fingerprint(name: str, leaves: list[_Leaf], packs: list[Pack]) -> Fingerprint:
    """What the processes must agree on.

    It is each tensor's dtype, shape, device, path and vector.
    """
    vector_of = {}
    for number, pack in enumerate(packs):
        for tensor in pack.tensors:
            vector_of[id(tensor)] = number
    descriptions = []
    for tensor, at_path in leaves:
        number = vector_of[id(tensor)]
        device = packs[number].device
        text = f"{dtype_name(tensor.dtype)}{list(tensor.shape)} on {device.kind}{at_path}"
        descriptions.append(f"{text} in vector {number}" if number else text)
    return Fingerprint.of(name, descriptions)


def _owner(group: Group, leaf: Any, name: str, at_path: str) -> Backend:
    """The framework of the leaf.

    Errors if it is not a tensor, or not one that the engine takes.
    """
    known = known_of(type(leaf))
    if known.backend is None or known.category != "tensor":
        hint = "a tensor: xdevice.tensor makes one"
        if known.category == "model":
            hint = "its parameters, in a dict say"
        raise NotATensorError(
            f"{name} was given an object of type {type(leaf).__name__}{at_path}; give {hint}"
        )
    if group.owner is not None and known.backend != group.owner:
        raise NotATensorError(
            f"{name} was given a tensor of {known.backend}{at_path}, and this job runs on "
            f"{group.owner}'s engine; give its tensors"
        )
    return known.backend
