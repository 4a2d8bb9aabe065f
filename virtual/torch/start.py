"""Starting virtual GPUs: which way of making them is taken, and the steps in order."""

import warnings

import torch

from xdevice.backends.torch import transfers
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.machine import host_memory
from xdevice.virtual import plugins, request
from xdevice.virtual.torch import (
    amp,
    autograd,
    compile,
    compiled,
    copies,
    cuda,
    func,
    runtime,
    storages,
    vgpu,
)
from xdevice.virtual.torch.distributed import process_groups
from xdevice.virtual.torch.nn import attention, data_parallel, modules, sync_batch_norm
from xdevice.virtual.torch.private_names import names
from xdevice.virtual.torch.runtime import Runtime


def start(n: int, stand_in: bool) -> Runtime:
    """Make ``vgpu:0`` … ``vgpu:n-1`` devices of torch, or ``cuda:0`` … while they stand in for CUDA's."""
    made = _made(n, stand_in)
    runtime.use(made)
    for step in (  # in this order: later ones compute on the devices, or wrap what earlier ones have put in place
        made.start,
        attention.register,
        process_groups.replace,
        *(cuda.STEPS if stand_in else (amp.register, modules.replace)),
        data_parallel.replace,
        sync_batch_norm.register,
        storages.replace,
        compile.replace,
        func.refuse_crossing,
        lambda: vgpu.manual_seed_all(torch.initial_seed()),
        _compute,
        lambda: transfers.add_source(copies),
        *(cuda.FAITHFUL_STEPS if runtime.is_faithful() else ()),
    ):
        step()
    return made


def _made(n: int, stand_in: bool) -> Runtime:
    """Compiled virtual GPUs, or ones in Python where the plug-in cannot be had and they need not stand in."""
    limit = request.memory_limit()
    name, capacity = "cuda" if stand_in else runtime.NAME, limit or host_memory()[0] or 0
    try:
        return compiled.load(name, n, capacity, limit is not None)
    except NotSupportedError as error:
        if stand_in:
            raise NotSupportedError(
                f"virtual_gpus({n}, stand_in=True) needs a compiled plug-in: {error}; "
                f"virtual_gpus({n}) works without it"
            ) from error
        if plugins.compiler() is not None:
            warnings.warn(
                f"{error}; these virtual GPUs run in Python, which is slower",
                RuntimeWarning,
                stacklevel=2,
            )
        names.check("IN_PYTHON")
        from xdevice.virtual.torch.in_python.devices import (
            InPython,
        )  # which imports what has been checked

        return InPython(name, n, capacity, limit is not None)


def _compute() -> None:
    """Compute, which fails where torch has changed."""
    # made in a way that torch does not count as the first use of a GPU
    virtual = runtime.in_use()
    ones = [torch.ops.xdevice_virtual.take(torch.ones(2), i) for i in range(virtual.count)]
    try:
        if (ones[-1] + ones[-1]).tolist() != [2, 2]:
            raise RuntimeError(f"1 + 1 is {ones[-1] + ones[-1]}")
        autograd.prepare(ones)
    except Exception as error:
        raise VirtualDeviceError(
            f"virtual GPUs compute wrongly under torch {torch.__version__}, which has changed: {error}"
        ) from error
    del ones
    for index in range(virtual.count):  # nothing that was done so far counts as use
        virtual.reset_peak(index)
    virtual.use(False)
