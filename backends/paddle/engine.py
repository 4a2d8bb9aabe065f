"""Several processes: on one host by memory that they share, on several by paddle.distributed.

That is gloo on the CPU, and NCCL where each process has a GPU of its own. Rank 0's store listens on
all interfaces and has no setting for it (PaddlePaddle 3.3.1). So on one host it is not started,
unless the job trusts its network.

Shared memory and gloo work in the host's memory only: vectors of other devices, virtual GPUs too,
are copied there and back.
"""

import ctypes
import os
import re
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle.base import core
from paddle.distributed import parallel

from xdevice.backends.paddle import creation, storage
from xdevice.backends.paddle.exchange import FOREIGN
from xdevice.backends.paddle.hardware import native, real_gpus, replaced_gpus
from xdevice.backends.paddle.placement import dense, device_of, dtype_name
from xdevice.contract import Job
from xdevice.device import Device
from xdevice.errors import DistributedError
from xdevice.kit import gloo
from xdevice.kit.blocks import environment
from xdevice.kit.private_names import replaced
from xdevice.kit.reducing import summed_in
from xdevice.kit.shared_memory import SharedMemory, join_on_one_host

# Their types lack what is used here
_core: Any = core
_dist: Any = dist

Array = np.ndarray[Any, Any]

_OPERATIONS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
_SUMMED_AS = {
    # PaddlePaddle 3.3.1 on gloo makes infinities of float16; the others are rounded once, not with
    # each process
    **dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32"),
    "int16": "int32",  # gloo ends the process when given a dtype that it lacks
}
# what gloo sends as it is; other dtypes are sent as bytes
_SENT = frozenset(
    ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
)
_LATER = 60.0  # seconds by which Paddle's timeouts exceed xdevice's, which ends the job and names the right rank
_LIBRARY = os.path.join(os.path.dirname(paddle.__file__), "libs", "libphi_core.so")
# gloo's ways of saying that it gave up: "TIMEOUT self_rank", "Timed out waiting", "Application
# timeout caused …".
_TIMED_OUT = re.compile("timed? ?out", re.IGNORECASE)
_LOG_LEVEL = "_ZN3fLI17FLAGS_minloglevelE"  # glog's variable; its environment variable counts at import alone

_memory: SharedMemory | None = None  # of a job on one host that does not trust its network
_cpu = Device("cpu", 0)
_gpu: Device | None = None  # that NCCL uses; all processes have one, or none has
_hosts: Any = None  # the group that reaches the CPUs; None is the default group
_joined: tuple[int, tuple[str, ...]] | None = (
    None  # PaddlePaddle can join other processes once in its life
)
_patience = 0.0  # seconds that a collective may take


def start(job: Job, timeout: float) -> None:
    global _joined, _memory, _patience
    _memory = join_on_one_host(job, timeout, "paddle.distributed")
    if _memory is not None:
        return
    _patience = timeout + _LATER
    place = job.rank, job.addresses
    if _joined not in (None, place):
        raise DistributedError(
            "paddle has joined other processes until it ends; start the job anew"
        )
    if _joined is None:
        _join(job, timeout)
        _joined = place
    _patiently(
        dist.all_reduce, paddle.zeros([1]).cpu(), group=_hosts
    )  # which connects the processes


def _join(job: Job, timeout: float) -> None:
    global _gpu, _hosts
    gloo.check_first_address(job.hosts, job.address, job.interface)
    default = paddle.device.get_device()
    together = max(job.local_ranks) + 1  # NCCL wants a GPU for each process
    by_nccl = (
        paddle.is_compiled_with_cuda() and not replaced_gpus.number and real_gpus() >= together
    )
    _gpu = Device("gpu", job.local_rank) if by_nccl else None
    _wait_for_master(job, timeout)
    with environment(_settings(job)), _quietly():
        dist.init_parallel_env()
        _hosts = _dist.new_group(backend="gloo") if by_nccl else None
    paddle.device.set_device(default)  # the engine has made its own the default


def _settings(job: Job) -> dict[str, str]:
    host, _, port = job.master.rpartition(":")
    settings = {
        "MASTER_ADDR": host,  # goes before PADDLE_MASTER, if another launcher has set it
        "MASTER_PORT": port,
        "PADDLE_MASTER": job.master,
        "PADDLE_TRAINER_ID": str(job.rank),
        "PADDLE_TRAINERS_NUM": str(job.world_size),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(job.addresses),
        "PADDLE_CURRENT_ENDPOINT": job.addresses[job.rank],
        "PADDLE_DISTRI_BACKEND": "nccl" if _gpu else "gloo",
        "FLAGS_selected_gpus": str(job.local_rank),
        "FLAGS_stop_check_timeout": str(round(_patience)),
        "PADDLE_PG_TIMEOUT": str(round(1000 * _patience)),
    }
    return settings | gloo.settings(job.hosts, job.address, job.interface)


def _wait_for_master(job: Job, timeout: float) -> None:
    """Return when rank 0 listens: PaddlePaddle 3.3.1 sleeps for three seconds where it does not yet."""
    host, _, port = job.master.rpartition(":")
    deadline = time.monotonic() + timeout
    while job.rank and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)


