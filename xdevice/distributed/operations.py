"""Collectives over trees of tensors, which travel as one vector per framework, dtype and device."""

import re
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from xdevice.contract import Engine
from xdevice.device import whole_number
from xdevice.distributed.failures import WORST_BANDWIDTH
from xdevice.distributed.group import Group, current
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.errors import ArgumentTypeError, NotATensorError, NotSupportedError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import owned_by
from xdevice.parallel.replicas import PASSING, check_operation, not_reducible
from xdevice.parallel.vectors import Pack, packs_of
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.trees.tree import Flat, flatten


def all_reduce(tree: Any, op: str = "sum") -> Any:
    """The tree with each tensor reduced over all processes: new tensors, on the same devices.

    `xdevice.all_reduce` reduces over the devices of this process: it takes a list, with a tensor of
    each device.

    Every process gives a tree of the same structure, shapes and dtypes, which travels as one vector
    per dtype and device. Returns when the result is there. Gradients do not flow through: reduce
    gradients, outside the function that is differentiated.

    Parameters
    ----------
    tree
        A tensor, or nested containers of tensors. ``None`` and strings in it pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. A NaN in any process is a NaN in the result.
        The mean of equal numbers is that number; for it, other numbers of processes than 2 and 4
        add up float32 in float64.

    Raises
    ------
    DistributedError
        Another process calls another collective, gives other shapes, has failed or has gone: its
        rank is named.
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
    return _collective(
        f"all_reduce({op!r})", tree, lambda engine, vector: [engine.all_reduce(vector, op)], op
    )[0]


def broadcast(tree: Any, root: int = 0) -> Any:
    """The tree of the process with rank ``root``, in every process: new tensors, each on its own device.

    Every process gives a tree of the same structure, shapes and dtypes; what is in it counts only
    on ``root``. Other errors are those of `all_reduce`.

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
    return _collective(
        f"broadcast({number})", tree, lambda engine, vector: [engine.broadcast(vector, number)]
    )[0]


def all_gather(tree: Any) -> list[Any]:
    """The trees of all processes, in the order of ranks: new tensors, on the devices of this process's own.

    Every process gives a tree of the same structure, shapes and dtypes. Errors are those of
    `all_reduce`.

    Examples
    --------
    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.all_gather(numpy.array([1, 2]))
    [array([1, 2])]
    """
    size = current().job.world_size
    return _collective(
        "all_gather", tree, lambda engine, vector: engine.all_gather(vector), copies=size
    )


def barrier() -> None:
    """Return when every process has called it. Errors are those of `all_reduce`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.barrier()
    """
    group = current()
    if group.membership is not None:
        with group.one_at_a_time("barrier"):
            group.membership.enter(Fingerprint("barrier"))


def _collective(
    name: str,
    tree: Any,
    act: Callable[[Engine, Any], list[Any]],
    op: str | None = None,
    copies: int = 1,
) -> list[Any]:
    """The trees, ``copies`` in number, of the vectors that the engine makes of each vector; ``op`` if it reduces."""
    group, flat = current(), flatten(tree)
    if differentiating():
        raise NotSupportedError(
            f"{name} has no gradient; call it outside value_and_grad, on the gradients"
        )
    places = _places(group, name, flat, op)
    packs = packs_of([leaf for leaf, _ in places])
    found: list[dict[int, Any]] = [
        {} for _ in range(copies)
    ]  # by the id of the tensor in this tree

    def transfer(pack: Pack, engine: Engine | None) -> None:
        vector = pack.packed()
        for new, result in zip(
            found, [vector] * copies if engine is None else act(engine, vector), strict=True
        ):
            new.update(zip(map(id, pack.tensors), pack.unpacked(result), strict=True))

    with group.one_at_a_time(name):
        if group.membership is not None:
            group.membership.enter(_fingerprint(name, places, packs))
        for pack in packs:
            numbers = sum(prod(tensor.shape) for tensor in pack.tensors)
            # an empty vector is not sent: TensorFlow's engine would not survive it
            send = partial(transfer, pack, group.engine if numbers else None)
            if group.membership is None:
                send()
            else:  # an engine may send the bytes of all processes to each
                bits = re.search(r"\d+", dtype_name(pack.tensors[0].dtype))
                width = max(1, int(bits[0]) // 8) if bits else 1
                extra = numbers * width * group.job.world_size / WORST_BANDWIDTH
                group.membership.work(name, send, extra)
    return [flat.rebuild([new.get(id(leaf), leaf) for leaf in flat.leaves]) for new in found]


def _places(group: Group, name: str, flat: Flat, op: str | None) -> list[tuple[Any, str]]:
    """The tensors of the tree, each once, with where it is as the end of a sentence."""
    found: dict[int, tuple[Any, str]] = {}
    if flat.unordered:
        raise ArgumentTypeError(
            f"{name} was given a set, whose order differs between processes; give a list"
        )
    for path, leaf in flat.named():
        if id(leaf) in found or isinstance(leaf, PASSING):
            continue
        where = f" at {path}" if path else ""
        kind = _owner(group, leaf, name, where).collectives.kind(
            leaf
        )  # which raises for what is not a plain tensor
        wrong = not_reducible(kind, op) if op else ""
        if wrong:
            raise ArgumentTypeError(f"{name} of {dtype_name(leaf.dtype)}{where}: {wrong}")
        found[id(leaf)] = leaf, where
    if not found:
        raise NotATensorError(
            f"{name} was given {shortened(flat.tree)}, which contains no tensor; give tensors"
        )
    return list(found.values())


def _fingerprint(name: str, places: list[tuple[Any, str]], packs: list[Pack]) -> Fingerprint:
    vector_of = {id(tensor): number for number, pack in enumerate(packs) for tensor in pack.tensors}
    described = []
    for leaf, where in places:
        number = vector_of[id(leaf)]
        what = f"{dtype_name(leaf.dtype)}{list(leaf.shape)} on {packs[number].device.kind}{where}"
        described.append(f"{what} in vector {number}" if number else what)
    return Fingerprint.of(name, described)


def _owner(group: Group, leaf: Any, name: str, where: str) -> Backend:
    owned = owned_by(leaf)
    if owned is None or not owned.is_tensor:
        hint = "its parameters, in a dict say" if owned else "a tensor: xdevice.tensor makes one"
        raise NotATensorError(
            f"{name} was given an object of type {type(leaf).__name__}{where}; give {hint}"
        )
    if group.owner is not None and owned.backend != group.owner:
        why = (
            f"this job runs on {group.owner}'s engine; give its tensors, or start with engine='mpi'"
        )
        raise NotATensorError(f"{name} was given a tensor of {owned.backend}{where}, and {why}")
    return owned.backend
