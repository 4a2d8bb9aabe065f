"""Copies between MXNet's devices: calls of its library that send and fetch arrays, and operators that copy.

A number that an operator is given (``x + 1``, ``x[0] = 3.``) is an argument of its kernel, and no copy. The library
makes the backward pass's copies itself: one for each copy that was recorded, the other way.
"""

import ctypes
import math
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, base

from xdevice.backends.mxnet import mixing, placement
from xdevice.backends.mxnet.private_names import names
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device
from xdevice.kit import advice
from xdevice.kit.marks import mark
from xdevice.kit.private_names import replaced

_base: Any = base
_library: Any = _base._LIB
_ndarray: Any = mx.nd.ndarray
_HOST = Device("cpu", 0)
_RECORDED = '"op": "_copyto"'  # as a graph is written
_COUNT = 4  # bytes: an int32
_FETCHING = {
    "MXNDArraySyncCopyToCPU": "asnumpy",
    "MXNDArraySaveRawBytes": "pickle",
    "MXNDArraySave": "save",
}
"""Functions that bring an array to the host, with what a report calls them."""
_WAIT = {  # operators that fetch a count first, by which the size of their result, or of their work, is known
    *(
        "_contrib_boolean_mask",
        "_npi_boolean_mask_assign_scalar",
        "_npi_boolean_mask_assign_tensor",
    ),
    *("_npx_nonzero", "_npi_unique", "_npi_bincount"),
}


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")
    told = _Told(watcher)
    step, update = (
        replaced(mx.gluon.Trainer, "_update", told.stepping),
        replaced(mx.mod.Module, "update", told.stepping),
    )
    with mixing.looking(told.look), step, update:
        yield


def unseen() -> Iterable[str]:
    yield "copies that a key-value store makes: those of a Trainer on several GPUs"
    yield "sizes that a hybridized block waits for"


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Told:
    """Tells the watcher of what is called."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._thread = (
            threading.local()
        )  # with its copies that the backward pass will make the other way

    def stepping(self, update: Callable[..., Any]) -> Callable[..., Any]:
        def call(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._watcher.stepped(optimizer)
            return update(optimizer, *args, **kwargs)

        return call

    def look(self, call: str, args: Any) -> None:
        if call == "MXNDArraySyncCopyFromCPU":
            array, memory = args[0].value, args[1].value
            self._tell("copy", "array", array, _HOST, _place(array), mark(memory, _nbytes(array)))
        elif call in _FETCHING:
            for array in args[2] if call == "MXNDArraySave" else (args[0].value,):
                self._tell("copy", _FETCHING[call], array, _place(array), _HOST)
        elif call != mixing.OPERATOR or not self._copied_or_counted(args):
            for given in mixing.operands(call, args):
                self._mix(given, call, args)
            if call == mixing.BACKWARD:
                self._turn_copies(args[1][: args[0]])

    def _copied_or_counted(self, args: Any) -> bool:
        operator, _, inputs, n_out, outputs = args[:5]
        name = mixing.name_of(operator.value)
        if name in mixing.COPIES:
            for result in mixing.results_of(n_out, outputs):
                copy = self._tell("copy", "copyto", inputs[0], _place(inputs[0]), _place(result))
                if copy and autograd.is_recording() and _graph(inputs[0]) is not None:
                    self._thread.recorded = [*getattr(self._thread, "recorded", ()), copy]
            return True
        if name in _WAIT and (place := _place(inputs[0])).kind != "cpu":
            self._watcher.see(
                Copy("size", mixing.name_in(mixing.OPERATOR, args), _COUNT, place, _HOST)
            )
            return True
        return False

    def _turn_copies(self, heads: Any) -> None:
        recorded, self._thread.recorded = getattr(self._thread, "recorded", ()), ()
        if recorded:
            most = sum(
                graph.tojson().count(_RECORDED) for graph in map(_graph, heads) if graph is not None
            )
            for copy in reversed(recorded[-most:] if most else ()):
                self._watcher.see(
                    copy._replace(kind="gradient", source=copy.target, target=copy.source)
                )

    def _mix(self, arrays: Sequence[Any], call: str, args: Any) -> None:
        """Of arrays on several GPUs, the operator runs where the first is; the CPU's beside a GPU's are refused."""
        if len(arrays) < 2:
            return
        first, *others = map(mixing.context_of, arrays)
        for array, context in zip(arrays[1:], others, strict=True):
            if context != first and context[0] == first[0]:
                self._tell(
                    "operand", mixing.name_in(call, args), array, _place(array), _place(arrays[0])
                )

    def _tell(  # noqa: PLR0913, PLR0917  (what a `Copy` has)
        self, kind: Kind, name: str, array: Any, source: Device, target: Device, sent: int = 0
    ) -> Copy | None:
        if source == target or source.kind == target.kind == "cpu":
            return None
        copy = Copy(kind, name, _nbytes(array), source, target, mark=sent)
        self._watcher.see(copy)
        return copy


def _place(array: Any) -> Device:
    return placement.known(*mixing.context_of(array))


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
