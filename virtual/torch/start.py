"""Start virtual GPUs: choose an implementation, and run the steps in order."""

import warnings

import torch

from xdevice.backends.torch import transfers
from xdevice.contract import Request
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.virtual import plugins
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


def start(request: Request) -> Runtime:
    """Register the devices ``vgpu:0`` … with torch, or ``cuda:0`` … if they stand in for CUDA."""
    virtual = _implementation(request)
    runtime.use(virtual)
    steps_of_type = cuda.STEPS if request.stand_in else (amp.register, modules.replace)
    faithful_steps = cuda.FAITHFUL_STEPS if runtime.is_faithful() else ()
    # The order matters: later steps compute on the devices, or wrap what earlier steps replaced.
    for step in (
        virtual.start,
        attention.register,
        process_groups.replace,
        *steps_of_type,
        data_parallel.replace,
        sync_batch_norm.register,
        storages.replace,
        compile.replace,
        func.explain_gradients_between_gpus,
        lambda: vgpu.manual_seed_all(torch.initial_seed()),
        _check_results,
        lambda: transfers.add_source(copies),
        virtual.join_machine,
        *faithful_steps,
    ):
        step()
    return virtual


def _implementation(request: Request) -> Runtime:
    """The compiled virtual GPUs; without a plug-in those in Python, unless they must stand in."""
    n = request.number
    try:
        return compiled.load(request)
    except NotSupportedError as error:
        if request.stand_in:
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
        # late: it imports the names of torch that have just been checked
        from xdevice.virtual.torch.in_python.devices import InPython

        return InPython(request)


def _check_results() -> None:
    """Add two numbers on a virtual GPU; an error if torch has changed so that the sum is wrong."""
    virtual = runtime.in_use()
    # torch does not count this operation as the first use of a GPU
    take = torch.ops.xdevice_virtual.take
    ones = [take(torch.ones(2), index) for index in range(virtual.count)]
    try:
        total = ones[-1] + ones[-1]
        if total.tolist() != [2, 2]:
            raise RuntimeError(f"1 + 1 is {total}")
        autograd.run_in_calling_thread(ones)
    except Exception as error:
        raise VirtualDeviceError(
            f"virtual GPUs compute wrongly under torch {torch.__version__}, which has changed: "
            f"{error}"
        ) from error
    del ones, total
    virtual.forget_memory()  # this check does not count as use
    virtual.use(False)
