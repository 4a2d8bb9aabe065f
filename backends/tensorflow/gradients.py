"""Gradients, by tf.GradientTape.

A tape computes all gradients in the scope in which it is asked for them. A network may be spread
over devices, so TensorFlow's function for the gradient of one operation is replaced: each gradient
is computed where the gradient of the operation's result is, and crosses from device to device where
the forward pass did.
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
    active_tapes = 0  # that compute gradients now: one may do so within another


# two tapes that compute gradients at the same time may exchange operands (TensorFlow 2.21)
_lock = threading.RLock()
_thread = _Thread()
# compiled gradients, by the compiled function and the way in which it is called
_compiled_gradients: weakref.WeakKeyDictionary[Any, dict[Any, Callable[..., Any]]]
_compiled_gradients = weakref.WeakKeyDictionary()


def is_floating(tensor: Any) -> bool:
    return bool(tf.as_dtype(tensor.dtype).is_floating)


def value_and_gradients(
    call: Call, parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    for parameter in parameters:
        if isinstance(parameter, placement.COMPOSITES):
            reason = f"tensorflow cannot differentiate for {placement.described(parameter)}"
            raise NotSupportedError(reason)
    is_compiled = isinstance(call.fn, tf.types.experimental.PolymorphicFunction)
    if is_compiled and not nested and tf.executing_eagerly():
        # tf.function does not tell mappings with the same keys in another order apart: the order is
        # an argument
        order = " ".join(call.paths())
        compiled = _compiled(call)
        value, aux, gradients = compiled(order, parameters, list(call.args), call.kwargs)
    else:
        value, aux, gradients = _differentiated(call, parameters)
    pairs = zip(parameters, gradients, strict=True)
    return value, aux, [_beside(parameter, gradient) for parameter, gradient in pairs]


def _differentiated(call: Call, parameters: list[Any]) -> tuple[Any, Any, list[Any]]:
    variables = [_apart(tf.convert_to_tensor(p)) for p in parameters]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value, aux = call(variables)
    zero = tf.UnconnectedGradients.ZERO
    with _beside_forward(value) if tf.executing_eagerly() else nullcontext():
        gradients = tape.gradient(value, variables, unconnected_gradients=zero)
    return value, aux, gradients


def _compiled(call: Call) -> Callable[..., Any]:
    """The value and the gradients of a compiled function, compiled together: else each is compiled by itself."""
    compiled_ways = _compiled_gradients.setdefault(call.fn, {})
    way = call.how
    # weak, since the dictionary would keep its own key alive; the function is alive while it is
    # called
    function: Any = weakref.ref(call.fn)

    def compiled(order: str, parameters: list[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        return _differentiated(way.bind(function(), args, kwargs), parameters)

    if way not in compiled_ways:
        # AutoGraph would put errors into words of its own
        compiled_ways[way] = tf.function(compiled, autograph=False)
    return compiled_ways[way]


def _apart(value: Any) -> Any:
    with tf.device(value.device):
        return tf.identity(value)  # a new object: a tensor that is given twice has two gradients


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device: a tape computes it wherever the scope happens to be."""
    dense = tf.convert_to_tensor(gradient)  # that of a gather is a tf.IndexedSlices
    if not tf.executing_eagerly():
        return dense  # in a graph no tensor has a device yet
    return placement.arrived(dense, placement.device_of(parameter))


@contextmanager
def _beside_forward(value: Any) -> Generator[None, None, None]:
    """A block in which this thread's tape computes each gradient where its forward pass was computed.

    The forward pass has ended in the value.
    """
    names.require("gradients beside the forward pass")
    with _lock:
        _thread.active_tapes += 1
        engine.TFE_Py_RegisterGradientFunction(_gradient)
        try:
            with scope(placement.device_of(value)):
                yield
        finally:
            _thread.active_tapes -= 1
            if not _thread.active_tapes:
                engine.TFE_Py_RegisterGradientFunction(backprop._gradient_function)


def _gradient(*args: Any) -> Any:
    """TensorFlow's `_gradient_function`, run on the device of the gradients of the results: its argument 5."""
    current_name = runtime().device_name
    other_names = {each.device for each in args[5] if each is not None} - {current_name}
    if not other_names or not _thread.active_tapes:
        return backprop._gradient_function(*args)
    device = placement.placed(other_names.pop())

    def moved(gradient: Any) -> Any:
        # TensorFlow makes zeros on the current device for a result that was never used
        if gradient is None or gradient.device != current_name:
            return gradient
        return placement.move(gradient, device, False)

    results = [moved(gradient) for gradient in args[5]]
    with scope(device):
        return backprop._gradient_function(*args[:5], results, *args[6:])
