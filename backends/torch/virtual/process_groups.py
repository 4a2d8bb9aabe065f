"""``torch.distributed`` on compiled virtual GPUs: gloo reads and writes their memory as the host's.

torch sends every collective through an operation of the dispatcher, such as ``c10d::allreduce_``. Those for virtual
GPUs are replaced by kernels that call the same operation on CPU tensors that share the memory. The process group stays
torch's own, and so do DistributedDataParallel, timeouts and asynchronous work. While the virtual GPUs stand in for
CUDA's, gloo answers where a program asks for NCCL.
"""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from xdevice.backends.torch.virtual import devices
from xdevice.backends.torch.virtual.internals import core, library

if TYPE_CHECKING:
    from collections.abc import Callable

_libraries: list[Any] = []  # registrations last as long as these objects


def replace() -> None:
    """Let gloo take tensors on virtual GPUs."""
    if not dist.is_available():
        return
    from torch.distributed import device_mesh
    from torch.distributed import distributed_c10d as c10d

    inside: Any = c10d.Backend
    if devices.name not in inside.backend_capability["gloo"]:
        inside.backend_capability["gloo"].append(devices.name)
    inside.default_device_backend_map[devices.name] = "gloo"
    _replace_collectives("CUDA" if devices.name == "cuda" else "PrivateUse1")
    _replace_futures()
    for name in ("init_process_group", "new_group"):
        made = _by_gloo(getattr(c10d, name))
        for place in (c10d, dist, device_mesh):
            if hasattr(place, name):
                setattr(place, name, made)


def _replace_collectives(key: str) -> None:
    ours = library.Library("c10d", "IMPL")
    _libraries.append(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
        for full in core._dispatch_get_registrations_for_dispatch_key(key):
            space, _, name = full.partition("::")
            if space == "c10d":
                ours.impl(name, _on_host(getattr(torch.ops.c10d, name).default), key, allow_override=True)


def _on_host(op: Any) -> Callable[..., Any]:
    """The collective on CPU tensors in the virtual ones' memory."""
    returns_tensors = len(op._schema.returns) > 1

    names = [argument.name for argument in op._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        here = [_to_host(arg) for arg in args]
        try:
            result = op(*here, **kwargs)
        except RuntimeError as error:
            if "No backend type associated with device type cpu" not in str(error):
                raise
            _serve_cpu(args[names.index("process_group")])
            result = op(*here, **kwargs)
        return (args[0], result[1]) if returns_tensors else result

    return kernel


def _serve_cpu(boxed: Any) -> None:
    """Let gloo serve the CPU too, in a group that was made for virtual GPUs alone."""
    group: Any = dist.ProcessGroup.unbox(boxed)
    gloo = group._get_backend(torch.device(devices.name))
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)


def _to_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == devices.name:
        twin = torch.ops.xdevice_virtual.host(value.detach())
        twin._virtual = value.detach()  # for those who ask the future for its value
        return twin
    if isinstance(value, (list, tuple)):
        return [_to_host(item) for item in value]
    return value


def _to_virtual(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_to_virtual(item) for item in value)
    return getattr(value, "_virtual", value)


def _replace_futures() -> None:
    """The value of a collective's future are the virtual tensors: hooks of DistributedDataParallel compute with it."""
    work: Any = dist.Work
    future, result = work.get_future, work.result
    work.get_future = lambda self: future(self).then(lambda done: _to_virtual(done.value()))
    work.result = lambda self: _to_virtual(result(self))


def _by_gloo(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a process group, with gloo where it is asked for NCCL."""

    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        _replace_random()
        args = tuple(arg.replace("nccl", "gloo") if isinstance(arg, str) else arg for arg in args)
        backend = kwargs.get("backend")
        if isinstance(backend, str):
            kwargs["backend"] = backend.replace("nccl", "gloo")
        return make(*args, **kwargs)

    return made


def _replace_random() -> None:
    """Let DTensor find the seed and the offset in the random state of a virtual GPU: its last 16 bytes."""
    from torch.distributed.tensor import _random

    plain: Any = _random._PhiloxState  # pyright: ignore[reportPrivateUsage]  # it has no public counterpart
    if plain.__module__ == __name__:
        return

    class Place(plain):  # type: ignore[misc]  # Any to checkers
        def __init__(self, state: torch.Tensor) -> None:
            super().__init__(state[-16:].clone())

    inside: Any = _random
    inside._PhiloxState = Place
