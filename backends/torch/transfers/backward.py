"""Copies in the backward pass: autograd's threads make them for the thread that called backward."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any

from xdevice.backends.torch.private_names import core, own, replace_name
from xdevice.backends.torch.virtual.torch_parts.backward import Wrapped
from xdevice.contract import Watcher

_ENGINE = "torch.autograd:Variable._execution_engine"
_KEY = "xdevice.transfers"
"""In the state of a thread that torch gives to those that work for it."""


class _Caller:
    """Who calls backward: the thread, and its place in the program while it waits."""

    def __init__(self, here: Any) -> None:
        self.thread, self.here = get_ident(), here


class _Watched(Wrapped):
    """The autograd engine, whose threads know for which place in the program they work."""

    def __init__(self, engine: Any, watcher: Watcher) -> None:
        super().__init__(engine)
        self._watcher: Watcher | None = watcher

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        if self._watcher is None:
            return self._engine.run_backward(*args, **kwargs)
        outer = _stashed()
        if outer is not None and outer.thread != get_ident():  # a backward within a thread of another
            return self._engine.run_backward(*args, **kwargs)
        place = _Caller(self._watcher.here())
        core._stash_obj_in_tls(_KEY, place)
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            place.here = None  # autograd's threads may keep the rest for a moment
            if outer is None and hasattr(core, "_remove_obj_from_tls"):  # new in torch 2.13
                core._remove_obj_from_tls(_KEY)
            else:
                core._stash_obj_in_tls(_KEY, outer)

    def end(self) -> None:
        """Watch no more, where another has been wrapped around it."""
        self._watcher = None
        if own.autograd.Variable._execution_engine is self:
            replace_name(_ENGINE, self._engine)


@contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Remember who calls backward."""
    engine = _Watched(own.autograd.Variable._execution_engine, watcher)
    replace_name(_ENGINE, engine)
    try:
        yield
    finally:
        engine.end()


def caller() -> Any:
    """The place for which this thread of autograd's works; ``None`` in a thread of the program."""
    stashed = _stashed()
    return None if stashed is None or stashed.thread == get_ident() else stashed.here


def is_autograds(frame: FrameType | None) -> bool:
    """Whether autograd itself makes the copy for which this frame was called, and no function in Python."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("xdevice.backends.torch.virtual"):
        frame = frame.f_back
    return frame is None or frame.f_code is _Watched.run_backward.__code__


def _stashed() -> _Caller | None:
    return core._get_obj_in_tls(_KEY) if core._is_key_in_tls(_KEY) else None
