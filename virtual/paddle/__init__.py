"""Virtual GPUs under PaddlePaddle: a custom device, ``vgpu``, from a plug-in that is compiled at the first use.

PaddlePaddle loads plug-ins only while it is imported, which the adapter does within `importing`; nothing here imports
PaddlePaddle before `enable` is called. The device has no kernels of its own: PaddlePaddle uses the CPU's.
"""

import atexit
import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from xdevice.contract import Watcher
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit.blocks import environment
from xdevice.virtual import plugins, request

_WATCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
)
_loaded: list[ctypes.CDLL] = []
_watch = _WATCH()
_LOG = "GLOG_minloglevel"  # from which level on PaddlePaddle's library logs


@contextmanager
def in_place(n: int, force: bool) -> Generator[None]:
    """A context in which importing PaddlePaddle provides n virtual GPUs; the environment is restored afterwards."""
    theirs = os.environ.get("CUSTOM_DEVICE_ROOT")
    if theirs and not force:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but CUSTOM_DEVICE_ROOT={theirs} has devices of its own for paddle; "
            f"unset it, or hide them with virtual_gpus({n}, force=True)"
        )
    path = plugins.library(recipe())
    settings = {
        "CUSTOM_DEVICE_ROOT": str(path.parent),
        "XDEVICE_PADDLE_VIRTUAL_GPUS": str(n),
        "XDEVICE_PADDLE_VIRTUAL_MEMORY": str(request.memory_limit() or 0),
        "FLAGS_enable_api_kernel_fallback": "1",  # to the CPU's kernels: there are no others
        "FLAGS_use_stride_kernel": "0",  # only CPU kernels support views (PaddlePaddle 3.0 and 3.3.1)
        _LOG: os.environ.get(_LOG, "1"),  # otherwise it logs each step of loading
    }
    try:  # first, and for all to see: it defines symbols that are to be found before PaddlePaddle's own
        _loaded.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))
    except OSError as error:
        what = f"virtual GPUs under paddle were compiled, and cannot be loaded: {error}"
        hint = f"delete {path.parent.parent}, and compile them on this machine"
        raise NotSupportedError(f"{what}; {hint}") from error
    with environment(settings):
        yield


@contextmanager
def importing() -> Generator[None]:
    """The context in which the adapter imports PaddlePaddle, if virtual GPUs are asked for."""
    is_late = "paddle" in sys.modules
    number = 0 if is_late or request.is_left_out("paddle") else request.visible()
    if not number:
        yield
        return
    with in_place(number, request.current().force):
        yield
    # otherwise new tensors are made on a virtual GPU
    sys.modules["paddle"].device.set_device("cpu")


class _Copies:
    """Tells of the plug-in's copies, which pass through one table of functions."""

    package = "xdevice.virtual.paddle.repairs"

    @contextmanager
    def watching(
        self, see: Callable[[int, int, int, int], int], watcher: Watcher
    ) -> Generator[None]:
        atexit.register(_watch_copies, None)  # the table outlives Python
        _watch_copies(see)
        try:
            yield
        finally:
            _watch_copies(None)
            atexit.unregister(_watch_copies)


def _watch_copies(see: Callable[[int, int, int, int], int] | None) -> None:
    """Call it with every copy before it is made: source, target, bytes, address; -1 is the host. 0 forbids it."""
    global _watch
    watch = _WATCH(see) if see else _WATCH()
    for library in _loaded:
        library.WatchCopies(watch)
    _watch = watch  # kept as long as it is called


def recipe() -> plugins.Recipe:
    """What the plug-in is compiled from. PaddlePaddle looks at all files in its folder."""
    if sys.platform != "linux":
        why = f"are a plug-in that is built on Linux only, and this is {platform.system()}"
        raise NotSupportedError(
            f"virtual GPUs under paddle {why}; choose another framework with use('torch')"
        )
    spec = find_spec("paddle")  # does not import it
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(next(iter(spec.submodule_search_locations)))
    version = re.search(
        r"full_version *= *'(\d+\.\d+)", (package / "version" / "__init__.py").read_text()
    )
    source, headers = Path(__file__).with_name("virtual_gpu.cc"), package / "include"
    whole = plugins.Recipe(
        name="xdevice_virtual_gpu",
        purpose=f"virtual GPUs for paddle {version[1] if version else ''}",
        source=source,
        key=key(package),
        standard="c++17",
        include=(headers,),
    )
    include = source.parent / "bare", headers
    bare = replace(
        whole, include=include, defines=("XDEVICE_BARE",), lacks="without kernels for 16-bit floats"
    )
    return replace(whole, bare=bare)


def key(package: Path) -> str:
    """What the plug-in is compiled for: a version and commit of PaddlePaddle, whose tensors it constructs."""
    header = package / "include" / "paddle" / "phi" / "backends" / "device_ext.h"
    if not header.is_file():
        raise NotSupportedError(
            "this paddle has no header for devices (device_ext.h); install paddlepaddle>=3.0"
        )
    return f"paddle\n{(package / 'version' / '__init__.py').read_text()}\n{header.read_text()}"


def enable(n: int, force: bool, stand_in: bool) -> None:
    from xdevice.backends.paddle import hardware, transfers
    from xdevice.backends.paddle.private_names import names
    from xdevice.virtual.paddle import repairs

    names.check(*(("STAND_IN", "READ") if stand_in else ("VIRTUAL",)), "OTHERS")
    request.refuse_to_hide(hardware.real_gpus(), n, "paddle", force)
    if hardware.plugged_in(hardware.WORD) != n:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for paddle, which has been imported without them; before `import paddle` "
            f"write xdevice.use('paddle') and xdevice.virtual_gpus({n}), or start with XDEVICE_VIRTUAL_GPUS={n} and "
            f"import it by xdevice.backend('paddle').framework"
        )
    hardware.replaced_gpus.replace(n, under_own_names=stand_in)
    transfers.add_source(_Copies())
    repairs.apply()
    if stand_in:
        from xdevice.virtual.paddle import stand_in as gpus_of_paddle

        gpus_of_paddle.start(n)
