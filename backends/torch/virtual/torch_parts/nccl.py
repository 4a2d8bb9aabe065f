"""What NCCL refuses and gloo computes, in the words of torch's own ``ProcessGroupNCCL``."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from xdevice.backends.torch.mixing import tensors_in
from xdevice.kit.virtual_request import VISIBLE

Check = Callable[[str, Any, tuple[Any, ...]], None]

_INTEGERS = {torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64}
_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2}
_DTYPES = _INTEGERS | _FLOATS | {torch.complex64, torch.complex128}
_BITWISE = {5: "BAND", 6: "BOR", 7: "BXOR"}  # as c10d::ReduceOp::RedOpType numbers them
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_MESSAGES = "send", "recv_"


def check(name: str, group: Any, args: tuple[Any, ...]) -> None:
    """Raise the error that NCCL would for this operation of ``c10d``."""
    if name == "recv_any_source_":
        raise NotImplementedError("ProcessGroupNCCL does not support recvAnysource")
    tensors = [*tensors_in(args)]
    for tensor in tensors:
        if not tensor.is_cuda:
            raise ValueError("Tensors must be CUDA and dense")
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"Input tensor data type is not supported for NCCL process group: {tensor.dtype}")
    if "coalesced" not in name:
        _check_contiguous(args)
    if len({tensor.device for tensor in tensors}) > 1:
        _refuse_devices(name)
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and str(arg._type()).endswith(".ReduceOp"):
            kind = torch.ops.xdevice_virtual.reduction(arg)[0]
            if kind in _BITWISE:
                raise ValueError(f"Cannot use ReduceOp.{_BITWISE[kind]} with NCCL")
    if name == "barrier":
        _check_gpus(group, _gpu_of_barrier(group, args[2]))
    elif tensors and name not in _MESSAGES:
        _check_gpus(group, tensors[0].get_device())


def _check_contiguous(args: tuple[Any, ...]) -> None:
    """Of tensors one for each process torch makes one, so these may be as they are."""
    for arg in args:
        for tensor in arg if isinstance(arg, (list, tuple)) else [arg]:
            if not isinstance(tensor, torch.Tensor) or tensor.is_contiguous():
                continue
            if not tensor.is_contiguous(memory_format=_FORMATS.get(tensor.dim(), torch.contiguous_format)):
                raise ValueError("Tensors must be contiguous")


def _refuse_devices(name: str) -> None:
    if "coalesced" in name:
        raise ValueError("Expected list of tensors on the same device")
    if name == "alltoall_":
        raise RuntimeError("Tensors must be on the same device")


# ---------------------------------------------------------------- one GPU for each process

_KEY = "xdevice/gpu"
_proved: dict[str, list[int]] = {}
"""By name of the group: the GPUs with which this process is in it, and no other process is."""


def _check_gpus(group: Any, index: int) -> None:
    """Raise NCCL's error where another process of the group uses this GPU; as there, the first collective finds out."""
    proved = _proved.setdefault(group.group_name, [])
    if index in proved:
        return
    c10d: Any = dist.distributed_c10d
    store, size = c10d._world.pg_map[group][1], group.size()
    keys = [f"{_KEY}/{len(proved)}/{rank}" for rank in range(size)]
    store.set(keys[group.rank()], _gpu(index))
    store.wait(keys)
    found = [bytes(store.get(key)).decode() for key in keys]
    for rank, gpu in enumerate(found):
        if gpu in found[:rank]:
            _refuse_gpu(rank, found.index(gpu), index)
    proved.append(index)


def _gpu_of_barrier(group: Any, given: Sequence[int]) -> int:
    """The GPU on which NCCL waits, which need not be the current one."""
    if given:
        return given[0]
    if group.bound_device_id is not None:
        return int(group.bound_device_id.index)
    return next(iter(_proved.get(group.group_name, ())), dist.get_rank() % torch.cuda.device_count())


def _gpu(index: int) -> str:
    """The virtual GPU among all of this host, of which CUDA_VISIBLE_DEVICES may leave some for each process."""
    words = os.environ.get(VISIBLE, "").split(",")
    return f"{socket.gethostname()} {words[index].strip() if index < len(words) and words[0] else index}"


def _refuse_gpu(rank: int, other: int, index: int) -> NoReturn:
    raise dist.DistBackendError(
        "NCCL error: invalid usage\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        f"Last error:\nDuplicate GPU detected : rank {other} and rank {rank} both on CUDA device {index}; "
        "call torch.cuda.set_device(local_rank) first"
    )
