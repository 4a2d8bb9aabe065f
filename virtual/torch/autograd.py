"""``torch.autograd`` on virtual GPUs: backward runs in its threads if it has some for them, else in the calling one."""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from xdevice.backends.torch.transfers import WrappedEngine
from xdevice.virtual.torch.private_names import core, names, own, replace_name

_NO_THREADS = (
    "device_ready_queues_"  # in the engine's error, where it started before the devices were there
)
_ENGINE = "torch.autograd:Variable._execution_engine"


_autograd: Any = own.autograd.Variable
lost: Any = threading.local()  # its `error`, where one was set aside


def compute_here() -> None:
    """Run backward in the calling thread: torch has threads for one device only, the number that the guard reports."""
    replace_name(_ENGINE, _Engine(_autograd._execution_engine))


def prepare(on_each: Sequence[torch.Tensor]) -> None:
    """Find out before the first backward whether autograd has threads for the devices, on each of which is a tensor.

    It has none if it started before they were there. A backward now would tell, but starts it, and then torch refuses
    to compute gradients in forked processes.
    """
    # torch 2.11 and 2.12 compare streams of two devices, and warn that one waits for the other; virtual ones never do
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    engine = _autograd._execution_engine
    if not isinstance(engine, _Engine):
        replace_name(_ENGINE, _Unproved(engine, [_graph(x) for x in on_each]))


def _graph(on: torch.Tensor) -> Callable[[Any], None]:
    """An engine's run of a graph on that device: it computes nothing, and a thread keeps nothing that Python made."""
    with torch.inference_mode(False), torch.enable_grad():
        x = on.detach()[:0].clone().requires_grad_()
        y, gradient = x.clone(), x.detach()
    wanted = {
        "allow_unreachable": True,
        "accumulate_grad": True,
    }  # into x: results would be kept for Python
    return lambda engine: engine.run_backward((y,), (gradient,), True, False, (), **wanted)


class _Unproved(WrappedEngine):
    """The autograd engine until its first backward, before which it goes through a graph that computes nothing.

    The program's own graph would not do: the engine may be half through it before it needs a thread for a device.
    """

    def __init__(self, engine: Any, graphs: Sequence[Callable[[Any], None]]) -> None:
        super().__init__(engine)
        self._graphs, self._lock = graphs, threading.Lock()

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if self._graphs:
                self._engine, self._graphs = self._proved(), []
            if (
                _autograd._execution_engine is self
            ):  # and not within another that has been wrapped around it
                replace_name(_ENGINE, self._engine)
        return self._engine.run_backward(*args, **kwargs)

    def _proved(self) -> Any:
        with ThreadPoolExecutor(
            1
        ) as apart:  # without this thread's modes: a tracer would record the graph, or fail
            error = apart.submit(self._graphs[-1], self._engine).exception()
        if error is None:
            atexit.register(_wait, self._engine, self._graphs, os.getpid())
            return self._engine
        if _NO_THREADS not in str(error):
            raise error
        return _Engine(self._engine)


def _wait(engine: Any, graphs: Sequence[Callable[[Any], None]], process: int) -> None:
    """Wait until each device's thread has left what it did before: it goes through the graphs in turn.

    A thread begins, and leaves a graph, with the interpreter's lock. Where it waits for that while the interpreter
    ends, the process is aborted: 7 of 40 programs whose last line was a backward aborted (torch 2.13).
    """
    if os.getpid() == process:  # a forked process has none of the threads
        for graph in graphs:
            graph(engine)


class _Engine(WrappedEngine):
    """The autograd engine, limited to one thread."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        names.require("backward in one thread")
        before = core._is_multithreading_enabled()
        core._set_multithreading_enabled(False)
        try:
            return self._engine.run_backward(*args, **kwargs)
        except SystemError:  # torch reports a failure without an exception
            if not hasattr(lost, "error"):
                raise
            raise vars(lost).pop("error") from None
        finally:
            core._set_multithreading_enabled(before)
