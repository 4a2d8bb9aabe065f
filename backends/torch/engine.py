"""Several processes, by torch.distributed: gloo on the CPU, NCCL on GPUs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdevice.contract import Job

_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_BYTES = torch.uint8
_SUMMED_AS = {  # gloo has no sum of them
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
}


def start(job: Job, timeout: float) -> None:
    host, _, port = job.master.rpartition(":")
    patience = timedelta(seconds=timeout)
    tcp_store: Any = vars(dist)["TCPStore"]  # public, and not among what torch's types export
    store = tcp_store(host, int(port), job.world_size, is_master=job.rank == 0, timeout=patience)
    by = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    with _at_interface(job.interface):
        dist.init_process_group(by, store=store, rank=job.rank, world_size=job.world_size, timeout=patience)
        dist.all_reduce(torch.zeros(1))  # gloo connects the processes when they first compute


@contextmanager
def _at_interface(name: str | None) -> Generator[None, None, None]:
    """Let gloo take this network interface: it would take the one that the host's name stands for."""
    if name is None or "GLOO_SOCKET_IFNAME" in os.environ:
        yield
        return
    os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        yield
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]


def all_reduce(vector: torch.Tensor, op: str) -> torch.Tensor:
    if vector.dtype is torch.uint64:
        return _of_uint64(vector, op)
    there = _reachable(vector)
    wide = there.to(_SUMMED_AS[there.dtype]) if there.dtype in _SUMMED_AS else there
    dist.all_reduce(wide, _OPERATIONS[op])
    return _waited(wide.to(vector.device, vector.dtype))


def _of_uint64(vector: torch.Tensor, op: str) -> torch.Tensor:
    """gloo has none of them. Sums are those of signed ones, bit for bit; with the highest bit turned, so is order."""
    turn = 0 if op == "sum" else -(2**63)
    return (all_reduce(vector.view(torch.int64) ^ turn, op) ^ turn).view(torch.uint64)


def broadcast(vector: torch.Tensor, root: int) -> torch.Tensor:
    there = _reachable(vector)
    dist.broadcast(there.view(_BYTES), root)
    return _waited(there.to(vector.device))


def all_gather(vector: torch.Tensor) -> list[torch.Tensor]:
    there = _reachable(vector)
    found = [torch.empty_like(there) for _ in range(dist.get_world_size())]
    dist.all_gather([tensor.view(_BYTES) for tensor in found], there.view(_BYTES))
    return [_waited(tensor.to(vector.device)) for tensor in found]


def stop() -> None:
    dist.destroy_process_group()


def _reachable(vector: torch.Tensor) -> torch.Tensor:
    """The vector, which is ours to overwrite, where an engine works: on a GPU, or the CPU for all other devices."""
    return vector if vector.device.type == "cuda" and dist.is_nccl_available() else vector.cpu()


def _waited(vector: torch.Tensor) -> torch.Tensor:
    if vector.device.type == "cuda":
        torch.cuda.synchronize(vector.device)  # NCCL comes back before it is done
    return vector
