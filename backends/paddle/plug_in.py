"""The plug-in for virtual GPUs: compiled on first use and cached.

PaddlePaddle loads plug-ins only while it is imported, so all of this happens before.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.kit import virtual_memory
from xdevice.kit.environment import environment

_SOURCE = Path(__file__).with_name("virtual_gpu.cc")
_LIBRARY = "libxdevice_virtual_gpu.so"
_LOG = "GLOG_minloglevel"  # from which level on PaddlePaddle's library logs
_COMPILERS = "g++", "clang++", "c++"


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
    # First, and for all to see: it defines symbols that are to be found before PaddlePaddle's own
    ctypes.CDLL(f"{settings['CUSTOM_DEVICE_ROOT']}/{_LIBRARY}", ctypes.RTLD_GLOBAL)
    with environment(settings):
        yield


def _folder() -> Path:
    """The folder that contains only the plug-in, compiled if necessary."""
    if sys.platform != "linux":
        raise NotSupportedError(
            f"virtual GPUs under paddle are a plug-in that is built on Linux only, and this is {platform.system()}; "
            "choose another framework with use('torch')"
        )
    include = _include()
    header = include / "paddle" / "phi" / "backends" / "device_ext.h"
    if not header.is_file():
        raise NotSupportedError("this paddle has no header for devices (device_ext.h); install paddlepaddle>=3.0")
    text = _SOURCE.read_bytes() + header.read_bytes() + platform.machine().encode()
    folder = _cache() / f"paddle-{_digest(text)[:16]}"
    library = folder / _LIBRARY
    if not _is_whole(library):
        _compile(include, library)
    return folder


def _include() -> Path:
    spec = find_spec("paddle")  # does not import it
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "include"


def _cache() -> Path:
    """A writable cache folder of the user, else a temporary folder of this process."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "xdevice"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="xdevice-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="xdevice-"))


def _is_whole(library: Path) -> bool:
    """Whether the file is complete; loading a broken one would crash the process."""
    try:
        return _sum_of(library).read_text() == _digest(library.read_bytes())
    except OSError:
        return False


def _sum_of(library: Path) -> Path:
    return library.parent.with_suffix(".sha256")  # not beside the library, where PaddlePaddle looks


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _compile(include: Path, library: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None or shutil.which(compiler) is None:
        raise NotSupportedError(
            f"virtual GPUs under paddle are compiled when they are first used, and there is no C++ compiler "
            f"({compiler or ', '.join(_COMPILERS)}); install one, with apt install g++ or conda install gxx, or set CXX"
        )
    library.parent.mkdir(exist_ok=True)
    # other processes may compile it too: each writes a temporary file, and the last one to finish replaces it
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=library.parent.parent)
    os.close(handle)
    options = ["-shared", "-fPIC", "-O2", "-std=c++17", "-I", str(include)]
    try:
        done = subprocess.run(
            [compiler, *options, str(_SOURCE), "-o", unfinished], capture_output=True, text=True, check=False
        )
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if "error" in line] or ["it gives no reason"]
            raise NotSupportedError(
                f"virtual GPUs under paddle could not be compiled: {compiler} says {words[0]}; "
                "install another compiler and set CXX"
            )
        os.replace(unfinished, library)
        _sum_of(library).write_text(_digest(library.read_bytes()))
    finally:
        Path(unfinished).unlink(missing_ok=True)
