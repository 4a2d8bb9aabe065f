"""Several processes, by MXNet's ``dist_sync`` key-value store: each sends to a server, which adds up.

The server adds floating-point numbers only. Integers are sent in those that hold them exactly, and bits, which must
arrive unchanged, 16 at a time as whole numbers to which every other process adds zero.
"""

import atexit
import ctypes
from itertools import accumulate, pairwise
from typing import Any

import mxnet as mx
import numpy as np

from xdevice.backends.mxnet.collectives import plain
from xdevice.backends.mxnet.engine.servers import Servers, as_worker
from xdevice.contract import Job
from xdevice.kit.reducing import summed_in

_ELEMENTWISE = {"max": mx.np.maximum, "min": mx.np.minimum}
_SMALL, _LENGTHS = 1024, 32
"""Every length up to the first has a key of its own, and so do as many longer ones as the second says."""


class _Store:
    """The store as a worker sees it, and its keys: their number is bounded, whatever lengths come."""

    def __init__(self, job: Job, timeout: float) -> None:
        self.rank, self.size, self.timeout = job.rank, job.world_size, timeout
        self._keys: set[str] = set()
        self._lengths: set[int] = set()
        self.servers = Servers(job)
        with as_worker(job):
            self._native = mx.kv.create("dist_sync")
        with plain():
            self.total(mx.np.zeros(1))  # which connects each worker with each server
        self.servers.all_have_connected()
        atexit.register(self.leave_alone)

    def total(self, vector: Any) -> Any:
        """The sum of every process's vector of floating-point numbers."""
        sizes = self._pieces(vector.size)
        ends = list(accumulate(sizes, initial=0))
        pieces = [vector[a:b].copy() for a, b in pairwise(ends)] if len(sizes) > 1 else [vector]
        for piece in pieces:  # each with its own key: MXNet mixes up two operations on one
            self._native.pushpull(self._key(piece), piece, out=piece)
        found = mx.np.concatenate(pieces) if len(pieces) > 1 else vector
        found.wait_to_read()
        return found

    def _key(self, piece: Any) -> str:
        key = f"{np.dtype(piece.dtype)} {piece.size}"
        if key not in self._keys:
            self._native.init(key, mx.np.zeros_like(piece))
            self._keys.add(key)
        return key

    def _pieces(self, length: int) -> list[int]:
        """The lengths of the parts that are sent, all different; mostly one, the whole.

        For each key the server keeps a vector until it ends. So that they remain few, lengths after the first are
        sent in parts: powers of two, and the rest.
        """
        if length > _SMALL and length not in self._lengths:
            if len(self._lengths) == _LENGTHS:
                left = length % _SMALL
                powers = [1 << bit for bit in range(length.bit_length()) if (length - left) >> bit & 1]
                return powers + [left] * bool(left)
            self._lengths.add(length)
        return [length]

    def leave(self) -> None:
        atexit.unregister(self.leave_alone)
        self.servers.will_end()
        del self._native  # which waits for the others
        self.servers.end(self.timeout)

    def leave_alone(self) -> None:
        """At the end of a process whose job has failed: do not wait for the others."""
        self.servers.will_end()
        base: Any = mx.base
        base._LIB.MXKVStoreSetBarrierBeforeExit(self._native.handle, ctypes.c_int(0))


_store: _Store | None = None


def start(job: Job, timeout: float) -> None:
    global _store
    _store = _Store(job, timeout)


def all_reduce(vector: Any, op: str) -> Any:
    with plain():
        if op == "mean":
            store, name = _running(), np.dtype(vector.dtype).name
            total = store.total(vector.astype(summed_in(name, store.size)))
            return (total / store.size).astype(name)
        if op != "sum":
            first, *others = all_gather(vector)
            for other in others:
                _ELEMENTWISE[op](first, other, out=first)
            first.wait_to_read()
            return first
        return _running().total(vector) if np.dtype(vector.dtype).kind == "f" else _integers(vector)


def broadcast(vector: Any, root: int) -> Any:
    store = _running()
    words = _words(vector)
    with plain():
        return _unpacked(store.total(words if store.rank == root else mx.np.zeros_like(words)), vector)


def all_gather(vector: Any) -> list[Any]:
    store = _running()
    words = _words(vector)
    with plain():
        every = mx.np.zeros((store.size, words.size), ctx=words.ctx)
        every[store.rank] = words
        found = store.total(every.reshape(-1)).reshape(store.size, -1)
        return [_unpacked(part, vector) for part in found]


def stop() -> None:
    global _store
    mx.nd.waitall()
    _running().leave()
    _store = None


def _running() -> _Store:
    assert _store is not None
    return _store


def _integers(vector: Any) -> Any:
    """The sum of integers, modulo their dtype's range as everywhere; those of 64 bits are sent in two halves."""
    dtype = np.dtype(vector.dtype)
    numbers = vector.asnumpy()
    if dtype.itemsize < 8:
        return _arrived(_total(numbers.astype("float64"), vector).astype("int64").astype(dtype), vector)
    bits = numbers.view("uint64")
    halves = _total(np.concatenate([bits & 0xFFFFFFFF, bits >> 32]).astype("float64"), vector).astype("uint64")
    low, high = np.split(halves, 2)
    return _arrived((low + (high << 32)).view(dtype), vector)


def _total(numbers: Any, like: Any) -> Any:
    return _running().total(_arrived(numbers, like)).asnumpy()


def _words(vector: Any) -> Any:
    """The vector's bits, 16 of them in each number."""
    octets = vector.asnumpy().view("uint8")
    even = np.append(octets, octets[:1]) if octets.size % 2 else octets
    return _arrived(even.view("uint16").astype("float32"), vector)


def _unpacked(words: Any, like: Any) -> Any:
    dtype = np.dtype(like.dtype)
    octets = words.asnumpy().astype("uint16").view("uint8")[: like.size * dtype.itemsize]
    return _arrived(octets.view(dtype), like)


def _arrived(numbers: Any, like: Any) -> Any:
    """NumPy's numbers as an array where that other one is."""
    with mx.util.np_shape(True):
        array = mx.np.array(numbers, dtype=numbers.dtype, ctx=like.ctx)
    array.wait_to_read()
    return array
