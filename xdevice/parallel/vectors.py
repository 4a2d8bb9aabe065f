"""Tensors that travel together: one vector, and so one transfer, per framework, dtype and device."""

from collections.abc import Sequence
from typing import Any

from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival
from xdevice.tensors.owning import owner_of

Column = Sequence[Any]  # one leaf of a tree, in each of the replicas


class Pack:
    """Tensors of one framework, dtype and device, which travel as one vector; ``members`` are their numbers."""

    __slots__ = ("device", "members", "owner", "tensors")

    def __init__(self, owner: Backend, device: Device) -> None:
        self.owner, self.device = owner, device
        self.members: list[int] = []
        self.tensors: list[Any] = []

    def packed(self) -> Any:
        return self.owner.collectives.pack(self.tensors)

    def unpacked(self, vector: Any, like: Sequence[Any] | None = None) -> list[Any]:
        """A vector's numbers in the shapes of the tensors, or of others like them."""
        return self.owner.collectives.unpack(vector, self.tensors if like is None else like)


def packs_of(tensors: Sequence[Any], and_by: Sequence[Any] | None = None) -> list[Pack]:
    """The tensors in packs, in order; those that differ in ``and_by`` are kept apart, too."""
    found: dict[Any, Pack] = {}
    for i, tensor in enumerate(tensors):
        owner = owner_of(tensor)
        device = owner.placement.device_of(tensor)
        key = owner, tensor.dtype, device, and_by[i] if and_by is not None else None
        pack = found.setdefault(key, Pack(owner, device))
        pack.members.append(i)
        pack.tensors.append(tensor)
    return list(found.values())


class Bucket:
    """A pack that every replica has, to be reduced on one device."""

    __slots__ = ("_columns", "_home", "_places", "_vector", "_vectors", "pack")

    def __init__(self, pack: Pack, columns: list[Column], places: tuple[Device, ...], home: Device) -> None:
        self.pack, self._columns, self._places, self._home = pack, columns, places, home
        self._vectors = [pack.owner.collectives.pack(tensors) for tensors in zip(*columns, strict=True)]
        self._vector: Any = None

    def reduce(self, op: str, weights: Sequence[float] | None) -> None:
        pairs = zip(self._vectors, self._places, strict=True)
        there = [v if place is self._home else moved(v, self.pack.owner, self._home) for v, place in pairs]
        owner = self.pack.owner
        self._vector = owner.collectives.reduce(there, op, None) if weights is None else _mean(owner, there, weights)
        self._vectors = []

    def tensors(self, i: int | None = None) -> list[Any]:
        """The result in the members' shapes: on the device of replica ``i``, or where it was reduced."""
        vector = self._vector
        if i is not None and self._places[i] is not self._home:
            vector = moved(vector, self.pack.owner, self._places[i])
        elif i:  # replica 0 has it already
            vector = self.pack.owner.placement.copy(vector)
        return self.pack.unpacked(vector, [column[i or 0] for column in self._columns])


def _mean(owner: Backend, vectors: Sequence[Any], weights: Sequence[float]) -> Any:
    """Their weighted mean, of weights that add up to 1; that of equal numbers is that number, bit for bit.

    A sum of n numbers, or of n parts of them, is rounded on the way: what comes out is between the least and
    the greatest of them, and so it is put there. Where n is a power of 2, dividing the sum is exact.
    """
    reduce = owner.collectives.reduce
    n = len(vectors)
    if n & (n - 1) == 0 and len(set(weights)) == 1 and "float16" not in str(vectors[0].dtype).replace("bfloat16", ""):
        return reduce([reduce(vectors, "sum", None)], "sum", [weights[0]])
    found = reduce(vectors, "sum", weights)
    if owner.collectives.kind(found) != "f":
        return found  # complex numbers have no order
    least, greatest = reduce(vectors, "min", None), reduce(vectors, "max", None)
    return reduce([reduce([found, greatest], "min", None), least], "max", None)


def reduced(
    columns: Sequence[Column], op: str, weights: Sequence[float] | None, homes: Sequence[Device] | None = None
) -> list[Bucket]:
    """The columns in buckets, each reduced on the columns' homes, or else on the first replica's device.

    With weights, which add up to 1, the reduction is their mean.
    """
    where = [tuple(map(owner_of(column[0]).placement.device_of, column)) for column in columns]
    homes = [places[0] for places in where] if homes is None else homes
    buckets = [
        Bucket(pack, [columns[j] for j in pack.members], where[pack.members[0]], homes[pack.members[0]])
        for pack in packs_of([column[0] for column in columns], list(zip(where, homes, strict=True)))
    ]
    for bucket in buckets:  # all are packed, and that work queued, before the first result is waited for
        bucket.reduce(op, weights)
    return buckets


def in_order(buckets: Sequence[Bucket], i: int | None) -> list[Any]:
    """The result for each column, on the device of replica ``i``, or where it was reduced."""
    found = {j: t for bucket in buckets for j, t in zip(bucket.pack.members, bucket.tensors(i), strict=True)}
    return [found[j] for j in range(len(found))]


def spread(tensors: Sequence[Any], devices: Sequence[Device]) -> list[list[Any]]:
    """One framework's tensors on each of the devices: detached copies where they have to move, else themselves."""
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    packs = packs_of(distinct)
    vectors: dict[int, Any] = {}  # by the number of the pack
    found: list[list[Any]] = []
    for device in devices:
        there: dict[int, Any] = {}
        for k, pack in enumerate(packs):
            if pack.device is not device:
                if k not in vectors:
                    vectors[k] = pack.packed()
                parts = pack.unpacked(moved(vectors[k], pack.owner, device))
                there.update(zip(map(id, pack.tensors), parts, strict=True))
        found.append([there.get(id(tensor), tensor) for tensor in tensors])
    return found


def moved(tensor: Any, owner: Backend, device: Device, non_blocking: bool = True) -> Any:
    """The tensor on another device, where its framework is checked to have put it."""
    return check_arrival(owner.placement.move(tensor, device, non_blocking), owner, device)
