"""Process groups of ``torch.distributed`` on virtual GPUs: gloo serves them, and answers where NCCL is asked for.

The process group stays torch's own, and so do DistributedDataParallel, timeouts and asynchronous work. In torch's own
words a group is NCCL's, and its backend gloo's.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from xdevice.backends.torch.private_names import in_place_of, replace_name
from xdevice.backends.torch.virtual.runtime import in_use
from xdevice.backends.torch.virtual.torch_parts import collectives, nccl
from xdevice.kit import virtual_request

_C10D = "torch.distributed.distributed_c10d"
_Gloo: Any = getattr(dist, "ProcessGroupGloo", None)


def replace() -> None:
    """Let gloo take tensors on virtual GPUs, and stand in for NCCL."""
    if not dist.is_available():
        return
    c10d: Any = dist.distributed_c10d
    faithful = in_use().name == "cuda" and not virtual_request.current().lenient
    capable: Any = c10d.Backend.backend_capability
    for backend in ("gloo", "nccl"):
        if in_use().name not in capable[backend]:
            capable[backend].append(in_use().name)
    c10d.Backend.default_device_backend_map.setdefault(in_use().name, "gloo")
    collectives.register(nccl.check if faithful else None)
    collectives.replace_futures()
    collectives.replace_coalescing()
    replace_name(f"{_C10D}:_NCCL_AVAILABLE", True)
    for module in (_C10D, "torch.distributed"):
        replace_name(f"{module}:ProcessGroupNCCL", ProcessGroupNCCL)
    replace_name(f"{_C10D}:default_pg_nccl_timeout", c10d.default_pg_nccl_timeout or timedelta(minutes=10))
    # what TORCH_DISTRIBUTED_DEBUG=DETAIL writes of tensors that hold objects
    replace_name("torch._C:_distributed_c10d._hash_tensors", lambda xs: hash(tuple(tuple(x.tolist()) for x in xs)))
    for module in (_C10D, "torch.distributed", "torch.distributed.device_mesh"):
        replace_name(f"{module}:split_group", _split)
    replace_name(f"{_C10D}:_get_split_source", lambda group: None)  # gloo makes groups, and splits none for NCCL
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
            return dist.new_group(mine, timeout, use_local_synchronization=True, group_desc=group_desc, **options)
    return None


def _made(faithful: bool, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A process group; one that need not be faithful takes tensors on the CPU too."""
    from xdevice.backends.torch.virtual.torch_parts import dtensor  # which takes a while to import

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


_on_cpu: list[bool] = []
"""Filled where gloo has a group for the CPU."""


def _named(rewrite: Callable[..., str], name: str, with_wildcard: bool = False) -> str:
    """The name of a profiler's event: the work is NCCL's where gloo has no other."""
    made: str = rewrite(name=name, with_wildcard=with_wildcard)
    stands_in = made.startswith("gloo:") and in_use().name == "cuda" and not _on_cpu
    return f"nccl{made[4:]}" if stands_in else made


_last: Any = None
"""The backend that was made for NCCL just now."""


class _Made(type):
    """Lets torch find that what it has made is what it asked for; later that is gloo's, with gloo's methods."""

    def __instancecheck__(cls, made: Any) -> bool:
        global _last
        asked, _last = _last, None
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
        global _last
        options = options or cls.Options()
        _last = made = _Gloo(store, rank, size, timeout=options._timeout)
        for name in ("global_ranks_in_group", "group_name"):
            if hasattr(options, name):
                setattr(made.options, name, getattr(options, name))
        return made
