"""Virtual GPUs by a plug-in of torch in C++, ``virtual_gpu.cc``: its build and its functions."""

import atexit
import ctypes
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch import mixing
from xdevice.contract import Request
from xdevice.errors import NotSupportedError, VirtualDeviceError, mixed
from xdevice.virtual import machine, plugins, visible_devices
from xdevice.virtual.models import MODELS, USUAL
from xdevice.virtual.torch import copies, streams, vgpu
from xdevice.virtual.torch.private_names import (
    core,
    kernels_of,
    replace_name,
    untraced,
    untyped_torch,
)
from xdevice.virtual.torch.runtime import NAME, Runtime, in_use, xdevice_device

_BOOL, _INT, _NUMBER, _MASK = ctypes.c_bool, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64
_POINTER, _TEXT, _ERROR = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p

_POOL = (_NUMBER, _NUMBER)  # the identity of a pool of memory


class _Lines(ctypes.c_char_p):
    """A text that is not an error."""


LINE_OF: Any = ctypes.CFUNCTYPE(_INT, _INT, _NUMBER)
"""A function that the plug-in calls before each allocation, with the device and the bytes."""

STACK_OF: Any = ctypes.CFUNCTYPE(_NUMBER)
"""A function that the plug-in calls before it allocates or frees, and that returns the number of the Python stack."""

FIRST_USE: Any = ctypes.CFUNCTYPE(None, _INT)
"""A function that the plug-in calls with each GPU that this process uses for the first time."""

OUT_OF_MEMORY: Any = ctypes.CFUNCTYPE(None, _INT, _NUMBER, _NUMBER, _NUMBER)
"""A function that the plug-in calls before the error of a full memory.

With the device, what was wanted, what is allowed and what is free.
"""

_FUNCTIONS = {
    "begin": (_ERROR, _INT, _BOOL, _NUMBER, _BOOL),
    "replace_kernels_of_libraries": (_ERROR,),
    "leave_on_cpu": (_ERROR, _TEXT),
    "resize_storage": (_ERROR, _POINTER, _NUMBER),
    "model": (None, _NUMBER, _NUMBER, _INT),
    "draw_as_before_2_7": (None, _BOOL),
    "current": (_INT,),
    "exchange": (_INT, _INT),
    "is_used": (_BOOL,),
    "is_forked": (_BOOL,),
    "use": (None, _BOOL),
    "count_gpus": (None,),
    "is_counted": (_BOOL,),
    "make_context": (None, _INT),
    "observe_first_use": (None, FIRST_USE),
    "new_stream": (_NUMBER, _INT, _INT),
    "handle_of_stream": (_NUMBER, _INT, _NUMBER),
    "join": (None, _TEXT, _NUMBER),
    "leave": (None,),
    "place": (None, _INT, _INT),
    "unused": (_NUMBER, _INT),
    "set_count": (None, _INT),
    "check": (None, _INT, _BOOL),
    "next_pending": (_NUMBER,),
    "pin": (_INT, _POINTER, _NUMBER),
    "add_alert": (None, _TEXT, _TEXT, _TEXT, _TEXT),
    "add_dtypes": (None, _TEXT, _TEXT, _TEXT, _MASK, _MASK),
    "allow": (None, _INT, _NUMBER),
    "use_allocator": (None, _BOOL),
    "allocator_settings": (_Lines,),
    "observe_out_of_memory": (None, OUT_OF_MEMORY),
    "allocated": (_NUMBER, _INT),
    "reserved": (_NUMBER, _INT),
    "peak": (_NUMBER, _INT),
    "reset_peak": (None, _INT),
    "empty_cache": (None,),
    "forget_memory": (None,),
    "record_peaks": (None, LINE_OF, _NUMBER),
    "stop_computing": (_ERROR,),
    "share_peaks": (None, ctypes.POINTER(_NUMBER)),
    "mark": (None, _POINTER, _INT),
    "peak_record": (_Lines, _INT),
    "has_thread_of_backward": (None, _BOOL),
    "clear_workspaces": (None,),
    "blocks": (_Lines, _INT),
    "record_history": (None, _BOOL, _NUMBER, _BOOL, _INT, _INT, STACK_OF),
    "history": (_Lines, _INT, *_POOL),
    "note": (None, _NUMBER),
    "use_pool": (None, _INT, *_POOL),
    "configure_pool": (None, _INT, *_POOL, _BOOL, _BOOL),
    "release_pool": (None, _INT, *_POOL),
    "uses_of_pool": (_INT, _INT, *_POOL),
    "empty_pool": (None, *_POOL),
    "begin_pool": (_BOOL, _INT, *_POOL, _BOOL),
    "end_pool": (_BOOL, _INT, *_POOL),
}
"""The functions of virtual_gpu.cc, without the prefix ``xdevice_``: result, then parameters."""

