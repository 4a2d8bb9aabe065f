"""Process groups of ``torch.distributed`` on virtual GPUs: gloo is the backend, also of NCCL's.

The process group stays torch's own, and so do DistributedDataParallel, timeouts and asynchronous
work. torch reports such a group as NCCL's and its backend as gloo's. Operations that gloo has and
NCCL refuses raise the errors of torch's ``ProcessGroupNCCL``.
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
from xdevice.virtual.torch.distributed import collectives
from xdevice.virtual.torch.private_names import in_place_of, names, replace_name
from xdevice.virtual.torch.runtime import in_use, is_faithful
from xdevice.virtual.visible_devices import VISIBLE

_C10D = "torch.distributed.distributed_c10d"
_Gloo: Any = getattr(dist, "ProcessGroupGloo", None)

# PyTorch 2.15 has three: "nccl" is NCCL2, unless TORCH_DIST_USE_NCCL2=0.
_NCCL_CLASSES = "ProcessGroupNCCL", "ProcessGroupNCCL2", "ProcessGroupNCCLLazy"


def replace() -> None:
    """Make gloo accept tensors on virtual GPUs, and stand in for NCCL."""
    if not dist.is_available() or not names.has("process groups"):
        return
    c10d: Any = dist.distributed_c10d
    faithful = is_faithful()
    device_types: Any = c10d.Backend.backend_capability
    for backend in ("gloo", "nccl"):
        if in_use().name not in device_types[backend]:
            device_types[backend].append(in_use().name)
    c10d.Backend.default_device_backend_map.setdefault(in_use().name, "gloo")
    collectives.replace(_check if faithful else None)
    replace_name(f"{_C10D}:_NCCL_AVAILABLE", True)
    for module in (_C10D, "torch.distributed"):
        for name in _NCCL_CLASSES:
            replace_name(f"{module}:{name}", ProcessGroupNCCL)
    timeout = c10d.default_pg_nccl_timeout or timedelta(minutes=10)
    replace_name(f"{_C10D}:default_pg_nccl_timeout", timeout)
    replace_name("torch._C:_distributed_c10d._hash_tensors", _hash)
    for module in (_C10D, "torch.distributed", "torch.distributed.device_mesh"):
        replace_name(f"{module}:split_group", _split_group)
    # a new group of NCCL is split from an existing one, and gloo cannot split
    replace_name(f"{_C10D}:_get_split_source", lambda *args: None)
    in_place_of("torch.autograd.profiler:_rewrite_name")(_rewrite_name)
    in_place_of(f"{_C10D}:_new_process_group_helper")(partial(_new_process_group, faithful))


def _hash(tensors: Sequence[torch.Tensor]) -> int:
    """What TORCH_DISTRIBUTED_DEBUG=DETAIL writes about tensors that contain objects."""
    return hash(tuple(tuple(tensor.tolist()) for tensor in tensors))


def _split_group(
    parent_pg: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    pg_options: Any = None,
    group_desc: Any = None,
    **options: Any,
) -> Any:
    """The group of this process after the split: a new group, since gloo crashes when it splits."""
    parent_ranks = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    for members in split_ranks:
        ranks = sorted(parent_ranks[member] for member in members)
        if dist.get_rank() in ranks:
            return dist.new_group(
                ranks, timeout, use_local_synchronization=True, group_desc=group_desc, **options
            )
    return None


def _new_process_group(
    faithful: bool, torchs_function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """A process group; unless it is faithful, it accepts tensors on the CPU too."""
    global _gloo_has_cpu_group
    importlib.import_module("torch.distributed.tensor._random")  # late: the import is slow
    if names.has("DTensor"):
        from xdevice.virtual.torch.distributed import dtensor

        dtensor.replace()
    group, store = torchs_function(*args, **kwargs)
    if store is None:  # this process is not in the group
        return group, store
    cpu = torch.device("cpu")
    if cpu in group._device_types:
        _gloo_has_cpu_group = True
    elif not faithful:
        backend = group._get_backend(torch.device(in_use().name))
        group._register_backend(cpu, dist.ProcessGroup.BackendType.GLOO, backend)
    return group, store


_gloo_has_cpu_group = False


def _rewrite_name(
    torchs_function: Callable[..., str], name: str, with_wildcard: bool = False
) -> str:
    """The name of a profiler's event: gloo's work is named after NCCL if gloo only stands in."""
    new_name: str = torchs_function(name=name, with_wildcard=with_wildcard)
    stands_in = in_use().name == "cuda" and not _gloo_has_cpu_group
    if stands_in and new_name.startswith("gloo:"):
        return f"nccl{new_name.removeprefix('gloo')}"
    return new_name


class _NewestIsInstance(type):
    """Makes the newest backend an instance of `ProcessGroupNCCL`, once.

    torch checks the type when it has created the backend. Later the backend is gloo's, with gloo's
    methods.
    """

    newest: Any = None

    def __instancecheck__(cls, instance: Any) -> bool:
        newest = _NewestIsInstance.newest
        _NewestIsInstance.newest = None
        return newest is not None and instance is newest


class ProcessGroupNCCL(metaclass=_NewestIsInstance):
    """The backends that torch creates for ``nccl``, which builds for the CPU lack: gloo's."""

    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = range(3)

    class Options(SimpleNamespace):
        """Settings of NCCL, which change nothing."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            settings = {"config": SimpleNamespace(), "_timeout": timedelta(minutes=10)}
            super().__init__(is_high_priority_stream=is_high_priority_stream, **settings)

    def __new__(
        cls, store: Any, rank: int, size: int, options: Any = None, device_id: Any = None
    ) -> Any:
        # NCCL2 takes a device_id, to connect its GPU at once; gloo needs no device
        options = options or cls.Options()
        backend = _Gloo(store, rank, size, timeout=options._timeout)
        for name in ("global_ranks_in_group", "group_name"):
            if hasattr(options, name):
                setattr(backend.options, name, getattr(options, name))
        _NewestIsInstance.newest = backend
        return backend


_NUMBERS = """
    int8 uint8 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2
