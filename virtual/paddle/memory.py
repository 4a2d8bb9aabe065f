"""The memory that a program needs on virtual GPUs that stand in, for ``xdevice fits``.

The plug-in counts what PaddlePaddle's allocator, which is that of GPUs, has reserved. That may be
more than on a GPU: an operation in place writes to new memory here. What a GPU needs at least is
therefore taken from the tensors that exist when a layer returns, when a backward pass begins, and
before and after a step of an optimizer.
"""

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import paddle
from paddle.base import core as _core

from xdevice.backends.paddle import hardware
from xdevice.contract import MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.virtual import fits_process
from xdevice.virtual.fits_lines import line_of_program
from xdevice.virtual.paddle import library, stand_in
from xdevice.virtual.paddle.private_names import Function, in_place_of, names

core: Any = _core
_Optimizer: Any = paddle.optimizer.Optimizer
_MARGIN = 0.2
_SOURCE = "an assumption: no recording under PaddlePaddle was found"
_CONVOLUTIONS = (
    "conv2d",
    "conv3d",
    "depthwise_conv2d",
    "conv2d_transpose",
    "conv3d_transpose",
    "depthwise_conv2d_transpose",
)
_WORKSPACE = "FLAGS_conv_workspace_size_limit"  # in MiB
_STEPS = ("Optimizer.step", "Optimizer.minimize", "Adam.step", "AdamW.step", "LBFGS.step")
_GRAPHS = {
    "paddle._C_ops:run_program": "the program ran a function of paddle.jit",
    "paddle._legacy_C_ops:run_program": "the program ran a function of paddle.jit",
    "paddle.static:Executor.run": "the program ran a static graph",
}
_COMMUNICATOR = 2 << 30  # of NCCL, for each process group; see virtual/torch/distributed


class _Step(threading.local):
    """Whether this thread runs a step of an optimizer."""

    is_running = False


