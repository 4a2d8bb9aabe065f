"""Device memory: statistics, the cache, and recovering from running out of it."""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from xdevice.contract import MemoryStats
from xdevice.device import whole_number
from xdevice.errors import ArgumentError, ArgumentTypeError, BrokenBackendError, OutOfMemoryError, VirtualDeviceError
from xdevice.framework.adapters import imported
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, properties_of, require
from xdevice.hardware.virtual import is_virtual
from xdevice.machine import holders, host_memory, same_gpu
from xdevice.typing import DeviceLike

if TYPE_CHECKING:
    from xdevice.machine import Holder

P = ParamSpec("P")
T = TypeVar("T")

_RUNS_LATER = 0x20 | 0x80 | 0x100 | 0x200
"""Flags of generators, coroutines and both in one, as in `inspect`, which costs 5 ms to import."""

_NOT_RUN = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
"""Results of a function that has not run yet; a wrapper or ``__call__`` may hide the function's flags."""


def memory_stats(device: DeviceLike) -> MemoryStats:
    """The device's memory in bytes, as far as the chosen framework knows; ``None`` where it does not.

    ``total`` and ``free`` are of the device; ``allocated`` is in live tensors of this process,
    ``reserved`` is held by the framework's allocator, ``peak`` is the most that was ever allocated.
    ``holders``, of a real GPU only: what each process holds of it, this one and others, all frameworks together.
    Asking frees nothing.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     sorted(xdevice.memory_stats("cpu"))
    ['allocated', 'free', 'peak', 'reserved', 'total']
    """
    chosen, where = backend(), as_device(device)
    require(chosen, where)
    stats: MemoryStats = {"total": None, "free": None, "allocated": None, "reserved": None, "peak": None}
    if where.kind == "cpu" or is_virtual(chosen, where):
        stats["total"], stats["free"] = host_memory()
    elif where.kind == "gpu":
        stats["holders"] = _holders(properties_of(chosen, where)["uuid"])
    stats.update(chosen.memory.memory_stats(where))
    return stats


def _holders(uuid: str | None) -> dict[str, int | None] | None:
    """The processes on the GPU, with their bytes; ``None`` where nothing is known of them."""
    found = [each for each in holders() if uuid is not None and same_gpu(each["uuid"], uuid)]
    names = [_process(each) for each in found]
    return {name: each["memory"] for name, each in zip(names, found, strict=True)} or None


def _process(holder: Holder) -> str:
    if holder["pid"] == os.getpid():
        return "this process"
    return f"process {holder['pid']} ({holder['name']})" if holder["name"] else f"process {holder['pid']}"


def empty_cache(device: DeviceLike | None = None) -> None:
    """Release the memory that the chosen framework's allocator caches on the device, or on all devices.

    Live tensors stay. Does nothing for a framework without a cache.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.empty_cache()
    """
    chosen = backend()
    where = None if device is None else as_device(device)
    if where is not None:
        require(chosen, where)
    chosen.memory.empty_cache(where)


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether the exception, one that it was raised from, or one in a group says that memory ran out.

    True for `MemoryError` and for every imported framework's own error. An error that was raised while
    another was handled, without ``from``, is judged by itself.

    Examples
    --------
    >>> from xdevice import is_out_of_memory
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    seen: set[int] = set()
    ahead: list[BaseException | None] = [exc]
    for error in ahead:  # grows while it is walked
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, MemoryError) or any(_says_so(owner, error) for owner in imported()):
            return True
        ahead += [error.__cause__, *getattr(error, "exceptions", ())]
    return False


@overload
def find_batch_size(fn: Callable[Concatenate[int, P], T], *, start: int = 1024, minimum: int = 1) -> Callable[P, T]: ...
@overload
def find_batch_size(
    fn: None = None, *, start: int = 1024, minimum: int = 1
) -> Callable[[Callable[Concatenate[int, P], T]], Callable[P, T]]: ...
def find_batch_size(fn: Callable[..., T] | None = None, *, start: int = 1024, minimum: int = 1) -> Callable[..., Any]:
    """``fn`` with its first argument, the batch size, found by trial.

    Each call begins with ``start`` and halves it as long as ``fn`` runs out of memory; memory is
    freed in between. A size found in one call does not limit the next. May be used as a decorator of
    functions, with or without options; the arguments of the call follow the batch size.

    Raises
    ------
    ArgumentError
        ``start`` or ``minimum`` is not a positive integer, or ``start`` is less than ``minimum``.
    ArgumentTypeError
        ``fn`` is asynchronous or a generator, which runs after its call has returned, or a method that is not bound.
    OutOfMemoryError
        When called: not even ``minimum`` fits. The framework's own error is its cause.

    Examples
    --------
    >>> from xdevice import find_batch_size
    >>> @find_batch_size(start=64)
    ... def train(batch_size, epochs):
    ...     if batch_size > 20:
    ...         raise MemoryError
    ...     return batch_size, epochs
    >>> train(3)
    (16, 3)
    """
    if fn is None:
        return lambda f: find_batch_size(f, start=start, minimum=minimum)
    if not callable(fn):
        raise ArgumentError(f"{fn!r} cannot be called; pass a function of the batch size, and start=… by name")
    _check_function(fn)
    _check_sizes(start, minimum)

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> T:
        size = start
        while True:
            try:
                result = fn(size, *args, **kwargs)
                if isinstance(result, _NOT_RUN):
                    if not isinstance(result, types.AsyncGeneratorType):
                        result.close()  # or Python warns that a coroutine was never awaited
                    raise _runs_later(fn)
                return result
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size <= minimum:
                    raise OutOfMemoryError(
                        f"out of memory even with a batch size of {size}; make the model or the samples smaller"
                    ) from error
            # outside the except: there, the traceback keeps the tensors of the failed try alive
            size = max(size // 2, minimum)
            _free_memory()

    return run


def _check_function(fn: Any) -> None:
    code = getattr(getattr(fn, "func", fn), "__code__", None)  # of a partial: of its function
    if code is not None and code.co_flags & _RUNS_LATER:
        raise _runs_later(fn)
    if "self" in getattr(getattr(fn, "__code__", None), "co_varnames", ())[:1] and not hasattr(fn, "__self__"):
        raise ArgumentTypeError(
            f"{fn.__qualname__} is a method: its first argument is its object and not the batch size; "
            "wrap the bound method: find_batch_size(obj.method)"
        )


def _runs_later(fn: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{getattr(fn, '__name__', 'fn')} is asynchronous or a generator, so its errors come after its call; "
        "pass a plain function that runs it to the end"
    )


def _free_memory() -> None:
    gc.collect()
    for owner in imported():
        try:
            owner.memory.empty_cache(None)
        except (BrokenBackendError, NotImplementedError, VirtualDeviceError):
            continue  # it has no cache, or cannot be used


def _says_so(owner: Any, error: BaseException) -> bool:
    try:
        return bool(owner.memory.is_out_of_memory(error))
    except (BrokenBackendError, NotImplementedError, VirtualDeviceError):
        return False


def _check_sizes(start: Any, minimum: Any) -> None:
    for name, size in (("start", start), ("minimum", minimum)):
        whole_number(size, f"{name}={size!r} is not a batch size; give an integer of 1 or more", 1)
    if start < minimum:
        raise ArgumentError(f"start={start} is under minimum={minimum}; give a larger start")
