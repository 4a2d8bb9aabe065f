"""The memory of virtual GPUs that stand in: live arrays, and peaks by the liveness of values.

XLA's allocator of the host keeps no account. A peak is that of what was live
when a function was first called with arguments of such shapes, with its
results and the temporary memory that it would need on a GPU (`liveness`). Later
calls of functions that need much are noted, too; those of others JAX makes
without calling Python.
"""

import os
from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from jax.extend import core

from xdevice.backends.jax import hardware
from xdevice.backends.jax.memory import live_sizes
from xdevice.contract import MemoryUse, NativeDevice, PeakMemory
from xdevice.device import Device
from xdevice.virtual import request
from xdevice.virtual.fits_lines import line_of_program
from xdevice.virtual.jax import liveness
from xdevice.virtual.jax.private_names import Function, in_place_of, names, replace_name

_CALL = "jax._src.pjit:_pjit_call_impl_python"
_MEMORY_STATS = "jaxlib._jax:Device.memory_stats"
_COMPILED_CALL = "jax.stages:Compiled.__call__"

_MUCH = 16 << 20
"""From how many bytes of results and temporary memory on each call of a function is noted.

The call takes some 100 µs longer: to compute so much takes milliseconds.
"""

_MARGIN, _OVERESTIMATE = 0.2, 0.05
_SOURCE = "of five recordings under JAX, which had 17% more to 5% less than what is counted"

_FRACTIONS = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
_FRACTION = 0.75
"""The part of a GPU's memory that JAX's allocator takes, unless a variable says otherwise."""

_least_noted = _MUCH  # 0 while memory is measured: each call is noted
_unmeasured = ""
"""What the program did that is not counted, while memory is measured."""

_temporary: MutableMapping[core.Jaxpr, int] = WeakKeyDictionary()
"""The temporary memory of each function that was called."""

_peaks: dict[int, int] = {}
"""The peak of each virtual GPU, by index."""

_lines: dict[int, tuple[str, int]] = {}
"""The file and the line of the program that reached the peak of each virtual GPU."""

_bounds: dict[int, int] = {}
"""More than what can be live on each virtual GPU, as far as only results of functions are added."""


def replace() -> None:
    native_memory_stats = names.value(_MEMORY_STATS)

    def memory_stats(self: NativeDevice) -> Any:
        if hardware.ordinal(self):
            return _memory_stats(hardware.ordinal(self) - 1)
        return native_memory_stats(self)

    replace_name(_MEMORY_STATS, memory_stats)
    if names.has("peaks of a GPU's memory"):
        in_place_of(_CALL)(_call)


def measure() -> None:
    """From now on, note each call, and where the peak is reached."""
    global _least_noted
    names.check("MEASURED")
    _least_noted = 0

    @in_place_of(_COMPILED_CALL)
    def call(native: Function, self: object, *args: Any, **kwargs: Any) -> Any:
        global _unmeasured
        _unmeasured = "the program called a function that was compiled ahead of time"
        return native(self, *args, **kwargs)


def use(count: int) -> MemoryUse:
    """The most memory of each GPU, with the line of the program that reached it."""
    peaks: list[PeakMemory] = []
    for index in range(count):
        if index in _peaks:
            _note_peak(index, _live(index))
        peak = _peaks.get(index, 0)
        file, line = _lines.get(index, ("", 0))
        device = Device("gpu", index)
        certain = int(peak * (1 - _OVERESTIMATE))
        peaks.append(PeakMemory(device, peak, peak, file, line, "", (), certain))
    return MemoryUse(tuple(peaks), None, margin=_MARGIN, source=_SOURCE, unmeasured=_unmeasured)


def _note_peak(index: int, nbytes: int) -> None:
    if nbytes <= _peaks.get(index, 0):
        return
    _peaks[index] = nbytes
    if not _least_noted:
        _lines[index] = line_of_program()


def _call(native: Function, *args: Any, jaxpr: core.ClosedJaxpr, **params: Any) -> Any:
    called = native(*args, jaxpr=jaxpr, **params)
    results = called[0]
    devices = {device for result in results for device in _devices(result)}
    gpus = [hardware.ordinal(device) - 1 for device in devices if hardware.ordinal(device)]
    if not gpus:
        return called
    temporary = _temporary_bytes(jaxpr.jaxpr) // len(gpus)
    written = sum(result.nbytes for result in results) // len(gpus)
    for index in gpus:
        _note(index, temporary, written)
    if temporary + written < _least_noted:
        return called
    results, _, *others = called
    return results, None, *others  # without the executable, JAX calls Python again


def _temporary_bytes(jaxpr: core.Jaxpr) -> int:
    if jaxpr not in _temporary:
        _temporary[jaxpr] = liveness.temporary_bytes(jaxpr)
    return _temporary[jaxpr]


def _devices(result: Any) -> set[NativeDevice]:
    """The devices of an array; none for a token."""
    return set(result.devices()) if hasattr(result, "devices") else set()


def _note(index: int, temporary: int, written: int) -> None:
    """Note a call that needed temporary memory and has written results.

    To find what is live takes a millisecond for each hundred arrays, so it is
    only looked for where the peak may have been exceeded.
    """
    peak = _peaks.get(index, 0)
    _bounds[index] = _bounds.get(index, 0) + written
    if temporary or _bounds[index] > peak:
        live = _bounds[index] = _live(index)
        _note_peak(index, live + temporary)


def _live(index: int) -> int:
    return sum(live_sizes(Device("gpu", index)))


def _limit() -> int:
    """The bytes that the allocator may take: of a model's memory a part, else the host's memory."""
    memory = request.memory()
    if memory is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fractions = (os.environ.get(name) for name in _FRACTIONS)
    return int(memory * float(next(filter(None, fractions), _FRACTION)))


def _memory_stats(index: int) -> dict[str, float]:
    """The memory of the GPU's arrays, by the names of a GPU's allocator."""
    live = _live(index)
    peak: float = max(_peaks.get(index, 0), live)
    _peaks[index] = int(peak)
    if not names.has("peaks of a GPU's memory"):
        peak = float("nan")
    limit = _limit()
    unknown = float("nan")  # programs format it as a number
    return {
        "bytes_in_use": live,
        "pool_bytes": live,
        "peak_bytes_in_use": peak,
        "peak_pool_bytes": peak,
        "num_allocs": unknown,
        "largest_alloc_size": unknown,
        "bytes_reserved": 0,
        "peak_bytes_reserved": 0,
        "bytes_limit": limit,
        "largest_free_block_bytes": limit - live,
    }
