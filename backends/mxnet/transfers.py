"""Copies between MXNet's devices: calls of its library that send and fetch arrays, and operators that copy.

A number that an operator is given (``x + 1``, ``x[0] = 3.``) is an argument of its kernel, and no copy. The library
makes the backward pass's copies itself: one for each copy that was recorded, the other way.
"""

import ctypes
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, base

from xdevice.backends.mxnet import mixing, placement
from xdevice.backends.mxnet.calls import looking
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device

_base: Any = base
_library: Any = _base._LIB
_ndarray: Any = mx.nd.ndarray
_HOST = Device("cpu", 0)
_RECORDED = '"op": "_copyto"'  # as a graph is written
_COUNT = 4  # bytes: an int32
_WAIT = {
    *("_contrib_boolean_mask", "_npi_boolean_mask_assign_scalar", "_npi_boolean_mask_assign_tensor"),
    *("_npx_nonzero", "_npi_unique", "_npi_bincount"),
}
"""Operators that fetch a count before they run, by which the size of their result, or of their work, is known."""


def watch(watcher: Watcher) -> AbstractContextManager[None]:
    told = _Told(watcher)
    steps: Any = (mx.gluon.Trainer, "_update"), (mx.mod.Module, "update")
    return looking(
        [
            (_library, "MXNDArraySyncCopyToCPU", lambda array, *_: told.fetch("asnumpy", array.value)),
            (_library, "MXNDArraySaveRawBytes", lambda array, *_: told.fetch("pickle", array.value)),
            (_library, "MXNDArraySave", lambda file, n, arrays, keys: told.fetch("save", *arrays)),
            (_library, "MXNDArraySyncCopyFromCPU", lambda array, *_: told.send(array.value)),
            (_library, "MXImperativeInvokeEx", told.operator),
            (_library, "MXInvokeCachedOpEx", told.graph),
            (_library, "MXNetFuncCall", told.function),
            (_library, "MXAutogradBackwardEx", told.backward),
            *((cls, name, lambda optimizer, *_, **__: watcher.stepped(optimizer)) for cls, name in steps),
        ]
    )


def unseen() -> Iterable[str]:
    yield "copies that a key-value store makes: those of a Trainer on several GPUs"
    yield "sizes that a hybridized block waits for"


class _Told:
    """Tells the watcher of what is called."""

    def __init__(self, watcher: Watcher) -> None:
        self._see = watcher.see
        self._recorded = _Recorded()

    def fetch(self, name: str, *arrays: Any) -> None:
        for array in arrays:
            self._tell("copy", name, array, _place(array), _HOST)

    def send(self, array: Any) -> None:
        self._tell("copy", "array", array, _HOST, _place(array))

    def operator(self, operator: Any, n: Any, inputs: Any, n_out: Any, outputs: Any, *_: Any) -> None:
        name = mixing.name_of(operator.value)
        if name in mixing.COPIES:
            for result in mixing.results_of(n_out, outputs):
                self._copy(inputs[0], result)
        elif name in _WAIT and (place := _place(inputs[0])).kind != "cpu":
            self._see(Copy("size", mixing.shown(name), _COUNT, place, _HOST))
        elif n.value > 1:
            self._mix(inputs[: n.value], lambda: mixing.shown(name))

    def graph(self, graph: Any, n: Any, inputs: Any, *_: Any) -> None:
        self._mix(inputs[: n.value], lambda: "a hybridized block")

    def function(self, function: Any, values: Any, kinds: Any, n: Any, *_: Any) -> None:
        given = mixing.arrays_of(values, kinds, n.value)
        if len(given) > 1:
            self._mix(given, lambda: mixing.function_name(function.value))

    def backward(self, n: int, heads: Any, gradients: Any, *_: Any) -> None:
        for pair in mixing.pairs_of(n, heads, gradients):
            self._mix(pair, lambda: "backward")
        if self._recorded.copies:
            most = sum(graph.tojson().count(_RECORDED) for graph in map(_graph, heads[:n]) if graph is not None)
            made, self._recorded.copies = self._recorded.copies[-most:] if most else [], []
            for copy in reversed(made):
                self._see(copy._replace(kind="gradient", source=copy.target, target=copy.source))

    def _copy(self, array: Any, result: Any) -> None:
        copy = self._tell("copy", "copyto", array, _place(array), _place(result))
        if copy and autograd.is_recording() and _graph(array) is not None:
            self._recorded.copies.append(copy)

    def _mix(self, arrays: Sequence[Any], name: Callable[[], str]) -> None:
        """Of arrays on several GPUs, the operator runs where the first is; the CPU's beside a GPU's are refused."""
        contexts = [mixing.context_of(array) for array in arrays]
        for array, context in zip(arrays, contexts, strict=True):
            if context != contexts[0] and context[0] == contexts[0][0]:
                self._tell("operand", name(), array, _place(array), _place(arrays[0]))

    def _tell(self, kind: Kind, name: str, array: Any, source: Device, target: Device) -> Copy | None:
        if source == target or source.kind == target.kind == "cpu":
            return None
        copy = Copy(kind, name, _nbytes(array), source, target)
        self._see(copy)
        return copy


class _Recorded(threading.local):
    """Copies of each thread that the backward pass will make the other way."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []


def _place(array: Any) -> Device:
    return placement.device_at(*mixing.context_of(array))


def _nbytes(array: Any) -> int:
    handle = _base.NDArrayHandle(array)
    axes, shape, dtype = ctypes.c_int(), ctypes.POINTER(ctypes.c_int)(), ctypes.c_int()
    _library.MXNDArrayGetShapeEx(handle, ctypes.byref(axes), ctypes.byref(shape))
    _library.MXNDArrayGetDType(handle, ctypes.byref(dtype))
    width: int = np.dtype(_ndarray._DTYPE_MX_TO_NP[dtype.value]).itemsize
    return int(math.prod(shape[: max(axes.value, 0)]) * width)


def _graph(array: Any) -> Any:
    """What was recorded of the array, as a symbol; ``None`` if nothing was."""
    found = _base.SymbolHandle()
    status = _library.MXAutogradGetSymbol(_base.NDArrayHandle(array), ctypes.byref(found))
    return None if status else mx.sym.Symbol(found)
