"""Virtual GPUs under PaddlePaddle: a custom device, ``vgpu``, from a compiled plug-in.

PaddlePaddle loads plug-ins only while it is imported. The adapter imports it within `importing`,
and this module does not import it before `enable` is called. The device has no kernels:
PaddlePaddle uses the CPU's.
"""

import atexit
import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from xdevice.backends.kit.environment import environment
from xdevice.contract import Watcher
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.virtual import plugins, request

CopyObserver: TypeAlias = Callable[[int, int, int, int], int]
"""A function of the source, the target, the bytes and the address of a copy.

The number of the host is -1. The function returns 0 to forbid the copy.
"""

TRIED = "3.0.0", "3.3.1"
"""The versions of PaddlePaddle with which the plug-in was tried that replaces some of its functions.

With any other version the plug-in replaces nothing: operations take longer, copies are watched as on
real GPUs, and `paddle.distributed` has no groups for NCCL.
"""

_NativeObserver = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
)
_loaded: list[ctypes.CDLL] = []
_current_observer = _NativeObserver()  # this reference keeps it alive while the plug-in has it
# PaddlePaddle's library logs no messages below this level
_LOG_LEVEL = "GLOG_minloglevel"


@contextmanager
def in_place(n: int, force: bool) -> Generator[None]:
    """A context in which importing PaddlePaddle provides n virtual GPUs.

    The environment is restored afterwards.
    """
    other_plug_ins = os.environ.get("CUSTOM_DEVICE_ROOT")
    if other_plug_ins and not force:
        reason = f"CUSTOM_DEVICE_ROOT={other_plug_ins} has devices of its own for paddle"
        hint = f"unset it, or hide them with virtual_gpus({n}, force=True)"
        raise VirtualDeviceError(f"{n} virtual GPUs were asked for, but {reason}; {hint}")
    path = plugins.library(recipe())
    settings = {
        "CUSTOM_DEVICE_ROOT": str(path.parent),
        "XDEVICE_PADDLE_VIRTUAL_GPUS": str(n),
        "XDEVICE_PADDLE_VIRTUAL_MEMORY": str(request.memory_limit() or 0),
        # use the CPU's kernels: there are no others
        "FLAGS_enable_api_kernel_fallback": "1",
        # only CPU kernels support views (PaddlePaddle 3.0 and 3.3.1)
        "FLAGS_use_stride_kernel": "0",
        # otherwise each step of loading is logged
        _LOG_LEVEL: os.environ.get(_LOG_LEVEL, "1"),
    }
    # loaded first and globally, so that its symbols replace those of PaddlePaddle's library
    try:
        _loaded.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))
    except OSError as error:
        raise NotSupportedError(
            f"virtual GPUs under paddle were compiled, and cannot be loaded: {error}; "
            f"delete {path.parent.parent}, and compile them on this machine"
        ) from error
    with environment(settings):
        yield


@contextmanager
def importing() -> Generator[None]:
    """The context in which the adapter imports PaddlePaddle.

    Virtual GPUs are added if they are requested.
    """
    number = request.visible()
    if not number or "paddle" in sys.modules or request.is_left_out("paddle"):
        yield
        return
    with in_place(number, request.current().force):
        yield
    # otherwise new tensors are made on a virtual GPU
    sys.modules["paddle"].device.set_device("cpu")


class _Copies:
    """The copies of the plug-in, which are made by one table of functions."""

    package = "xdevice.virtual.paddle.repairs"

    @contextmanager
    def watching(self, see: CopyObserver, watcher: Watcher) -> Generator[None]:
        atexit.register(_observe_copies, None)  # the table outlives Python
        _observe_copies(see)
        try:
            yield
        finally:
            _observe_copies(None)
            atexit.unregister(_observe_copies)


def _observe_copies(observer: CopyObserver | None) -> None:
    """Call the observer with every copy of the plug-in before it is made."""
    global _current_observer
    native_observer = _NativeObserver(observer) if observer else _NativeObserver()
    for library in _loaded:
        library.ObserveCopies(native_observer)
    _current_observer = native_observer


def recipe() -> plugins.Recipe:
    """How the plug-in is compiled. PaddlePaddle loads all files of its folder, so it has its own."""
    if sys.platform != "linux":
        raise NotSupportedError(
            f"virtual GPUs under paddle are a plug-in that is built on Linux only, and this is "
            f"{platform.system()}; choose another framework with use('torch')"
        )
    package = _package()
    version = _version(package)
    return plugins.Recipe(
        name="xdevice_virtual_gpu",
        purpose=f"virtual GPUs for paddle {version}",
        source=Path(__file__).with_name("virtual_gpu.cc"),
        key=key(package),
        standard="c++17",
        include=(package / "include",),
        defines=("XDEVICE_REPLACES",) if version in TRIED else (),
    )


def _package() -> Path:
    """PaddlePaddle's folder; it is not imported."""
    spec = find_spec("paddle")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _version(package: Path) -> str:
    match = re.search(r"full_version *= *'([^']+)'", _version_file(package))
    return match[1] if match else ""


def replaces_functions() -> bool:
    """Whether the plug-in replaces functions of this version of PaddlePaddle."""
    return _version(_package()) in TRIED


def _version_file(package: Path) -> str:
    return (package / "version" / "__init__.py").read_text()


def key(package: Path) -> str:
    """The version and the commit of PaddlePaddle, for which the plug-in is compiled."""
    header = package / "include" / "paddle" / "phi" / "backends" / "device_ext.h"
    if not header.is_file():
        raise NotSupportedError(
            "this paddle has no header for devices (device_ext.h); install paddlepaddle>=3.0"
        )
    return f"paddle\n{_version_file(package)}\n{header.read_text()}"


def enable(n: int, force: bool, stand_in: bool) -> None:
    from xdevice.backends.paddle import hardware, transfers
    from xdevice.backends.paddle.private_names import names as names_of_the_adapter
    from xdevice.virtual.paddle import repairs
    from xdevice.virtual.paddle.private_names import names

    if stand_in:
        names.check("STAND_IN", "READ", "OTHERS")
    else:
        names.check("VIRTUAL", "OTHERS")
    names_of_the_adapter.check("OTHERS")
    request.refuse_to_hide(hardware.real_gpus(), n, "paddle", force)
    if hardware.plugged_in(hardware.WORD) != n:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for paddle, which has been imported without them; "
            f"before `import paddle` write xdevice.use('paddle') and xdevice.virtual_gpus({n}), "
            f"or start with XDEVICE_VIRTUAL_GPUS={n} and "
            "import it by xdevice.backend('paddle').framework"
        )
    _check_symbols()
    hardware.replaced_gpus.replace(n, under_own_names=stand_in)
    if replaces_functions():
        transfers.add_source(_Copies())
    repairs.apply()
    if stand_in:
        from xdevice.virtual.paddle.stand_in import start

        start(n)


def _check_symbols() -> None:
    """Raise an error if PaddlePaddle's library lacks a function that the plug-in replaces."""
    for library in _loaded:
        library.MissingSymbol.restype = ctypes.c_char_p
        symbol = library.MissingSymbol()
        if symbol:
            version = _version(_package())
            raise VirtualDeviceError(
                f"virtual GPUs replace the function {symbol.decode()} of paddle {version}, and this "
                f"build lacks it; pip install --force-reinstall paddlepaddle=={version}"
            )