@contextmanager
def _quietly() -> Generator[None]:
    """Without the reports of connections and of changed flags that Paddle prints on every start."""
    with ExitStack() as stack:
        if hasattr(parallel, "_get_modified_flags"):
            stack.enter_context(replaced(parallel, "_get_modified_flags", lambda _: list))
        for library in (_core.libpaddle.__file__, _LIBRARY):
            with suppress(
                OSError, ValueError
            ):  # another version keeps it elsewhere, and prints its reports
                level = ctypes.c_int.in_dll(ctypes.CDLL(library), _LOG_LEVEL)
                stack.callback(setattr, level, "value", level.value)
                level.value = max(level.value, 1)  # warnings are shown
        yield


def _patiently(collective: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Let xdevice say which process does not answer: gloo gives up after 30 seconds, and cannot be told otherwise."""
    end = time.monotonic() + _patience
    try:
        collective(*args, **options)
    except RuntimeError as error:
        if _TIMED_OUT.search(str(error)):
            time.sleep(max(0.0, end - time.monotonic()))  # this process is ended meanwhile
        raise


def all_reduce(vector: Any, op: str) -> Any:
    if _memory is not None:
        return _all_reduce_in_memory(_memory, vector, op)
    there, group = _reachable(vector)
    if op == "mean":
        total = all_reduce(there.astype(summed_in(dtype_name(there), dist.get_world_size())), "sum")
        return _back((total / dist.get_world_size()).astype(vector.dtype), vector)
    if op != "sum" and there.is_floating_point():
        return _back(_extreme(there, op, group).astype(vector.dtype), vector)
    wide = there.astype(_SUMMED_AS[dtype_name(there)]) if dtype_name(there) in _SUMMED_AS else there
    plain = paddle.as_real(wide) if wide.is_complex() else wide
    _patiently(dist.all_reduce, plain, _OPERATIONS[op], group)
    found = paddle.as_complex(plain) if wide.is_complex() else plain
    return _back(found if found.dtype == vector.dtype else found.astype(vector.dtype), vector)


def _all_reduce_in_memory(memory: SharedMemory, vector: Any, op: str) -> Any:
    if dtype_name(vector) in FOREIGN:  # reduced in float32, and rounded once
        return _all_reduce_in_memory(memory, vector.astype("float32"), op).astype(vector.dtype)
    return creation.tensor(memory.all_reduce(_values(vector), op), vector.dtype, device_of(vector))


def _extreme(vector: Any, op: str, group: Any) -> Any:
    """The greatest or least floating-point numbers. gloo loses NaN: it compares their bits, which have an order."""
    wide = vector if dtype_name(vector) in ("float32", "float64") else vector.astype("float32")
    integer = "int64" if dtype_name(wide) == "float64" else "int32"
    end = paddle.iinfo(getattr(paddle, integer))
    nan = paddle.full([1], end.max if op == "max" else end.min, integer).cpu()
    keys = paddle.where(
        paddle.isnan(wide), nan, _in_order(_viewed(wide, getattr(paddle, integer)), end.max)
    )
    _patiently(dist.all_reduce, keys, _OPERATIONS[op], group)
    return _viewed(_in_order(keys, end.max), wide.dtype)


def _in_order(bits: Any, greatest: int) -> Any:
    """The bits of floating-point numbers as integers of the same order, and back: the ends of their range are NaNs."""
    return paddle.where(bits < 0, bits ^ paddle.full([1], greatest, bits.dtype).cpu(), bits)


def broadcast(vector: Any, root: int) -> Any:
    if _memory is not None:
        return _from_values(_memory.broadcast(_values(vector), root), vector)
    there, group = _reachable(vector)
    sent = _sendable(there)
    _patiently(dist.broadcast, sent, root, group)
    return _back(_viewed(sent, there.dtype), vector)


def all_gather(vector: Any) -> list[Any]:
    if _memory is not None:
        return [_from_values(row, vector) for row in _memory.all_gather(_values(vector))]
    there, group = _reachable(vector)
    found: list[Any] = []
    _patiently(dist.all_gather, found, _sendable(there), group)
    return [_back(_viewed(tensor, there.dtype), vector) for tensor in found]


def stop() -> None:
    """Leave the memory. A process group stays: none can be made after `destroy_process_group` (PaddlePaddle 3.3.1)."""
    global _memory
    if _memory is not None:
        _memory.close()
        _memory = None


def _values(vector: Any) -> Array:
    """The vector's values in the host's memory; for dtypes that NumPy lacks, integers with the same bits."""
    array: Array = dense(vector).numpy()
    return array


def _from_values(values: Array, like: Any) -> Any:
    """A tensor with these `_values`, of that vector's dtype and on its device."""
    if dtype_name(like) in FOREIGN:
        bits = values.view(np.uint8)
        return storage.from_bits(bits, values.shape, like.dtype, device_of(like))
    return creation.tensor(values, like.dtype, device_of(like))


def _reachable(vector: Any) -> tuple[Any, Any]:
    """The vector where an engine works, and the group that works there."""
    device = device_of(vector)
    if device == _gpu:
        return vector, None
    return (vector if device == _cpu else vector._copy_to(native(_cpu), True)), _hosts


def _back(found: Any, vector: Any) -> Any:
    device = device_of(vector)
    if device == _gpu:
        paddle.device.synchronize(f"gpu:{device.index}")  # NCCL returns before it is done
    return found if device_of(found) == device else found._copy_to(native(device), True)


def _sendable(tensor: Any) -> Any:
    return tensor if dtype_name(tensor) in _SENT else _viewed(tensor, paddle.uint8)


def _viewed(tensor: Any, dtype: Any) -> Any:
    """The tensor's bits as another dtype."""
    if tensor.dtype == dtype:
        return tensor
    with storage.views():
        return tensor.view(dtype)
