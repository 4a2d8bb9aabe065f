"""Several processes, by MXNet's ``dist_sync`` key-value store: each sends to a server, which adds up.

The server adds floating-point numbers only. Integers are sent in those that hold them exactly, and
bits, which must arrive unchanged, 16 at a time as whole numbers to which every other process adds
zero. A server on each host, and a scheduler, are processes beside the job's own.
"""

import atexit
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.libinfo import find_lib_path

from xdevice.backends.mxnet.collectives import cuts, plain, reduce
from xdevice.contract import Job
from xdevice.kit.blocks import environment
from xdevice.kit.loopback import is_loopback
from xdevice.kit.reducing import summed_in

_SMALL, _LENGTHS = (
    1024,
    32,
)  # lengths up to the first have keys of their own, and as many longer ones as the second
_ONLY_OWN = 0o077  # the umask of Unix sockets to which only this user can connect
_SOCKETS = Path("/tmp")  # where MXNet's library makes them, each with its port for a name
_PROGRAM = Path(__file__).with_name("server_process.py")


class _Store:
    """The store as a worker sees it, its keys, whose number is bounded, and the servers that this process starts."""

    def __init__(self, job: Job, timeout: float) -> None:
        self.rank, self.size, self._timeout = job.rank, job.world_size, timeout
        self._keys, self._lengths = set[str](), set[int]()
        self._ending = threading.Event()  # from then on the servers' end is not a failure
        self._servers: list[subprocess.Popen[bytes]] = []
        sockets = [
            _SOCKETS / port for port in (str(_port(job)), *self._serve(job)) if _is_local(job)
        ]
        before = os.umask(_ONLY_OWN)
        try:
            with environment(_variables(job, "worker", _port(job))):
                self._native = mx.kv.create("dist_sync")
        finally:
            os.umask(before)
        with plain():
            self.total(mx.np.zeros(1))  # which connects each worker with each server
        for (
            socket
        ) in sockets:  # so no name leads to them, and none is left when the processes are killed
            socket.unlink(missing_ok=True)
        atexit.register(self.leave_alone)

    def _serve(self, job: Job) -> Iterator[str]:
        """Start the scheduler and the server, if that is for this process to do; their ports."""
        here = {
            "scheduler": job.rank == 0,
            "server": job.hosts.index(job.hosts[job.rank]) == job.rank,
        }
        for role in (role for role, is_here in here.items() if is_here):
            variables = _variables(job, role, job.helper_port(job.rank))
            started = Future[subprocess.Popen[bytes]]()
            name = f"xdevice.mxnet.{role}"
            threading.Thread(
                target=_keep, args=(role, variables, started, self._ending), name=name, daemon=True
            ).start()
            self._servers.append(started.result())
            yield variables["DMLC_PS_ROOT_PORT" if role == "scheduler" else "PORT"]

    def total(self, vector: Any) -> Any:
        """The sum of every process's vector of floating-point numbers."""
        sizes = self._pieces(vector.size)
        pieces = [vector[a:b].copy() for a, b in cuts(sizes)] if len(sizes) > 1 else [vector]
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
        """The lengths of the parts that are sent, all different; mostly one, the whole."""
        # the server keeps a vector for each until it ends: so that they are few, later ones are
        # powers of 2, and a rest
        if length > _SMALL and length not in self._lengths:
            if len(self._lengths) == _LENGTHS:
                left = length % _SMALL
                powers = [
                    1 << bit for bit in range(length.bit_length()) if (length - left) >> bit & 1
                ]
                return powers + [left] * bool(left)
            self._lengths.add(length)
        return [length]

    def leave(self) -> None:
        """Leave, and wait for the servers, which end with the last worker."""
        atexit.unregister(self.leave_alone)
        self._ending.set()
        del self._native  # which waits for the others
        for server in self._servers:
            try:
                server.wait(self._timeout)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def leave_alone(self) -> None:
        """At the end of a process whose job has failed: do not wait for the others."""
        self._ending.set()
        base: Any = mx.base
        base._LIB.MXKVStoreSetBarrierBeforeExit(self._native.handle, ctypes.c_int(0))


def _keep(
    role: str,
    variables: dict[str, str],
    started: Future[subprocess.Popen[bytes]],
    ending: threading.Event,
) -> None:
    """Start a server, and wait for its end: the kernel kills it when the thread that has started it ends.

    No method: the thread would keep the store, whose own threads must end before the process does.
    """
    try:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), find_lib_path()[0], str(os.getpid())],
                env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process, with which the server ends
                umask=_ONLY_OWN,
            )
            started.set_result(process)
            if process.wait() and not ending.is_set():  # what waits for it would wait for ever
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                failed = f"xdevice: mxnet's {role} has failed with status {process.returncode}"
                print(f"{failed}\n{said}", file=sys.stderr, flush=True)
                os._exit(1)
    except OSError as error:
        started.set_exception(error)


def _port(job: Job) -> int:
    return int(job.addresses[job.rank].rpartition(":")[2])


def _is_local(job: Job) -> bool:
    """Whether the processes connect through Unix sockets: all are on this host."""
    return os.name == "posix" and all(map(is_loopback, job.hosts))


def _variables(job: Job, role: str, port: int) -> dict[str, str]:
    """The environment variables that MXNet reads in a process of that role."""
    host, _, root = job.master.rpartition(":")
    return {
        **({"DMLC_LOCAL": "1"} if _is_local(job) else {}),
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": root,
        "DMLC_NUM_WORKER": str(job.world_size),
        "DMLC_NUM_SERVER": str(len(set(job.hosts))),
        "DMLC_NODE_HOST": job.hosts[job.rank],
        "PORT": str(port),
    }


_store: _Store


def start(job: Job, timeout: float) -> None:
    global _store
    _store = _Store(job, timeout)


def stop() -> None:
    mx.nd.waitall()
    _store.leave()


def all_reduce(vector: Any, op: str) -> Any:
    dtype = np.dtype(vector.dtype)
    with plain():
        if op == "mean":
            total = _store.total(vector.astype(summed_in(dtype.name, _store.size)))
            return (total / _store.size).astype(dtype.name)
        if op == "sum":
            return _store.total(vector) if dtype.kind == "f" else _integers(vector)
        found = reduce(all_gather(vector), op, None)
        found.wait_to_read()
        return found


def broadcast(vector: Any, root: int) -> Any:
    words = _words(vector)
    with plain():
        return _unpacked(
            _store.total(words if _store.rank == root else mx.np.zeros_like(words)), vector
        )


def all_gather(vector: Any) -> list[Any]:
    words = _words(vector)
    with plain():
        every = mx.np.zeros((_store.size, words.size), ctx=words.ctx)
        every[_store.rank] = words
        found = _store.total(every.reshape(-1)).reshape(_store.size, -1)
        return [_unpacked(part, vector) for part in found]


def _integers(vector: Any) -> Any:
    """The sum of integers, modulo their dtype's range as everywhere; those of 64 bits are sent in two halves."""
    dtype, numbers = np.dtype(vector.dtype), vector.asnumpy()
    if dtype.itemsize < 8:
        return _arrived(_total(numbers, vector).astype("int64").astype(dtype), vector)
    bits = numbers.view("uint64")
    low, high = np.split(
        _total(np.concatenate([bits & 0xFFFFFFFF, bits >> 32]), vector).astype("uint64"), 2
    )
    return _arrived((low + (high << 32)).view(dtype), vector)


def _total(numbers: Any, like: Any) -> Any:
    return _store.total(_arrived(numbers.astype("float64"), like)).asnumpy()


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
