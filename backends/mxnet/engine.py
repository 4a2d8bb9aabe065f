"""Several processes, by MXNet's ``dist_sync`` key-value store: a server adds up their vectors.

The server adds floating-point numbers only. Integers are sent as floats that hold them exactly.
Bits, which must arrive unchanged, are sent 16 at a time as whole numbers, to which all other
processes add zero. The server and a scheduler are processes beside the job's own.
"""

import atexit
import ctypes
import os
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np

from xdevice.backends.kit.environment import environment
from xdevice.backends.kit.reducing import summed_in
from xdevice.backends.mxnet.collectives import cuts, plain, reduce
from xdevice.backends.mxnet.servers import PRIVATE_UMASK, Servers, variables_for
from xdevice.contract import Job, Vector

Array: TypeAlias = np.ndarray[Any, Any]

_SHORT = 1024  # each length up to this one has a key of its own
_LONG_LENGTHS = 32  # the number of longer lengths that have one


class _Store:
    """The store as a worker sees it, its keys, and the servers that this process starts.

    The number of keys is bounded, because the server keeps a vector for each until it ends.
    """

    def __init__(self, job: Job, timeout: float) -> None:
        self.rank = job.rank
        self.size = job.world_size
        self._timeout = timeout
        self._keys = set[str]()
        self._long_lengths = set[int]()
        variables = variables_for("worker", job)
        self._servers = Servers(job, variables["PORT"])
        previous_umask = os.umask(PRIVATE_UMASK)
        try:
            with environment(variables):
                self._native: Any = mx.kv.create("dist_sync")
        finally:
            os.umask(previous_umask)
        with plain():
            self.total(mx.np.zeros(1))  # which connects each worker with each server
        self._servers.unlink_sockets()
        atexit.register(self.leave_without_waiting)

    def total(self, vector: Vector) -> Vector:
        """The sum of every process's vector of floating-point numbers."""
        lengths = self._lengths_of_pieces(vector.size)
        if len(lengths) == 1:
            pieces = [vector]
        else:
            pieces = [vector[start:end].copy() for start, end in cuts(lengths)]
        # each piece has its own key: MXNet mixes up two operations on one
        for piece in pieces:
            self._native.pushpull(self._key(piece), piece, out=piece)
        sums = vector if len(pieces) == 1 else mx.np.concatenate(pieces)
        sums.wait_to_read()
        return sums

    def _key(self, piece: Vector) -> str:
        key = f"{np.dtype(piece.dtype)} {piece.size}"
        if key not in self._keys:
            self._native.init(key, mx.np.zeros_like(piece))
            self._keys.add(key)
        return key

    def _lengths_of_pieces(self, length: int) -> list[int]:
        """The lengths of the pieces in which a vector is sent, all different.

        A vector is one piece. Only when all keys for long vectors are in use, a further one is cut
        into powers of 2 and a short rest.
        """
        if length <= _SHORT or length in self._long_lengths:
            return [length]
        if len(self._long_lengths) < _LONG_LENGTHS:
            self._long_lengths.add(length)
            return [length]
        rest = length % _SHORT
        bits = range(_SHORT.bit_length() - 1, length.bit_length())
        powers = [1 << bit for bit in bits if length >> bit & 1]
        return [*powers, rest] if rest else powers

    def leave(self) -> None:
        """Leave, and wait for the servers, which end with the last worker."""
        atexit.unregister(self.leave_without_waiting)
        self._servers.expect_end()
        del self._native  # waits for the other workers
        self._servers.wait(self._timeout)

    def leave_without_waiting(self) -> None:
        """Do not wait for the other workers at the end of a process whose job has failed."""
        self._servers.expect_end()
        base: Any = mx.base
        base._LIB.MXKVStoreSetBarrierBeforeExit(self._native.handle, ctypes.c_int(0))


_store: _Store


def start(job: Job, timeout: float) -> None:
    global _store
    _store = _Store(job, timeout)


def stop() -> None:
    mx.nd.waitall()
    _store.leave()


def all_reduce(vector: Vector, op: str) -> Vector:
    dtype = np.dtype(vector.dtype)
    with plain():
        if op == "mean":
            wide_dtype = summed_in(dtype.name, _store.size)
            total = _store.total(vector.astype(wide_dtype, copy=False))
            return _mean(total).astype(dtype.name, copy=False)
        if op == "sum":
            return _store.total(vector) if dtype.kind == "f" else _sum_of_integers(vector)
        result = reduce(all_gather(vector), op, None)
        result.wait_to_read()
        return result


def broadcast(vector: Vector, root: int) -> Vector:
    words = _words(vector)
    with plain():
        summand = words if _store.rank == root else mx.np.zeros_like(words)
        return _from_words(_store.total(summand), vector)


def all_gather(vector: Vector) -> list[Vector]:
    words = _words(vector)
    with plain():
        # every process fills its row
        rows = mx.np.zeros((_store.size, words.size), ctx=words.ctx)
        rows[_store.rank] = words
        all_rows = _store.total(rows.reshape(-1)).reshape(_store.size, -1)
        return [_from_words(row, vector) for row in all_rows]


def _mean(total: Vector) -> Vector:
    size = _store.size
    is_power_of_2 = size & (size - 1) == 0
    if is_power_of_2:
        return total * (1 / size)  # exact, and in half the time of the division
    return total / size


def _sum_of_integers(vector: Vector) -> Vector:
    """The sum of integers, modulo their dtype's range; those of 64 bits are sent in two halves."""
    dtype = np.dtype(vector.dtype)
    numbers = vector.asnumpy()
    if dtype.itemsize < 8:
        return _placed(_total(numbers, vector).astype("int64").astype(dtype), vector)
    bits = numbers.view("uint64")
    halves = np.concatenate([bits & 0xFFFFFFFF, bits >> 32])
    low, high = np.split(_total(halves, vector).astype("uint64"), 2)
    return _placed((low + (high << 32)).view(dtype), vector)


def _total(numbers: Array, like: Vector) -> Array:
    total: Array = _store.total(_placed(numbers.astype("float64"), like)).asnumpy()
    return total


def _words(vector: Vector) -> Vector:
    """The vector's bits, 16 of them in each number."""
    octets = vector.asnumpy().view("uint8")
    if octets.size % 2:
        octets = np.append(octets, octets[:1])
    return _placed(octets.view("uint16").astype("float32"), vector)


def _from_words(words: Vector, like: Vector) -> Vector:
    """The vector with the bits in these `_words`, of the other vector's dtype and length."""
    dtype = np.dtype(like.dtype)
    octets = words.asnumpy().astype("uint16").view("uint8")[: like.size * dtype.itemsize]
    return _placed(octets.view(dtype), like)


def _placed(numbers: Array, like: Vector) -> Vector:
    """NumPy's numbers as an array on the other vector's device."""
    with mx.util.np_shape(True):
        array = mx.np.array(numbers, dtype=numbers.dtype, ctx=like.ctx)
    array.wait_to_read()
    return array
