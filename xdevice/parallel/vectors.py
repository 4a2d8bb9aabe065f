"""Tensors that travel together: one vector, and so one transfer, per framework, dtype and device."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival
from xdevice.tensors.placement import owner_of

Column = Sequence[Any]  # one leaf of a tree, in each of the replicas


class Pack(NamedTuple):
    """Tensors of one framework, dtype and device, which travel as one vector; ``members`` are their numbers."""

    owner: Backend
    device: Device
    members: list[int]
    tensors: list[Any]

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
        pack = found.setdefault(key, Pack(owner, device, [], []))
        pack.members.append(i)
        pack.tensors.append(tensor)
    return list(found.values())


class Bucket(NamedTuple):
    """A pack that every replica has, reduced to one vector on one device."""

    pack: Pack
    columns: list[Column]
    places: tuple[Device, ...]
    home: Device
    vector: Any

    def tensors(self, i: int | None = None) -> list[Any]:
        """The result in the members' shapes: on the device of replica ``i``, or where it was reduced."""
        pack, vector = self.pack, self.vector
        if i is not None and self.places[i] is not self.home:
            vector = moved(vector, pack.owner, self.places[i])
        elif i:  # replica 0 has it already
            vector = pack.owner.placement.copy(vector)
        return pack.unpacked(vector, [column[i or 0] for column in self.columns])


def _mean(owner: Backend, vectors: Sequence[Any], weights: Sequence[float]) -> Any:
    """Their weighted mean, of weights that add up to 1; that of equal numbers is that number, bit for bit.

    A sum of n numbers, or of n parts of them, is rounded on the way: what comes out is between the least and
    the greatest of them, and so it is put there. Where n is a power of 2, dividing the sum is exact.
    """
    reduce = owner.collectives.reduce
    n = len(vectors)
    if (
        n & (n - 1) == 0
        and len(set(weights)) == 1
        and "float16" not in str(vectors[0].dtype).replace("bfloat16", "")
    ):
        return reduce([reduce(vectors, "sum", None)], "sum", [weights[0]])
    found = reduce(vectors, "sum", weights)
    if owner.collectives.kind(found) != "f":
        return found  # complex numbers have no order
    least, greatest = reduce(vectors, "min", None), reduce(vectors, "max", None)
    return reduce([reduce([found, greatest], "min", None), least], "max", None)


def reduced(
    columns: Sequence[Column],
    op: str,
    weights: Sequence[float] | None,
    homes: Sequence[Device] | None = None,
) -> list[Bucket]:
    """The columns in buckets, each reduced on the columns' homes, or else on the first replica's device.

    With weights, which add up to 1, the reduction is their mean.
    """
    where = [tuple(map(owner_of(column[0]).placement.device_of, column)) for column in columns]
    homes = [places[0] for places in where] if homes is None else homes
    packs = packs_of([column[0] for column in columns], list(zip(where, homes, strict=True)))
    # all are packed, and that work queued, before the first result is waited for
    members = [[columns[j] for j in pack.members] for pack in packs]
    packed = [
        list(map(pack.owner.collectives.pack, zip(*own, strict=True)))
        for pack, own in zip(packs, members, strict=True)
    ]
    buckets: list[Bucket] = []
    for pack, own in zip(packs, members, strict=True):
        owner, places, home = pack.owner, where[pack.members[0]], homes[pack.members[0]]
        pairs = zip(packed.pop(0), places, strict=True)
        there = [vector if place is home else moved(vector, owner, home) for vector, place in pairs]
        vector = (
            owner.collectives.reduce(there, op, None)
            if weights is None
            else _mean(owner, there, weights)
        )
        buckets.append(Bucket(pack, own, places, home, vector))
    return buckets


def in_order(buckets: Sequence[Bucket], i: int | None) -> list[Any]:
    """The result for each column, on the device of replica ``i``, or where it was reduced."""
    found = {
        j: t
        for bucket in buckets
        for j, t in zip(bucket.pack.members, bucket.tensors(i), strict=True)
    }
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
