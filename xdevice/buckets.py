"""Tensors that travel together: one vector, and so one transfer, per device and dtype."""

from __future__ import annotations

from xdevice.placement import owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from xdevice.adapters import Backend
    from xdevice.device import Device

    Column = Sequence[Any]  # one leaf of a tree, in each of the replicas


class Bucket:
    """Those leaves of several replicas that are of one dtype and lie alike, to be reduced on one device."""

    __slots__ = ("columns", "home", "members", "owner", "places", "vector", "vectors")

    def __init__(self, owner: Backend, places: tuple[Device, ...], home: Device) -> None:
        self.owner, self.places, self.home = owner, places, home
        self.members: list[int] = []  # which columns
        self.columns: list[Column] = []
        self.vectors: list[Any] = []
        self.vector: Any = None

    def pack(self) -> None:
        """One vector of each replica, where that is."""
        self.vectors = [self.owner.collectives.pack(replica) for replica in zip(*self.columns, strict=True)]

    def reduce(self, op: str, weights: Sequence[float] | None) -> None:
        """Those vectors brought home, and in one."""
        pairs = zip(self.vectors, self.places, strict=True)
        there = [v if place is self.home else moved(v, self.owner, self.home) for v, place in pairs]
        self.vector = self.owner.collectives.reduce(there, op, weights)
        self.vectors = []

    def tensors(self, i: int | None = None) -> list[Any]:
        """What has come out, in the members' shapes: on the device of replica ``i``, or at home."""
        vector = self.vector
        if i is not None and self.places[i] is not self.home:
            vector = moved(vector, self.owner, self.places[i])
        elif i:  # replica 0 has it already
            vector = self.owner.placement.copy(vector)
        return self.owner.collectives.unpack(vector, [column[i or 0] for column in self.columns])


def reduced(
    columns: Sequence[Column], op: str, weights: Sequence[float] | None, homes: Sequence[Device] | None = None
) -> list[Bucket]:
    """The columns in buckets, each reduced: on its first device, or where its home is."""
    buckets: dict[Any, Bucket] = {}
    for j, column in enumerate(columns):
        owner = owner_of(column[0])
        places = tuple([owner.placement.device_of(tensor) for tensor in column])
        home = homes[j] if homes else places[0]
        key = owner, column[0].dtype, places, home
        bucket = buckets.get(key)
        if bucket is None:
            bucket = buckets[key] = Bucket(owner, places, home)
        bucket.members.append(j)
        bucket.columns.append(column)
    for bucket in buckets.values():
        bucket.pack()  # all work is queued before the first result is waited for
    for bucket in buckets.values():
        bucket.reduce(op, weights)
    return list(buckets.values())


def in_order(buckets: Sequence[Bucket], i: int | None) -> list[Any]:
    """What has come out for each column, on the device of replica ``i``, or at home."""
    found = {j: t for bucket in buckets for j, t in zip(bucket.members, bucket.tensors(i), strict=True)}
    return [found[j] for j in range(len(found))]


def spread(tensors: Sequence[Any], devices: Sequence[Device]) -> list[list[Any]]:
    """One framework's tensors on each of the devices, of no graph where they had to move; the same ones where not."""
    owner = owner_of(tensors[0])
    together: dict[Any, dict[int, Any]] = {}  # by place and dtype, each tensor once
    for tensor in tensors:
        together.setdefault((owner.placement.device_of(tensor), tensor.dtype), {})[id(tensor)] = tensor
    vectors: dict[Any, Any] = {}
    found: list[list[Any]] = []
    for device in devices:
        there: dict[int, Any] = {}
        for (place, dtype), some in together.items():
            if place is not device:
                if (place, dtype) not in vectors:
                    vectors[place, dtype] = owner.collectives.pack(list(some.values()))
                vector = moved(vectors[place, dtype], owner, device)
                there.update(zip(some, owner.collectives.unpack(vector, list(some.values())), strict=True))
        found.append([there.get(id(tensor), tensor) for tensor in tensors])
    return found


def moved(tensor: Any, owner: Backend, device: Device, non_blocking: bool = True) -> Any:
    """The tensor on another device, as its framework says itself."""
    there = owner.placement.move(tensor, device, non_blocking)
    found = owner.placement.device_of(there)
    if found is not device:
        from xdevice.explain import misplaced

        raise misplaced(owner, device, {found})
    return there
