"""What torch's C++ asks about CUDA's devices, answered where nothing can be compiled.

A C++ object finds its virtual functions in a table of addresses. Two of torch's objects get copies of their tables, in
which some addresses are exchanged for those of other functions that are called in the same way: torch's own, or
Python's. Which entry is which is read in the headers that come with torch, so that no number of an entry is written
here; that the result computes is tried in a process of its own first (`prove`).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.virtual import devices
from xdevice.backends.torch.virtual.internals import core
from xdevice.errors import NotSupportedError
from xdevice.kit import compiled, virtual_request

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 8
"""Devices that torch's guard for tests knows."""

_CUDA = 1  # c10::DeviceType::CUDA, and the place of its guard
_WORD = ctypes.sizeof(ctypes.c_void_p)
_FOLDER = Path(torch.__file__).parent
_PREFIX, _SUFFIX = {"win32": ("", ".dll"), "darwin": ("lib", ".dylib")}.get(sys.platform, ("lib", ".so"))
_GUARD = ("c10", "core", "impl", "DeviceGuardImplInterface.h")
_HOOKS = ("ATen", "detail", "AcceleratorHooksInterface.h"), ("ATen", "detail", "CUDAHooksInterface.h")
_NOT_HERE = "virtual GPUs that stand in without a C++ compiler do not work under torch"
_HINT = "apt install g++, or conda install gxx"
_Number = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_kept: list[Any] = []  # what C++ refers to


def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(_FOLDER / "lib" / f"{_PREFIX}{name}{_SUFFIX}"))


def _virtual(path: tuple[str, ...]) -> list[str]:
    """The virtual functions that a class in a header adds to those of its base, in order."""
    text = _FOLDER.joinpath("include", *path).read_text(encoding="utf-8")
    return re.findall(r"^  virtual [^(]*?(~?\w+)\(", text, re.MULTILINE)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _number(answer: Callable[[], int]) -> int:
    """The address of a function of C++ that returns a number, and is Python's."""
    function = _Number(lambda this: answer())
    _kept.append(function)
    return _address(function)


def _exchange(instance: ctypes.c_void_p, names: list[str], changes: dict[str, int]) -> None:
    """Give a C++ object a copy of its table with some entries exchanged, until the interpreter ends."""
    before = instance.value
    assert before is not None
    table = (ctypes.c_void_p * (len(names) + 2))()
    ctypes.memmove(table, before - 2 * _WORD, ctypes.sizeof(table))  # the two before the first are what typeid reads
    for name, address in changes.items():
        table[2 + names.index(name)] = address
    _kept.append(table)
    instance.value = ctypes.addressof(table) + 2 * _WORD

    def restore() -> None:
        instance.value = before

    atexit.register(restore)


class Guard:
    """C++'s guard for CUDA's devices: torch's `FakeGuardImpl`, for its tests, with a current device per thread."""

    def __init__(self) -> None:
        c10 = _library("c10")
        names = _virtual(_GUARD)
        registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
        # torch makes its guard for tests in place of one that counts no devices: here, one that always answers 0
        zeros = (ctypes.c_void_p * len(names))(*[_number(lambda: 0)] * len(names))
        none = ctypes.c_void_p(ctypes.addressof(zeros))
        _kept.extend([zeros, none])
        registry[_CUDA] = ctypes.addressof(none)
        core._ensureCUDADeviceGuardSet()
        self._this = registry[_CUDA]
        made = ctypes.c_void_p.from_address(self._this or 0)
        found: Any = (ctypes.c_void_p * len(names)).from_address(made.value or 0)
        own: dict[str, int] = dict(zip(names, found, strict=True))
        self._get = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)(own["getDevice"])
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint16)(own["setDevice"])
        streams = dict.fromkeys(("getDefaultStream", "getStreamFromGlobalPool", "getNewStream"), own["getStream"])
        done = ("queryStream", "synchronizeStream", "synchronizeEvent", "synchronizeDevice")
        done_at_once = dict.fromkeys(done, own["queryEvent"])  # which answers: yes
        self.one = own["type"]  # answers 1, which is also true
        _exchange(made, names, {**streams, **done_at_once, "deviceCount": _number(lambda: devices.count)})

    def current(self) -> int:
        """This thread's current device."""
        return int(self._get(self._this)) >> 8  # a `c10::Device` is a byte for its type, and one for its index

    def exchange(self, index: int) -> int:
        """Set this thread's current device and return the previous one. A negative index changes nothing."""
        before = self.current()
        if index >= 0:
            self._set(self._this, _CUDA | index << 8)
        return before


