"""``torch.autograd`` on virtual GPUs: backward runs in the thread that calls it.

Beside CUDA, autograd has one thread for each GPU. Virtual GPUs compute on the host's cores, where
the change of threads takes time and gains nothing: up to half of a small training step.
"""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xdevice.backends.torch.transfers import WrappedEngine
from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import replace_name, untyped_torch

# in the engine's error if it started before the devices existed, and has no threads for them
_NO_THREADS = "device_ready_queues_"

_variable: Any = untyped_torch.autograd.Variable

pending: Any = threading.local()
"""This thread's exception that was set aside, as its attribute ``error``."""

RunBackward = Callable[[Any], None]
"""Runs backward through one graph with the engine that is its argument."""


def run_in_calling_thread(tensors: Sequence[torch.Tensor]) -> None:
    """Run backward in the calling thread. There is one tensor on each device.

    The first backward nevertheless starts autograd's threads, for which the program's end waits.
    """
    # torch 2.11 and 2.12 warn that a stream of one device waits for a stream of another; virtual
    # streams never wait
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    engine = _OneThreadEngine(_variable._execution_engine)
    replace_name("torch.autograd:Variable._execution_engine", engine)
    runs = [_empty_backward(tensor) for tensor in tensors]
    atexit.register(_wait_for_threads, engine, runs, os.getpid())


class _OneThreadEngine(WrappedEngine):
    """The autograd engine, limited to the calling thread."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.has_started = False

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        self.has_started = True
        # else the program has disabled threads, or this is a backward inside of another
        has_threads = torch.autograd.is_multithreading_enabled()
        try:
            if not has_threads:
                return self._engine.run_backward(*args, **kwargs)
            with torch.autograd.set_multithreading_enabled(False):
                runtime.in_use().has_thread_of_backward(True)
                return self._engine.run_backward(*args, **kwargs)
        except SystemError:  # torch reports a failure without an exception
            if not hasattr(pending, "error"):
                raise
            raise vars(pending).pop("error") from None
        finally:
            if has_threads:
                runtime.in_use().has_thread_of_backward(False)

    def run_in_threads(self, runs: Sequence[RunBackward]) -> None:
        with torch.autograd.set_multithreading_enabled(True):
            for run in runs:
                run(self._engine)


def _empty_backward(tensor: torch.Tensor) -> RunBackward:
    """A run of backward through a graph of empty tensors on the tensor's device."""
    with torch.inference_mode(False), torch.enable_grad():
        x = tensor.detach()[:0].clone().requires_grad_()
        y = x.clone()
        gradient = x.detach()
    # the gradient is added to x: otherwise the thread would keep a result for Python
    options = {"allow_unreachable": True, "accumulate_grad": True}
    return lambda engine: engine.run_backward((y,), (gradient,), True, False, (), **options)


def _wait_for_threads(engine: _OneThreadEngine, runs: Sequence[RunBackward], process: int) -> None:
    """Run an empty graph in autograd's thread for each device, so that the thread has started.

    A thread takes the interpreter's lock when it starts. A thread that waits for the lock while the
    interpreter exits aborts the process: 7 of 40 programs whose last line was a backward aborted
    (torch 2.13).
    """
    # a forked process has none of the threads
    if not engine.has_started or os.getpid() != process:
        return
    try:
        engine.run_in_threads(runs)
    except RuntimeError as error:
        if _NO_THREADS not in str(error):
            raise
