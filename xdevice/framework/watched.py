"""What is watched in every framework while a block is open, in those loaded meanwhile too."""

from __future__ import annotations

from _thread import RLock  # threading.RLock, without its 1 ms
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from xdevice.contract import PREPARING
from xdevice.errors import BrokenBackendError, NotSupportedError
from xdevice.framework.adapters import Backend, imported

_all: list[Watched] = []


class Watched:
    """Blocks of one sort: while any is open in the process, ``manager(framework)`` is entered for each framework."""

    def __init__(self, manager: Callable[[Backend], AbstractContextManager[Any]]) -> None:
        self._manager, self._lock, self._blocks = manager, RLock(), 0
        self._entered: dict[Backend, AbstractContextManager[Any]] = {}
        _all.append(self)

    def __contains__(self, owner: Backend) -> bool:
        return owner in self._entered

    def open(self, first: Backend | None = None) -> None:
        """Open a block; only this framework is watched at once, where one is given."""
        with self._lock:
            self._blocks += 1
            try:
                for owner in imported() if first is None else [first]:
                    self.watch(owner)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close a block; after the last one nothing is watched."""
        with self._lock:
            self._blocks -= 1
            while not self._blocks and self._entered:
                self._entered.popitem()[1].__exit__(None, None, None)

    def watch(self, owner: Backend) -> None:
        """Watch the framework, if a block is open and its adapter can."""
        if not self._blocks or owner in self._entered:
            return
        with self._lock:
            if not self._blocks or owner in self._entered:
                return
            try:
                manager = self._manager(owner)
            except (BrokenBackendError, NotSupportedError):
                return  # it has one device, or cannot be used
            self._entered[owner] = manager
            manager.__enter__()

    def check(self, owner: Backend | None) -> None:
        """An error where the framework has several devices, and its adapter cannot watch it."""
        if owner is None or owner in self._entered or owner not in imported():
            return
        try:
            several = sum(map(owner.hardware.count, owner.hardware.kinds())) > 1
        except (BrokenBackendError, NotSupportedError):
            return
        if several:
            self._manager(owner)  # raises the error, with the adapter's reason


def watch_loaded(owner: Backend, capability: str) -> None:
    """Watch a framework that is first used while a block is open."""
    if capability not in PREPARING:
        for watched in _all:
            watched.watch(owner)
