"""Several processes: on one host by memory that they share, on several by TensorFlow's MultiWorkerMirroredStrategy.

That is a ring of gRPC on the CPU, NCCL on GPUs. Its servers listen on all interfaces, accept any connection and run any
graph that they receive; graphs read and write files. So on one host none is started, unless the job trusts its network.

The strategy makes the cluster; vectors then go through the collective operations that it is built on. These cost
half of what the strategy's own reduction takes, which traces a function for every shape.
"""

from functools import cached_property, reduce
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import creation
from xdevice.backends.tensorflow.collectives import ELEMENTWISE, apart
from xdevice.backends.tensorflow.exchange import to_numpy
from xdevice.backends.tensorflow.hardware import count, is_running, replaced_gpus, scope
from xdevice.backends.tensorflow.placement import arrived, device_of
from xdevice.backends.tensorflow.private_names import names, runtime
from xdevice.contract import Job
from xdevice.device import Device
from xdevice.errors import DistributedError
from xdevice.kit.private_names import replaced, resolved
from xdevice.kit.reducing import summed_in
from xdevice.kit.shared_memory import SharedMemory, join_on_one_host

_REDUCED = frozenset({tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64})
"""What the ring can add up; other integers are sent as 64 bits."""

_MERGE = {"sum": "Add", "max": "Max", "min": "Min"}
_CPU = Device("cpu", 0)
_HEALTH = "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended._enable_check_health"
_WORD = tf.int64  # bits travel in these: TensorFlow keeps int32 on the host


class _Ring:
    """The cluster's processes, and the keys by which TensorFlow matches their operations."""

    def __init__(self, job: Job) -> None:
        self.rank, self.size, self.addresses = job.rank, job.world_size, job.addresses
        self._own_gpu = Device("gpu", job.local_rank)
        self._keys: dict[Any, tf.Tensor] = {}
        with scope(_CPU):
            self._size = tf.constant(job.world_size)
            # any numbers that no strategy of the user's counts up to
            self._groups = {"cpu": tf.constant(1905), "gpu": tf.constant(1906)}

    @cached_property
    def device(self) -> Device:
        """Where vectors meet: each process's own GPU, by NCCL, if every one has its own; else the CPU."""
        if replaced_gpus.number or not tf.test.is_built_with_gpu_support():
            return _CPU
        with scope(_CPU):
            own = tf.constant([int(count("gpu") > self._own_gpu.index)], tf.int64)
            every = tf.raw_ops.CollectiveGatherV2(
                input=own, **self.matching("GPUs", own, _CPU), ordering_token=[]
            )
        return self._own_gpu if int(tf.reduce_min(every)) else _CPU

    def matching(
        self, name: str, vector: tf.Tensor, device: Device | None = None
    ) -> dict[str, tf.Tensor]:
        """The keys of this operation: TensorFlow wants one per operation, dtype and length."""
        what = name, vector.dtype, vector.shape[0]
        if (key := self._keys.get(what)) is None:
            with scope(_CPU):
                key = self._keys[what] = tf.constant(len(self._keys))
        group = self._groups[(device or self.device).kind]
        return {"group_size": self._size, "group_key": group, "instance_key": key}


_memory: SharedMemory | None = None  # while a job of one host runs
_ring: Any = None  # for good: TensorFlow joins one cluster, and never leaves it


def start(job: Job, timeout: float) -> None:
    global _memory, _ring
    _memory = join_on_one_host(job, timeout, "tensorflow's cluster")
    if _memory is not None:
        return
    if _ring is None:
        if is_running():
            hint = "call xdevice.distributed.init() before the first tensor is made"
            raise DistributedError(
                f"tensorflow has started already, and can no longer join other processes; {hint}"
            )
        _join(job)
        _ring = _Ring(job)
    elif (_ring.rank, _ring.addresses) != (job.rank, job.addresses):
        raise DistributedError(
            "tensorflow stays in its first cluster of processes until it ends; start the job anew"
        )


