"""The plug-in for virtual GPUs: compiled on first use and cached.

PaddlePaddle loads plug-ins only while it is imported, so all of this happens before.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit import compiled, virtual_memory
from xdevice.kit.environment import environment

_SOURCE = Path(__file__).with_name("virtual_gpu.cc")
_LIBRARY = "libxdevice_virtual_gpu.so"
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
    settings = {
        "CUSTOM_DEVICE_ROOT": str(_folder()),
        "XDEVICE_PADDLE_VIRTUAL_GPUS": str(n),
        "XDEVICE_PADDLE_VIRTUAL_MEMORY": str(virtual_memory.limit() or 0),
        "FLAGS_use_stride_kernel": "0",  # only CPU kernels support views (PaddlePaddle 3.0 and 3.3.1)
        _LOG: os.environ.get(_LOG, "1"),  # otherwise it logs each step of loading
    }
    try:  # first, and for all to see: it defines symbols that are to be found before PaddlePaddle's own
        ctypes.CDLL(f"{settings['CUSTOM_DEVICE_ROOT']}/{_LIBRARY}", ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NotSupportedError(
            f"virtual GPUs under paddle were compiled, and cannot be loaded: {error}; delete {compiled.cache()}, and "
            "compile them on this machine"
        ) from error
    with environment(settings):
        yield


def _folder() -> Path:
    """The folder that contains only the plug-in, compiled if necessary."""
    if sys.platform != "linux":
        raise NotSupportedError(
            f"virtual GPUs under paddle are a plug-in that is built on Linux only, and this is {platform.system()}; "
            "choose another framework with use('torch')"
        )
    package = _package()
    options = ["-shared", "-fPIC", "-O2", "-std=c++17", "-I", str(package / "include")]
    return compiled.library(_LIBRARY, _SOURCE, options, key=key(package), purpose="virtual GPUs under paddle").parent


def key(package: Path) -> str:
    """What the plug-in is compiled for: a version and commit of PaddlePaddle, whose tensors it constructs."""
    header = package / "include" / "paddle" / "phi" / "backends" / "device_ext.h"
    if not header.is_file():
        raise NotSupportedError("this paddle has no header for devices (device_ext.h); install paddlepaddle>=3.0")
    return f"paddle\n{(package / 'version' / '__init__.py').read_text()}\n{header.read_text()}"


def _package() -> Path:
    spec = find_spec("paddle")  # does not import it
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))
