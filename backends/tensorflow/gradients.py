"""Gradients, by tf.GradientTape.

A tape computes all gradients in the scope in which it is asked for them. So that a network may be spread
over devices, its asking is watched here: the gradient of each operation is computed where that of its
result is, and crosses from device to device where the forward pass did.
"""

import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import placement
from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.private_names import backprop, engine, names, runtime
from xdevice.contract import Call
from xdevice.errors import NotSupportedError


class _Thread(threading.local):
    asks = 0  # how many tapes: one within another


_lock = (
    threading.RLock()
)  # tapes asked at once give operations one another's operands now and then (2.21)
_thread = _Thread()
_known: weakref.WeakKeyDictionary[Any, dict[Any, Callable[..., Any]]] = weakref.WeakKeyDictionary()


def is_floating(tensor: Any) -> bool:
    return bool(tf.as_dtype(tensor.dtype).is_floating)


def value_and_gradients(
    call: Call, parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    odd = next((p for p in parameters if isinstance(p, placement.COMPOSITES)), None)
    if odd is not None:
        raise NotSupportedError(f"tensorflow cannot differentiate for {placement.described(odd)}")
    if (
        isinstance(call.fn, tf.types.experimental.PolymorphicFunction)
        and not nested
        and tf.executing_eagerly()
    ):
        # tf.function takes mappings with the same keys for the same: one in another order has to be traced anew
        order = " ".join(call.paths())
        value, aux, found = _compiled(call)(order, parameters, list(call.args), call.kwargs)
    else:
        value, aux, found = _differentiated(call, parameters)
    return value, aux, [_beside(p, g) for p, g in zip(parameters, found, strict=True)]


def _differentiated(call: Call, parameters: list[Any]) -> tuple[Any, Any, list[Any]]:
    variables = [_apart(tf.convert_to_tensor(p)) for p in parameters]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value, aux = call(variables)
    with _beside_forward(value) if tf.executing_eagerly() else nullcontext():
        found = tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return value, aux, found


def _compiled(call: Call) -> Callable[..., Any]:
    """The value and the gradients of a compiled function, compiled in their turn: else each half is, by itself."""
    known, how = _known.setdefault(call.fn, {}), call.how
    function: Any = weakref.ref(
        call.fn
    )  # weak: what is known of its fn keeps this; alive while it is called

    def compiled(order: str, parameters: list[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        return _differentiated(how.bind(function(), args, kwargs), parameters)

    if how not in known:
        known[how] = tf.function(
            compiled, autograph=False
        )  # which would wrap errors in its own words
    return known[how]


def _apart(value: Any) -> Any:
    with tf.device(value.device):
        return tf.identity(value)  # an object of its own: one tensor given twice has two gradients


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device: a tape computes it wherever the scope happens to be."""
    dense = tf.convert_to_tensor(gradient)  # that of a gather is a tf.IndexedSlices
    if not tf.executing_eagerly():
        return dense  # in a graph nothing has a place yet
    return placement.arrived(dense, placement.device_of(parameter))


@contextmanager
def _beside_forward(value: Any) -> Generator[None, None, None]:
    """Let this thread's tape compute each gradient beside its forward pass, which has ended in the value."""
    names.require("gradients beside the forward pass")
    with _lock:
        _thread.asks += 1
        engine.TFE_Py_RegisterGradientFunction(_gradient)
        try:
            with scope(placement.device_of(value)):
                yield
        finally:
            _thread.asks -= 1
            if not _thread.asks:
                engine.TFE_Py_RegisterGradientFunction(backprop._gradient_function)


def _gradient(*args: Any) -> Any:
    """TensorFlow's own `_gradient_function`, where the gradients of the operation's results are: its argument 5."""
    here = runtime().device_name
    elsewhere = {gradient.device for gradient in args[5] if gradient is not None} - {here}
    if not elsewhere or not _thread.asks:
        return backprop._gradient_function(*args)
    there = placement.placed(elsewhere.pop())
    # of a result that was never used, TensorFlow has made zeros here
    results = [
        g if g is None or g.device != here else placement.move(g, there, False) for g in args[5]
    ]
    with scope(there):
        return backprop._gradient_function(*args[:5], results, *args[6:])
