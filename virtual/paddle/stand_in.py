"""PaddlePaddle programs written for GPUs, unedited: virtual GPUs answer to PaddlePaddle's names for CUDA's.

The plug-in has devices ``vgpu:i``, for which CUDA's words are put in four places. ``CUDAPlace`` is a subclass of
``CustomPlace('vgpu', i)``, which all of PaddlePaddle's library takes. ``core.Place`` says that a vgpu is a gpu.
``is_compiled_with_cuda()`` is true for a program, and for those of PaddlePaddle's modules that only choose a device;
the others are told the truth, since CUDA's kernels are not there. The functions of ``core`` that only a build with
CUDA has are added. GPU 0 is the default device.

A static graph writes to copies of a custom device's parameters, so an `Executor` of a GPU computes on the CPU. Asked
for NCCL, ``paddle.distributed`` uses gloo. Not supported: CUDA graphs, all_to_all and reduce_scatter, which
PaddlePaddle does not offer on gloo, and `SyncBatchNorm`. What a layer of `paddle.jit.load` returns is on the CPU.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import paddle
from paddle.base import core as _core

from xdevice.backends.paddle.hardware import WORD
from xdevice.backends.paddle.private_names import in_place_of, names, replace_name
from xdevice.virtual import request

core: Any = _core
_device: Any = import_module("paddle.device")
_names = (
    _device.set_device.__globals__
)  # those of paddle.device in sys.modules are not what its functions read
_framework: Any = import_module("paddle.base.framework")

_CHOOSE = {  # modules of PaddlePaddle that only choose a device; all of paddle.distributed does, too
    *(
        "paddle.device",
        "paddle.device.cuda",
        "paddle.cuda",
        "paddle.base.framework",
        "paddle.framework.random",
    ),
    *("paddle.amp.auto_cast", "paddle.tensor.creation", "paddle.base.dygraph.tensor_patch_methods"),
    *("paddle.hapi.model", "paddle.utils.install_check"),
}

_FLAGS: dict[str, Any] = {  # those of builds with CUDA, with their defaults; they change nothing on virtual GPUs
    **dict.fromkeys(("cudnn_deterministic", "cudnn_exhaustive_search", "cudnn_batchnorm_spatial_persistent"), False),
    **dict.fromkeys(("enable_cublas_tensor_op_math", "gemm_use_half_precision_compute_type"), False),
    "selected_gpus": "", "sync_nccl_allreduce": True, "nccl_blocking_wait": False, "embedding_deterministic": 0,
    "conv_workspace_size_limit": 512, "cudnn_exhaustive_search_times": -1,
}  # fmt: skip
_FLAGS_HOME, _CORE = "paddle.base.framework:_global_flags_", "paddle.base.core"
_FALLBACK = "FLAGS_enable_api_kernel_fallback"  # it stays on: all that virtual GPUs have is the CPU's kernels


class _gpuDeviceProperties(NamedTuple):  # noqa: N801  (the name that Paddle shows)
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def start(n: int) -> None:
    _make_places(n)
    _tell_pinned()
    _describe_places()
    _answer_about_the_build()
    _count(n)
    _describe(request.memory_limit() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    replace_name(
        "paddle:Tensor._place_str", property(lambda self: str(self.place))
    )  # which printing a tensor shows
    _make_streams()
    if names.has("the flags of a build with CUDA"):
        replace_name(_FLAGS_HOME, _Flags(names.value(_FLAGS_HOME)))
    _let_nccl_be_gloo()
    _run_static_graphs_on_the_cpu()
    replace_name("paddle.device.cuda.graphs:CoreCUDAGraph", None)
    paddle.device.set_device("gpu:0")


def _is_inner() -> bool:
    """Whether the caller's caller needs the truth."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]  # who asks
    chooses = name in _CHOOSE or name.startswith("paddle.distributed.")
    return name.partition(".")[0] in ("paddle", "xdevice") and not chooses


def _answer(answers: dict[str, Any]) -> None:
    """Put these in the places of core's own, or where only a build with CUDA has one."""
    for name, answer in answers.items():
        replace_name(f"{_CORE}:{name}", answer)


def _is_ours(place: Any) -> bool:
    return bool(_is_custom(place)) and _word(place) == WORD


_is_custom: Any = core.Place.is_custom_place
_word: Any = core.Place.custom_device_type
_index: Any = core.Place.custom_device_id


def _finding(base: Any, is_ours: Callable[[Any], bool]) -> Any:
    """A base for classes whose instances are also those that the library makes of this one."""

    class Meta(type(base)):  # type: ignore[misc]  # known at run time
        def __instancecheck__(cls, value: Any) -> bool:  # pyright: ignore[reportSelfClsParameterName]  # of a metaclass
            return type(value) is cls or (isinstance(value, base) and is_ours(value))

    return Meta(base.__name__, (base,), {})


