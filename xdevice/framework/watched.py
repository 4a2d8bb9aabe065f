"""Blocks in which every framework is watched, those imported meanwhile too; ``strict()`` is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, TypeVar

from xdevice.errors import BrokenBackendError, NotSupportedError
from xdevice.framework.adapters import Backend, after_loading, imported, is_being_imported
from xdevice.framework.choosing import decided

__all__ = ["strict"]

F = TypeVar("F", bound=Callable[..., Any])

_all: list[Watched] = []


class Watched:
    """Blocks of one kind. While any is open, each framework's ``manager`` is entered."""

    def __init__(self, manager: Callable[[Backend], AbstractContextManager[Any]]) -> None:
        self._manager = manager
        self._lock = RLock()
        self._blocks = 0
        self._entered: dict[Backend, AbstractContextManager[Any]] = {}
        _all.append(self)

    def __contains__(self, owner: Backend) -> bool:
        return owner in self._entered

    def open(self, needed: Backend | None, first: Backend | None = None) -> None:
        """Open a block. With ``first``, only that framework is watched at once.

        Raises an error if the framework ``needed`` has several devices and
        cannot be watched.
        """
        with self._lock:
            self._blocks += 1
            try:
                owners = imported() if first is None else [first]
                for owner in owners:
                    self.watch(owner)
                if needed is not None and needed not in self._entered:
                    self._check_watchable(needed)
            except BaseException:
                self.close()
                raise

    def _check_watchable(self, owner: Backend) -> None:
        """Raise the adapter's error if a framework with several devices cannot be watched."""
        if owner in imported() and _has_several(owner):
            with self._manager(owner):  # some raise it where they are entered
                pass

    def close(self) -> None:
        """Close a block; after the last one nothing is watched."""
        with self._lock:
            self._blocks -= 1
            while not self._blocks and self._entered:
                self._entered.popitem()[1].__exit__(None, None, None)

    def watch(self, owner: Backend) -> None:
        """Watch the framework, if a block is open and its adapter is able to."""
        if not self._blocks:
            return
        if owner in self._entered and is_being_imported(sys.modules.get(owner)):
            return  # the thread that was first may wait for this import
        with self._lock:  # until the thread that was first has entered the manager
            if not self._blocks or owner in self._entered:
                return
            # noted first: the manager loads a capability, which calls this method again
            self._entered[owner] = nullcontext()
            try:
                manager = self._manager(owner)
                manager.__enter__()
            except BaseException as error:
                del self._entered[owner]
                if isinstance(error, (BrokenBackendError, NotSupportedError)):
                    return  # it has one device, or cannot be used
                raise
            self._entered[owner] = manager


def _has_several(owner: Backend) -> bool:
    try:
        return sum(map(owner.hardware.count, owner.hardware.kinds())) > 1
    except (BrokenBackendError, NotSupportedError):
        return False


def _watch_used(owner: Backend) -> None:
    """Watch a framework that is first used while a block is open."""
    for watched in _all:
        watched.watch(owner)


after_loading.append(_watch_used)

_mixing = Watched(lambda owner: owner.mixing.forbid())


class strict:  # noqa: N801  (reads as a verb: `with strict():`)
    """Within a ``with`` block, or a decorated function, no operation may mix devices.

    An operation on tensors of two devices raises `MixedDeviceError`, which
    names the operation and the devices, also under frameworks that otherwise
    copy without an error. This holds for every framework, in the forward and
    the backward pass, and in every thread of the process while a block is open
    anywhere. In threads that cannot be watched, the framework's own error is
    raised. `to_device` and the framework's own functions that copy are
    allowed. A scalar on the CPU counts as a number if the framework treats it
    as one.

    Blocks may be nested and reused. Nothing is watched while no block is open.

    Raises
    ------
    ArgumentTypeError
        The decorated object is not a function.
    NotSupportedError
        On entering: the chosen framework has several devices, and operations cannot be watched.

    Examples
    --------
    >>> import numpy, xdevice
    >>> with xdevice.strict():
    ...     y = numpy.ones(3) + numpy.ones(3)
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _mixing.open(decided())

    def __exit__(self, *error: object) -> None:
        _mixing.close()

    def __call__(self, fn: F) -> F:
        from xdevice.framework.blocks import decorated  # loads `inspect`: only when it is needed

        return decorated(fn, self, "strict()")
