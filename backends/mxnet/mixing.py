"""Operations on arrays of several contexts, which MXNet copies to one context without an error.

Every operation goes through one of four functions of MXNet's library: for an operator, the graph of a hybridized block,
a call of the newer interface, the backward pass. While a strict block is open, these check the contexts of their
arguments first, in every thread. Memory of the host that is shared or pinned is the CPU's. `copyto`, `as_in_ctx` and
assignment are MXNet's own words for a copy, and allowed.
"""

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import mxnet as mx
from mxnet import base  # whose library every operation goes through

from xdevice.backends.mxnet.hardware import as_device
from xdevice.backends.mxnet.private_names import names
from xdevice.device import Device
from xdevice.errors import mixed
from xdevice.kit.private_names import replaced

Look = Callable[[str, Any], None]  # given the name of a function of the library, and its arguments

_base: Any = base
_library: Any = _base._LIB
_ARRAY = names.value(
    "mxnet._ffi._ctypes.types:TypeCode.NDARRAYHANDLE"
)  # marks an argument that is an array
_HOST = 1, 3, 5  # the numbers of cpu, cpu_pinned and cpu_shared
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
_looks: list[Look] = []
_replaced = ExitStack()


@contextmanager
def looking(look: Look) -> Generator[None]:
    """Within the block, the look sees each operation and copy before it is made. What it raises, the call raises."""
    global _looks
    names.require("strict() and watch_transfers()")
    with _lock:
        if not _looks:
            _looks = []  # those before may still be called, by what others have put over them
            for name in (*OPERATIONS, *COPYING):
                getattr(_library, name)  # it has a function once it was asked for it
                _replaced.enter_context(replaced(_library, name, partial(_looked_at, name, _looks)))
        _looks.append(look)
    try:
        yield
    finally:
        with _lock:
            _looks.remove(look)
            if not _looks:
                _replaced.close()


def _looked_at(name: str, looks: list[Look], run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        for look in tuple(looks):
            look(name, args)
        return run(*args)

    return call


@contextmanager
def forbid() -> Generator[None]:
    with looking(_check), ExitStack() as stack:
        for cls in (mx.nd.NDArray, mx.np.ndarray):
            for name in ("__getitem__", "__setitem__"):
                stack.enter_context(replaced(cls, name, _checking_index))
        yield


def _check(call: str, args: Any) -> None:
    if call == OPERATOR and name_of(args[0].value) in COPIES:
        return
    results = results_of(*args[3:5]) if call == OPERATOR else []
    for given in operands(call, args):
        if are_apart([*given, *results]):
            raise mixed(name_in(call, args), _devices([*given, *results]))


def _checking_index(index: Callable[..., Any]) -> Callable[..., Any]:
    """``x[key]`` and ``x[key] = value``: MXNet copies a key, and a value, to where the array is."""

    def call(array: Any, key: Any, *value: Any) -> Any:
        if not (key is Ellipsis or (isinstance(key, slice) and key == slice(None))):
            keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
            held: list[Any] = [
                part.handle for part in (array, *keys, *value) if isinstance(part, mx.nd.NDArray)
            ]
            given = [handle.value for handle in held]
            if are_apart(given):
                raise mixed("indexing", _devices(given))
        return index(array, key, *value)

    return call


def operands(call: str, args: Any) -> list[Sequence[Any]]:
    """The handles of the arrays that an operation computes with, together; of the backward pass in pairs."""
    if call == BACKWARD:
        n, heads, gradients = args[:3]
        given = gradients[:n] if isinstance(gradients, ctypes.Array) else ()
        return [pair for pair in zip(heads[:n], given, strict=False) if all(pair)]
    if call == FUNCTION:
        _, values, kinds, count = args[:4]
        return [[values[i].v_handle for i in range(count.value) if kinds[i] == _ARRAY]]
    return [args[2][: args[1].value]] if call in OPERATIONS else []


def results_of(n_out: Any, outputs: Any) -> list[Any]:
    """Where an operator is to put its results: the handles of arrays that were given as ``out``."""
    return outputs._obj[: n_out._obj.value] if n_out._obj.value else []


def are_apart(handles: Sequence[Any]) -> bool:
    """Whether the arrays behind the handles are in more than one place."""
    return len(handles) > 1 and len(set(map(context_of, handles))) > 1


def context_of(handle: Any) -> tuple[int, int]:
    """Where the array behind the handle is: MXNet's number for the type of device, and the index."""
    kind, index = ctypes.c_int(), ctypes.c_int()
    _library.MXNDArrayGetContext(
        _base.NDArrayHandle(handle), ctypes.byref(kind), ctypes.byref(index)
    )
    return (1, index.value) if kind.value in _HOST else (kind.value, index.value)


def _devices(handles: Sequence[Any]) -> set[Device]:
    return {
        as_device(mx.Context(mx.Context.devtype2str[kind], index))
        for kind, index in map(context_of, handles)
    }


def name_in(call: str, args: Any) -> str:
    """The operation's name as an author writes it: ``add``."""
    if call == OPERATOR:
        return _PREFIX.sub("", name_of(args[0].value))
    return (
        _function_name(args[0].value)
        if call == FUNCTION
        else {GRAPH: "a hybridized block"}.get(call, "backward")
    )


def _function_name(function: int) -> str:
    """What MXNet calls a function of its newer interface, `tensordot` above all."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if re.search(r"^mxnet\..*_api_internal$", name)
    ]
    functions = [(name, each) for module in modules for name, each in vars(module).items()]
    known = {each.handle.value: name for name, each in functions if hasattr(each, "handle")}
    return known.get(function, "a function of mxnet.np")


@cache
def name_of(operator: int) -> str:
    """What MXNet calls the operator."""
    name = ctypes.c_char_p()
    _library.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(operator), ctypes.byref(name))
    return str(_base.py_str(name.value))