def _join(job: Job) -> None:
    """Make the cluster, without its coordination service and its health checks.

    The service, which runs in rank 0, makes every process that lives longer print errors, and the checks delay a
    process's end by half a minute. xdevice itself notices which process has gone.
    """
    names.require("jobs of several hosts")
    runtime().configure_coordination_service(service_type="")
    workers = tf.train.ClusterSpec({"worker": list(job.addresses)})
    place: dict[str, Any] = {"task_type": "worker", "task_id": job.rank, "rpc_layer": "grpc"}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(workers, **place)
    with replaced(*resolved(_HEALTH), lambda _: False):
        tf.distribute.MultiWorkerMirroredStrategy(resolver)


def all_reduce(vector: tf.Tensor, op: str) -> tf.Tensor:
    if _memory is not None:
        return _tensor(_memory.all_reduce(to_numpy(vector), op), vector)
    here, dtype = device_of(vector), vector.dtype
    if op == "mean":
        with apart(_ring.device):
            total = all_reduce(
                tf.cast(arrived(vector, _ring.device), summed_in(dtype.name, _ring.size)), "sum"
            )
            return arrived(tf.cast(total / tf.cast(_ring.size, total.dtype), dtype), here)
    if op != "sum" and dtype not in _REDUCED:
        vectors = all_gather(vector)
        with apart(here):
            return arrived(reduce(ELEMENTWISE[op], vectors), here)
    with apart(_ring.device):
        there = arrived(vector, _ring.device)
        if dtype.is_complex:  # twice as many real ones
            there = tf.reshape(tf.bitcast(there, dtype.real_dtype), [-1])
        elif dtype not in _REDUCED:
            there = tf.cast(there, tf.int64)
        how = {"ordering_token": [], "merge_op": _MERGE[op], "final_op": "Id"}
        found = tf.raw_ops.CollectiveReduceV2(input=there, **_ring.matching(op, there), **how)
        total = (
            tf.bitcast(tf.reshape(found, [-1, 2]), dtype)
            if dtype.is_complex
            else tf.cast(found, dtype)
        )
        return arrived(total, here)


def broadcast(vector: tf.Tensor, root: int) -> tf.Tensor:
    if _memory is not None:
        return _tensor(_memory.broadcast(to_numpy(vector), root), vector)
    with apart(_ring.device):
        words = _words(arrived(vector, _ring.device))
        match = _ring.matching(f"from {root}", words)
        if _ring.rank == root:
            found = tf.raw_ops.CollectiveBcastSendV2(input=words, **match)
        else:
            found = tf.raw_ops.CollectiveBcastRecvV2(shape=words.shape, T=words.dtype, **match)
        return arrived(_unpacked(found, vector), device_of(vector))


def all_gather(vector: tf.Tensor) -> list[tf.Tensor]:
    if _memory is not None:
        return [_tensor(row, vector) for row in _memory.all_gather(to_numpy(vector))]
    with apart(_ring.device):
        words = _words(arrived(vector, _ring.device))
        found = tf.raw_ops.CollectiveGatherV2(
            input=words, **_ring.matching("gather", words), ordering_token=[]
        )
        return [
            arrived(_unpacked(part, vector), device_of(vector))
            for part in tf.split(found, _ring.size)
        ]


def stop() -> None:
    """Leave the memory. A cluster stays until the process ends, and does not delay that."""
    global _memory
    if _memory is not None:
        _memory.close()
        _memory = None


def _tensor(array: Any, like: tf.Tensor) -> tf.Tensor:
    with apart(device_of(like)):
        return creation.tensor(array, like.dtype, device_of(like))


def _words(vector: tf.Tensor) -> tf.Tensor:
    """The vector's bits, filled up with zeros."""
    octets: Any = tf.reshape(
        tf.bitcast(tf.cast(vector, tf.uint8) if vector.dtype.is_bool else vector, tf.uint8), [-1]
    )
    if missing := -octets.shape[0] % _WORD.size:
        octets = tf.pad(octets, [[0, missing]])
    return tf.bitcast(tf.reshape(octets, [-1, _WORD.size]), _WORD)


def _unpacked(words: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """A vector of that one's dtype and length."""
    size = like.dtype.size
    octets = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[: like.shape[0] * size]
    if like.dtype.is_bool:
        return tf.cast(octets, tf.bool)
    return tf.bitcast(tf.reshape(octets, [-1, size]) if size > 1 else octets, like.dtype)
