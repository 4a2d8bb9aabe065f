"""Operations on arrays of several contexts, which MXNet copies to one context without an error.

Every operation goes through one of four functions of MXNet's library: for an operator, the graph of a
hybridized block, a call of the newer interface, the backward pass. While a strict block is open, these
check the contexts of their arguments first, in every thread. Memory of the host that is shared or
pinned is the CPU's. `copyto`, `as_in_ctx` and assignment are MXNet's own words for a copy, and allowed.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

import mxnet as mx
from mxnet import base  # whose library every operation goes through
from mxnet._ffi._ctypes.types import TypeCode  # how an argument that is an array is marked

from xdevice.backends.mxnet.hardware import as_device
from xdevice.device import Device
from xdevice.errors import mixed

_base: Any = base
_library: Any = _base._LIB
_ARRAYS = mx.nd.NDArray, mx.np.ndarray
_HOST = 1, 3, 5  # the numbers of cpu, cpu_pinned and cpu_shared
_PREFIX = re.compile(r"^_(npi?_|npx_)?")  # an author writes `add`
_COPIES = frozenset({"_copyto", "_npi_copyto", "_npi_copy", "_copy"})


@contextmanager
def forbid() -> Generator[None]:
    watched = {
        "MXImperativeInvokeEx": _operator,
        "MXInvokeCachedOpEx": _graph,
        "MXNetFuncCall": _function,
        "MXAutogradBackwardEx": _backward,
    }
    held = [(_library, name, watch) for name, watch in watched.items()]
    held += [(cls, name, _indexing) for cls in _ARRAYS for name in ("__getitem__", "__setitem__")]
    before = [vars(holder).get(name) or getattr(holder, name) for holder, name, _ in held]
    for (holder, name, watch), was in zip(held, before, strict=True):
        setattr(holder, name, watch(was))
    try:
        yield
    finally:
        for (holder, name, _), was in zip(held, before, strict=True):
            setattr(holder, name, was)


def _indexing(run: Callable[..., Any]) -> Callable[..., Any]:
    """``x[key]`` and ``x[key] = value``: MXNet copies a key, and a value, to where the array is."""

    def call(array: Any, key: Any, *value: Any) -> Any:
        whole = key is Ellipsis or (isinstance(key, slice) and key == slice(None))
        if not whole:
            keys = key if isinstance(key, tuple) else (key,)
            arrays: list[Any] = [part for part in (array, *keys, *value) if isinstance(part, mx.nd.NDArray)]
            given = [one.handle.value for one in arrays]
            if len(given) > 1 and _several(given):
                raise mixed("indexing", _devices(given))
        return run(array, key, *value)

    return call


def _operator(run: Callable[..., int]) -> Callable[..., int]:
    def call(operator: Any, n: Any, inputs: Any, n_out: Any, outputs: Any, *rest: Any) -> int:
        given = list(inputs[: n.value])
        results = n_out._obj.value
        if results:  # where to put them: arrays that were given as `out`
            given += outputs._obj[:results]
        if _several(given) and name_of(operator.value) not in _COPIES:
            raise mixed(_PREFIX.sub("", name_of(operator.value)), _devices(given))
        return run(operator, n, inputs, n_out, outputs, *rest)

    return call


def _graph(run: Callable[..., int]) -> Callable[..., int]:
    def call(graph: Any, n: Any, inputs: Any, *rest: Any) -> int:
        given = inputs[: n.value]
        if _several(given):
            raise mixed("a hybridized block", _devices(given))
        return run(graph, n, inputs, *rest)

    return call


def _function(run: Callable[..., int]) -> Callable[..., int]:
    def call(function: Any, values: Any, kinds: Any, n: Any, *rest: Any) -> int:
        given = arrays_of(values, kinds, n.value)
        if len(given) > 1 and _several(given):
            raise mixed(function_name(function.value), _devices(given))
        return run(function, values, kinds, n, *rest)

    return call


def arrays_of(values: Any, kinds: Any, count: int) -> list[Any]:
    """The handles of the arrays among a function's arguments."""
    return [values[i].v_handle for i in range(count) if kinds[i] == TypeCode.NDARRAYHANDLE]


def _backward(run: Callable[..., int]) -> Callable[..., int]:
    def call(n: int, heads: Any, gradients: Any, *rest: Any) -> int:
        for i in range(n if isinstance(gradients, ctypes.Array) else 0):
            pair = [heads[i], gradients[i]]
            if all(pair) and _several(pair):
                raise mixed("backward", _devices(pair))
        return run(n, heads, gradients, *rest)

    return call


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


@cache
def name_of(operator: int) -> str:
    """What MXNet calls the operator."""
    name = ctypes.c_char_p()
    _library.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(operator), ctypes.byref(name))
    return str(_base.py_str(name.value))
