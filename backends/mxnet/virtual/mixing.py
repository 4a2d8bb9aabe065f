"""Arrays of the CPU and of a GPU in one operation, which MXNet refuses where GPUs are real.

To MXNet's library, virtual GPUs are CPUs, so it does not see the difference. It never compares one GPU with another.

A key-value store keeps its weights on the CPU until the first gradient comes from a GPU, and then copies them there;
from a virtual GPU it does not, so what an updater is given is not looked at.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
from mxnet.kvstore import kvstore

from xdevice.backends.mxnet import mixing

_HOST = 1
_store: Any = kvstore
_updating = threading.local()


def start(library: Any) -> None:
    """Let the functions of the library that run an operation look at its arguments first."""
    library.MXImperativeInvokeEx = _operator(library.MXImperativeInvokeEx)
    library.MXNetFuncCall = _function(library.MXNetFuncCall)
    wrapper = _store._updater_wrapper
    _store._updater_wrapper = lambda updater: wrapper(_unwatched(updater))


def _unwatched(updater: Callable[..., None]) -> Callable[..., None]:
    def update(*args: Any) -> None:
        _updating.now = True
        try:
            updater(*args)
        finally:
            _updating.now = False

    return update


def _operator(run: Callable[..., int]) -> Callable[..., int]:
    def call(operator: Any, n: Any, inputs: Any, *rest: Any) -> int:
        if n.value > 1:
            _check(inputs[: n.value], lambda: mixing.name_of(operator.value))
        return run(operator, n, inputs, *rest)

    return call


def _function(run: Callable[..., int]) -> Callable[..., int]:
    def call(function: Any, values: Any, kinds: Any, n: Any, *rest: Any) -> int:
        given = mixing.arrays_of(values, kinds, n.value)
        if len(given) > 1:
            _check(given, lambda: mixing.function_name(function.value))
        return run(function, values, kinds, n, *rest)

    return call


def _check(handles: Sequence[Any], name: Callable[[], str]) -> None:
    if getattr(_updating, "now", False):
        return
    places = [mixing.context_of(handle) for handle in handles]
    on_host = [kind == _HOST for kind, _ in places]
    if all(on_host) or not any(on_host):
        return
    other = on_host.index(not on_host[0])
    first, second = (mx.Context(mx.Context.devtype2str[kind], index) for kind, index in (places[0], places[other]))
    raise mx.MXNetError(
        f"Operator {name()} require all inputs live on the same context. But the first argument is on {first} while "
        f"the {other + 1}-th argument is on {second}"  # MXNet's own words
    )
