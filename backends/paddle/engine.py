"""Several processes: on one host through shared memory, on several by paddle.distributed.

paddle.distributed uses gloo on the CPU, and NCCL if each process has its own GPU. Its store on rank
0 listens on all interfaces; PaddlePaddle 3.3.1 has no setting for that. So on one host the store is
not started, unless the job trusts its network.

Shared memory and gloo work in the host's memory only. Vectors of other devices, virtual GPUs
included, are copied there and back.
"""

import ctypes
import os
import re
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core
from paddle.distributed import parallel

from xdevice.backends.kit.environment import environment
from xdevice.backends.kit.gloo import gloo_settings
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.kit.reducing import summed_in
from xdevice.backends.kit.shared_memory import SharedMemory, join_on_one_host
from xdevice.backends.paddle import creation, storage
from xdevice.backends.paddle.exchange import FOREIGN
from xdevice.backends.paddle.hardware import native, real_gpus, replaced_gpus
from xdevice.backends.paddle.placement import dense, device_of, dtype_name
from xdevice.contract import Job, NativeDtype, Tensor, Vector
from xdevice.device import Device
from xdevice.errors import DistributedError

# PaddlePaddle's types lack some of their functions
_core: Any = core
_dist: Any = dist

Array: TypeAlias = np.ndarray[Any, Any]
Group: TypeAlias = Any  # a group of processes of paddle.distributed; None is the default one

_OPERATIONS: dict[str, int] = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
_SUMMED_AS = {
    # gloo's sum overflows (PaddlePaddle 3.3.1)
    "float16": "float32",
    # rounded once, and not in each process
    "bfloat16": "float32",
    "float8_e4m3fn": "float32",
    "float8_e5m2": "float32",
    # gloo aborts the process for a dtype that it lacks
    "int16": "int32",
}
# The dtypes that gloo can send; others are sent as bytes
_SENDABLE = frozenset(
    ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
)
# The seconds by which Paddle's timeouts exceed xdevice's: when xdevice ends the job, it names the
# rank that does not answer.
_EXTRA_TIMEOUT = 60.0
_LIBRARY = os.path.join(os.path.dirname(paddle.__file__), "libs", "libphi_core.so")
# gloo's messages for a timeout: "TIMEOUT self_rank", "Timed out waiting", "Application timeout
# caused …".
_TIMED_OUT = re.compile("timed? ?out", re.IGNORECASE)
# glog's variable; the environment variable for it is read at import only
_LOG_LEVEL = "_ZN3fLI17FLAGS_minloglevelE"


class _Membership(NamedTuple):
    """A process among those that it has joined."""

    rank: int
    master: str


_CPU = Device("cpu", 0)
_memory: SharedMemory | None = None  # of a job on one host that does not trust its network
_gpu: Device | None = None  # that NCCL uses; all processes have one, or none has
_cpu_group: Group = None
_membership: _Membership | None = None  # PaddlePaddle can join processes once, until it ends
_collective_timeout = 0.0  # seconds


def start(job: Job, timeout: float) -> None:
    global _collective_timeout, _membership, _memory
    _memory = join_on_one_host(job, timeout, "paddle.distributed")
    if _memory is not None:
        return
    _collective_timeout = timeout + _EXTRA_TIMEOUT
    membership = _Membership(job.rank, job.master)
    if _membership not in (None, membership):
        raise DistributedError(
            "paddle has joined other processes until it ends; start the job anew"
        )
    if _membership is None:
        _join(job, timeout)
        _membership = membership
    # connects the processes
    _call_collective(dist.all_reduce, paddle.zeros([1]).cpu(), group=_cpu_group)


def _join(job: Job, timeout: float) -> None:
    global _cpu_group, _gpu
    default_device = paddle.device.get_device()
    uses_nccl = _has_gpu_for_each_process(job)
    _gpu = Device("gpu", job.local_rank) if uses_nccl else None
    _wait_for_master(job, timeout)
    with environment(_settings(job)), _quiet_start():
        dist.init_parallel_env()
        _cpu_group = _dist.new_group(backend="gloo") if uses_nccl else None
    # init_parallel_env has changed it
    paddle.device.set_device(default_device)


