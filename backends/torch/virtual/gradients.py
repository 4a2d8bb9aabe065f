"""Backward on virtual GPUs: in one thread, and with a guard that survives a hook which raises."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch

from xdevice.backends.torch.virtual.internals import core

_raise_pending = ctypes.pythonapi.PyErr_Occurred  # ctypes raises, as an exception, what this finds


class _Lost(threading.local):
    error: BaseException | None = None


_lost = _Lost()


class Guard(core._acc.DeviceGuard):  # type: ignore[misc]  # a class of C's, Any to checkers
    """What torch asks which device is meant, and by which it does not tell the devices apart.

    torch asks while an exception of a gradient hook is under way too, in a place where C++ ends the process if
    Python then raises, as it does when a call begins with an exception set. So that is put aside.
    """

    def type_(self) -> Any:
        try:
            _raise_pending()
        except BaseException as error:
            _lost.error = error
        return _PRIVATE


_PRIVATE = core._autograd.DeviceType.PrivateUse1


def compute_here() -> None:
    """Backward runs in the thread that calls it: torch has made a thread for as many devices as the guard says."""
    variable: Any = torch.autograd.Variable
    variable._execution_engine = _Engine(variable._execution_engine)


class _Engine:
    """torch's engine of gradients, kept to one thread."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        before = core._is_multithreading_enabled()
        core._set_multithreading_enabled(False)
        try:
            return self._engine.run_backward(*args, **kwargs)
        except SystemError:  # torch failed without saying why
            lost, _lost.error = _lost.error, None
            if lost is None:
                raise
            raise lost from None
        finally:
            core._set_multithreading_enabled(before)