class _Recorder:
    def __init__(self, stop_after: int | None, totals: Any) -> None:
        self.stop_after = stop_after
        self._totals = totals  # what a process surely needs, for the case that it is killed
        self.steps: dict[int, int] = {}  # by the id of the optimizer
        self.unmeasured = ""
        self.workspace = 0  # the most bytes of the temporary memory of convolutions
        self._count = hardware.count("gpu")
        # the most bytes that were reserved, which the plug-in writes
        self._reserved = (ctypes.c_int64 * self._count)()
        self._live = [0] * self._count  # the most bytes of tensors, for each GPU
        self._peaks = [0] * self._count  # the most bytes allocated
        self._lines = [("", 0)] * self._count
        self._phases = [""] * self._count
        self._step = _Step()
        self._steps_at_stop: int | None = None

    def begin(self, soft_limit: int) -> None:
        library().MeasureMemory(ctypes.c_size_t(soft_limit), self._reserved)
        in_place_of("paddle.nn:Layer.__call__")(self._call_layer)
        in_place_of("paddle.base.core:eager.run_backward")(self._run_backward)
        in_place_of("paddle.base.core:device_memory_stat_reset_peak_value")(self._reset_peak)
        for name in _STEPS:
            in_place_of(f"paddle.optimizer:{name}")(self._run_step)
        for path, words in _GRAPHS.items():
            in_place_of(path)(self._note_graph(words))
        for name in _CONVOLUTIONS:
            in_place_of(f"paddle._C_ops:{name}")(self._convolve)

    def result(self) -> MemoryUse:
        self._look("")
        library().MeasureMemory(ctypes.c_size_t(0), None)  # what follows is not the program's
        peaks = [self._peak(index, self._reserved[index]) for index in range(self._count)]
        return MemoryUse(
            tuple(peaks),
            self._fewest_steps(),
            margin=_MARGIN,
            source=_SOURCE,
            unmeasured=self.unmeasured,
        )

    def _peak(self, index: int, reserved: int) -> PeakMemory:
        file, line = self._lines[index]
        workspace = self.workspace if reserved else 0
        return PeakMemory(
            Device("gpu", index),
            self._peaks[index],
            reserved,
            file,
            line,
            self._phases[index],
            (),
            certain=self._live[index],
            with_temporary=reserved + workspace if workspace else 0,
            temporary="convolutions" if workspace else "",
            libraries=_most_of_nccl() if reserved else 0,
        )

    def _look(self, phase: str) -> None:
        """Note the tensors that exist now, and the phase and the line if a new peak was reached."""
        for index in range(self._count):
            live = core.device_memory_stat_current_value("Allocated", index)
            peak = core.device_memory_stat_peak_value("Allocated", index)
            if live > self._live[index]:
                self._live[index] = self._totals[index] = live
            if peak > self._peaks[index]:
                self._peaks[index] = peak
                self._lines[index] = line_of_program()
                self._phases[index] = phase

    def _fewest_steps(self) -> int:
        """The steps of the optimizer that has made the fewest, of those that still exist."""
        if self._steps_at_stop is not None:
            return self._steps_at_stop
        optimizers = [each for each in gc.get_objects() if issubclass(type(each), _Optimizer)]
        with_weights = [each for each in optimizers if vars(each).get("_parameter_list")]
        steps = [self.steps.get(id(each), 0) for each in with_weights]
        return min(steps or self.steps.values(), default=0)

    # In place of PaddlePaddle's functions

    def _call_layer(self, native: Function, *args: Any, **kwargs: Any) -> Any:
        returned = native(*args, **kwargs)
        self._look("forward" if paddle.is_grad_enabled() else "no_grad")
        return returned

    def _run_backward(self, native: Function, *args: Any, **kwargs: Any) -> Any:
        self._look("forward")
        returned = native(*args, **kwargs)
        self._look("backward")
        return returned

    def _reset_peak(self, native: Function, *args: Any) -> Any:
        self._look("")
        return native(*args)

    def _run_step(self, native: Function, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._step.is_running or not paddle.in_dynamic_mode():
            return native(optimizer, *args, **kwargs)
        self._look("forward" if paddle.is_grad_enabled() else "no_grad")
        self._step.is_running = True
        try:
            returned = native(optimizer, *args, **kwargs)
        finally:
            self._step.is_running = False
        self._look("step")
        number = self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
        if number == self.stop_after:
            self._steps_at_stop = self._fewest_steps()  # while the program's optimizers exist
            fits_process.stop()
        return returned

    def _note_graph(self, words: str) -> Callable[..., Any]:
        def run(native: Function, *args: Any, **kwargs: Any) -> Any:
            self.unmeasured = f"{words}, which virtual GPUs compute in memory that is not counted"
            return native(*args, **kwargs)

        return run

    def _convolve(self, native: Function, *args: Any, **kwargs: Any) -> Any:
        limit = paddle.get_flags(_WORKSPACE)[_WORKSPACE]
        self.workspace = max(self.workspace, int(limit) << 20)
        return native(*args, **kwargs)


def _most_of_nccl() -> int:
    """The most bytes that NCCL's communicators may have allocated on a GPU."""
    return _COMMUNICATOR * sum(size > 1 for size in stand_in.sizes_of_groups)


_recorder: _Recorder | None = None
_measured_in = 0  # the process that the recorder belongs to


def measure(soft_limit: int, stop_after: int | None, totals: Any) -> None:
    global _recorder, _measured_in
    if _recorder is None:
        names.check("MEASURED")
        _recorder = _Recorder(stop_after, totals)
        _recorder.begin(soft_limit)
        _measured_in = os.getpid()
    elif os.getpid() != _measured_in:  # a fork, which cannot use CUDA
        for index in range(hardware.count("gpu")):
            totals[index] = 0


def use() -> MemoryUse:
    assert _recorder is not None, "nothing has been measured"
    if os.getpid() != _measured_in:  # the process that forked this one has used the GPUs
        return MemoryUse((), None)
    return _recorder.result()
