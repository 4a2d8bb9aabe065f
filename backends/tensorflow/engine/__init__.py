"""Several processes: on one host by memory that they share, on several by TensorFlow's own cluster.

TensorFlow's servers run whatever graph any process sends them, and graphs read and write files. So on one
host none is started, unless the job trusts its network.
"""

import os
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import creation
from xdevice.backends.tensorflow.collectives import apart
from xdevice.backends.tensorflow.engine import cluster
from xdevice.backends.tensorflow.exchange import to_numpy
from xdevice.backends.tensorflow.placement import device_of
from xdevice.contract import Job
from xdevice.kit.loopback import is_loopback
from xdevice.kit.shared_memory import SharedMemory

_memory: SharedMemory | None = None  # while a job of one host runs


def start(job: Job, timeout: float) -> None:
    global _memory
    if job.trusts_network or not all(map(is_loopback, job.hosts)) or not hasattr(os, "mkfifo"):
        cluster.join(job)
    else:
        _memory = SharedMemory(job.rank, job.world_size, job.secret, timeout / 2)


def all_reduce(vector: tf.Tensor, op: str) -> tf.Tensor:
    if _memory is None:
        return cluster.all_reduce(vector, op)
    return _tensor(_memory.all_reduce(to_numpy(vector), op), vector)


def broadcast(vector: tf.Tensor, root: int) -> tf.Tensor:
    if _memory is None:
        return cluster.broadcast(vector, root)
    return _tensor(_memory.broadcast(to_numpy(vector), root), vector)


def all_gather(vector: tf.Tensor) -> list[tf.Tensor]:
    if _memory is None:
        return cluster.all_gather(vector)
    return [_tensor(row, vector) for row in _memory.all_gather(to_numpy(vector))]


def stop() -> None:
    """Leave the memory. A cluster stays until the process ends, and does not delay that."""
    global _memory
    if _memory is not None:
        _memory.close()
        _memory = None


def _tensor(array: Any, like: tf.Tensor) -> tf.Tensor:
    device = device_of(like)
    with apart(device):
        return creation.tensor(array, like.dtype, device)
