"""Copies between devices.

On real GPUs torch's sync-debug mode warns of the copies for which Python waits. That a block of
forbidden copies turns these warnings into errors has not been tried on a GPU. A source
(`add_source`) reports each copy before it is made.
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
_KEY = "xdevice.transfers"  # of thread-local state, which torch copies to autograd's threads

_SYNCHRONIZING = "called a synchronizing CUDA operation"
_COPIES = re.compile(r"\.(?:to|cuda|cpu|copy_|load_state_dict)\(")

_sources = CopySources()
add_source = _sources.add


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")

    def see(copy: Copy) -> None:
        find_keras()  # Keras may be imported within the block
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # inspect's is slower
        if copy.kind == "copy" and _is_made_by_autograd(caller):
            copy = copy._replace(kind="gradient")
        backward = _current_backward()
        is_elsewhere = backward is not None and backward.thread != get_ident()
        watcher.see(copy, backward.here if is_elsewhere else None)

    with ExitStack() as stack:
        find_keras = _report_steps(watcher, stack)
        stack.callback(_WatchedEngine(watcher).end)
        stack.enter_context(_sources.watching(see, watcher))
        if gpus()[0] == "cuda" and gpus()[1] and not _sources:
            stack.enter_context(_reporting_warnings(see))
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


def _report_steps(watcher: Watcher, stack: ExitStack) -> Callable[[], None]:
    """Report the steps of torch's optimizers, and of Keras's.

    The function that is returned looks for Keras on torch, if it has not been found yet.
    """
    hook = register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: watcher.stepped(optimizer)
    )
    stack.callback(hook.remove)
    keras_classes: list[type] = []

    def reporting(apply: Callable[..., Any]) -> Callable[..., Any]:
        def apply_and_report(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply(optimizer, *args, **kwargs)
            watcher.stepped(optimizer)
            return result

        return apply_and_report

    def find_keras() -> None:
        module = None if keras_classes else keras.running_on("torch")
        if module is not None:
            bases = module.optimizers.Optimizer.__mro__
            keras_classes.extend(cls for cls in bases if "apply" in vars(cls))
            stack.enter_context(replaced(keras_classes[0], "apply", reporting))

    find_keras()
    return find_keras


class WrappedEngine:
    """The autograd engine; a subclass runs it in another way."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class _WatchedEngine(WrappedEngine):
    """The autograd engine whose threads know which line of the program has called backward.

    It takes the place of the engine that torch has.
    """

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(own.autograd.Variable._execution_engine)
        self._watcher: Watcher | None = watcher
        replace_name(_ENGINE, self)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        outer = _current_backward()
        is_in_autograds_thread = outer is not None and outer.thread != get_ident()
        if self._watcher is None or is_in_autograds_thread:
            return self._engine.run_backward(*args, **kwargs)
        backward = SimpleNamespace(thread=get_ident(), here=self._watcher.here())
        core._stash_obj_in_tls(_KEY, backward)
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            backward.here = None  # autograd's threads may refer to the object for a moment
            if outer is None and hasattr(core, "_remove_obj_from_tls"):  # new in torch 2.13
                core._remove_obj_from_tls(_KEY)
            else:
                core._stash_obj_in_tls(_KEY, outer)

    def end(self) -> None:
        """Stop watching, and restore torch's engine unless another has been wrapped around this one."""
        self._watcher = None
        if own.autograd.Variable._execution_engine is self:
            replace_name(_ENGINE, self._engine)


def _is_made_by_autograd(frame: FrameType | None) -> bool:
    """Whether autograd's C++ code makes the copy that this frame reports, and not a function in Python."""
    while frame is not None and _sources.made_in(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame is None or frame.f_code is _WatchedEngine.run_backward.__code__


def _current_backward() -> Any:
    """The thread that has called backward, and its place in the program; ``None`` outside of backward."""
    return core._get_obj_in_tls(_KEY) if core._is_key_in_tls(_KEY) else None


@contextmanager
def _reporting_warnings(see: Callable[[Copy], None]) -> Generator[None]:
    """Report each copy for which Python waits, when torch warns of it. Its size is not known."""
    mode = torch.cuda.get_sync_debug_mode()
    show = warnings.showwarning

    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, *rest: Any, **options: Any
    ) -> None:
        if _SYNCHRONIZING not in str(message):
            show(message, category, filename, lineno, *rest, **options)
            return
        kind: Kind = "copy" if _COPIES.search(linecache.getline(filename, lineno)) else "number"
        gpu = Device("gpu", torch.cuda.current_device())
        see(Copy(kind, "cudaStreamSynchronize", 0, gpu, Device("cpu", 0)))

    with warnings.catch_warnings():
        warnings.filterwarnings("always", _SYNCHRONIZING)
        warnings.showwarning = showwarning
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)
