"""Collectives of one host's processes through shared memory, without sockets.

Each process writes its vector into a row of a file that all have mapped. After
a barrier each process reduces its own part of the columns, or all columns of a
short vector. It adds up in the order of ranks, so every process and every run
gets the same bits.

The file and the barrier's FIFOs are in a folder of mode 0700, which must belong
to this user. The folder is removed as soon as every process has opened
the files in it. So the system frees the memory when the last process ends,
also when that process is killed.
"""

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from xdevice.backends.kit.reducing import summed_in
from xdevice.contract import HOW_TO_TRUST, Job
from xdevice.errors import DistributedError, DistributedTimeoutError

Array = np.ndarray[Any, Any]

# Of the memory, for any number of processes: it fits into a processor's cache
# and a container's /dev/shm.
_BYTES = 16 << 20
# Bytes of all rows together that each process reduces alone, which is faster
# than another barrier.
_SMALL = 1 << 16
_PAGE = 4096  # a row's length is a multiple of it
_POLL_INTERVAL = 0.005  # seconds between checks for the folder, which rank 0 makes
_COMBINE = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


class SharedMemory:
    """One process's part in the collectives.

    The memory has two halves with one row for each process in each. ``name``
    is the job's; no other job of this user has it. `DistributedTimeoutError`:
    rank 0 has not made the memory within ``timeout`` seconds, or has made it
    in another container.
    """

    def __init__(self, rank: int, size: int, name: str, timeout: float) -> None:
        self.rank, self.size, self._timeout = rank, size, timeout
        self._row_bytes = max(_PAGE, _BYTES // (2 * size) // _PAGE * _PAGE)
        self._half = 0
        # Descriptors of FIFOs: rank 0 has one for every other process, the
        # others one for rank 0.
        self._writers: list[int] = []
        self._readers: list[int] = []
        folder = _parent() / f"xdevice-{os.geteuid()}-{name}"
        try:
            self._memory = self._create(folder) if rank == 0 else self._open(folder)
        except BaseException:
            self.close()
            raise

    def all_reduce(self, vector: Array, op: str) -> Array:
        """The ``sum``, ``mean``, ``max`` or ``min`` of all vectors; NaN if one of them has NaN.

        Floating-point numbers of 16 bits and fewer are added up in ``float32``
        and rounded once.
        """
        result = np.empty_like(vector)
        for piece, rows in self._pieces(vector):
            rows[self.rank] = vector[piece]
            self._barrier()
            if rows.nbytes <= _SMALL:
                result[piece] = _reduced(rows, op)
                continue
            columns = rows.shape[1]
            first = self.rank * columns // self.size
            last = (self.rank + 1) * columns // self.size
            rows[0, first:last] = _reduced(rows[:, first:last], op)
            self._barrier()
            result[piece] = rows[0]
        return result

    def broadcast(self, vector: Array, root: int) -> Array:
        """The vector of the process with rank ``root``."""
        result = np.empty_like(vector)
        for piece, rows in self._pieces(vector):
            if self.rank == root:
                rows[root] = vector[piece]
            self._barrier()
            result[piece] = rows[root]
        return result

    def all_gather(self, vector: Array) -> Array:
        """The vectors of all processes, in the order of ranks: one row for each."""
        result = np.empty((self.size, vector.size), vector.dtype)
        for piece, rows in self._pieces(vector):
            rows[self.rank] = vector[piece]
            self._barrier()
            result[:, piece] = rows
        return result

    def close(self) -> None:
        """Leave. A process that still waits at the barrier gets an error."""
        for descriptor in (*self._writers, *self._readers):
            os.close(descriptor)
        self._writers = []
        self._readers = []

    def _pieces(self, vector: Array) -> Iterator[tuple[slice, Array]]:
        """Parts of the vector that fit into a row, with the rows of memory.

        They alternate between the halves of the memory: a process that writes
        into one half has passed the other half's barrier, so all processes
        have read what this half contained.
        """
        step = self._row_bytes // vector.itemsize
        for begin in range(0, vector.size, step):
            count = min(step, vector.size - begin)
            offset = self._half * self.size * self._row_bytes
            rows: Array = np.ndarray(
                shape=(self.size, count),
                dtype=vector.dtype,
                buffer=self._memory,
                offset=offset,
                strides=(self._row_bytes, vector.itemsize),
            )
            yield slice(begin, begin + count), rows
            self._half = 1 - self._half

    def _barrier(self) -> None:
        """Return when every process has called it.

        The kernel makes what was written to the memory before a FIFO visible
        to the FIFO's reader.
        """
        try:
            if self.rank:
                self._signal()
            for descriptor in self._readers:
                if not os.read(descriptor, 1):
                    raise ConnectionError("another process has ended")
            if self.rank == 0:
                self._signal()
        except BaseException:
            self.close()  # the other processes would wait for this one
            raise

    def _signal(self) -> None:
        for descriptor in self._writers:
            os.write(descriptor, b".")

    # The start. Opening a FIFO waits for the process at its other end.

    def _create(self, folder: Path) -> mmap.mmap:
        """Rank 0 makes the files, and removes their names.

        It waits until all processes have opened the files.
        """
        _remove_abandoned(folder.parent)
        new = Path(tempfile.mkdtemp(prefix=".xdevice-", dir=folder.parent))
        try:
            memory = os.open(new / "memory", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            _lock(memory)  # until this process ends, or has removed the names
            for rank in range(1, self.size):
                os.mkfifo(new / f"from-{rank}", 0o600)
                os.mkfifo(new / f"to-{rank}", 0o600)
            new = new.rename(folder)  # the other processes see the folder when it is complete
            for rank in range(1, self.size):
                reader = os.open(new / f"from-{rank}", os.O_RDONLY)
                self._readers.append(reader)
                self._writers.append(os.open(new / f"to-{rank}", os.O_WRONLY))
                os.read(reader, 1)
        finally:
            rmtree(new, ignore_errors=True)
        # Last, so that a job that fails earlier leaves no memory behind.
        _reserve(memory, 2 * self.size * self._row_bytes)
        self._signal()
        return self._mapped(memory)

    def _open(self, folder: Path) -> mmap.mmap:
        """The other ranks open the files that rank 0 has made."""
        deadline = time.monotonic() + self._timeout
        while not folder.exists():
            if time.monotonic() > deadline:
                raise DistributedTimeoutError(
                    f"rank 0 has made no shared memory in {str(folder.parent)!r} for "
                    f"{self._timeout:g} s: it is stopped, or in another container; let the "
                    "containers share that folder, or start with trust_network=True"
                )
            time.sleep(_POLL_INTERVAL)
        if folder.stat().st_uid != os.geteuid():
            raise DistributedError(f"{str(folder)!r} belongs to another user; start the job again")
        self._writers.append(os.open(folder / f"from-{self.rank}", os.O_WRONLY))
        self._readers.append(os.open(folder / f"to-{self.rank}", os.O_RDONLY))
        memory = os.open(folder / "memory", os.O_RDWR)
        self._barrier()
        return self._mapped(memory)

    def _mapped(self, memory: int) -> mmap.mmap:
        try:
            return mmap.mmap(memory, 2 * self.size * self._row_bytes)
        finally:
            os.close(memory)


def join_on_one_host(job: Job, timeout: float, engine: str) -> SharedMemory | None:
    """A one-host job's shared memory; ``None`` if the job spans hosts or trusts its network.

    `DistributedError`: the system has no FIFOs (Windows). The message says
    that ``engine``, which would replace the memory, listens on all interfaces.
    """
    if job.trusts_network or not job.is_on_one_host:
        return None
    if not hasattr(os, "mkfifo"):
        reason = (
            f"this system has no FIFOs for shared memory, and {engine} listens on all interfaces"
        )
        raise DistributedError(f"{reason}; on a network that you trust, {HOW_TO_TRUST}")
    return SharedMemory(job.rank, job.world_size, job.name, timeout / 2)


def _parent() -> Path:
    """Where the folder is made: in memory on Linux, elsewhere among the temporary files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        return memory
    return Path(tempfile.gettempdir())


def _lock(memory: int) -> None:
    """Lock the file while it is open.

    `BlockingIOError` if another process has locked it.
    """
    import fcntl  # not on Windows

    fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that were killed during the start: nothing locks them."""
    for folder in parent.glob("xdevice-*"):
        try:
            if folder.stat().st_uid == os.geteuid():
                with open(folder / "memory", "rb") as memory:
                    _lock(memory.fileno())
                    rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use, or has just been removed
            continue


def _reserve(file: int, size: int) -> None:
    """Allocate the file's bytes: without them a write to the mapping kills the process."""
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def _reduced(rows: Array, op: str) -> Array:
    """The rows reduced to one.

    Numbers of 16 bits are added up in ``float32`` and rounded once.
    """
    dtype = rows.dtype
    averaged = len(rows) if op == "mean" else 1
    wide = np.dtype(summed_in(dtype.name, averaged))
    combine = _COMBINE[op]
    with np.errstate(all="ignore"):  # infinities and NaN are valid results
        total = rows[0].astype(wide)
        for row in rows[1:]:
            combine(total, row.astype(wide, copy=False), out=total)
        if op == "mean":
            total = total / len(rows)
        reduced: Array = total.astype(dtype, copy=False)
    return reduced