"""
_DTYPES = {torch.bool, *(getattr(torch, name) for name in _NUMBERS.split())}
_TAKE_COMPLEX = {"allreduce_", "broadcast_", "reduce_"}  # as real numbers
_BITWISE = {5: "BAND", 6: "BOR", 7: "BXOR"}  # as c10d::ReduceOp::RedOpType numbers them
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _check(name: str, group: Any, args: tuple[Any, ...]) -> None:
    """Raise NCCL's error for this operation of ``c10d``."""
    if name == "recv_any_source_":
        raise NotImplementedError("ProcessGroupNCCL does not support recvAnysource")
    tensors = [*tensors_in(args)]
    for tensor in tensors:
        if not tensor.is_cuda:
            raise ValueError("Tensors must be CUDA and dense")
        is_complex = tensor.is_complex() and name in _TAKE_COMPLEX
        if not is_complex and tensor.dtype not in _DTYPES:
            raise TypeError(
                f"Input tensor data type is not supported for NCCL process group: {tensor.dtype}"
            )
    if "coalesced" not in name:
        _check_contiguous(args)
    are_on_several_devices = len({tensor.device for tensor in tensors}) > 1
    if are_on_several_devices and "coalesced" in name:
        raise ValueError("Expected list of tensors on the same device")
    if are_on_several_devices and name == "alltoall_":
        raise RuntimeError("Tensors must be on the same device")
    _check_reductions(args, tensors)
    if name == "barrier":
        _check_gpus(group, _gpu_of_barrier(group, args[2]))
    elif tensors and name not in ("send", "recv_"):
        _check_gpus(group, tensors[0].get_device())


def _check_contiguous(args: tuple[Any, ...]) -> None:
    """Raise NCCL's error for a tensor that is not contiguous.

    Tensors in nested lists, one for each process, may have any strides: torch copies them into one.
    """
    for arg in args:
        tensors = arg if isinstance(arg, (list, tuple)) else [arg]
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.is_contiguous():
                continue
            memory_format = _FORMATS.get(tensor.dim(), torch.contiguous_format)
            if not tensor.is_contiguous(memory_format=memory_format):
                raise ValueError("Tensors must be contiguous")


def _check_reductions(args: tuple[Any, ...], tensors: Sequence[torch.Tensor]) -> None:
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and str(arg._type()).endswith(".ReduceOp"):
            kind = torch.ops.xdevice_virtual.reduction(arg)[0]
            if kind in _BITWISE:
                raise ValueError(f"Cannot use ReduceOp.{_BITWISE[kind]} with NCCL")
            if kind == collectives.AVERAGE and any(
                tensor.dtype == torch.bool for tensor in tensors
            ):
                raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")


_checked_gpus: dict[str, list[int]] = {}
"""The GPUs that this process uses in a group, and no other process does, by the group's name."""


def _check_gpus(group: Any, index: int) -> None:
    """Raise NCCL's error if another process of the group uses this GPU.

    As with NCCL, the first collective checks this.
    """
    checked_gpus = _checked_gpus.setdefault(group.group_name, [])
    if index in checked_gpus:
        return
    c10d: Any = dist.distributed_c10d
    store = c10d._world.pg_map[group][1]
    keys = [f"xdevice/gpu/{len(checked_gpus)}/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], f"{socket.gethostname()} {_number_on_host(index)}")
    gpus = [bytes(store.get(key)) for key in keys]  # waits until each process has set its key
    for rank, gpu in enumerate(gpus):
        if gpu in gpus[:rank]:
            raise dist.DistBackendError(
                "NCCL error: invalid usage\nncclInvalidUsage: This usually reflects invalid usage "
                "of NCCL library.\n"
                f"Last error:\nDuplicate GPU detected : rank {gpus.index(gpu)} and rank {rank} "
                f"both on CUDA device {index}; call torch.cuda.set_device(local_rank) first"
            )
    checked_gpus.append(index)


def _number_on_host(index: int) -> str:
    """The number on this host of a GPU of this process, as CUDA_VISIBLE_DEVICES has it."""
    visible = os.environ.get(VISIBLE, "").split(",")
    if visible[0] and index < len(visible):
        return visible[index].strip()
    return str(index)


def _gpu_of_barrier(group: Any, device_ids: Sequence[int]) -> int:
    """The GPU on which NCCL waits, which need not be the current device."""
    if device_ids:
        return device_ids[0]
    if group.bound_device_id is not None:
        return int(group.bound_device_id.index)
    checked_gpus = _checked_gpus.get(group.group_name)
    if checked_gpus:
        return checked_gpus[0]
    return dist.get_rank() % torch.cuda.device_count()
