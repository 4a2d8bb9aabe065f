"""The compiled implementation of virtual GPUs, ``virtual_gpu.cc``: compiled at first use, loaded and started."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.virtual.internals import core
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCE = Path(__file__).with_name("virtual_gpu.cc")
_NUMBER = ctypes.c_int64


class PlugIn:
    """The functions of the compiled library; devices are numbers, and memory is in bytes."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.PyDLL(str(path))  # its functions are too short to release the lock for
        library.xdevice_start.argtypes = [ctypes.c_int, ctypes.c_int, _NUMBER, ctypes.c_int]
        library.xdevice_limit.argtypes = [ctypes.c_int, _NUMBER]
        library.xdevice_resize.argtypes = [ctypes.c_void_p, _NUMBER]
        for name in ("start", "resize", "cover"):
            getattr(library, f"xdevice_{name}").restype = ctypes.c_char_p
        for name in ("allocated", "peak", "total"):
            getattr(library, f"xdevice_{name}").restype = _NUMBER
        self.current: Callable[[], int] = library.xdevice_current
        self.exchange: Callable[[int], int] = library.xdevice_exchange
        self.used, self.use, self.forked = library.xdevice_used, library.xdevice_use, library.xdevice_forked
        self.allocated: Callable[[int], int] = library.xdevice_allocated
        self.peak: Callable[[int], int] = library.xdevice_peak
        self.total: Callable[[int], int] = library.xdevice_total
        self.forget_peak, self.forget_total = library.xdevice_forget_peak, library.xdevice_forget_total
        self.limit: Callable[[int, int], None] = library.xdevice_limit
        self.forbid = library.xdevice_forbid

    def start(self, n: int, *, stand_in: bool, capacity: int, limited: bool) -> None:
        """Register n virtual GPUs with torch, under CUDA's device type or PrivateUse1."""
        error = self._library.xdevice_start(n, stand_in, capacity, limited)
        if error is not None:
            raise VirtualDeviceError(
                f"virtual GPUs cannot be made under torch {torch.__version__}, which has changed: {error.decode()}; "
                "report it, with this line"
            )

    def cover(self) -> None:
        """Let operations that were added with a kernel for real GPUs run by the CPU's, where they have one."""
        _check(self._library.xdevice_cover())

    def resize(self, storage: Any, size: int) -> None:
        _check(self._library.xdevice_resize(storage._cdata, size))


def _check(error: bytes | None) -> None:
    if error is not None:
        raise RuntimeError(error.decode())


def load() -> PlugIn:
    """The library, compiled if necessary.

    Raises
    ------
    NotSupportedError
        There is no C++ compiler, it fails, or torch comes without its headers.
    """
    folder = Path(torch.__file__).parent
    include = folder / "include"
    if not (include / "torch" / "library.h").is_file():
        raise NotSupportedError(f"torch {torch.__version__} comes without its C++ headers, in {include}")
    options = ["-shared", "-fPIC", "-O2", "-w", "-std=c++20"]
    options += [f"-D_GLIBCXX_USE_CXX11_ABI={int(core._GLIBCXX_USE_CXX11_ABI)}"]
    options += [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
    options += [f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    path = compiled.library(
        "libxdevice_torch.so",
        _SOURCE,
        options,
        key=f"torch {torch.__version__} {torch.version.git_version}",
        purpose="virtual GPUs under torch",
    )
    try:
        return PlugIn(path)
    except (OSError, AttributeError) as error:
        raise NotSupportedError(f"virtual GPUs under torch were compiled, and cannot be loaded: {error}") from error
