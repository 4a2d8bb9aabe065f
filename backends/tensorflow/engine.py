"""Several processes: on one host through shared memory, on several by TensorFlow's cluster.

The cluster is that of MultiWorkerMirroredStrategy: a ring of gRPC on the CPU,
NCCL on GPUs. Its servers listen on all interfaces, accept any connection and
run any graph that they receive; graphs read and write files. So on one host no
server is started, unless the job trusts its network.

The strategy makes the cluster. Vectors are then sent by the collective
operations on which the strategy is built. These take half the time of the
strategy's reduction, which traces a function for every shape.
"""

import os
from functools import cached_property, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.kit.private_names import replaced, resolved
from xdevice.backends.kit.reducing import summed_in
from xdevice.backends.kit.shared_memory import SharedMemory, join_on_one_host
from xdevice.backends.tensorflow import creation
from xdevice.backends.tensorflow.collectives import ELEMENTWISE, apart
from xdevice.backends.tensorflow.exchange import to_numpy
from xdevice.backends.tensorflow.hardware import count, is_running, replaced_gpus, scope
from xdevice.backends.tensorflow.placement import arrived, device_of
from xdevice.backends.tensorflow.private_names import names, runtime
from xdevice.contract import Job
from xdevice.device import Device
from xdevice.errors import DistributedError, NotSupportedError

Array: TypeAlias = np.ndarray[Any, Any]

_REDUCIBLE = frozenset({tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64})
"""The dtypes that the ring can add up; other integers are sent as 64 bits."""

_MERGE_OP = {"sum": "Add", "max": "Max", "min": "Min"}
_CPU = Device("cpu", 0)
_HEALTH_CHECKS = (
    "tensorflow.python.distribute.collective_all_reduce_strategy:"
    "CollectiveAllReduceExtended._enable_check_health"
)
_CLUSTER = "TF_CONFIG"  # the variable with the addresses of all processes
_WORD = tf.int64  # the dtype in which bits are sent, since TensorFlow keeps int32 on the host


class _Matched(NamedTuple):
    """Operations of all processes with these properties belong together."""

    name: str
    dtype: tf.DType
    length: int


class _Ring:
    """The cluster's processes, and the keys by which TensorFlow matches their operations."""

    def __init__(self, job: Job, cluster: str) -> None:
        self.rank = job.rank
        self.size = job.world_size
        self.cluster = cluster
        self._gpu = Device("gpu", job.local_rank)
        self._keys: dict[_Matched, tf.Tensor] = {}
        with scope(_CPU):
            self._size = tf.constant(job.world_size)
            # any numbers that a strategy of the user does not reach by counting
            self._groups = {"cpu": tf.constant(1905), "gpu": tf.constant(1906)}

    @cached_property
    def device(self) -> Device:
        """Where vectors are reduced.

        They are reduced by NCCL on each process's GPU if every process has one, else on the CPU.
        """
        if replaced_gpus.number or not tf.test.is_built_with_gpu_support():
            return _CPU
        with scope(_CPU):
            has_gpu = tf.constant([int(count("gpu") > self._gpu.index)], tf.int64)
            keys = self.matching("GPUs", has_gpu, _CPU)
            answers = tf.raw_ops.CollectiveGatherV2(input=has_gpu, **keys, ordering_token=[])
        return self._gpu if int(tf.reduce_min(answers)) else _CPU

    def matching(
        self, name: str, vector: tf.Tensor, device: Device | None = None
    ) -> dict[str, tf.Tensor]:
        """The keys by which TensorFlow matches an operation, for its name, dtype and length."""
        operation = _Matched(name, vector.dtype, vector.shape[0])
        if operation not in self._keys:
            with scope(_CPU):
                self._keys[operation] = tf.constant(len(self._keys))
        group = self._groups[(device or self.device).kind]
        return {
            "group_size": self._size,
            "group_key": group,
            "instance_key": self._keys[operation],
        }


_memory: SharedMemory | None = None  # while a job of one host runs
_ring: Any = None  # stays once it exists: TensorFlow joins one cluster, and never leaves it


def start(job: Job, timeout: float) -> None:
    global _memory, _ring
    _memory = join_on_one_host(job, timeout, "tensorflow's cluster")
    if _memory is not None:
        return
    cluster = os.environ.get(_CLUSTER, "")
    if _ring is None:
        if is_running():
            reason = "tensorflow has started already, and can no longer join other processes"
            cure = "call xdevice.distributed.init() before the first tensor is made"
            raise DistributedError(f"{reason}; {cure}")
        _join(job, cluster)
        _ring = _Ring(job, cluster)
    elif (_ring.rank, _ring.cluster) != (job.rank, cluster):
        raise DistributedError(
            "tensorflow stays in its first cluster of processes until it ends; start the job anew"
        )