def _has_gpu_for_each_process(job: Job) -> bool:
    """Whether NCCL can be used, which needs a real GPU for each process."""
    if not paddle.is_compiled_with_cuda() or replaced_gpus.number:
        return False
    return real_gpus() >= job.local_world_size


def _settings(job: Job) -> dict[str, str]:
    host, _, port = job.master.rpartition(":")
    settings = {
        "MASTER_ADDR": host,  # precedes PADDLE_MASTER if another launcher has set it
        "MASTER_PORT": port,
        "PADDLE_MASTER": job.master,
        "PADDLE_TRAINER_ID": str(job.rank),
        "PADDLE_TRAINERS_NUM": str(job.world_size),
        "PADDLE_CURRENT_ENDPOINT": f"{host}:{port}",  # has to be set, and is not used
        "PADDLE_DISTRI_BACKEND": "nccl" if _gpu else "gloo",
        "FLAGS_selected_gpus": str(job.local_rank),
        "FLAGS_stop_check_timeout": str(round(_collective_timeout)),
        "PADDLE_PG_TIMEOUT": str(round(1000 * _collective_timeout)),
    }
    return settings | gloo_settings(job)


def _wait_for_master(job: Job, timeout: float) -> None:
    """Return when rank 0 listens; otherwise PaddlePaddle 3.3.1 would sleep for three seconds."""
    host, _, port = job.master.rpartition(":")
    deadline = time.monotonic() + timeout
    while job.rank and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)


@contextmanager
def _quiet_start() -> Generator[None]:
    """A block in which Paddle prints no reports of connections and of changed flags."""
    with ExitStack() as stack:
        if hasattr(parallel, "_get_modified_flags"):
            stack.enter_context(replaced(parallel, "_get_modified_flags", lambda _: list))
        for library in (_core.libpaddle.__file__, _LIBRARY):
            # another version has the variable elsewhere, and prints its reports
            with suppress(OSError, ValueError):
                level = ctypes.c_int.in_dll(ctypes.CDLL(library), _LOG_LEVEL)
                stack.callback(setattr, level, "value", level.value)
                level.value = max(level.value, 1)  # warnings are shown
        yield


