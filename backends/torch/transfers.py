"""Copies between devices.

On real GPUs, torch's sync-debug mode warns of the copies for which Python waits.
That a block of forbidden copies turns these warnings into errors has not been
tried on a GPU. A source (`add_source`) reports each copy before it is made.
"""

import linecache
import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import get_ident
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from xdevice.backends.kit import advice, keras
from xdevice.backends.kit.places import CopySources
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.torch.hardware import gpus
from xdevice.backends.torch.private_names import core, names, replace_name, untyped_torch
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device

Function: TypeAlias = Callable[..., Any]
Optimizer: TypeAlias = Any  # of torch or Keras
Place: TypeAlias = Any  # in the program, as `Watcher.here` returns it

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
        caller = sys._getframe(1)  # inspect's is slower
        if copy.kind == "copy" and _is_made_by_autograd(caller):
            copy = copy._replace(kind="gradient")
        backward = _current_backward()
        if backward is not None and backward.thread != get_ident():
            watcher.see(copy, backward.place)
        else:
            watcher.see(copy)

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

    def reporting(apply: Function) -> Function:
        def apply_and_report(optimizer: Optimizer, *args: Any, **kwargs: Any) -> object:
            result = apply(optimizer, *args, **kwargs)
            watcher.stepped(optimizer)
            return result

        return apply_and_report

    def find_keras() -> None:
        if keras_classes:
            return
        module = keras.running_on("torch")
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


@dataclass
class _Backward:
    """A backward pass that is running."""

    thread: int  # the one that has called backward
    place: Place


class _WatchedEngine(WrappedEngine):
    """The autograd engine whose threads know which line of the program has called backward.

    It takes the place of torch's engine. Autograd makes copies in threads of its
    own, in C++. Before a backward pass begins, the engine stores the place of the
    call in the thread's local state, which torch copies to the threads that work
    for it.
    """

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(untyped_torch.autograd.Variable._execution_engine)
        self._watcher: Watcher | None = watcher
        replace_name(_ENGINE, self)

    def run_backward(self, *args: Any, **kwargs: Any) -> object:
        outer = _current_backward()
        is_in_autograds_thread = outer is not None and outer.thread != get_ident()
        if self._watcher is None or is_in_autograds_thread:
            return self._engine.run_backward(*args, **kwargs)
        backward = _Backward(get_ident(), self._watcher.here())
        core._stash_obj_in_tls(_KEY, backward)
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            backward.place = None  # autograd's threads may refer to the object for a moment
            if outer is None and hasattr(core, "_remove_obj_from_tls"):  # new in torch 2.13
                core._remove_obj_from_tls(_KEY)
            else:
                core._stash_obj_in_tls(_KEY, outer)

    def end(self) -> None:
        """Stop watching, and restore torch's engine.

        An engine that has been wrapped around this one stays.
        """
        self._watcher = None
        if untyped_torch.autograd.Variable._execution_engine is self:
            replace_name(_ENGINE, self._engine)


def _is_made_by_autograd(frame: FrameType | None) -> bool:
    """Whether autograd's C++ code makes the copy that this frame reports.

    A function in Python makes it otherwise.
    """
    while frame is not None and _sources.made_in(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame is None or frame.f_code is _WatchedEngine.run_backward.__code__


def _current_backward() -> _Backward | None:
    """The backward pass that this thread works for; ``None`` outside of one."""
    if not core._is_key_in_tls(_KEY):
        return None
    backward: _Backward | None = core._get_obj_in_tls(_KEY)
    return backward


@contextmanager
def _reporting_warnings(see: Callable[[Copy], None]) -> Generator[None]:
    """Report each copy for which Python waits, when torch warns of it. Its size is not known."""
    mode = torch.cuda.get_sync_debug_mode()
    show = warnings.showwarning

    def showwarning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *more: Any,
        **options: Any,
    ) -> None:
        if _SYNCHRONIZING not in str(message):
            show(message, category, filename, lineno, *more, **options)
            return
        line = linecache.getline(filename, lineno)
        kind: Kind = "copy" if _COPIES.search(line) else "number"
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
