"""What a program had allocated when it had allocated the most, by kind and by its lines.

The plug-in records each block with the number of the line that allocated it
(compiled/peak_record.h). Here blocks are marked as weights, gradients and the
state of optimizers: before and after each step of an optimizer, when the
memory grows, and at the end. A block that is marked late is of that kind at
the peak, too.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import nn

from xdevice.contract import MemoryPart, MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.transfers.callers import is_users
from xdevice.virtual.fits import process as fits_process
from xdevice.virtual.host_memory import HostMemory
from xdevice.virtual.torch import compile
from xdevice.virtual.torch.compiled import LINE_OF, compiled
from xdevice.virtual.torch.distributed import communicators
from xdevice.virtual.torch.private_names import core, kernels_of, names, storage_of, untraced

_KINDS = ("other", "weights", "gradients", "optimizer state", "workspaces")
"""The kinds of blocks, in the order of ``Kind`` in peak_record.h."""

_TEMPORARY = (
    "",
    "sorting",
    "sorting indices",
    "Fourier transforms",
    "linear algebra",
    "convolutions",
)
_CONVOLUTIONS = _TEMPORARY.index("convolutions")
"""What needs temporary memory, in the order of ``Plan::Temporary`` in plan.h."""

_Optimizer = torch.optim.Optimizer
_WEIGHTS, _GRADIENTS, _OPTIMIZER = 1, 2, 3
_HOST_IS_FULL = -1
_GROWTH = 1.02  # how much the memory grows until weights are looked for again
_BACKWARD = ("_engine_run_backward", "backward")


_CONVOLUTION = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
"""Modules whose kernels need more temporary memory than others."""


_GRAPHS = "torch.compile would use CUDA's graphs in this mode, whose memory is not measured"


class _Line(NamedTuple):
    """A line of the program that allocated, and what it was doing."""

    file: str
    number: int
    phase: str
    library: str = ""  # the file of another library than torch that it called, the innermost
    library_line: int = 0


class _Recorder:
    def __init__(self, stop_after: int | None, computes: bool) -> None:
        self.stop_after = stop_after
        self.computes = computes
        self.steps: dict[int, int] = {}  # by the id of the optimizer
        self.float32_weights = 0
        self.uses_autocast = False
        self.host_shortage = ""
        self.kernels: set[str] = set()
        self._has_depthwise = self._has_pointwise = False  # modules of these convolutions
        # The lines that read values that were not computed, in order.
        self.reads: dict[tuple[str, int, bool], None] = {}
        self.undecided = ""
        self._host = HostMemory(_allocated)
        self._lines: dict[_Line, int] = {}
        self._marked_at: dict[int, float] = {}  # by device: the memory when weights were marked
        self._modules: WeakSet[torch.nn.Module] = WeakSet()
        self._steps_begun = 0
        self._steps_at_stop: int | None = None
        self._is_marking = False
        self.line_of: Any = LINE_OF(self._line_of)  # kept alive for the plug-in

    def begin(self, soft_limit: int) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer

        module.register_module_parameter_registration_hook(self._register)
        module.register_module_buffer_registration_hook(self._register)
        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)
        compiled().record_peaks(self.line_of, soft_limit)
        if not self.computes:
            names.value("torch._meta_registrations:register_meta")  # with it, kernels are imported
            kernels_of("xdevice_virtual").impl("read_without_values", untraced(self._read), "CPU")
            compiled().stop_computing()

    def result(self) -> MemoryUse:
        self._mark_weights()
        lines = list(self._lines)
        peaks = [self._peak(index, lines) for index in range(compiled().visible())]
        if self._has_depthwise and self._has_pointwise:
            self.kernels.add("depthwise and pointwise convolutions")
        if compile.use.anything:
            self.kernels.add("functions that torch.compile compiles")
        return MemoryUse(
            tuple(peaks),
            self._fewest_steps(),
            self.float32_weights,
            self.uses_autocast,
            self.host_shortage,
            tuple(sorted(self.kernels)),
            unmeasured=_GRAPHS if compile.use.with_graphs else "",
            gpus=compiled().visible_indices(),
            reads=tuple(self.reads),
            undecided=self.undecided,
        )

    def _fewest_steps(self) -> int | None:
        """The steps of the optimizer that has made the fewest, of those that still exist.

        The state of one that has made none is not allocated yet. ``None``: there was no optimizer.
        """
        kept = self._steps_at_stop
        if kept is not None:
            return kept
        optimizers = [each for each in gc.get_objects() if issubclass(type(each), _Optimizer)]
        steps = [self.steps.get(id(each), 0) for each in optimizers if _is_on_gpu(each)]
        return min(steps or self.steps.values(), default=None)

    def _peak(self, index: int, lines: list[_Line]) -> PeakMemory:
        first, *rows = compiled().peak_record(index).value.decode().splitlines()
        numbers = map(int, first.split())
        unlimited, allocated, reserved, last, with_temporary, temporary, kinds = numbers
        if kinds & 1 << _CONVOLUTIONS:
            self.kernels.add("convolutions")
        line = lines[last] if allocated else _Line("", 0, "")
        parts: list[MemoryPart] = []
        for row in rows:
            kind, number, nbytes, _ = map(int, row.split())
            at = lines[number]
            part = MemoryPart(_KINDS[kind], at.file, at.number, nbytes, at.library, at.library_line)
            parts.append(part)
        device = Device("gpu", index)
        return PeakMemory(
            device,
            allocated,
            reserved,
            line.file,
            line.number,
            line.phase,
            _merged(parts),
            with_temporary=with_temporary,
            temporary=_TEMPORARY[temporary],
            libraries=communicators.most_bytes(index),
            unlimited=unlimited,
        )

    # What the plug-in calls

    def _line_of(self, index: int, nbytes: int) -> int:
        """The number of the program's line that allocates these bytes."""
        allocated = compiled().allocated(index)
        shortage = self._host.shortage(nbytes) if self.computes else ""
        if shortage:
            self.host_shortage = shortage
            return _HOST_IS_FULL
        if allocated + nbytes > self._marked_at.get(index, 1 << 20) * _GROWTH:
            self._marked_at[index] = allocated + nbytes
            self._mark_weights()
        line = self._current_line()
        return self._lines.setdefault(line, len(self._lines))

    def _read(self, operation: str, decides: bool, is_integer: bool) -> None:
        """Note that the program reads values that were not computed; end it if they decide."""
        line = self._current_line()
        if not decides:
            self.reads[line.file, line.number, is_integer] = None
            return
        where = f"{os.path.basename(line.file)}:{line.number}" if line.file else "the backward pass"
        is_number = operation == "aten::_local_scalar_dense"
        what = "truth value of a tensor" if is_number else f"values for {operation}"
        self.undecided = f"{where} needs the {what}"
        fits_process.stop()

    def _current_line(self) -> _Line:
        frame: FrameType | None = sys._getframe(2)
        is_in_backward = False
        library = "", 0
        while frame is not None:
            code = frame.f_code
            if is_users(code.co_filename):
                phase = self._phase(is_in_backward)
                return _Line(code.co_filename, frame.f_lineno, phase, *library)
            if not library[0] and _is_of_another_library(code.co_filename):
                library = code.co_filename, frame.f_lineno
            is_in_backward = is_in_backward or code.co_name in _BACKWARD
            frame = frame.f_back
        return _Line("", 0, self._phase(is_in_backward))

    def _phase(self, is_in_backward: bool) -> str:
        if torch.is_autocast_enabled("cuda"):
            self.uses_autocast = True
        if is_in_backward:
            return "backward"
        if self._steps_begun:
            return "step"
        return "forward" if torch.is_grad_enabled() else "no_grad"

    # What torch calls

    def _register(self, module: torch.nn.Module, name: str, value: object) -> None:
        self._modules.add(module)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        self._mark_optimizer(optimizer)
        self._steps_begun += 1

    def _after_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        self._steps_begun -= 1
        self._mark_optimizer(optimizer)
        number = self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
        if number == self.stop_after:
            self._steps_at_stop = self._fewest_steps()  # while the program's optimizers exist
            fits_process.stop()

    # Marks

    def _mark_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        groups: list[dict[str, Any]] = optimizer.param_groups
        with core.DisableTorchFunction():
            for group in groups:
                for parameter in group["params"]:
                    _mark(parameter, _WEIGHTS)
                    _mark(parameter.grad, _GRADIENTS)
            for state in optimizer.state.values():
                for value in state.values():
                    _mark(value, _OPTIMIZER)

    def _mark_weights(self) -> None:
        """Mark what the modules of the program contain."""
        if self._is_marking:
            return
        self._is_marking = True
        float32 = 0
        with core.DisableTorchFunction():
            for tensor in self._weights():
                _mark(tensor, _WEIGHTS)
                if tensor.is_leaf:
                    _mark(tensor.grad, _GRADIENTS)
                if tensor.is_cuda and tensor.dtype is torch.float32:
                    float32 += tensor.nbytes
        self.float32_weights = max(self.float32_weights, float32)
        self._is_marking = False

    def _weights(self) -> Iterator[torch.Tensor]:
        seen: set[int] = set()
        for module in list(self._modules):
            if isinstance(module, _RECURRENT):
                self.kernels.add("recurrent layers")
            if isinstance(module, _CONVOLUTION):
                self.kernels.add("convolutions")
                self._has_depthwise |= module.groups == module.in_channels > 1
                self._has_pointwise |= max(module.kernel_size) == module.groups == 1
            for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False)):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor


