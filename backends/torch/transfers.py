"""Copies between devices, as torch lets them be seen; and copies beside computing.

On real GPUs torch's sync-debug mode warns of the copies for which Python waits, and a warning may become an error:
untried. A source that is added (`add_source`) tells of each copy before it is made.
"""

import linecache
import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from threading import get_ident
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from xdevice.backends.torch.hardware import gpus
from xdevice.backends.torch.private_names import core, names, own, replace_name
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device
from xdevice.kit import advice, keras
from xdevice.kit.places import CopySources
from xdevice.kit.private_names import replaced

_ENGINE = "torch.autograd:Variable._execution_engine"
_KEY = "xdevice.transfers"  # in the state of a thread that torch gives to those that work for it

_SYNCHRONIZING = "called a synchronizing CUDA operation"
_COPIES = re.compile(r"\.(?:to|cuda|cpu|copy_|load_state_dict)\(")

_sources = CopySources()
add_source = _sources.add


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")

    def see(copy: Copy) -> None:
        find_keras()  # which may be imported later
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # inspect's is slower
        if copy.kind == "copy" and _is_autograds(caller):
            copy = copy._replace(kind="gradient")
        stashed = _stashed()  # in a thread of autograd's, for which place it works
        watcher.see(
            copy, None if stashed is None or stashed.thread == get_ident() else stashed.here
        )

    with ExitStack() as stack:
        find_keras = _tell_of_steps(watcher, stack)
        stack.callback(_Watched(watcher).end)
        stack.enter_context(_sources.watching(see, watcher))
        if gpus()[0] == "cuda" and gpus()[1] and not _sources:
            stack.enter_context(_warned(see))
        yield


def unseen() -> Iterable[str]:
    kind, number = gpus()
    if _sources:
        yield "copies within one CUDA operation that torch's operator tags do not mark"
    elif kind == "cuda" and number:
        yield "on real GPUs, copies for which Python does not wait, and the size of the others"
    elif number:
        yield f"copies on {kind}, which torch does not report"


def words() -> Mapping[str, str]:
    return advice.read(__file__)


def _tell_of_steps(watcher: Watcher, stack: ExitStack) -> Callable[[], None]:
    """Tell of the steps of torch's optimizers, and of Keras's once the function that comes back finds it on torch."""
    hook = register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: watcher.stepped(optimizer)
    )
    stack.callback(hook.remove)
    homes: list[type] = []

    def telling(apply: Callable[..., Any]) -> Callable[..., Any]:
        def applied(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply(optimizer, *args, **kwargs)
            watcher.stepped(optimizer)
            return result

        return applied

    def find_keras() -> None:
        module = None if homes else keras.running_on("torch")
        if module is not None:
            homes.extend(cls for cls in module.optimizers.Optimizer.__mro__ if "apply" in vars(cls))
            stack.enter_context(replaced(homes[0], "apply", telling))

    find_keras()
    return find_keras


class WrappedEngine:
    """The autograd engine, to be run in another way."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class _Watched(WrappedEngine):
    """The autograd engine, whose threads know for which place in the program they work; it takes the other's place."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(own.autograd.Variable._execution_engine)
        self._watcher: Watcher | None = watcher
        replace_name(_ENGINE, self)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        outer = _stashed()
        if self._watcher is None or (outer is not None and outer.thread != get_ident()):
            return self._engine.run_backward(
                *args, **kwargs
            )  # not watched, or within a thread of another backward
        place = SimpleNamespace(thread=get_ident(), here=self._watcher.here())
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


def _is_autograds(frame: FrameType | None) -> bool:
    """Whether autograd itself makes the copy for which this frame was called, and no function in Python."""
    while frame is not None and _sources.made_in(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame is None or frame.f_code is _Watched.run_backward.__code__


def _stashed() -> Any:
    """Who calls backward: the thread, and its place in the program while it waits; ``None`` outside of any."""
    return core._get_obj_in_tls(_KEY) if core._is_key_in_tls(_KEY) else None


@contextmanager
def _warned(see: Callable[[Copy], None]) -> Generator[None]:
    """Tell of each copy for which Python waits, once torch warns of it: its size is not known."""
    mode, show = torch.cuda.get_sync_debug_mode(), warnings.showwarning

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, *rest: Any, **options: Any
    ) -> None:
        if _SYNCHRONIZING not in str(message):
            show(message, category, filename, lineno, *rest, **options)
            return
        kind: Kind = "copy" if _COPIES.search(linecache.getline(filename, lineno)) else "number"
        see(
            Copy(
                kind,
                "cudaStreamSynchronize",
                0,
                Device("gpu", torch.cuda.current_device()),
                Device("cpu", 0),
            )
        )

    with warnings.catch_warnings():
        warnings.filterwarnings("always", _SYNCHRONIZING)
        warnings.showwarning = showwarning
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)
