"""Operations on arrays of several contexts, which MXNet copies to one context without an error.

Every operation calls one of four functions of MXNet's library: for an operator, the graph of a
hybridized block, a call of the newer interface, the backward pass. While a strict block is open,
these first check the contexts of their arguments, in every thread. Shared and pinned memory of the
host counts as the CPU. `copyto`, `as_in_ctx` and assignment are MXNet's own functions for copies,
and allowed.
"""

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, TypeAlias

import mxnet as mx
from mxnet import base  # whose library every operation goes through
from mxnet.ndarray import NDArray

from xdevice.backends.kit.private_names import replaced
from xdevice.backends.mxnet.hardware import as_device
from xdevice.backends.mxnet.private_names import names
from xdevice.device import Device
from xdevice.errors import mixed

Arguments: TypeAlias = Any  # of a function of the library: a tuple of ctypes' objects
Function: TypeAlias = Callable[..., Any]
Handle: TypeAlias = Any  # of an array: an address
Key: TypeAlias = Any  # of an array: an index, a slice, a mask, or a tuple of these
Pointer: TypeAlias = Any  # made by ctypes.byref
Observer: TypeAlias = Callable[[str, Arguments], None]
"""It receives the name of a function of the library, and its arguments."""

_base: Any = base
_library: Any = _base._LIB
# The type of an argument that is an array
_ARRAY = names.value("mxnet._ffi._ctypes.types:TypeCode.NDARRAYHANDLE")
_HOST_TYPES = 1, 3, 5  # the numbers of cpu, cpu_pinned and cpu_shared
_PREFIX = re.compile(r"^_(npi?_|npx_|contrib_)?")
OPERATIONS = "MXImperativeInvokeEx", "MXInvokeCachedOpEx", "MXNetFuncCall", "MXAutogradBackwardEx"
OPERATOR, GRAPH, FUNCTION, BACKWARD = OPERATIONS
COPYING = (
    "MXNDArraySyncCopyToCPU",
    "MXNDArraySyncCopyFromCPU",
    "MXNDArraySaveRawBytes",
    "MXNDArraySave",
)
COPIES = frozenset({"_copyto", "_npi_copyto", "_npi_copy", "_copy"})

_lock = threading.Lock()
_observers: list[Observer] = []
_replaced = ExitStack()


@contextmanager
def observing(observer: Observer) -> Generator[None]:
    """A block in which the observer receives each operation and copy before it runs.

    A call raises the errors of its observers.
    """
    global _observers
    names.require("strict() and watch_transfers()")
    with _lock:
        if not _observers:
            # a new list: wrappers of other code may still call functions of an earlier block
            _observers = []
            for name in (*OPERATIONS, *COPYING):
                getattr(_library, name)  # ctypes creates the attribute at its first use
                observed = partial(_observed, name, _observers)
                _replaced.enter_context(replaced(_library, name, observed))
        _observers.append(observer)
    try:
        yield
    finally:
        with _lock:
            _observers.remove(observer)
            if not _observers:
                _replaced.close()


def _observed(name: str, observers: list[Observer], function: Function) -> Function:
    def call(*args: Any) -> Any:
        for observer in tuple(observers):
            observer(name, args)
        return function(*args)

    return call


@contextmanager
def forbid() -> Generator[None]:
    with observing(_check), ExitStack() as stack:
        for cls in (mx.nd.NDArray, mx.np.ndarray):
            for name in ("__getitem__", "__setitem__"):
                stack.enter_context(replaced(cls, name, _checking_index))
        yield


def _check(call: str, args: Arguments) -> None:
    if call == OPERATOR and name_of(args[0].value) in COPIES:
        return
    results = results_of(*args[3:5]) if call == OPERATOR else []
    for handles in operands(call, args):
        arrays = [*handles, *results]
        if are_apart(arrays):
            raise mixed(name_in(call, args), _devices(arrays))


def _checking_index(index: Function) -> Function:
    """``x[key]`` and ``x[key] = value``: MXNet copies a key, and a value, to the array's device."""

    def call(array: NDArray, key: Key, *value: Any) -> Any:
        is_everything = key is Ellipsis or (isinstance(key, slice) and key == slice(None))
        if not is_everything:
            keys = key if isinstance(key, tuple) else (key,)
            parts: list[Any] = [array, *keys, *value]
            handles = [part.handle.value for part in parts if isinstance(part, NDArray)]
            if are_apart(handles):
                raise mixed("indexing", _devices(handles))
        return index(array, key, *value)

    return call


def operands(call: str, args: Arguments) -> list[Sequence[Handle]]:
    """The handles of an operation's arrays, in groups that are computed with together.

    The backward pass has a group for each output that has an initial gradient:
    the output and the gradient.
    """
    if call == BACKWARD:
        count, outputs, gradients = args[:3]
        if not isinstance(gradients, ctypes.Array):
            return []
        pairs = zip(outputs[:count], gradients[:count], strict=False)
        return [pair for pair in pairs if all(pair)]
    if call == FUNCTION:
        _, values, types, count = args[:4]
        return [[values[i].v_handle for i in range(count.value) if types[i] == _ARRAY]]
    if call in OPERATIONS:
        return [args[2][: args[1].value]]
    return []


def results_of(count: Pointer, outputs: Pointer) -> list[Handle]:
    """The handles of the arrays that an operator received as ``out``."""
    return outputs._obj[: count._obj.value] if count._obj.value else []


def are_apart(handles: Sequence[Handle]) -> bool:
    """Whether the arrays are in more than one context."""
    return len(handles) > 1 and len(set(map(context_of, handles))) > 1


def context_of(handle: Handle) -> tuple[int, int]:
    """The context of the array: MXNet's number for the type of device, and the index."""
    device_type, index = ctypes.c_int(), ctypes.c_int()
    _library.MXNDArrayGetContext(
        _base.NDArrayHandle(handle), ctypes.byref(device_type), ctypes.byref(index)
    )
    is_host = device_type.value in _HOST_TYPES
    return 1 if is_host else device_type.value, index.value


def _devices(handles: Sequence[Handle]) -> set[Device]:
    contexts = map(context_of, handles)
    return {as_device(mx.Context(mx.Context.devtype2str[kind], index)) for kind, index in contexts}


def name_in(call: str, args: Arguments) -> str:
    """The operation's name as an author writes it: ``add``."""
    if call == OPERATOR:
        return _PREFIX.sub("", name_of(args[0].value))
    if call == FUNCTION:
        return _function_name(args[0].value)
    return "a hybridized block" if call == GRAPH else "backward"


def _function_name(function: int) -> str:
    """MXNet's name for a function of its newer interface, such as `tensordot`."""
    for module_name, module in list(sys.modules.items()):
        if not re.search(r"^mxnet\..*_api_internal$", module_name):
            continue
        for name, value in vars(module).items():
            if hasattr(value, "handle") and value.handle.value == function:
                return name
    return "a function of mxnet.np"


@cache
def name_of(operator: int) -> str:
    """MXNet's name for the operator."""
    name = ctypes.c_char_p()
    _library.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(operator), ctypes.byref(name))
    return str(_base.py_str(name.value))
