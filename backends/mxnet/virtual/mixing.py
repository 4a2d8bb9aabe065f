"""Arrays of the CPU and of a GPU in one operation, which MXNet refuses where GPUs are real.

To MXNet's library, virtual GPUs are CPUs, so it does not see the difference. It never compares one GPU with another.

A key-value store keeps its weights on the CPU until the first gradient comes from a GPU, and then copies them there;
from a virtual GPU it does not, so what an updater is given is not looked at.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mxnet as mx

from xdevice.backends.mxnet import mixing
from xdevice.backends.mxnet.private_names import in_library, in_place_of

_HOST = 1
_updating = threading.local()


def start() -> None:
    """Let the functions of the library that run an operation look at its arguments first."""
    in_library("MXImperativeInvokeEx")(_operator)
    in_library("MXNetFuncCall")(_function)

    @in_place_of("mxnet.kvstore.kvstore:_updater_wrapper")
    def wrapped(wrap: Any, updater: Callable[..., None]) -> Any:
        return wrap(partial(_unwatched, updater))


def _unwatched(updater: Callable[..., None], *args: Any) -> None:
    _updating.now = True
    try:
        updater(*args)
    finally:
        _updating.now = False


def _operator(run: Callable[..., int], operator: Any, n: Any, inputs: Any, *rest: Any) -> int:
    if n.value > 1:
        _check(inputs[: n.value], lambda: mixing.name_of(operator.value))
    return run(operator, n, inputs, *rest)


def _function(run: Callable[..., int], function: Any, values: Any, kinds: Any, n: Any, *rest: Any) -> int:
    given = mixing.arrays_of(values, kinds, n.value)
    if len(given) > 1:
        _check(given, lambda: mixing.function_name(function.value))
    return run(function, values, kinds, n, *rest)


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