COPIES, ASYNC, WARN, REFUSE = 1, 2, 4, 8
"""The optional checks, for `Compiled.check`: see async_copies.h."""


class Compiled(Runtime):
    if TYPE_CHECKING:  # the functions of the table that `Runtime` does not have

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, path: Path, request: Request) -> None:
        super().__init__(request)
        self._visible = tuple(range(self.count))
        # PyDLL keeps the interpreter's lock: the functions are too short to release it
        library = ctypes.PyDLL(str(path))
        for function_name, (result_type, *parameter_types) in _FUNCTIONS.items():
            function = getattr(library, f"xdevice_{function_name}")
            function.restype = result_type
            function.argtypes = parameter_types
            if result_type is _ERROR:
                function.errcheck = _raise
            setattr(self, function_name, function)
        self.watch = partial(self.check, COPIES)
        self.resize = lambda storage, size: self.resize_storage(storage._cdata, size)

    def visible(self) -> int:
        return len(self.visible_indices())

    def visible_indices(self) -> tuple[int, ...]:
        """The GPUs that the program sees, by their indices among all."""
        # a program may change CUDA_VISIBLE_DEVICES until CUDA has started
        if self.name == "cuda" and not self.is_counted():
            self._visible = self.named()
            self.set_count(len(self._visible))
            for index, on_machine in enumerate(self._visible):
                self.place(index, on_machine)
        return self._visible

    def named(self) -> tuple[int, ...]:
        """The GPUs that CUDA_VISIBLE_DEVICES names now."""
        return visible_devices.indices(self.request)[: self.count]

    def join_machine(self) -> None:
        if not self.limited or self.name == NAME:
            return
        context = MODELS[self.request.model].context if self.request.model else 0
        self.join(machine.path(self.request).encode(), context)
        atexit.register(self.leave)

    def start(self) -> None:
        if self.name == NAME:
            untyped_torch.utils.rename_privateuse1_backend(NAME)
            untyped_torch.utils.generate_methods_for_privateuse1_backend()
            untyped_torch._register_device_module(NAME, vgpu)
            replace_name("torch._C:_accelerator_getStream", streams.current_stream)
            replace_name("torch._C:_accelerator_setStream", streams.set_stream)
        gpu = MODELS.get(self.request.model, USUAL)
        major, minor = gpu.capability
        self.model(gpu.multiprocessors, gpu.threads, 10 * major + minor)
        try:
            self.begin(self.count, self.name == "cuda", self.capacity, self.limited)
        except RuntimeError as error:
            raise VirtualDeviceError(
                f"virtual GPUs cannot be made under torch {torch.__version__}, which has changed: "
                f"{error}; report it, with this line"
            ) from error
        kernels_of("xdevice_virtual").impl("mixed", _raise_mixed, "CompositeExplicitAutograd")
        for function in (copies.report_copies, copies.busy_until, copies.wait_until):
            kernels_of("xdevice_virtual").impl(function.__name__, untraced(function), "CPU")
        # the first generator of each device is its default generator
        self.generators += [torch.Generator(f"{self.name}:{i}") for i in range(self.count)]


def _raise(error: bytes | None, *call: object) -> None:
    if error is not None:
        raise RuntimeError(error.decode())


def _raise_mixed(operation: str, a: torch.device, b: torch.device) -> None:
    """Raise `MixedDeviceError` within a strict block; elsewhere C++ raises torch's error."""
    if mixing.is_forbidden():
        raise mixed(operation, [xdevice_device(a), xdevice_device(b)])


def compiled() -> Compiled:
    """The virtual GPUs of this process that stand in for CUDA's, which only compiled ones can."""
    virtual = in_use()
    assert isinstance(virtual, Compiled)
    return virtual


def recipe() -> plugins.Recipe:
    folder = Path(torch.__file__).parent
    abi = int(getattr(core, "_GLIBCXX_USE_CXX11_ABI", True))
    return plugins.Recipe(
        name="xdevice_torch",
        purpose=f"virtual GPUs for torch {'.'.join(torch.__version__.split('.')[:2])}",
        source=Path(__file__).with_name("virtual_gpu.cc"),
        key=f"torch {torch.__version__} {torch.version.git_version}",
        standard="c++20",
        shared=(plugins.CURAND,),
        include=(folder / "include", folder / "include/torch/csrc/api/include"),
        defines=("NDEBUG=1", f"_GLIBCXX_USE_CXX11_ABI={abi}"),
        folders=(folder / "lib",),
        libraries=("torch_cpu", "c10"),
    )


def load(request: Request) -> Compiled:
    """The compiled virtual GPUs; `NotSupportedError` if the plug-in cannot be built or loaded."""
    path = plugins.library(recipe())
    try:
        return Compiled(path, request)
    except (OSError, AttributeError) as error:
        raise NotSupportedError(
            f"virtual GPUs under torch were compiled, and cannot be loaded: {error}; "
            f"delete {path.parent}, and compile them on this machine"
        ) from error
