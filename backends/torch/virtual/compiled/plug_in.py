"""Virtual GPUs by the compiled plug-in, ``virtual_gpu.cc``."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from xdevice.backends.torch import mixing
from xdevice.backends.torch.private_names import kernels_of, own, replace_name, untraced
from xdevice.backends.torch.virtual import copies, streams, vgpu
from xdevice.backends.torch.virtual.compiled import build
from xdevice.backends.torch.virtual.runtime import NAME, in_use, known
from xdevice.errors import NotSupportedError, VirtualDeviceError, mixed
from xdevice.kit import plugins, virtual_request

_NUMBER = ctypes.c_int64

COPIES, LATE = 1, 2
"""What may be done beside computing, for `Compiled.check`: see late.h."""


class Compiled:
    """Virtual GPUs by the functions of the library."""

    def __init__(self, path: Path, name: str, count: int, capacity: int, limited: bool) -> None:
        self.name, self.count, self.capacity, self.limited = name, count, capacity, limited
        self.generators: list[torch.Generator] = []
        self._visible = count
        self._library = plug_in = ctypes.PyDLL(str(path))  # its functions are too short to release the lock for
        plug_in.xdevice_start.argtypes = [ctypes.c_int, ctypes.c_int, _NUMBER, ctypes.c_int]
        plug_in.xdevice_limit.argtypes = [ctypes.c_int, _NUMBER]
        plug_in.xdevice_resize.argtypes = [ctypes.c_void_p, _NUMBER]
        plug_in.xdevice_pin.argtypes = [ctypes.c_size_t, _NUMBER]
        plug_in.xdevice_dtypes.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_uint64] * 2
        for function in ("start", "resize", "cover"):
            getattr(plug_in, f"xdevice_{function}").restype = ctypes.c_char_p
        for function in ("allocated", "peak", "total", "pending"):
            getattr(plug_in, f"xdevice_{function}").restype = _NUMBER
        for function in ("use", "show", "check", "alert", "dtypes", "limit", "forget_peak", "forget_total"):
            getattr(plug_in, f"xdevice_{function}").restype = None
        self.current: Callable[[], int] = plug_in.xdevice_current
        self.exchange: Callable[[int], int] = plug_in.xdevice_exchange
        self.use: Callable[[bool], None] = plug_in.xdevice_use
        self.check: Callable[[int, bool], None] = plug_in.xdevice_check
        self.pin: Callable[[int, int], int] = plug_in.xdevice_pin
        self.alert: Callable[[bytes, bytes, bytes, bytes], None] = plug_in.xdevice_alert
        self.differ: Callable[[bytes, bytes, bytes, int, int], None] = plug_in.xdevice_dtypes
        self.pending: Callable[[], int] = plug_in.xdevice_pending
        self.allocated: Callable[[int], int] = plug_in.xdevice_allocated
        self.peak: Callable[[int], int] = plug_in.xdevice_peak
        self.total: Callable[[int], int] = plug_in.xdevice_total
        self.reset_peak: Callable[[int], None] = plug_in.xdevice_forget_peak
        self.reset_total: Callable[[int], None] = plug_in.xdevice_forget_total
        self.limit: Callable[[int, int], None] = plug_in.xdevice_limit

    def visible(self) -> int:
        if self.name == "cuda" and not self.is_used():  # until then a program may change its mind
            self._visible = min(self.count, virtual_request.visible())
            self._library.xdevice_show(self._visible)
        return self._visible

    def is_used(self) -> bool:
        return bool(self._library.xdevice_used())

    def is_forked(self) -> bool:
        return bool(self._library.xdevice_forked())

    def watch(self, whether: bool) -> None:
        self.check(COPIES, whether)

    def resize(self, storage: Any, size: int) -> None:
        _check(self._library.xdevice_resize(storage._cdata, size))

    def cover(self) -> None:
        """Let operations that were added with a kernel for real GPUs run by the CPU's, where they have one."""
        _check(self._library.xdevice_cover())

    def start(self) -> None:
        if self.name == NAME:
            _name_device()
        error = self._library.xdevice_start(self.count, self.name == "cuda", self.capacity, self.limited)
        if error is not None:
            raise VirtualDeviceError(
                f"virtual GPUs cannot be made under torch {torch.__version__}, which has changed: {error.decode()}; "
                "report it, with this line"
            )
        kernels_of("xdevice_virtual").impl("mixed", _raise_mixed, "CompositeExplicitAutograd")
        for function in (copies.look, copies.until, copies.wait):
            kernels_of("xdevice_virtual").impl(function.__name__, untraced(function), "CPU")
        self.generators += [torch.Generator(f"{self.name}:{i}") for i in range(self.count)]  # the first: the defaults


def _check(error: bytes | None) -> None:
    if error is not None:
        raise RuntimeError(error.decode())


def _name_device() -> None:
    own.utils.rename_privateuse1_backend(NAME)
    own.utils.generate_methods_for_privateuse1_backend()
    own._register_device_module(NAME, vgpu)
    replace_name("torch._C:_accelerator_getStream", streams.current_stream)
    replace_name("torch._C:_accelerator_setStream", streams.set_stream)


def _raise_mixed(operation: str, a: torch.device, b: torch.device) -> None:
    """Raise `MixedDeviceError` within a strict block; elsewhere C++ raises torch's error."""
    if mixing.is_forbidden():
        raise mixed(operation, [known(a), known(b)])


def compiled() -> Compiled:
    """The virtual GPUs of this process, where they stand in for CUDA's: others cannot."""
    found = in_use()
    assert isinstance(found, Compiled)
    return found


def load(name: str, count: int, capacity: int, limited: bool) -> Compiled:
    """Virtual GPUs by the library, which is compiled if necessary.

    Raises
    ------
    NotSupportedError
        There is no C++ compiler, it fails, or what it makes cannot be loaded.
    """
    path = plugins.library(build.recipe())
    try:
        return Compiled(path, name, count, capacity, limited)
    except (OSError, AttributeError) as error:
        raise NotSupportedError(
            f"virtual GPUs under torch were compiled, and cannot be loaded: {error}; delete {path.parent}, and compile "
            "them on this machine"
        ) from error
