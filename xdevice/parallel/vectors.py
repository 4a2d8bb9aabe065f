"""Several tensors in one transfer.

There is a vector for each framework, dtype and device.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor, Vector
from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import check_arrival
from xdevice.tensors.placement import owner_of

Column: TypeAlias = Sequence[Any]
"""A leaf of a tree in each of its replicas."""


class Pack(NamedTuple):
    """Tensors of one framework, dtype and device, sent as one vector."""

    owner: Backend
    device: Device
    members: list[int]
    """The numbers of the tensors in the list from which they come."""
    tensors: list[Tensor]

    def packed(self) -> Vector:
        return self.owner.collectives.pack(self.tensors)

    def unpacked(self, vector: Vector, like: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The vector's numbers in the shapes of these or other tensors."""
        if like is None:
            like = self.tensors
        return self.owner.collectives.unpack(vector, like)


def packs_of(tensors: Sequence[Tensor], labels: Sequence[Hashable] | None = None) -> list[Pack]:
    """The tensors in packs, in order.

    Tensors with different labels are in different packs.
    """
    packs: dict[Hashable, Pack] = {}
    for i, tensor in enumerate(tensors):
        owner = owner_of(tensor)
        device = owner.placement.device_of(tensor)
        label = labels[i] if labels is not None else None
        key = (owner, tensor.dtype, device, label)
        pack = packs.setdefault(key, Pack(owner, device, [], []))
        pack.members.append(i)
        pack.tensors.append(tensor)
    return list(packs.values())


class Bucket(NamedTuple):
    """A pack that every replica has, reduced to one vector on one device."""

    pack: Pack
    columns: list[Column]
    devices: tuple[Device, ...]
    """The device of each replica."""
    home: Device
    """The device on which the pack was reduced."""
    vector: Vector

    def tensors(self, replica: int | None) -> list[Tensor]:
        """The result in the members' shapes, on the replica's device.

        On the home if the replica is ``None``.

        Replicas share no memory: replica 0 has the reduced vector itself, the
        others copies.
        """
        if replica is None:
            return self.pack.unpacked(self.vector, [column[0] for column in self.columns])
        vector = self.vector
        if self.devices[replica] is not self.home:
            vector = moved(vector, self.pack.owner, self.devices[replica])
        elif replica > 0:
            vector = self.pack.owner.placement.copy(vector)
        return self.pack.unpacked(vector, [column[replica] for column in self.columns])


def reduce_columns(
    columns: Sequence[Column],
    op: str,
    weights: Sequence[float] | None,
    homes: Sequence[Device] | None = None,
) -> list[Bucket]:
    """Reduce each column on its home, or else on the first replica's device.

    With weights, which add up to 1, the reduction is the weighted mean.
    """
    devices = [tuple(map(owner_of(column[0]).placement.device_of, column)) for column in columns]
    if homes is None:
        homes = [devices_of_column[0] for devices_of_column in devices]
    packs = packs_of([column[0] for column in columns], list(zip(devices, homes, strict=True)))
    columns_of_packs = [[columns[i] for i in pack.members] for pack in packs]
    # Packing of all packs is queued before the first result is waited for.
    vectors_of_packs = [
        [pack.owner.collectives.pack(tensors) for tensors in zip(*pack_columns, strict=True)]
        for pack, pack_columns in zip(packs, columns_of_packs, strict=True)
    ]
    buckets: list[Bucket] = []
    for pack, pack_columns in zip(packs, columns_of_packs, strict=True):
        first_member = pack.members[0]
        replica_devices = devices[first_member]
        home = homes[first_member]
        # taken out, so that the memory is freed after the reduction
        vectors = vectors_of_packs.pop(0)
        vectors = [
            vector if device is home else moved(vector, pack.owner, home)
            for vector, device in zip(vectors, replica_devices, strict=True)
        ]
        if weights is None:
            result = pack.owner.collectives.reduce(vectors, op, None)
        else:
            result = _weighted_mean(pack.owner, vectors, weights)
        buckets.append(Bucket(pack, pack_columns, replica_devices, home, result))
    return buckets


def _weighted_mean(owner: Backend, vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """The weighted mean of vectors; the weights add up to 1.

    The mean of equal numbers is that number, bit for bit. If the number of
    vectors is a power of 2 and the weights are equal, it is computed as the
    sum times the weight, which is exact. Else the sum of the weighted vectors
    is rounded on the way, and is therefore limited to the range between the
    least and the greatest of the vectors.
    """
    reduce = owner.collectives.reduce
    n = len(vectors)
    is_power_of_2 = n & (n - 1) == 0
    dtype = str(vectors[0].dtype)
    may_overflow = "float16" in dtype and "bfloat16" not in dtype
    if is_power_of_2 and len(set(weights)) == 1 and not may_overflow:
        total = reduce(vectors, "sum", None)
        return reduce([total], "sum", [weights[0]])
    mean = reduce(vectors, "sum", weights)
    if owner.collectives.kind(mean) != "f":
        return mean  # complex numbers have no order
    least = reduce(vectors, "min", None)
    greatest = reduce(vectors, "max", None)
    mean = reduce([mean, greatest], "min", None)
    return reduce([mean, least], "max", None)


def results_of(buckets: Sequence[Bucket], replica: int | None) -> list[Tensor]:
    """The result for each column, on the replica's device.

    On the column's home if the replica is ``None``.
    """
    results: dict[int, Tensor] = {}
    for bucket in buckets:
        results.update(zip(bucket.pack.members, bucket.tensors(replica), strict=True))
    return [results[i] for i in range(len(results))]


def on_each_device(tensors: Sequence[Tensor], devices: Sequence[Device]) -> list[list[Tensor]]:
    """One framework's tensors on each device.

    Tensors on another device are copied.

    Copies are detached.
    """
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    packs = packs_of(distinct)
    vectors: dict[int, Vector] = {}  # by the number of the pack
    tensors_by_device: list[list[Tensor]] = []
    for device in devices:
        copies: dict[int, Tensor] = {}
        for i, pack in enumerate(packs):
            if pack.device is not device:
                if i not in vectors:
                    vectors[i] = pack.packed()
                parts = pack.unpacked(moved(vectors[i], pack.owner, device))
                copies.update(zip(map(id, pack.tensors), parts, strict=True))
        tensors_by_device.append([copies.get(id(tensor), tensor) for tensor in tensors])
    return tensors_by_device


def moved(tensor: Tensor, owner: Backend, device: Device, non_blocking: bool = True) -> Tensor:
    """The tensor on another device.

    `MisplacedError` if its framework put it elsewhere.
    """
    return check_arrival(owner.placement.move(tensor, device, non_blocking), owner, device)
