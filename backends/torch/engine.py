"""Several processes, by torch.distributed: gloo on the CPU, NCCL on GPUs."""

import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from xdevice.backends.kit.environment import environment
from xdevice.backends.kit.gloo import gloo_settings
from xdevice.backends.kit.reducing import summed_in
from xdevice.contract import Job
from xdevice.machine import is_loopback

_LATER = 60.0
"""Seconds by which gloo's timeouts are longer than xdevice's.

So xdevice is first to report the rank that fails.
"""

_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_FLOAT8 = dict.fromkeys((torch.float8_e4m3fn, torch.float8_e5m2), torch.float32)
_SUMMED_AS = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    **_FLOAT8,
}
"""For each dtype that gloo cannot add, the dtype in which it adds."""


def start(job: Job, timeout: float) -> None:
    patience = timedelta(seconds=timeout + _LATER)
    options: dict[str, Any] = {"init_method": "env://"}  # torchrun's own store
    if job.launcher != "torchrun":
        options = {"store": _store(job, patience)}
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    with environment(gloo_settings(job)):
        dist.init_process_group(
            backend, rank=job.rank, world_size=job.world_size, timeout=patience, **options
        )
        dist.all_reduce(torch.zeros(1))  # gloo connects the processes when they first compute


def _store(job: Job, patience: timedelta) -> Any:
    host, _, port = job.master.rpartition(":")
    options: dict[str, object] = {"is_master": job.rank == 0, "timeout": patience}
    if job.rank == 0 and is_loopback(host):
        # torch's own socket would listen on all interfaces; the store closes this one
        server = socket.create_server((host, int(port)), backlog=job.world_size)
        options["master_listen_fd"] = server.detach()
    tcp_store: Any = vars(dist)["TCPStore"]  # public, but torch's types do not export it
    return tcp_store(host, int(port), job.world_size, **options)


def all_reduce(vector: torch.Tensor, op: str) -> torch.Tensor:
    if vector.dtype is torch.uint64:
        return _reduced_as_int64(vector, op)
    result = _reachable(vector)
    if op == "mean":
        size = dist.get_world_size()
        dtype_name = str(result.dtype).removeprefix("torch.")
        result = result.to(getattr(torch, summed_in(dtype_name, size)))
        dist.all_reduce(result)
        result = result / size
    elif op != "sum" and result.is_floating_point():
        result = _extreme(result, op)
    else:
        result = result.to(_SUMMED_AS.get(result.dtype, result.dtype))
        dist.all_reduce(result, _OPERATIONS[op])
    return _complete(result.to(vector.device, vector.dtype))


def _reduced_as_int64(vector: torch.Tensor, op: str) -> torch.Tensor:
    """The result for uint64, which gloo lacks.

    Sums have the same bits in int64. For the other operations the highest bit is flipped, which
    keeps the order.
    """
    flipped_bits = 0 if op == "sum" else -(2**63)
    result = all_reduce(vector.view(torch.int64) ^ flipped_bits, op)
    return (result ^ flipped_bits).view(torch.uint64)


def _extreme(vector: torch.Tensor, op: str) -> torch.Tensor:
    """The greatest or least floating-point numbers.

    gloo loses NaN, so it is given the bits as integers of the same order.
    """
    wide = vector
    integer = torch.int64
    if vector.dtype is not torch.float64:
        wide = vector.to(torch.float32)
        integer = torch.int32
    limits = torch.iinfo(integer)
    nan_key = limits.max if op == "max" else limits.min
    keys = _in_order(wide.view(integer)).masked_fill_(wide.isnan(), nan_key)
    dist.all_reduce(keys, _OPERATIONS[op])
    return _in_order(keys).view(wide.dtype)


def _in_order(bits: torch.Tensor) -> torch.Tensor:
    """The bits of floating-point numbers as integers of the same order, and back."""
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def broadcast(vector: torch.Tensor, root: int) -> torch.Tensor:
    result = _reachable(vector)
    dist.broadcast(result.view(torch.uint8), root)
    return _complete(result.to(vector.device))


def all_gather(vector: torch.Tensor) -> list[torch.Tensor]:
    source = _reachable(vector)
    results = [torch.empty_like(source) for _ in range(dist.get_world_size())]
    dist.all_gather([result.view(torch.uint8) for result in results], source.view(torch.uint8))
    return [_complete(result.to(vector.device)) for result in results]


def stop() -> None:
    dist.destroy_process_group()


def _reachable(vector: torch.Tensor) -> torch.Tensor:
    """The vector on a device that NCCL or gloo can read.

    It may be the vector itself, and may be overwritten.
    """
    if vector.device.type == "cuda" and dist.is_nccl_available():
        return vector
    return vector.cpu()


def _complete(vector: torch.Tensor) -> torch.Tensor:
    """The vector, once its values have arrived."""
    if vector.device.type == "cuda":
        torch.cuda.synchronize(vector.device)  # NCCL returns before it is done
    return vector