def _join(job: Job, cluster: str) -> None:
    """Make the cluster, without its coordination service and its health checks.

    The service runs in rank 0; a process that outlives it prints errors. The checks delay the end
    of a process by half a minute. xdevice itself notices when a process has ended.
    """
    names.require("jobs of several hosts")
    if not cluster:
        example = (
            '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}'
        )
        raise NotSupportedError(
            f"tensorflow's processes meet by {_CLUSTER}, which is not set; set it in each process "
            f"to {example}, with the address of each rank, and the rank as index"
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    found = (resolver.task_id, resolver.cluster_spec().num_tasks("worker"))
    if found != (job.rank, job.world_size):
        raise DistributedError(
            f"{_CLUSTER} says worker {found[0]} of {found[1]}, and {job.launcher} says rank "
            f"{job.rank} of {job.world_size}; let the index be the rank"
        )
    runtime().configure_coordination_service(service_type="")
    with replaced(*resolved(_HEALTH_CHECKS), lambda _: False):
        tf.distribute.MultiWorkerMirroredStrategy(resolver)


def all_reduce(vector: tf.Tensor, op: str) -> tf.Tensor:
    if _memory is not None:
        return _tensor(_memory.all_reduce(to_numpy(vector), op), vector)
    device = device_of(vector)
    dtype = vector.dtype
    if op == "mean":
        return _mean(vector)
    if op != "sum" and dtype not in _REDUCIBLE:
        vectors = all_gather(vector)
        with apart(device):
            return arrived(reduce(ELEMENTWISE[op], vectors), device)
    with apart(_ring.device):
        operand = arrived(vector, _ring.device)
        if dtype.is_complex:  # sent as twice as many real numbers
            operand = tf.reshape(tf.bitcast(operand, dtype.real_dtype), [-1])
        elif dtype not in _REDUCIBLE:
            operand = tf.cast(operand, tf.int64)
        settings = {"ordering_token": [], "merge_op": _MERGE_OP[op], "final_op": "Id"}
        keys = _ring.matching(op, operand)
        reduced = tf.raw_ops.CollectiveReduceV2(input=operand, **keys, **settings)
        if dtype.is_complex:
            result = tf.bitcast(tf.reshape(reduced, [-1, 2]), dtype)
        else:
            result = tf.cast(reduced, dtype)
        return arrived(result, device)


def _mean(vector: tf.Tensor) -> tf.Tensor:
    with apart(_ring.device):
        wide_dtype = summed_in(vector.dtype.name, _ring.size)
        total = all_reduce(tf.cast(arrived(vector, _ring.device), wide_dtype), "sum")
        mean = tf.cast(total / tf.cast(_ring.size, total.dtype), vector.dtype)
        return arrived(mean, device_of(vector))


def broadcast(vector: tf.Tensor, root: int) -> tf.Tensor:
    if _memory is not None:
        return _tensor(_memory.broadcast(to_numpy(vector), root), vector)
    with apart(_ring.device):
        words = _words(arrived(vector, _ring.device))
        keys = _ring.matching(f"from {root}", words)
        if _ring.rank == root:
            received = tf.raw_ops.CollectiveBcastSendV2(input=words, **keys)
        else:
            received = tf.raw_ops.CollectiveBcastRecvV2(shape=words.shape, T=words.dtype, **keys)
        return arrived(_unpacked(received, vector), device_of(vector))


def all_gather(vector: tf.Tensor) -> list[tf.Tensor]:
    if _memory is not None:
        return [_tensor(row, vector) for row in _memory.all_gather(to_numpy(vector))]
    with apart(_ring.device):
        words = _words(arrived(vector, _ring.device))
        keys = _ring.matching("gather", words)
        gathered = tf.raw_ops.CollectiveGatherV2(input=words, **keys, ordering_token=[])
        device = device_of(vector)
        parts = tf.split(gathered, _ring.size)
        return [arrived(_unpacked(part, vector), device) for part in parts]


def stop() -> None:
    """Leave the memory. A cluster stays until the process ends, and does not delay that."""
    global _memory
    if _memory is not None:
        _memory.close()
        _memory = None


def _tensor(array: Array, like: tf.Tensor) -> tf.Tensor:
    with apart(device_of(like)):
        return creation.tensor(array, like.dtype, device_of(like))


def _words(vector: tf.Tensor) -> tf.Tensor:
    """The vector's bits, padded with zeros."""
    if vector.dtype.is_bool:
        vector = tf.cast(vector, tf.uint8)
    octets: Any = tf.reshape(tf.bitcast(vector, tf.uint8), [-1])
    padding = -octets.shape[0] % _WORD.size
    if padding:
        octets = tf.pad(octets, [[0, padding]])
    return tf.bitcast(tf.reshape(octets, [-1, _WORD.size]), _WORD)


def _unpacked(words: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """The vector with the bits in these `_words`, of the other vector's dtype and length."""
    size = like.dtype.size
    octets = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[: like.shape[0] * size]
    if like.dtype.is_bool:
        return tf.cast(octets, tf.bool)
    if size > 1:
        octets = tf.reshape(octets, [-1, size])
    return tf.bitcast(octets, like.dtype)
