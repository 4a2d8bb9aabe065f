"""PaddlePaddle programs written for GPUs, unedited: virtual GPUs answer to CUDA's names.

The plug-in has devices ``vgpu:i``. ``CUDAPlace`` is a subclass of ``CustomPlace('vgpu', i)``, which
all of PaddlePaddle's library accepts, and ``core.Place`` describes a vgpu as a gpu (`places`).
``is_compiled_with_cuda()`` is true for a program, and for those of PaddlePaddle's modules that only
choose a device; for the others it is false, because CUDA's kernels are missing (`answers`). The
functions of ``core`` that only a build with CUDA has are added. GPU 0 is the default device.

A static graph writes to copies of a custom device's parameters, so an `Executor` of a GPU computes
on the CPU. Groups of ``paddle.distributed`` for NCCL use gloo. Not supported: CUDA graphs,
all_to_all and reduce_scatter, which PaddlePaddle does not offer on gloo, and `SyncBatchNorm`. The
outputs of a layer of `paddle.jit.load` are on the CPU. Random numbers are the CPU's. The CPU has few
kernels for 16-bit floats: other operations on them raise PaddlePaddle's error, and its AMP computes in
float32, with its warning for GPUs whose compute capability is below 7.0.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import paddle
from paddle.base import core as _core

from xdevice.backends.paddle.hardware import WORD
from xdevice.contract import Request
from xdevice.errors import NotSupportedError
from xdevice.virtual import models
from xdevice.virtual import paddle as virtual
from xdevice.virtual.paddle.answers import CORE, answer_by_caller, replace_in_core
from xdevice.virtual.paddle.flags import add_cuda_flags
from xdevice.virtual.paddle.places import (
    NativePlace,
    current_gpu,
    framework,
    gpu_index,
    replace_places,
)
from xdevice.virtual.paddle.private_names import Function, in_place_of, names, replace_name
from xdevice.virtual.paddle.streams import replace_streams

core: Any = _core
_device: Any = import_module("paddle.device")
_NCCL_VERSION = 2804  # the first with sends between two ranks; like gloo, it has no average
_MEMORY_FUNCTIONS = (
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "empty_cache",
    "device_count",
)


class _gpuDeviceProperties(NamedTuple):  # noqa: N801  (the name that Paddle shows)
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def start(request: Request) -> None:
    """Let the virtual GPUs stand in."""
    replace_places(request.number)
    _report_cuda_build()
    _add_device_functions(request.number)
    host_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _report_properties(models.gpu_name(request), request.memory or host_memory)
    replace_streams()
    add_cuda_flags()
    _leave_alone_what_is_replaced()
    _use_gloo_for_nccl()
    _repair_collectives_of_gloo()
    _run_static_graphs_on_the_cpu()
    replace_name("paddle.device.cuda.graphs:CoreCUDAGraph", None)
    paddle.device.set_device("gpu:0")


def _report_cuda_build() -> None:
    native_types = names.value(f"{CORE}:get_all_custom_device_type")

    def is_compiled_with_cuda() -> bool:
        return True

    def get_all_custom_device_type() -> list[str]:
        return [device_type for device_type in native_types() if device_type != WORD]

    answer = answer_by_caller(is_compiled_with_cuda, for_paddle=lambda: False)
    for owner in ("paddle.base.framework", CORE):
        names.replace_everywhere(f"{owner}:is_compiled_with_cuda", answer)
    answer = answer_by_caller(get_all_custom_device_type, for_paddle=native_types)
    names.replace_everywhere(f"{CORE}:get_all_custom_device_type", answer)

    @in_place_of(f"{CORE}:get_available_custom_device")
    def get_available_custom_device(native: Function) -> list[str]:
        return [device for device in native() if device.partition(":")[0] != WORD]


def _add_device_functions(number: int) -> None:
    """Add the functions of a build with CUDA that count and choose devices, and wait for them."""
    wait = names.value(f"{CORE}:_synchronize_custom_device")

    def synchronize(index: int) -> None:
        wait(WORD, gpu_index(index))

    replace_in_core(
        {
            "get_cuda_device_count": lambda: number,
            "get_cuda_current_device_id": current_gpu,
            "cuda_empty_cache": lambda: None,
            "_device_synchronize": synchronize,
            "_cuda_synchronize": synchronize,
            "default_cuda_generator": lambda index: core.default_cpu_generator(),
            "get_all_device_type": lambda: ["cpu", "gpu"],
            "get_available_device": lambda: ["cpu", *(f"gpu:{i}" for i in range(number))],
            "is_float16_supported": lambda place: False,
            "is_bfloat16_supported": lambda place: False,
            "cudnn_version": lambda: -1,  # none, since modules choose a kernel by it
        }
    )


def _report_properties(gpu_name: str, total_memory: int) -> None:
    # with compute capability 6.0, PaddlePaddle's AMP computes in float32
    properties = _gpuDeviceProperties(gpu_name, 6, 0, total_memory, 1)

    @in_place_of(f"{CORE}:get_device_properties")
    def get_device_properties(native: Function, *args: Any) -> Any:
        is_gpu = len(args) == 1 or args[0] in (WORD, "gpu")
        if not is_gpu:
            return native(*args)
        index = max(args[-1], 0)  # -1 is the current GPU
        core.CUDAPlace(index)  # raises an error where this GPU does not exist
        return properties

    replace_in_core({"gpu_memory_available": lambda *_: total_memory})
    cuda: Any = sys.modules["paddle.device.cuda"]
    # the functions of paddle.device do not read the module's attributes in sys.modules, but these
    device_globals = _device.set_device.__globals__
    for name in _MEMORY_FUNCTIONS:
        if hasattr(cuda, name):
            function = getattr(cuda, name)
            device_globals[name] = function
            replace_name(f"paddle.device:{name}", function)
    device_globals["_get_device_properties"] = cuda.get_device_properties


def _leave_alone_what_is_replaced() -> None:
    """Let PaddlePaddle's compiler `sot` call the functions of this package without compiling them.

    It compiled them in pieces, and ``paddle.jit.to_static(paddle.nn.Linear(2, 2))`` failed in them.
    """
    feature = "functions of virtual GPUs within functions that sot compiles"
    if names.has(feature):
        module = "paddle.jit.sot.opcode_translator.skip_files"
        names.value(f"{module}:skip_file_names").add(os.path.dirname(__file__) + os.sep)
        names.value(f"{module}:setup_skip_files")()


def _use_gloo_for_nccl() -> None:
    """Let ``paddle.distributed`` create groups of gloo in place of NCCL's.

    The plug-in lets these groups accept tensors of GPUs.
    """
    create_gloo = names.value(f"{CORE}:ProcessGroupGloo.create")

    def create_group(store: object, rank: int, size: int, group: int, *_: object) -> Any:
        if not virtual.replaces_functions():
            tried = " and ".join(virtual.TRIED)
            raise NotSupportedError(
                f"groups for NCCL on virtual GPUs were tried with paddle {tried}, and this is "
                f"{paddle.__version__}; pip install paddlepaddle=={virtual.TRIED[-1]}"
            )
        return create_gloo(store, rank, size, group)

    def create_config(**settings: object) -> SimpleNamespace:
        return SimpleNamespace(**settings)

    replace_in_core(
        {
            "ProcessGroupNCCL": SimpleNamespace(create=create_group),
            "NCCLConfig": SimpleNamespace(create=create_config),
            "nccl_version": lambda: _NCCL_VERSION,
        }
    )


# NCCL has no such numbers; gloo ends the process.
_NOT_SENT = {paddle.complex64, paddle.complex128, paddle.int16}

_REDUCTIONS = {
    "all_reduce",
    "all_reduce_on_calc_stream",
    "allreduce",
    "reduce",
    "reduce_on_calc_stream",
}


def _repair_collectives_of_gloo() -> None:
    """Raise NCCL's errors where gloo would end the process, and reduce float16 in float32.

    gloo's reductions of float16 are infinite (PaddlePaddle 3.3.1).
    """

    def checked(native: Function, name: str) -> Function:
        @wraps(native)
        def collective(*args: Any, **kwargs: Any) -> Any:
            for tensor in _tensors_of_gpus([*args, *kwargs.values()]):
                if tensor.dtype in _NOT_SENT:
                    raise NotImplementedError("This datatype in nccl is not supported.")
                if not tensor.size:  # as PaddlePaddle's own check of NCCL's tensors
                    raise ValueError("(InvalidArgument) Size of tensor should be greater than 0.")
            group, *values = args
            if name in _REDUCTIONS and _is_half(values):
                return _reduced_in_float32(native, group, *values, **kwargs)
            return native(*args, **kwargs)

        return collective

    for name, native in list(vars(core.ProcessGroup).items()):
        if callable(native) and not name.startswith("_"):
            replace_in_core({f"ProcessGroup.{name}": checked(native, name)})


def _tensors_of_gpus(values: Iterable[object]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _tensors_of_gpus(value)
        elif isinstance(value, paddle.Tensor) and value.place.is_gpu_place():
            yield value


def _is_half(values: Sequence[Any]) -> bool:
    return (
        bool(values) and isinstance(values[0], paddle.Tensor) and values[0].dtype == paddle.float16
    )


def _reduced_in_float32(
    native: Function, group: object, tensor: Any, *args: Any, **kwargs: Any
) -> Any:
    with paddle.no_grad():
        wide = tensor.cast(paddle.float32)
        task = native(group, wide, *args, **kwargs)
        task.wait()
        paddle.assign(wide.cast(paddle.float16), tensor)
    return task


def _run_static_graphs_on_the_cpu() -> None:
    @in_place_of("paddle.static:Executor.__init__")
    def start_executor(native: Function, self: object, place: NativePlace = None) -> None:
        if place is None:
            place = framework._current_expected_place_()
        else:
            place = framework._get_paddle_place(place)
        native(self, core.CPUPlace() if isinstance(place, core.CUDAPlace) else place)
