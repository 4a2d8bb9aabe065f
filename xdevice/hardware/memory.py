"""Device memory: statistics, the cache, recovering from running out of it, and sharing a GPU's."""

from __future__ import annotations

import gc
import os
from _thread import RLock  # threading.RLock, without its 1 ms
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from xdevice.contract import MemoryStats
from xdevice.device import whole_number
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    BrokenBackendError,
    NotSupportedError,
    OutOfMemoryError,
    VirtualDeviceError,
    shortened,
)
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import backend, decided
from xdevice.hardware.devices import as_device, properties_of, require
from xdevice.hardware.virtual import is_virtual
from xdevice.hooks import hooks
from xdevice.kit.later import runs_later
from xdevice.machine import holders, host_memory, same_gpu
from xdevice.typing import DeviceLike

__all__ = ["empty_cache", "find_batch_size", "is_out_of_memory", "memory_stats", "share_gpus"]

P = ParamSpec("P")
T = TypeVar("T")

# flags of generators and coroutines, as in `inspect`: 5 ms to import
_RUNS_LATER = 0x20 | 0x80 | 0x100 | 0x200
_TO_THE_END = "pass a plain function that runs it to the end"


def memory_stats(device: DeviceLike) -> MemoryStats:
    """The device's memory in bytes, as far as the chosen framework knows; ``None`` where it does not.

    ``total`` and ``free`` are of the device; ``allocated`` is in live tensors of this process, ``reserved`` is held by
    the framework's allocator, ``peak`` is the most that was ever allocated. ``holders``, of a real GPU only: what each
    process holds of it, this one and others, all frameworks together. Asking frees nothing.

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
    stats: MemoryStats = {
        "total": None,
        "free": None,
        "allocated": None,
        "reserved": None,
        "peak": None,
    }
    if where.kind == "cpu" or is_virtual(chosen, where):
        stats["total"], stats["free"] = host_memory()
    elif where.kind == "gpu":
        stats["holders"] = _holders(properties_of(chosen, where)["uuid"])
    stats.update(chosen.memory.memory_stats(where))
    return stats


def _holders(uuid: str | None) -> dict[str, int | None] | None:
    """The processes on the GPU, with their bytes; ``None`` where nothing is known of them."""
    found: dict[str, int | None] = {}
    for holder in holders():
        if same_gpu(holder["uuid"], uuid):
            name = f"process {holder['pid']}" + (f" ({holder['name']})" if holder["name"] else "")
            found["this process" if holder["pid"] == os.getpid() else name] = holder["memory"]
    return found or None


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
        if isinstance(error, MemoryError) or any(
            _ask(owner, "is_out_of_memory", error) for owner in imported()
        ):
            return True
        ahead += [error.__cause__, *getattr(error, "exceptions", ())]
    return False


@overload
def find_batch_size(
    fn: Callable[Concatenate[int, P], T], *, start: int = 1024, minimum: int = 1
) -> Callable[P, T]: ...
@overload
def find_batch_size(
    fn: None = None, *, start: int = 1024, minimum: int = 1
) -> Callable[[Callable[Concatenate[int, P], T]], Callable[P, T]]: ...
def find_batch_size(
    fn: Callable[..., T] | None = None, *, start: int = 1024, minimum: int = 1
) -> Callable[..., Any]:
    """``fn`` with its first argument, the batch size, found by trial.

    Each call begins with ``start`` and halves it as long as ``fn`` runs out of memory; memory is
    freed in between. A size found in one call does not limit the next. May be used as a decorator of
    functions, with or without options; the arguments of the call follow the batch size.

    Raises
    ------
    ArgumentError
        ``start`` or ``minimum`` is not a positive integer, or ``start`` is less than ``minimum``.
    ArgumentTypeError
        ``fn`` is asynchronous or a generator, or a method that is not bound. When called: it has
        returned a coroutine, or an iterator that makes its items later.
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
        raise ArgumentError(
            f"{fn!r} cannot be called; pass a function of the batch size, and start=… by name"
        )
    code = getattr(getattr(fn, "func", fn), "__code__", None)  # of a partial: of its function
    if code is not None and code.co_flags & _RUNS_LATER:
        why = f"{_name(fn)} is asynchronous or a generator, so its errors come after its call"
        raise ArgumentTypeError(f"{why}; {_TO_THE_END}")
    if "self" in getattr(getattr(fn, "__code__", None), "co_varnames", ())[:1] and not hasattr(
        fn, "__self__"
    ):
        why = f"{fn.__qualname__} is a method: its first argument is its object and not the batch size"
        raise ArgumentTypeError(f"{why}; wrap the bound method: find_batch_size(obj.method)")
    for name, number in (("start", start), ("minimum", minimum)):
        whole_number(
            number, f"{name}={number!r} is not a batch size; give an integer of 1 or more", 1
        )
    if start < minimum:
        raise ArgumentError(f"start={start} is under minimum={minimum}; give a larger start")

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> T:
        size = start
        while True:
            try:
                result = fn(size, *args, **kwargs)
                if runs_later(result):
                    if isinstance(result, Coroutine):
                        result.close()  # or Python warns that it was never awaited
                    given = f"{_name(fn)}() returned {shortened(result)}, whose"
                    raise ArgumentTypeError(f"{given} errors come after the call; {_TO_THE_END}")
                return result
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size <= minimum:
                    said = f"out of memory even with a batch size of {size}; make the model or the samples smaller"
                    raise OutOfMemoryError(said) from error
            # outside the except: there, the traceback keeps the tensors of the failed try alive
            size = max(size // 2, minimum)
            gc.collect()
            for owner in imported():
                _ask(owner, "empty_cache", None)

    return run


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", "fn")


def _ask(owner: Backend, function: str, *args: Any) -> Any:
    try:
        return getattr(owner.memory, function)(*args)
    except (BrokenBackendError, NotImplementedError, VirtualDeviceError):
        return None  # it has no such function, or cannot be used


_asked: tuple[float | None] | None = None  # the fraction
_shared: dict[
    Backend, tuple[float | None, dict[str, str]]
] = {}  # what each framework was told, and its settings
_lock = RLock()


def share_gpus(fraction: float | None = None) -> dict[str, dict[str, str]]:
    """Let each framework take memory of a GPU as it needs it, and return the settings made, by framework.

    By default TensorFlow takes nearly all memory of every GPU when it is first used, and JAX three quarters. What was
    taken is not given back before the process ends. Frameworks that are imported later are told then. Without a GPU
    there may be nothing to set.

    Parameters
    ----------
    fraction
        The most that each framework may take of each GPU's memory, above 0 and up to 1; ``None``: all of it.

    Raises
    ------
    ArgumentError
        The fraction is not above 0 and up to 1.
    ArgumentTypeError
        The fraction is not a number.
    TooLateError
        A framework has been used, and has taken its memory; the message names it.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.share_gpus(0.3)  # doctest: +SKIP
    {'jax': {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.3'}}
    """
    global _asked
    if fraction is not None:
        given: Any = fraction
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise ArgumentTypeError(
                f"fraction={shortened(given)} is not a number; give one above 0 and up to 1"
            )
        if not 0 < given <= 1:
            raise ArgumentError(
                f"fraction={given!r} is not above 0 and up to 1; 0.3 is three tenths of a GPU's memory"
            )
        fraction = float(given)
    with _lock:
        _asked, before = (fraction,), _asked
        chosen = decided()
        try:
            for owner in imported() if chosen is None else [chosen, *imported()]:
                share_requested(owner)
        except Exception:
            _asked = before
            raise
    if share_requested not in hooks.before_loading:
        hooks.before_loading.append(share_requested)
    at_import.watch(share_requested)
    return {str(owner): dict(settings) for owner, (_, settings) in _shared.items() if settings}


def share_requested(owner: Backend, capability: str = "") -> None:
    """Tell a framework of the request before it is used."""
    if _asked is None or capability == "virtual" or _shared.get(owner, ("",))[0] == _asked[0]:
        return
    with _lock:
        before = _shared.get(owner)
        _shared[owner] = (
            _asked[0],
            {},
        )  # from here on it is not told again: telling it loads capabilities
        try:
            _shared[owner] = _asked[0], owner.allocation.share(_asked[0])
        except NotSupportedError:
            pass  # it has no GPUs
        except BaseException:
            _shared.pop(owner) if before is None else _shared.update({owner: before})
            raise
