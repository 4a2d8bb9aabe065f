"""Collectives over trees of tensors: each packed into one vector per dtype and device, and back."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING, Any

from xdevice.device import as_integer
from xdevice.distributed.group import Group, current, work
from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, NotSupportedError, shortened
from xdevice.framework.ownership import owned_by
from xdevice.parallel.reducing import PASSING, check_operation, not_reducible
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.placement import device_of
from xdevice.tensors.tree import flatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.contract import Engine
    from xdevice.device import Device
    from xdevice.framework.adapters import Backend
    from xdevice.tensors.tree import Flat

LONGEST = 30_000
"""Characters of a description that all processes compare; what is longer is compared by its digest."""

_BETWEEN = "\x1f"  # ASCII's separator of units: no path has one


def all_reduce(tree: Any, op: str = "sum") -> Any:
    """The tree with each tensor reduced over all processes: new tensors, on the same devices.

    Every process gives a tree of the same structure, shapes and dtypes. It goes as one vector per dtype and
    device. Comes back when it is done. Gradients do not flow through: reduce gradients, outside the function
    that is differentiated.

    Parameters
    ----------
    tree
        A tensor, or nested containers of tensors. ``None`` and strings in it pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.

    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.all_reduce({"w": numpy.array([1.0, 2.0])}, op="mean")
    {'w': array([1., 2.])}

    Raises
    ------
    DistributedError
        Another process calls something else, gives other shapes, has failed or has gone: its rank is named.
    DistributedTimeoutError
        It did not come in time.
    ArgumentTypeError
        Booleans, or a mean of integers.
    NotATensorError
        A leaf is a number or any other object.
    NotSupportedError
        Inside `value_and_grad`.
    """
    check_operation(op)
    group = current()
    size = group.job.world_size

    def reduced(part: Part) -> list[Any]:
        vector = part.packed()
        if part.engine is None:
            return part.unpacked(vector)
        first = op == "mean" and part.narrow  # or the sum would be beyond its numbers
        if first:
            vector = part.owner.collectives.reduce([vector], "sum", [1 / size])
        vector = part.engine.all_reduce(vector, "sum" if op == "mean" else op)
        if op == "mean" and not first:
            vector = part.owner.collectives.reduce([vector], "sum", [1 / size])
        return part.unpacked(vector)

    flat = flatten(tree)
    found = _collective(group, f"all_reduce({op!r})", flat, reduced, partial(not_reducible, op=op))
    return _mapped(flat, found)


def broadcast(tree: Any, root: int = 0) -> Any:
    """The tree of the process with rank ``root``, in every process: new tensors, each on its own device.

    Every process gives a tree of the same structure, shapes and dtypes; what is in it counts only on ``root``.

    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.broadcast(numpy.array([1, 2]))
    array([1, 2])

    Raises
    ------
    ArgumentError
        No such rank.
    DistributedError, DistributedTimeoutError, NotATensorError, NotSupportedError
        As `all_reduce`.
    """
    group = current()
    number = as_integer(root)
    if number is None:
        raise ArgumentTypeError(f"root={root!r} is no rank; give an integer from 0 to {group.job.world_size - 1}")
    if not 0 <= number < group.job.world_size:
        raise ArgumentError(f"there is no rank {number} among {group.job.world_size}; give the rank that sends")

    def sent(part: Part) -> list[Any]:
        vector = part.packed()
        return part.unpacked(vector if part.engine is None else part.engine.broadcast(vector, number))

    flat = flatten(tree)
    return _mapped(flat, _collective(group, f"broadcast({number})", flat, sent))


def all_gather(tree: Any) -> list[Any]:
    """The trees of all processes, in the order of ranks: new tensors, on the devices of this process's own.

    Every process gives a tree of the same structure, shapes and dtypes.

    >>> import numpy
    >>> from xdevice import distributed
    >>> distributed.all_gather(numpy.array([1, 2]))
    [array([1, 2])]

    Raises
    ------
    DistributedError, DistributedTimeoutError, NotATensorError, NotSupportedError
        As `all_reduce`.
    """
    group = current()

    size = group.job.world_size

    def gathered(part: Part) -> list[Any]:
        vector = part.packed()
        vectors = [vector] * size if part.engine is None else part.engine.all_gather(vector)
        return list(zip(*[part.unpacked(v) for v in vectors], strict=True))

    flat = flatten(tree)
    found = _collective(group, "all_gather", flat, gathered)
    return [_mapped(flat, {leaf: of_ranks[r] for leaf, of_ranks in found.items()}) for r in range(size)]


def barrier() -> None:
    """Come back when every process has called it.

    >>> from xdevice import distributed
    >>> distributed.barrier()

    Raises
    ------
    DistributedError, DistributedTimeoutError
        As `all_reduce`.
    """
    group = current()
    if group.members is not None:
        with group.alone("barrier"):
            group.members.enter("barrier")


class Part:
    """The tensors of one framework, dtype and device, which travel as one vector."""

    def __init__(self, owner: Backend, device: Device, group: Group, number: int) -> None:
        self.owner, self.device, self.number, self._group = owner, device, number, group
        self.tensors: list[Any] = []
        self.numbers = 0

    @property
    def engine(self) -> Engine | None:
        """What there is to send the vector with; an empty one is not sent, which some engines would not survive."""
        return self._group.engine if self.numbers else None

    @property
    def narrow(self) -> bool:
        """Whether its numbers end at 65504."""
        return dtype_name(self.tensors[0].dtype) == "float16"

    def packed(self) -> Any:
        return self.owner.collectives.pack(self.tensors)

    def unpacked(self, vector: Any) -> list[Any]:
        return self.owner.collectives.unpack(vector, self.tensors)


def _collective(
    group: Group,
    name: str,
    flat: Flat,
    act: Callable[[Part], list[Any]],
    allowed: Callable[[str], str] = lambda kind: "",
) -> dict[int, Any]:
    """What has become of each tensor of the tree, by its id."""
    if differentiating():
        raise NotSupportedError(f"{name} has no gradient; call it outside value_and_grad, on the gradients")
    parts, what = _parts(group, name, flat, allowed)
    found: dict[int, Any] = {}
    with group.alone(name):
        if group.members is not None:
            group.members.enter(what)
        for part in parts:
            found.update(zip(map(id, part.tensors), work(group, name, partial(act, part)), strict=True))
    return found


def _mapped(flat: Flat, found: dict[int, Any]) -> Any:
    return flat.map(lambda leaf: found.get(id(leaf), leaf))


def _parts(group: Group, name: str, flat: Flat, allowed: Callable[[str], str]) -> tuple[list[Part], str]:
    """The tensors of the tree, each once, in the vectors that they form; and the words that all must agree on."""
    parts: dict[Any, Part] = {}
    seen: set[int] = set()
    said: list[str] = []
    if flat.unordered:
        raise ArgumentTypeError(f"{name} was given a set, whose order differs between processes; give a list")
    for path, leaf in flat.named():
        if id(leaf) in seen or isinstance(leaf, PASSING):
            continue
        seen.add(id(leaf))
        where = f" at {path}" if path else ""
        owner = _owner(group, leaf, name, where)
        wrong = allowed(owner.collectives.kind(leaf))
        if wrong:
            raise ArgumentTypeError(f"{name} of {dtype_name(leaf.dtype)}{where}: {wrong}")
        device, shape = device_of(leaf), tuple(leaf.shape)
        part = parts.setdefault((owner, leaf.dtype, device), Part(owner, device, group, len(parts)))
        part.tensors.append(leaf)
        part.numbers += prod(shape)
        said.append(
            f"{dtype_name(leaf.dtype)}{list(shape)} on {device.kind}{where}"
            + (f" in vector {part.number}" if part.number else "")
        )
    if not parts:
        raise NotATensorError(f"{name} was given {shortened(flat.tree)}, in which there is no tensor; give tensors")
    return list(parts.values()), _described(name, said)


def _owner(group: Group, leaf: Any, name: str, where: str) -> Backend:
    owned = owned_by(leaf)
    if owned is None or not owned.is_tensor:
        hint = "its parameters, in a dict say" if owned else "a tensor: xdevice.tensor makes one"
        raise NotATensorError(f"{name} was given an object of type {type(leaf).__name__}{where}; give {hint}")
    if owned.backend != group.owner and group.bound:
        raise NotATensorError(
            f"{name} was given a tensor of {owned.backend}{where}, and this job runs on {group.owner}'s engine; "
            "give its tensors, or start with engine='mpi'"
        )
    return owned.backend


def _described(name: str, said: list[str]) -> str:
    """``name|tensor;tensor…``, without line breaks."""
    text = f"{name}|{_BETWEEN.join(said)}".replace("\n", " ")
    if len(text) <= LONGEST:
        return text
    return f"{name}|{len(said)} tensors with the digest {blake2b(text.encode(), digest_size=16).hexdigest()}"
