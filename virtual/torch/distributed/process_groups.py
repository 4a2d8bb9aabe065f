"""Process groups of ``torch.distributed`` on virtual GPUs: gloo serves them, and answers where NCCL is asked for.

The process group stays torch's own, and so do DistributedDataParallel, timeouts and asynchronous work. In torch's own
words a group is NCCL's, and its backend gloo's. What NCCL refuses and gloo computes is refused in the words of torch's
own ``ProcessGroupNCCL``.
"""

import importlib
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from xdevice.backends.torch.mixing import tensors_in
from xdevice.virtual.request import VISIBLE
from xdevice.virtual.torch.distributed import collectives
from xdevice.virtual.torch.private_names import in_place_of, names, replace_name
from xdevice.virtual.torch.runtime import in_use, is_faithful

_C10D = "torch.distributed.distributed_c10d"
_Gloo: Any = getattr(dist, "ProcessGroupGloo", None)


def replace() -> None:
    """Let gloo take tensors on virtual GPUs, and stand in for NCCL."""
    if not dist.is_available() or not names.has("process groups"):
        return
    c10d: Any = dist.distributed_c10d
    faithful = is_faithful()
    capable: Any = c10d.Backend.backend_capability
    for backend in ("gloo", "nccl"):
        if in_use().name not in capable[backend]:
            capable[backend].append(in_use().name)
    c10d.Backend.default_device_backend_map.setdefault(in_use().name, "gloo")
    collectives.replace(_check if faithful else None)
    replace_name(f"{_C10D}:_NCCL_AVAILABLE", True)
    for module in (_C10D, "torch.distributed"):
        replace_name(f"{module}:ProcessGroupNCCL", ProcessGroupNCCL)
    replace_name(
        f"{_C10D}:default_pg_nccl_timeout", c10d.default_pg_nccl_timeout or timedelta(minutes=10)
    )
    # what TORCH_DISTRIBUTED_DEBUG=DETAIL writes of tensors that hold objects
    replace_name(
        "torch._C:_distributed_c10d._hash_tensors",
        lambda xs: hash(tuple(tuple(x.tolist()) for x in xs)),
    )
    for module in (_C10D, "torch.distributed", "torch.distributed.device_mesh"):
        replace_name(f"{module}:split_group", _split)
    replace_name(
        f"{_C10D}:_get_split_source", lambda group: None
    )  # gloo makes groups, and splits none for NCCL
    in_place_of("torch.autograd.profiler:_rewrite_name")(_named)
    in_place_of(f"{_C10D}:_new_process_group_helper")(partial(_made, faithful))


def _split(
    parent_pg: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    pg_options: Any = None,
    group_desc: Any = None,
    **options: Any,
) -> Any:
    """The group of this process among those into which the parent is split: a new one, since gloo's end in a crash."""
    ranks = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    for each in split_ranks:
        mine = sorted(ranks[i] for i in each)
        if dist.get_rank() in mine:
            return dist.new_group(
                mine, timeout, use_local_synchronization=True, group_desc=group_desc, **options
            )
    return None


