"""Operations on arrays of several contexts, which MXNet copies to one context without an error.

Every operation goes through one of four functions of MXNet's library: for an operator, the graph of a
hybridized block, a call of the newer interface, the backward pass. While a strict block is open, these
check the contexts of their arguments first, in every thread. Memory of the host that is shared or
pinned is the CPU's. `copyto`, `as_in_ctx` and assignment are MXNet's own words for a copy, and allowed.
"""

import ctypes
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import mxnet as mx
from mxnet import base  # whose library every operation goes through
from mxnet._ffi._ctypes.types import TypeCode  # how an argument that is an array is marked

from xdevice.backends.mxnet.calls import looking
from xdevice.backends.mxnet.hardware import as_device
from xdevice.device import Device
from xdevice.errors import mixed

_base: Any = base
_library: Any = _base._LIB
_ARRAYS = mx.nd.NDArray, mx.np.ndarray
_HOST = 1, 3, 5  # the numbers of cpu, cpu_pinned and cpu_shared
_PREFIX = re.compile(r"^_(npi?_|npx_|contrib_)?")
COPIES = frozenset({"_copyto", "_npi_copyto", "_npi_copy", "_copy"})


def forbid() -> AbstractContextManager[None]:
    looks: list[tuple[Any, str, Any]] = [
        (_library, "MXImperativeInvokeEx", _check_operator),
        (_library, "MXInvokeCachedOpEx", _check_graph),
        (_library, "MXNetFuncCall", _check_function),
        (_library, "MXAutogradBackwardEx", _check_backward),
    ]
    looks += [(cls, name, _check_index) for cls in _ARRAYS for name in ("__getitem__", "__setitem__")]
    return looking(looks)


def _check_index(array: Any, key: Any, *value: Any) -> None:
    """``x[key]`` and ``x[key] = value``: MXNet copies a key, and a value, to where the array is."""
    if key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
        return
    keys = key if isinstance(key, tuple) else (key,)
    arrays: list[Any] = [part for part in (array, *keys, *value) if isinstance(part, mx.nd.NDArray)]
    given = [one.handle.value for one in arrays]
    if len(given) > 1 and _several(given):
        raise mixed("indexing", _devices(given))


def _check_operator(operator: Any, n: Any, inputs: Any, n_out: Any, outputs: Any, *_: Any) -> None:
    given = [*inputs[: n.value], *results_of(n_out, outputs)]
    if _several(given) and name_of(operator.value) not in COPIES:
        raise mixed(shown(name_of(operator.value)), _devices(given))


def results_of(n_out: Any, outputs: Any) -> list[Any]:
    """Where an operator is to put its results: the handles of arrays that were given as ``out``."""
    return outputs._obj[: n_out._obj.value] if n_out._obj.value else []


def _check_graph(graph: Any, n: Any, inputs: Any, *_: Any) -> None:
    given = inputs[: n.value]
    if _several(given):
        raise mixed("a hybridized block", _devices(given))


def _check_function(function: Any, values: Any, kinds: Any, n: Any, *_: Any) -> None:
    given = arrays_of(values, kinds, n.value)
    if len(given) > 1 and _several(given):
        raise mixed(function_name(function.value), _devices(given))


def arrays_of(values: Any, kinds: Any, count: int) -> list[Any]:
    """The handles of the arrays among a function's arguments."""
    return [values[i].v_handle for i in range(count) if kinds[i] == TypeCode.NDARRAYHANDLE]


def _check_backward(n: int, heads: Any, gradients: Any, *_: Any) -> None:
    for pair in pairs_of(n, heads, gradients):
        if _several(pair):
            raise mixed("backward", _devices(pair))


def pairs_of(n: int, heads: Any, gradients: Any) -> list[tuple[Any, Any]]:
    """The handles of the arrays to differentiate, each with that of the gradient that is given for it."""
    given = gradients[:n] if isinstance(gradients, ctypes.Array) else ()
    return [pair for pair in zip(heads[:n], given, strict=False) if all(pair)]


def _several(handles: Iterable[Any]) -> bool:
    """Whether the arrays behind the handles are in more than one place."""
    first = None
    for handle in handles:
        place = context_of(handle)
        if first is None:
            first = place
        elif place != first:
            return True
    return False


def context_of(handle: Any) -> tuple[int, int]:
    """Where the array behind the handle is: MXNet's number for the type of device, and the index."""
    kind, index = ctypes.c_int(), ctypes.c_int()
    _library.MXNDArrayGetContext(_base.NDArrayHandle(handle), ctypes.byref(kind), ctypes.byref(index))
    return (1, index.value) if kind.value in _HOST else (kind.value, index.value)


def _devices(handles: Iterable[Any]) -> set[Device]:
    return {as_device(mx.Context(mx.Context.devtype2str[kind], index)) for kind, index in map(context_of, handles)}


def function_name(function: int) -> str:
    """What MXNet calls a function of its newer interface, `tensordot` above all."""
    modules = [module for name, module in list(sys.modules.items()) if re.search(r"^mxnet\..*_api_internal$", name)]
    functions = [(name, each) for module in modules for name, each in vars(module).items()]
    known = {each.handle.value: name for name, each in functions if hasattr(each, "handle")}
    return known.get(function, "a function of mxnet.np")


def shown(name: str) -> str:
    """An operator's name as an author writes it: ``add``."""
    return _PREFIX.sub("", name)


@cache
def name_of(operator: int) -> str:
    """What MXNet calls the operator."""
    name = ctypes.c_char_p()
    _library.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(operator), ctypes.byref(name))
    return str(_base.py_str(name.value))