def _call_collective(collective: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Call a collective of PaddlePaddle; after a timeout of gloo, wait before the error is raised.

    gloo has a fixed timeout of 30 seconds. Meanwhile xdevice ends the job, and names the process
    that does not answer.
    """
    deadline = time.monotonic() + _collective_timeout
    try:
        collective(*args, **options)
    except RuntimeError as error:
        if _TIMED_OUT.search(str(error)):
            time.sleep(max(0.0, deadline - time.monotonic()))
        raise


def all_reduce(vector: Vector, op: str) -> Vector:
    if _memory is not None:
        return _all_reduce_in_memory(_memory, vector, op)
    reachable = _on_reachable_device(vector)
    if op == "mean":
        size = dist.get_world_size()
        total = all_reduce(reachable.astype(summed_in(dtype_name(reachable), size)), "sum")
        result = total / size
    elif op != "sum" and reachable.is_floating_point():
        result = _extreme(reachable, op)
    else:
        result = _reduced(reachable, op)
    if result.dtype != vector.dtype:
        result = result.astype(vector.dtype)
    return _returned(result, vector)


def _reduced(vector: Vector, op: str) -> Vector:
    """The reduced vector, in a dtype in which gloo can compute."""
    dtype = _SUMMED_AS.get(dtype_name(vector))
    if dtype is not None:
        vector = vector.astype(dtype)
    is_complex = vector.is_complex()
    real_numbers = paddle.as_real(vector) if is_complex else vector
    _call_collective(dist.all_reduce, real_numbers, _OPERATIONS[op], _group_of(vector))
    return paddle.as_complex(real_numbers) if is_complex else real_numbers


def _all_reduce_in_memory(memory: SharedMemory, vector: Vector, op: str) -> Vector:
    if dtype_name(vector) in FOREIGN:  # reduced in float32, and rounded once
        return _all_reduce_in_memory(memory, vector.astype("float32"), op).astype(vector.dtype)
    return creation.tensor(memory.all_reduce(_values(vector), op), vector.dtype, device_of(vector))


def _extreme(vector: Vector, op: str) -> Vector:
    """The greatest or least floating-point numbers.

    gloo loses NaN. So the numbers' bits are compared, as integers of the same order.
    """
    if dtype_name(vector) not in ("float32", "float64"):
        vector = vector.astype("float32")
    integer = paddle.int64 if dtype_name(vector) == "float64" else paddle.int32
    limits = paddle.iinfo(integer)
    nan_key = limits.max if op == "max" else limits.min
    keys = paddle.where(
        paddle.isnan(vector),
        paddle.full([1], nan_key, integer).cpu(),
        _in_order(_viewed(vector, integer), limits.max),
    )
    _call_collective(dist.all_reduce, keys, _OPERATIONS[op], _group_of(vector))
    return _viewed(_in_order(keys, limits.max), vector.dtype)


def _in_order(bits: Tensor, greatest: int) -> Tensor:
    """The bits of floating-point numbers as integers of the same order, and the reverse.

    The ends of the integers' range stand for NaN.
    """
    return paddle.where(bits < 0, bits ^ paddle.full([1], greatest, bits.dtype).cpu(), bits)


def broadcast(vector: Vector, root: int) -> Vector:
    if _memory is not None:
        return _from_values(_memory.broadcast(_values(vector), root), vector)
    sendable = _sendable(_on_reachable_device(vector))
    _call_collective(dist.broadcast, sendable, root, _group_of(sendable))
    return _returned(_viewed(sendable, vector.dtype), vector)


def all_gather(vector: Vector) -> list[Vector]:
    if _memory is not None:
        return [_from_values(row, vector) for row in _memory.all_gather(_values(vector))]
    sendable = _sendable(_on_reachable_device(vector))
    rows: list[Vector] = []
    _call_collective(dist.all_gather, rows, sendable, _group_of(sendable))
    return [_returned(_viewed(row, vector.dtype), vector) for row in rows]


def stop() -> None:
    """Leave the memory.

    A process group stays: PaddlePaddle 3.3.1 can make none after `destroy_process_group`.
    """
    global _memory
    if _memory is not None:
        _memory.close()
        _memory = None


def _values(vector: Vector) -> Array:
    """The vector's values as a NumPy array; integers of the same bits for a dtype NumPy lacks."""
    array: Array = dense(vector).numpy()
    return array


def _from_values(values: Array, like: Vector) -> Vector:
    """A tensor with these `_values`, of that vector's dtype and on its device."""
    if dtype_name(like) in FOREIGN:
        bits = values.view(np.uint8)
        return storage.from_bits(bits, values.shape, like.dtype, device_of(like))
    return creation.tensor(values, like.dtype, device_of(like))


def _on_reachable_device(vector: Vector) -> Vector:
    """The vector on a device whose memory gloo or NCCL can reach."""
    if device_of(vector) in (_CPU, _gpu):
        return vector
    return vector._copy_to(native(_CPU), True)


def _group_of(vector: Vector) -> Group:
    """The group of processes that computes with vectors of this one's device."""
    return None if device_of(vector) == _gpu else _cpu_group


def _returned(result: Vector, vector: Vector) -> Vector:
    """The result on the vector's device, complete."""
    device = device_of(vector)
    if device == _gpu:
        paddle.device.synchronize(f"gpu:{device.index}")  # NCCL returns before it has ended
    if device_of(result) == device:
        return result
    return result._copy_to(native(device), True)


def _sendable(tensor: Tensor) -> Tensor:
    return tensor if dtype_name(tensor) in _SENDABLE else _viewed(tensor, paddle.uint8)


def _viewed(tensor: Tensor, dtype: NativeDtype) -> Tensor:
    """The tensor's bits as another dtype."""
    if tensor.dtype == dtype:
        return tensor
    with storage.views():
        return tensor.view(dtype)
