"""``strict()``: an operation on tensors of two devices is an error, under every framework.

Some frameworks raise an error, others copy silently. Each adapter has its own way of
watching, in ``backends/NAME/mixing.py``; nothing is watched while no strict block is open.
"""

from __future__ import annotations

from _thread import RLock  # threading.RLock, without its 1 ms
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from xdevice.errors import ArgumentTypeError, BrokenBackendError, NotSupportedError
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import decided

F = TypeVar("F", bound=Callable[..., Any])

_lock = RLock()
_open = 0  # strict blocks in the whole process
_watching: dict[Backend, AbstractContextManager[Any]] = {}


class strict:  # noqa: N801  (reads as a verb: `with strict():`)
    """Within a ``with`` block, or a decorated function, no operation may mix devices.

    An operation on tensors of two devices raises `MixedDeviceError`, which names the operation and
    the devices, also under frameworks that otherwise copy without an error. It holds for every framework,
    in the forward and the backward pass, and in every thread of the process while a block is open
    anywhere (in threads that cannot be watched, the framework's own error is raised). `to_device` and the
    framework's own functions that copy are allowed. A scalar on the CPU counts as a number where the
    framework treats it as one.

    Blocks may be nested and reused. Nothing is watched while no block is open.

    Raises
    ------
    ArgumentTypeError
        The decorated object is not a function.
    NotSupportedError
        On entering: the chosen framework has several devices, and its adapter cannot watch operations.

    Examples
    --------
    >>> import numpy, xdevice
    >>> with xdevice.strict():
    ...     y = numpy.ones(3) + numpy.ones(3)
    """

    __slots__ = ()

    def __enter__(self) -> None:
        global _open
        with _lock:
            _open += 1
            try:
                for owner in imported():
                    watch(owner)
                _check_watched(decided())
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        global _open
        with _lock:
            _open -= 1
            while not _open and _watching:
                _watching.popitem()[1].__exit__(None, None, None)

    def __call__(self, fn: F) -> F:
        from functools import wraps
        from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

        if not callable(fn) or isasyncgenfunction(fn) or isgeneratorfunction(fn):
            raise ArgumentTypeError(f"strict() cannot decorate {fn!r}; decorate a function, or write `with strict():`")

        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        @wraps(fn)
        async def await_call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await fn(*args, **kwargs)

        return await_call if iscoroutinefunction(fn) else call  # type: ignore[return-value]  # wraps keeps it


def _check_watched(owner: Backend | None) -> None:
    """An error where the chosen framework has several devices, and its adapter cannot watch it."""
    if owner is None or owner in _watching or owner not in imported():
        return
    try:
        several = sum(map(owner.hardware.count, owner.hardware.kinds())) > 1
    except (BrokenBackendError, NotSupportedError):
        return
    if several:
        _ = owner.mixing.forbid  # raises the error, with the adapter's reason


def watch(owner: Backend) -> None:
    """Watch the framework's operations, if a strict block is open."""
    if not _open or owner in _watching:
        return
    with _lock:
        if not _open or owner in _watching:
            return
        try:
            manager = owner.mixing.forbid()
        except (BrokenBackendError, NotSupportedError):
            return  # it has one device, or cannot be used
        _watching[owner] = manager
        manager.__enter__()


def watch_loaded(owner: Backend, capability: str) -> None:
    """Watch a framework that is first used while a strict block is open."""
    if capability not in ("virtual", "mixing"):
        watch(owner)