def _made(faithful: bool, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A process group; one that need not be faithful takes tensors on the CPU too."""
    importlib.import_module("torch.distributed.tensor._random")  # which takes a while
    if names.has("DTensor"):
        from xdevice.virtual.torch.distributed import dtensor

        dtensor.replace()
    group, store = make(*args, **kwargs)
    if store is None:  # of a process that is not in the group
        return group, store
    cpu = torch.device("cpu")
    if cpu in group._device_types:
        _on_cpu.append(True)
    elif not faithful:
        served = group._get_backend(torch.device(in_use().name))
        group._register_backend(cpu, dist.ProcessGroup.BackendType.GLOO, served)
    return group, store


_on_cpu: list[bool] = []  # filled where gloo has a group for the CPU


def _named(rewrite: Callable[..., str], name: str, with_wildcard: bool = False) -> str:
    """The name of a profiler's event: the work is NCCL's where gloo has no other."""
    made: str = rewrite(name=name, with_wildcard=with_wildcard)
    stands_in = made.startswith("gloo:") and in_use().name == "cuda" and not _on_cpu
    return f"nccl{made[4:]}" if stands_in else made


class _Made(type):
    """Lets torch find that what it has made is what it asked for; later that is gloo's, with gloo's methods."""

    last: Any = None  # the backend that was made for NCCL just now

    def __instancecheck__(cls, made: Any) -> bool:
        asked, _Made.last = _Made.last, None
        return asked is not None and made is asked


class ProcessGroupNCCL(metaclass=_Made):
    """What torch makes for ``nccl``, which builds for the CPU lack: gloo's backend."""

    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = range(3)

    class Options(SimpleNamespace):
        """Settings of NCCL, which change nothing."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            settings = {"config": SimpleNamespace(), "_timeout": timedelta(minutes=10)}
            super().__init__(is_high_priority_stream=is_high_priority_stream, **settings)

    def __new__(cls, store: Any, rank: int, size: int, options: Any = None) -> Any:
        options = options or cls.Options()
        _Made.last = made = _Gloo(store, rank, size, timeout=options._timeout)
        for name in ("global_ranks_in_group", "group_name"):
            if hasattr(options, name):
                setattr(made.options, name, getattr(options, name))
        return made


_NUMBERS = "int8 uint8 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 complex64 complex128"
_DTYPES = {torch.bool, *(getattr(torch, name) for name in _NUMBERS.split())}
_BITWISE = {5: "BAND", 6: "BOR", 7: "BXOR"}  # as c10d::ReduceOp::RedOpType numbers them
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _check(name: str, group: Any, args: tuple[Any, ...]) -> None:
    """Raise the error that NCCL would for this operation of ``c10d``."""
    if name == "recv_any_source_":
        raise NotImplementedError("ProcessGroupNCCL does not support recvAnysource")
    tensors = [*tensors_in(args)]
    for tensor in tensors:
        if not tensor.is_cuda:
            raise ValueError("Tensors must be CUDA and dense")
        if tensor.dtype not in _DTYPES:
            raise TypeError(
                f"Input tensor data type is not supported for NCCL process group: {tensor.dtype}"
            )
    if "coalesced" not in name:
        _check_contiguous(args)
    apart = len({tensor.device for tensor in tensors}) > 1
    if apart and "coalesced" in name:
        raise ValueError("Expected list of tensors on the same device")
    if apart and name == "alltoall_":
        raise RuntimeError("Tensors must be on the same device")
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and str(arg._type()).endswith(".ReduceOp"):
            kind = torch.ops.xdevice_virtual.reduction(arg)[0]
            if kind in _BITWISE:
                raise ValueError(f"Cannot use ReduceOp.{_BITWISE[kind]} with NCCL")
    if name == "barrier":
        _check_gpus(group, _gpu_of_barrier(group, args[2]))
    elif tensors and name not in ("send", "recv_"):
        _check_gpus(group, tensors[0].get_device())


def _check_contiguous(args: tuple[Any, ...]) -> None:
    """Of tensors one for each process torch makes one, so these may be as they are."""
    for arg in args:
        for tensor in arg if isinstance(arg, (list, tuple)) else [arg]:
            if not isinstance(tensor, torch.Tensor) or tensor.is_contiguous():
                continue
            if not tensor.is_contiguous(
                memory_format=_FORMATS.get(tensor.dim(), torch.contiguous_format)
            ):
                raise ValueError("Tensors must be contiguous")


_proved: dict[str, list[int]] = {}
"""By name of the group: the GPUs with which this process is in it, and no other process is."""


def _check_gpus(group: Any, index: int) -> None:
    """Raise NCCL's error where another process of the group uses this GPU; as there, the first collective finds out."""
    proved = _proved.setdefault(group.group_name, [])
    if index in proved:
        return
    c10d: Any = dist.distributed_c10d
    store = c10d._world.pg_map[group][1]
    keys = [f"xdevice/gpu/{len(proved)}/{rank}" for rank in range(group.size())]
    words = os.environ.get(VISIBLE, "").split(
        ","
    )  # of all of this host, those that the process is left
    mine = words[index].strip() if index < len(words) and words[0] else index
    store.set(keys[group.rank()], f"{socket.gethostname()} {mine}")
    found = [bytes(store.get(key)) for key in keys]  # each waits for its process
    for rank, gpu in enumerate(found):
        if gpu in found[:rank]:
            raise dist.DistBackendError(
                "NCCL error: invalid usage\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
                f"Last error:\nDuplicate GPU detected : rank {found.index(gpu)} and rank {rank} both on CUDA device "
                f"{index}; call torch.cuda.set_device(local_rank) first"
            )
    proved.append(index)


def _gpu_of_barrier(group: Any, given: Sequence[int]) -> int:
    """The GPU on which NCCL waits, which need not be the current one."""
    if given:
        return given[0]
    if group.bound_device_id is not None:
        return int(group.bound_device_id.index)
    return next(
        iter(_proved.get(group.group_name, ())), dist.get_rank() % torch.cuda.device_count()
    )
