"""What stands on ``torch.cuda`` and is replaced whole: profilers, cuDNN, libraries, sharing tensors."""

import os
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from xdevice.backends.torch.private_names import core, in_place_of, own, replace_name
from xdevice.backends.torch.virtual.compiled.plug_in import compiled


def replace() -> None:
    _profile()
    _share()
    preferred = {kind: getattr(core, f"_get_{kind}_preferred_backend")() for kind in ("linalg", "blas")}
    for kind in preferred:  # which a program prefers: torch refuses those that its build does not have
        replace_name(f"torch._C:_get_{kind}_preferred_backend", partial(preferred.get, kind))
        replace_name(f"torch._C:_set_{kind}_preferred_backend", partial(preferred.__setitem__, kind))

    @in_place_of("torch:ops.load_library")
    def load_library(load: Any, path: str) -> None:
        load(path)
        compiled().cover()  # it may have kernels for real GPUs, as torchvision's: let the CPU's replace them

    replace_name("torch._C:_has_cudnn", False)  # who asks gets the truth, also on a build that has it
    core._jit_override_can_fuse_on_gpu(False)
    # what cuDNN's functions read is behind a PropModule
    for name, value in (("_cudnn", None), ("_init", lambda: False), ("is_acceptable", lambda tensor: False)):
        replace_name(f"torch.backends.cudnn:m.{name}", value)
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton's kernels run in its interpreter, which reads this first


def _profile() -> None:
    """Profile the CPU, where everything runs: recording CUDA's events needs a driver."""
    from torch.profiler import ProfilerActivity

    @in_place_of("torch.profiler.profiler:_KinetoProfile.__init__")  # all profilers derive from it
    def init(make: Any, self: Any, *, activities: Any = None, **kwargs: Any) -> None:
        kept = set(activities or ()) - {ProfilerActivity.CUDA}
        make(self, activities=kept or {ProfilerActivity.CPU}, **kwargs)

    @in_place_of("torch.autograd.profiler:profile.__init__")
    def init_legacy(make: Any, self: Any, enabled: bool = True, *, use_cuda: bool = False, **kwargs: Any) -> None:
        if kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
        make(self, enabled, **kwargs)

    replace_name("torch.profiler.profiler:supported_activities", lambda: {ProfilerActivity.CPU})
    replace_name("torch.autograd.profiler:emit_nvtx.__enter__", lambda self: self)
    replace_name("torch.autograd.profiler:emit_nvtx.__exit__", lambda self, *error: None)


def _share() -> None:
    """Send tensors to other processes in shared memory of the host, instead of by CUDA's handles."""
    plain: Any = reductions.reduce_tensor

    def reduce_tensor(tensor: Any) -> Any:
        whole = tensor.layout == torch.strided and not tensor.is_nested  # torch takes others apart, and sends the parts
        refused = tensor.requires_grad and not tensor.is_leaf  # by torch
        if refused or not whole or not tensor.is_cuda or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return plain(tensor)
        with torch.no_grad():
            host = _shared(tensor)
        return _received, (host, tensor.get_device(), type(tensor) is torch.nn.Parameter, tensor.requires_grad)

    replace_name("torch.multiprocessing.reductions:reduce_tensor", reduce_tensor)
    for cls in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, reduce_tensor)


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as a CPU tensor, where other processes find it."""
    host: torch.Tensor = torch.ops.xdevice_virtual.host(tensor.detach())
    host.untyped_storage().share_memory_()
    torch.ops.xdevice_virtual.refresh(tensor.detach())
    return host


def _received(host: torch.Tensor, index: int, parameter: bool, requires_grad: bool) -> torch.Tensor:
    own.cuda.init()
    made: torch.Tensor = torch.ops.xdevice_virtual.take(host, index)
    return torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)
