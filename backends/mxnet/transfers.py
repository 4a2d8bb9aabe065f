"""Copies between MXNet's devices.

They are made by calls of its library that send and fetch arrays, and by operators that copy.

A number as an operand (``x + 1``, ``x[0] = 3.``) is an argument of the operator's kernel, not a
copy. The library itself makes the copies of a backward pass: one for each recorded copy, in the
other direction.
"""

import ctypes
import math
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, base

from xdevice.backends.kit import advice
from xdevice.backends.kit.marks import mark
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.mxnet import mixing, placement
from xdevice.backends.mxnet.mixing import Arguments, Function, Handle
from xdevice.backends.mxnet.private_names import names
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device

_base: Any = base
_library: Any = _base._LIB
_ndarray: Any = mx.nd.ndarray
_HOST = Device("cpu", 0)
_RECORDED_COPY = '"op": "_copyto"'  # in the JSON of a graph
_COUNT_BYTES = 4  # a count is an int32
_FETCHING = {
    "MXNDArraySyncCopyToCPU": "asnumpy",
    "MXNDArraySaveRawBytes": "pickle",
    "MXNDArraySave": "save",
}
"""Functions that copy an array to the host, with their names in reports."""
# Operators that first fetch a count, which gives the size of their result, or of their work
_COUNTING = {
    "_contrib_boolean_mask",
    "_npi_bincount",
    "_npi_boolean_mask_assign_scalar",
    "_npi_boolean_mask_assign_tensor",
    "_npi_unique",
    "_npx_nonzero",
}


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")
    reporter = _Reporter(watcher)
    trainers = replaced(mx.gluon.Trainer, "_update", reporter.counting_steps)
    modules = replaced(mx.mod.Module, "update", reporter.counting_steps)
    with mixing.observing(reporter.observe), trainers, modules:
        yield


def unseen() -> Iterable[str]:
    yield "copies that a key-value store makes: those of a Trainer on several GPUs"
    yield "sizes that a hybridized block waits for"


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Recorded(threading.local):
    """The copies of this thread that the backward pass will make in the other direction."""

    copies: tuple[Copy, ...] = ()


class _Reporter:
    """Reports to the watcher the copies that calls of the library make."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._recorded = _Recorded()

    def counting_steps(self, update: Function) -> Function:
        """The method of an optimizer, which also counts a step."""

        def call(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._watcher.stepped(optimizer)
            return update(optimizer, *args, **kwargs)

        return call

    def observe(self, call: str, args: Arguments) -> None:
        if call == "MXNDArraySyncCopyFromCPU":
            array, memory = args[0].value, args[1].value
            copied_mark = mark(memory, _nbytes(array))
            self._report("copy", "array", array, _HOST, _device(array), copied_mark)
        elif call in _FETCHING:
            arrays = args[2] if call == "MXNDArraySave" else (args[0].value,)
            for array in arrays:
                self._report("copy", _FETCHING[call], array, _device(array), _HOST)
        elif call != mixing.OPERATOR or not self._report_operator(args):
            for handles in mixing.operands(call, args):
                self._report_operands(handles, call, args)
            if call == mixing.BACKWARD:
                self._report_gradients(args[1][: args[0]])

    def _report_operator(self, args: Arguments) -> bool:
        """Report an operator that copies, or fetches a count.

        The result is whether the operator is one of these.
        """
        operator, _, inputs, output_count, outputs = args[:5]
        name = mixing.name_of(operator.value)
        if name in mixing.COPIES:
            for result in mixing.results_of(output_count, outputs):
                source, target = _device(inputs[0]), _device(result)
                copy = self._report("copy", "copyto", inputs[0], source, target)
                if copy and autograd.is_recording() and _graph(inputs[0]) is not None:
                    self._recorded.copies += (copy,)
            return True
        if name in _COUNTING:
            device = _device(inputs[0])
            if device.kind != "cpu":
                shown_name = mixing.name_in(mixing.OPERATOR, args)
                self._watcher.see(Copy("size", shown_name, _COUNT_BYTES, device, _HOST))
                return True
        return False

    def _report_gradients(self, outputs: Sequence[Handle]) -> None:
        """Report the copies of a backward pass.

        They are the recorded copies that the outputs depend on, in the other direction.
        """
        recorded = self._recorded.copies
        self._recorded.copies = ()
        if not recorded:
            return
        graphs = [graph for graph in map(_graph, outputs) if graph is not None]
        number = sum(graph.tojson().count(_RECORDED_COPY) for graph in graphs)
        if not number:
            return
        for copy in reversed(recorded[-number:]):
            gradient = copy._replace(kind="gradient", source=copy.target, target=copy.source)
            self._watcher.see(gradient)

    def _report_operands(self, arrays: Sequence[Handle], call: str, args: Arguments) -> None:
        """Report operands that are copied to the first one's GPU, where the operator runs.

        MXNet raises an error for operands of the CPU beside those of a GPU.
        """
        if len(arrays) < 2:
            return
        first_context, *contexts = map(mixing.context_of, arrays)
        for array, context in zip(arrays[1:], contexts, strict=True):
            is_same_type = context[0] == first_context[0]
            if is_same_type and context != first_context:
                name = mixing.name_in(call, args)
                self._report("operand", name, array, _device(array), _device(arrays[0]))

    def _report(  # noqa: PLR0913, PLR0917  (the fields of a `Copy`)
        self,
        kind: Kind,
        name: str,
        array: Handle,
        source: Device,
        target: Device,
        copied_mark: int = 0,
    ) -> Copy | None:
        if source == target or source.kind == target.kind == "cpu":
            return None
        copy = Copy(kind, name, _nbytes(array), source, target, mark=copied_mark)
        self._watcher.see(copy)
        return copy


def _device(array: Handle) -> Device:
    return placement.device_at(*mixing.context_of(array))


def _nbytes(array: Handle) -> int:
    handle = _base.NDArrayHandle(array)
    axes, shape, dtype = ctypes.c_int(), ctypes.POINTER(ctypes.c_int)(), ctypes.c_int()
    _library.MXNDArrayGetShapeEx(handle, ctypes.byref(axes), ctypes.byref(shape))
    _library.MXNDArrayGetDType(handle, ctypes.byref(dtype))
    width: int = np.dtype(_ndarray._DTYPE_MX_TO_NP[dtype.value]).itemsize
    return int(math.prod(shape[: max(axes.value, 0)]) * width)


def _graph(array: Handle) -> mx.sym.Symbol | None:
    """The recorded graph that computes the array; ``None`` if nothing was recorded."""
    symbol = _base.SymbolHandle()
    status = _library.MXAutogradGetSymbol(_base.NDArrayHandle(array), ctypes.byref(symbol))
    return None if status else mx.sym.Symbol(symbol)
