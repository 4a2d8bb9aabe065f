"""Gradients, by tf.GradientTape.

A tape computes all gradients in the scope in which it is asked for them. A
network may be spread over devices, so TensorFlow's function for the gradient of
one operation is replaced. Each gradient is then computed on the device of the
gradient of the operation's result. It is copied to another device where the
forward pass was.
"""

import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import tensorflow as tf

from xdevice.backends.tensorflow import placement
from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.private_names import backprop, engine, names, runtime
from xdevice.contract import Call, Tensor
from xdevice.errors import NotSupportedError

Result: TypeAlias = tuple[Tensor, Any, list[Tensor]]
"""A value, the auxiliary result, and the gradients."""
CompiledFunction: TypeAlias = Callable[..., Result]
CompiledFunctions: TypeAlias = dict[object, CompiledFunction]
"""By the way in which the arguments are passed."""


class _Thread(threading.local):
    active_tapes = 0  # tapes that compute gradients, which may be nested


# the function that computes a gradient is replaced for all threads
_lock = threading.RLock()
_thread = _Thread()
# compiled gradients, by the compiled function
_compiled_gradients: weakref.WeakKeyDictionary[Any, CompiledFunctions] = weakref.WeakKeyDictionary()


def is_floating(tensor: Tensor) -> bool:
    return bool(tf.as_dtype(tensor.dtype).is_floating)


def value_and_gradients(call: Call, parameters: list[Tensor], nested: bool) -> Result:
    for parameter in parameters:
        if isinstance(parameter, placement.COMPOSITES):
            reason = f"tensorflow cannot differentiate for {placement.described(parameter)}"
            raise NotSupportedError(reason)
    is_compiled = isinstance(call.fn, tf.types.experimental.PolymorphicFunction)
    if is_compiled and not nested and tf.executing_eagerly():
        # the order of the keys is an argument, since tf.function ignores it in a mapping
        order = " ".join(call.paths())
        compiled = _compiled(call)
        value, aux, gradients = compiled(order, parameters, list(call.args), call.kwargs)
    else:
        value, aux, gradients = _differentiated(call, parameters)
    pairs = zip(parameters, gradients, strict=True)
    return value, aux, [_beside(parameter, gradient) for parameter, gradient in pairs]


def _differentiated(call: Call, parameters: list[Tensor]) -> Result:
    variables = [_apart(tf.convert_to_tensor(p)) for p in parameters]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value, aux = call(variables)
    zero = tf.UnconnectedGradients.ZERO
    devices = _beside_forward(value) if tf.executing_eagerly() else nullcontext()
    with devices:
        gradients = tape.gradient(value, variables, unconnected_gradients=zero)
    return value, aux, gradients


def _compiled(call: Call) -> CompiledFunction:
    """A function that computes the value and the gradients of a compiled function.

    Both are compiled together; by default each is compiled separately.
    """
    functions = _compiled_gradients.setdefault(call.fn, {})
    way = call.how
    # a weak reference, since the dictionary would keep its own key alive; the function is alive
    # while it is called
    reference: Any = weakref.ref(call.fn)

    def value_and_gradients_of(
        order: str, parameters: list[Tensor], args: list[Any], kwargs: dict[str, Any]
    ) -> Result:
        return _differentiated(way.bind(reference(), args, kwargs), parameters)

    if way not in functions:
        # AutoGraph would change the text of errors
        functions[way] = tf.function(value_and_gradients_of, autograph=False)
    return functions[way]


def _apart(value: Tensor) -> Tensor:
    """A new tensor object, so that a parameter that is given twice has two gradients."""
    with tf.device(value.device):
        return tf.identity(value)


def _beside(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient on its parameter's device; a tape computes it in the scope."""
    dense = tf.convert_to_tensor(gradient)  # the gradient of a gather is a tf.IndexedSlices
    if not tf.executing_eagerly():
        return dense  # in a graph no tensor has a device yet
    return placement.arrived(dense, placement.device_of(parameter))


@contextmanager
def _beside_forward(value: Tensor) -> Generator[None]:
    """A block in which this thread's tape computes each gradient beside its forward pass.

    The value is the result of the forward pass.
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
    """TensorFlow's `_gradient_function`, run on the device of the gradients of the results.

    These gradients are its argument 5.
    """
    current_name = runtime().device_name
    device_names = {gradient.device for gradient in args[5] if gradient is not None}
    device_names.discard(current_name)
    if not device_names or not _thread.active_tapes:
        return backprop._gradient_function(*args)
    device = placement.placed(device_names.pop())

    def moved(gradient: Tensor | None) -> Tensor | None:
        # TensorFlow makes zeros on the current device for a result that was never used
        if gradient is None or gradient.device != current_name:
            return gradient
        return placement.move(gradient, device, False)

    gradients = [moved(gradient) for gradient in args[5]]
    with scope(device):
        return backprop._gradient_function(*args[:5], gradients, *args[6:])