def _make_places(n: int) -> None:
    class CUDAPlace(_finding(core.CustomPlace, _is_ours)):  # type: ignore[misc]  # known at run time
        def __init__(self, index: int) -> None:
            if not 0 <= index < n:
                why = f"must inside [0, {n}), because GPU number on your machine is {n}."
                raise ValueError(f"(InvalidArgument) Invalid CUDAPlace({index}), {why}")
            super().__init__(WORD, index)

    class CUDAPinnedPlace(core.CPUPlace):  # type: ignore[misc]  # likewise
        """The host's memory, page-locked."""

        def __repr__(self) -> str:
            return "Place(gpu_pinned)"

        __str__ = __repr__

        def is_cpu_place(self) -> bool:
            return False

        def is_cuda_pinned_place(self) -> bool:
            return True

    names.replace_everywhere(f"{_CORE}:CUDAPlace", CUDAPlace)
    names.replace_everywhere(f"{_CORE}:CUDAPinnedPlace", CUDAPinnedPlace)


def _tell_pinned() -> None:
    """Let the tensors that a program asks for in page-locked memory say so: they are in the host's."""
    own, kind = names.value("paddle:Tensor.place"), names.value(f"{_CORE}:CUDAPinnedPlace")
    pinned, mark = kind(), "_xdevice_is_pinned"

    def marked(tensor: Any) -> Any:
        setattr(tensor, mark, True)
        return tensor

    @in_place_of("paddle:Tensor._copy_to")
    def copy_to(copy: Any, self: Any, place: Any, *blocking: Any) -> Any:
        made = copy(self, place, *blocking)
        return marked(made) if isinstance(place, kind) else made

    make: Any = paddle.to_tensor

    @wraps(make)
    def to_tensor(
        data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True
    ) -> Any:
        made = make(data, dtype, place, stop_gradient)
        return marked(made) if isinstance(place, kind) else made

    replace_name(
        "paddle:Tensor.place",
        property(lambda self: pinned if hasattr(self, mark) else own.__get__(self)),
    )
    names.replace_everywhere("paddle.tensor.creation:to_tensor", to_tensor)


def _describe_places() -> None:
    place = core.Place
    show, is_gpu, gpu_id, kind = (
        place.__repr__,
        place.is_gpu_place,
        place.gpu_device_id,
        place.get_device_type,
    )

    def shown(self: Any) -> str:
        return f"Place(gpu:{_index(self)})" if _is_ours(self) else str(show(self))

    def device_type(self: Any) -> Any:
        return kind(self) if not _is_ours(self) or _is_inner() else "gpu"

    for each in ("Place", "CustomPlace"):
        _answer(
            {
                f"{each}.__repr__": shown,
                f"{each}.__str__": shown,
                f"{each}.get_device_type": device_type,
            }
        )
    core.CUDAPlace.__repr__ = core.CUDAPlace.__str__ = shown  # which is ours
    core.CUDAPlace.get_device_type = device_type
    _answer({
        "Place.is_gpu_place": lambda self: _is_ours(self) or is_gpu(self),
        "Place.is_custom_place": lambda self: _is_custom(self) and (not _is_ours(self) or _is_inner()),
        "Place.gpu_device_id": lambda self: _index(self) if _is_ours(self) else gpu_id(self),
    })  # fmt: skip


def _answer_about_the_build() -> None:
    def is_compiled_with_cuda() -> bool:
        return not _is_inner()

    custom = names.value(f"{_CORE}:get_all_custom_device_type")

    def get_all_custom_device_type() -> list[str]:
        inner = _is_inner()
        return [word for word in custom() if word != WORD or inner]

    for home in ("paddle.base.framework", _CORE):
        names.replace_everywhere(f"{home}:is_compiled_with_cuda", is_compiled_with_cuda)
    names.replace_everywhere(f"{_CORE}:get_all_custom_device_type", get_all_custom_device_type)


def _let_nccl_be_gloo() -> None:
    """Let ``paddle.distributed`` make gloo's groups, which the plug-in lets take GPUs, where it would make NCCL's."""
    create = names.value(f"{_CORE}:ProcessGroupGloo.create")
    _answer({
        "ProcessGroupNCCL": SimpleNamespace(create=lambda *given: create(*given[:4])),  # store, rank, size, group
        "NCCLConfig": SimpleNamespace(create=lambda **settings: SimpleNamespace(**settings)),
        "nccl_version": lambda: 2804,  # the first that sends from one to another; it has no average, nor has gloo
    })  # fmt: skip


def _run_static_graphs_on_the_cpu() -> None:
    @in_place_of("paddle.static:Executor.__init__")
    def started(make: Any, self: Any, place: Any = None) -> None:
        place = (
            _framework._current_expected_place_()
            if place is None
            else _framework._get_paddle_place(place)
        )
        make(self, core.CPUPlace() if isinstance(place, core.CUDAPlace) else place)