def _is_on_gpu(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer updates tensors on a GPU; not if it only wraps another one."""
    groups: list[dict[str, Any]] = vars(optimizer).get("param_groups", [])
    return any(parameter.is_cuda for group in groups for parameter in group["params"])


def _mark(value: object, kind: int) -> None:
    local = getattr(value, "_local_tensor", value)  # a DTensor's
    if not isinstance(local, torch.Tensor) or not local.is_cuda:
        return
    with suppress(NotImplementedError):  # some subclasses have no storage
        compiled().mark(storage_of(local)._cdata, kind)


def _allocated() -> int:
    """The bytes allocated on all virtual GPUs."""
    return sum(map(compiled().allocated, range(compiled().visible())))


@cache
def _is_of_another_library(file: str) -> bool:
    """Whether the file belongs to an installed package other than torch and xdevice."""
    is_installed = "site-packages" in file or "dist-packages" in file
    return is_installed and not file.startswith(_FOLDERS)


_FOLDERS = (
    os.path.dirname(torch.__file__) + os.sep,
    str(Path(__file__).parents[3]) + os.sep,
)
"""The folders of torch, and of xdevice when it is installed."""


def _merged(parts: list[MemoryPart]) -> tuple[MemoryPart, ...]:
    """The parts with the same kind and lines as one, the largest first."""
    sums: dict[MemoryPart, int] = {}
    for part in parts:
        key = part._replace(nbytes=0)
        sums[key] = sums.get(key, 0) + part.nbytes
    merged = [key._replace(nbytes=nbytes) for key, nbytes in sums.items()]
    return tuple(sorted(merged, key=lambda part: -part.nbytes))


_recorder: _Recorder | None = None


def measure(soft_limit: int, stop_after: int | None, computes: bool, totals: Any) -> None:
    global _recorder
    if _recorder is None:
        _recorder = _Recorder(stop_after, computes)
        _recorder.begin(soft_limit)
    compiled().share_peaks(totals)


def result() -> MemoryUse:
    assert _recorder is not None, "nothing has been measured"
    if compiled().is_forked():  # the process that forked this one has used the GPUs
        return MemoryUse((), None)
    return _recorder.result()
