"""``torch.distributed`` on virtual GPUs: gloo reads and writes their memory as the host's.

torch sends every collective through an operation of the dispatcher, such as ``c10d::allreduce_``. Those for virtual
GPUs are replaced by kernels that call the same operation on CPU tensors that share the memory. The process group stays
torch's own, and so do DistributedDataParallel, timeouts and asynchronous work. While the virtual GPUs stand in for
CUDA's, gloo answers where a program asks for NCCL.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from xdevice.backends.torch.private_names import core, kernels_of, replace_name
from xdevice.backends.torch.virtual import runtime
from xdevice.backends.torch.virtual.runtime import in_use

_C10D = "torch.distributed.distributed_c10d"


def replace() -> None:
    """Let gloo take tensors on virtual GPUs."""
    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    inside: Any = c10d.Backend
    if in_use().name not in inside.backend_capability["gloo"]:
        inside.backend_capability["gloo"].append(in_use().name)
    inside.default_device_backend_map[in_use().name] = "gloo"
    _replace_collectives(runtime.key())
    _replace_futures()
    _replace_coalescing()
    _answer_to_nccl(c10d)


def _replace_collectives(key: str) -> None:
    ours = kernels_of("c10d")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
        for full in core._dispatch_get_registrations_for_dispatch_key(key):
            space, _, name = full.partition("::")
            if space == "c10d":
                ours.impl(name, _on_host(getattr(torch.ops.c10d, name).default), key, allow_override=True)


def _on_host(op: Any) -> Callable[..., Any]:
    """The collective on CPU tensors in the virtual ones' memory."""
    returns_tensors, flat = len(op._schema.returns) > 1, op._schema.name.removeprefix("c10d::") in _WHOLE
    names = [argument.name for argument in op._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        here = [_mapped(lambda tensor: _flat(_to_host(tensor)) if flat else _to_host(tensor), arg) for arg in args]
        try:
            result = op(*here, **kwargs)
        except RuntimeError as error:
            if "No backend type associated with device type cpu" not in str(error):
                raise
            _serve_cpu(dist.ProcessGroup.unbox(args[names.index("process_group")]))
            result = op(*here, **kwargs)
        work = result[1] if returns_tensors else result
        if _coalesced and "process_group" in names:
            group = dist.ProcessGroup.unbox(args[names.index("process_group")])
            _coalesced.get(group.group_name, []).append(dist.Work.unbox(work))
        return (args[0], work) if returns_tensors else work

    return kernel


_WHOLE = {f"_{name}_base_" for name in ("allgather", "reduce_scatter")} | {
    "allgather_into_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced_",
}
"""Collectives of one tensor for all processes: NCCL ignores its shape, and gloo splits its first dimension."""


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """The value with each tensor in it changed."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, item) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1) if tensor.is_contiguous() else tensor


def _serve_cpu(group: Any) -> None:
    """Let gloo serve the CPU too, in a group that was made for virtual GPUs alone."""
    gloo = group._get_backend(torch.device(in_use().name))
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)


def _to_host(tensor: torch.Tensor) -> Any:
    if tensor.device.type != in_use().name:
        return tensor
    alias: Any = torch.ops.xdevice_virtual.host(tensor.detach())
    alias._virtual = tensor.detach()  # for those who ask the future for its value
    return alias


def _to_virtual(value: Any) -> Any:
    return _mapped(lambda tensor: getattr(tensor, "_virtual", tensor), value)


def _replace_futures() -> None:
    """The value of a collective's future are the virtual tensors: hooks of DistributedDataParallel compute with it."""
    work: Any = dist.Work
    future, result = work.get_future, work.result

    def get_future(self: Any) -> Any:
        return future(self).then(lambda done: _to_virtual(done.value()))

    replace_name("torch.distributed:Work.get_future", get_future)
    replace_name("torch.distributed:Work.result", lambda self: _to_virtual(result(self)))


_coalesced: dict[str, list[Any]] = {}
"""The work begun within a block that coalesces collectives, by the name of its group."""


class _Together:
    """All the work of such a block, which gloo has begun one by one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self, *timeout: Any) -> bool:
        for work in self._works:
            work.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


def _replace_coalescing() -> None:
    """Let groups coalesce collectives on virtual GPUs, as NCCL's do, and gloo's do not."""
    group: Any = dist.ProcessGroup
    begin, end = group._start_coalescing, group._end_coalescing

    def _start_coalescing(self: Any, device: torch.device) -> None:
        if torch.device(device).type != in_use().name:
            begin(self, device)
        else:
            _coalesced[self.group_name] = []

    def _end_coalescing(self: Any, device: torch.device) -> Any:
        works = _coalesced.pop(self.group_name, None)
        return end(self, device) if works is None else _Together(works)

    for ours in (_start_coalescing, _end_coalescing):
        replace_name(f"torch.distributed:ProcessGroup.{ours.__name__}", ours)


class _Nccl:
    """A stand-in for `ProcessGroupNCCL`, which builds for the CPU lack; `get_backend` answers ``nccl``."""

    Options = SimpleNamespace

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("virtual GPUs have no NCCL; make the group with init_process_group('nccl')")


def _answer_to_nccl(c10d: Any) -> None:
    """Make every group with gloo, and name it as it was asked for."""
    replace_name(f"{_C10D}:_new_process_group_helper", _by_gloo(c10d._new_process_group_helper, c10d))
    replace_name(f"{_C10D}:default_pg_nccl_timeout", c10d.default_pg_nccl_timeout or c10d.default_pg_timeout)
    if in_use().name == "cuda":
        replace_name(f"{_C10D}:_NCCL_AVAILABLE", True)
        for module in (_C10D, "torch.distributed"):
            replace_name(f"{module}:ProcessGroupNCCL", getattr(c10d, "ProcessGroupNCCL", _Nccl))


def _by_gloo(make: Callable[..., Any], c10d: Any) -> Callable[..., Any]:
    """The function that makes process groups, with gloo where it is asked for NCCL."""

    @wraps(make)
    def made(size: int, rank: int, ranks: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        from xdevice.backends.torch.virtual.torch_parts import dtensor  # which takes a while to import

        dtensor.replace()
        asked = str(backend)
        kwargs["device_id"] = None  # groups that are bound to a device are split by NCCL, which gloo cannot do
        if "nccl" in asked:
            kwargs["backend_options"] = None
        group, store = make(size, rank, ranks, c10d.Backend(asked.replace("nccl", "gloo")), *args, **kwargs)
        if store is not None:  # of a process in the group
            c10d._world.pg_map[group] = c10d.Backend(asked), store
            if "nccl" in asked:
                group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        return group, store

    return made