def current() -> int:
    """The index of the current GPU; 0 where the current device is the CPU."""
    place = _framework._current_expected_place_()
    return _index(place) if isinstance(place, core.CUDAPlace) else 0


def _chosen(index: int) -> int:
    return current() if index < 0 else index


def _count(n: int) -> None:
    wait = names.value(f"{_CORE}:_synchronize_custom_device")
    _answer({
        "get_cuda_device_count": lambda: n,
        "get_cuda_current_device_id": current,
        "cuda_empty_cache": lambda: None,
        **dict.fromkeys(("_device_synchronize", "_cuda_synchronize"), lambda index: wait(WORD, _chosen(index))),
        "default_cuda_generator": lambda index: core.default_custom_device_generator(core.CUDAPlace(index)),
        "get_all_device_type": lambda: ["cpu", "gpu"],
        "get_available_device": lambda: ["cpu", *(f"gpu:{i}" for i in range(n))],
        **dict.fromkeys(("is_float16_supported", "is_bfloat16_supported"), lambda place: True),
        "cudnn_version": lambda: -1,  # none: what chooses a kernel by it is told the truth
    })  # fmt: skip
    in_place_of("paddle.amp.auto_cast:_is_gpu_bfloat16_supported")(lambda _: True)


def _describe(total: int) -> None:
    @in_place_of(f"{_CORE}:get_device_properties")
    def get_device_properties(properties: Any, *args: Any) -> Any:
        if len(args) == 1 or args[0] in (WORD, "gpu"):
            core.CUDAPlace(
                max(args[-1], 0)
            )  # raises where there is no such GPU; -1 is the current one
            return _gpuDeviceProperties(
                "xdevice virtual GPU", 8, 0, total, 1
            )  # of 8.0 AMP asks for bfloat16
        return properties(*args)

    _answer({"gpu_memory_available": lambda *_: total})
    cuda: Any = sys.modules["paddle.device.cuda"]
    used, reset = (
        ("memory_allocated", "memory_reserved"),
        ("reset_max_memory_allocated", "reset_max_memory_reserved"),
    )
    for word in (*used, *(f"max_{word}" for word in used), *reset, "empty_cache", "device_count"):
        if hasattr(cuda, word):
            _names[word] = getattr(cuda, word)
            replace_name(f"paddle.device:{word}", _names[word])
    _names["_get_device_properties"] = cuda.get_device_properties


class _Flags:
    """PaddlePaddle's flags, and those that its build lacks."""

    def __init__(self, known: Any) -> None:
        more = {f"FLAGS_{name}": value for name, value in _FLAGS.items()}
        self._known = known
        self._more = {name: value for name, value in more.items() if not known.is_public(name)} | {
            _FALLBACK: True
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name)

    def is_public(self, name: str) -> bool:
        return name in self._more or bool(self._known.is_public(name))

    def __contains__(self, name: str) -> bool:
        return name in self._more or name in self._known

    def __getitem__(self, name: str) -> Any:
        return self._more[name] if name in self._more else self._known[name]

    def __setitem__(self, name: str, value: Any) -> None:
        (self._more if name in self._more else self._known)[name] = value

    def update_linked_vars(self, name: str, value: str) -> None:
        if f"FLAGS_{name}" not in self._more:
            self._known.update_linked_vars(name, value)


def _make_streams() -> None:
    if not names.has("streams and events"):
        return

    class Stream(_finding(core.CustomDeviceStream, lambda _: True)):  # type: ignore[misc]  # known at run time
        def __init__(self, device: Any = None, priority: int = 2, *_: Any) -> None:
            if not isinstance(device, core.CUDAPlace):
                device = core.CUDAPlace(current() if device is None else int(device))
            super().__init__(device, priority=priority)

    class Event(core.CustomDeviceEvent):  # type: ignore[misc]  # likewise
        """All work is done when it is asked for, so the time is the host's."""

        def __init__(
            self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> None:
            super().__init__(core.CUDAPlace(current()), enable_timing, blocking, interprocess)

        def record(self, stream: Any = None) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            return float(end.at - self.at) * 1e3

        def query(self) -> bool:
            return True

    cuda: Any = sys.modules["paddle.device.cuda"]
    for name, ours in {
        "Stream": Stream,
        "Event": Event,
        "create_stream": lambda device_id=None, priority=2, **_: Stream(device_id, priority),
        "create_event": lambda enable_timing=False, blocking=False, **_: Event(
            enable_timing, blocking
        ),
    }.items():
        replace_name(f"paddle.device.cuda:{name}", ours)
    _names.update(_create_stream_base=cuda.create_stream, _create_event_base=cuda.create_event)
    get, put = core._get_current_custom_device_stream, core._set_current_custom_device_stream
    _answer({
        "_get_current_stream": lambda index: get(WORD, _chosen(index)),
        "_set_current_stream": lambda stream: put(WORD, stream.place.get_device_id(), stream),
    })  # fmt: skip
