"""``torch.autograd`` on virtual GPUs.

Backward runs in autograd's threads if it has threads for the devices, else in the calling thread.
"""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from xdevice.backends.torch.transfers import WrappedEngine
from xdevice.virtual.torch.private_names import core, names, replace_name, untyped_torch

# in the engine's error if it started before the devices existed
_NO_THREADS = "device_ready_queues_"

_ENGINE = "torch.autograd:Variable._execution_engine"

_variable: Any = untyped_torch.autograd.Variable

pending: Any = threading.local()
"""This thread's exception that was set aside, as its attribute ``error``."""

RunBackward = Callable[[Any], None]
"""Runs backward through one graph with the engine that is its argument."""


def run_in_calling_thread() -> None:
    """Run backward in the calling thread.

    torch has threads for one device only: as many as the guard says that there are devices.
    """
    replace_name(_ENGINE, _OneThreadEngine(_variable._execution_engine))


def prepare(tensors: Sequence[torch.Tensor]) -> None:
    """Check before the first backward whether autograd has threads for the devices.

    There is one tensor on each device. Autograd has no threads for the devices if it started
    before they existed. A backward at this time would start it, and after that torch refuses to
    compute gradients in forked processes.
    """
    # torch 2.11 and 2.12 warn that a stream of one device waits for a stream of another; virtual
    # streams never wait
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    engine = _variable._execution_engine
    if not isinstance(engine, _OneThreadEngine):
        runs = [_empty_backward(tensor) for tensor in tensors]
        replace_name(_ENGINE, _UncheckedEngine(engine, runs))


def _empty_backward(tensor: torch.Tensor) -> RunBackward:
    """A run of backward through a graph of empty tensors on the tensor's device."""
    with torch.inference_mode(False), torch.enable_grad():
        x = tensor.detach()[:0].clone().requires_grad_()
        y = x.clone()
        gradient = x.detach()
    # the gradient is added to x: otherwise the thread would keep a result for Python
    options = {"allow_unreachable": True, "accumulate_grad": True}
    return lambda engine: engine.run_backward((y,), (gradient,), True, False, (), **options)


class _UncheckedEngine(WrappedEngine):
    """The autograd engine before the first backward, which first runs an empty graph.

    The program's own graph is no test: the engine may have run half of it before it needs a thread
    for a device.
    """

    def __init__(self, engine: Any, runs: Sequence[RunBackward]) -> None:
        super().__init__(engine)
        self._runs = runs
        self._lock = threading.Lock()

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if self._runs:
                self._engine = self._checked()
                self._runs = []
            # another engine that wraps this one stays in place
            if _variable._execution_engine is self:
                replace_name(_ENGINE, self._engine)
        return self._engine.run_backward(*args, **kwargs)

    def _checked(self) -> Any:
        # in a new thread, which has none of this thread's modes: a tracer would record the graph
        with ThreadPoolExecutor(1) as executor:
            error = executor.submit(self._runs[-1], self._engine).exception()
        if error is None:
            atexit.register(_wait_for_threads, self._engine, self._runs, os.getpid())
            return self._engine
        if _NO_THREADS not in str(error):
            raise error
        return _OneThreadEngine(self._engine)


def _wait_for_threads(engine: Any, runs: Sequence[RunBackward], process: int) -> None:
    """Run an empty graph on each device, so that its thread has left the previous graph.

    A thread takes the interpreter's lock when it starts, and when it leaves a graph. A thread that
    waits for the lock while the interpreter exits aborts the process: 7 of 40 programs whose last
    line was a backward aborted (torch 2.13).
    """
    if os.getpid() == process:  # a forked process has none of the threads
        for run in runs:
            run(engine)


class _OneThreadEngine(WrappedEngine):
    """The autograd engine, limited to one thread."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        names.require("backward in one thread")
        was_enabled = core._is_multithreading_enabled()
        core._set_multithreading_enabled(False)
        try:
            return self._engine.run_backward(*args, **kwargs)
        except SystemError:  # torch reports a failure without an exception
            if not hasattr(pending, "error"):
                raise
            raise vars(pending).pop("error") from None
        finally:
            core._set_multithreading_enabled(was_enabled)