def _hook(guard: Guard) -> None:
    """Let C++ find that CUDA is there, and has none of its libraries."""
    cpu = _library("torch_cpu")
    find: Any = cpu._ZN2at6detail12getCUDAHooksEv
    find.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(find())
    if hasattr(core, "_cuda_getDeviceCount"):  # a build with CUDA: they become the hooks of a build for the CPU
        hooks.value = ctypes.addressof(ctypes.c_void_p.in_dll(cpu, "_ZTVN2at18CUDAHooksInterfaceE")) + 2 * _WORD
    base, cuda = map(_virtual, _HOOKS)
    names = [base[0], *base, *cuda]  # the first is a destructor, which has two entries
    yes = dict.fromkeys(("isBuilt", "isAvailable", "hasCUDA", "hasPrimaryContext", "init"), guard.one)
    counts = dict.fromkeys(("deviceCount", "getNumGPUs"), _number(lambda: devices.count))
    here = dict.fromkeys(("getCurrentDevice", "current_device"), _number(guard.current))
    pinned = {"getPinnedMemoryAllocator": _address(_library("c10")._ZN3c1015GetCPUAllocatorEv)}  # is ordinary memory
    _exchange(hooks, names, {**yes, **counts, **here, **pinned})


_TIMERS = (
    "_ZNSt8__detail9_Map_baseIN3c1010DeviceTypeESt4pairIKS2_St8functionIFSt10unique_ptrIN4c10d5TimerESt14default_delete"
    "IS8_EENS1_6DeviceEEEESaISF_ENS_10_Select1stESt8equal_toIS2_ESt4hashIS2_ENS_18_Mod_range_hashingENS_20_Default_"
    "ranged_hashENS_20_Prime_rehash_policyENS_17_Hashtable_traitsILb1ELb0ELb1EEELb1EEixERS4_"
)
"""Of libstdc++: ``std::unordered_map<DeviceType, std::function<std::unique_ptr<Timer>(Device)>>::operator[]``."""


def _time_as_on_cpu() -> None:
    """DistributedDataParallel takes times with a timer of the device type; the CPU's serves."""
    cpu = _library("torch_cpu")
    find, at = getattr(cpu, "_ZN4c10d13TimerRegistryEv", None), getattr(cpu, _TIMERS, None)
    if find is None or at is None:  # a torch without distributed, or of another C++ library
        return
    find.restype = at.restype = ctypes.c_void_p
    registry = ctypes.c_void_p(find())
    ours, its = (at(registry, ctypes.byref(ctypes.c_int8(kind))) for kind in (_CUDA, 0))  # 0 is the CPU's
    ctypes.memmove(ours, its, 4 * _WORD)  # a `std::function` of a plain function, which holds nothing else


def answer() -> Guard:
    """Let C++ know of virtual GPUs under CUDA's device type.

    Raises
    ------
    NotSupportedError
        torch comes without its headers, or has changed.
    """
    if devices.count > MOST:
        raise NotSupportedError(f"without a C++ compiler {MOST} virtual GPUs can stand in at most; {_HINT}")
    try:
        guard = Guard()
        _hook(guard)
        _time_as_on_cpu()
    except (OSError, AttributeError, ValueError, KeyError) as error:
        raise NotSupportedError(f"{_NOT_HERE} {torch.__version__}: {error!r}; {_HINT}") from error
    return guard


_TRIAL = """
from xdevice.backends.torch.virtual import devices, in_python
devices.count = 2
in_python.start(2, stand_in=True)
import torch
x = torch.ones(2, device="cuda:1", requires_grad=True)
with torch.cuda.device(1):
    y = (x * torch.ones(2).cuda()).sum()
y.backward()
assert x.grad.device == y.device == torch.device("cuda:1") and x.grad.cpu().tolist() == [1, 1]
assert torch.accelerator.current_accelerator() == torch.device("cuda") and torch.cuda.Stream(1).query()
"""


def prove() -> None:
    """Try it in a process of its own, once for each torch: where torch has changed, that one may crash.

    Raises
    ------
    NotSupportedError
        It has not ended well.
    """
    facts = f"{torch.__version__} {torch.version.git_version} {sys.platform}".encode()
    proof = compiled.cache() / f"torch-tables-{compiled.digest(facts + Path(__file__).read_bytes())[:16]}"
    if proof.exists():
        return
    env = {name: value for name, value in os.environ.items() if name != virtual_request.ENV}  # or it would try as well
    command = [sys.executable, "-W", "ignore", "-c", _TRIAL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"a trial ended with status {done.returncode}"])[-1]
        raise NotSupportedError(f"{_NOT_HERE} {torch.__version__}: {last}; {_HINT}")
    proof.touch()
