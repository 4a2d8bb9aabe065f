"""New MXNet arrays: ``mx.np.ndarray``, whether or not NumPy's semantics are set."""

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from xdevice.backends.mxnet.hardware import native
from xdevice.backends.mxnet.placement import arrays, move
from xdevice.device import Device

_DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64")
_FLOAT: Any = np.dtype("float32")  # what MXNet makes of Python's floats
_WHOLE = 2**24  # below it, every whole number is a 32-bit float
_EXACT = 2**53  # MXNet passes numbers to its operators as 64-bit floats


def dtype(name: str) -> Any:
    return np.dtype(name) if name in _DTYPES else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    with mx.util.np_shape(True), autograd.pause():
        if not isinstance(data, (NDArray, mx.gluon.Parameter, mx.sym.Symbol)):
            numbers = _numbers(data, dtype)
            return mx.np.array(numbers, numbers.dtype, _context(device))
        array = arrays(data)[0]
        new_array = array.astype(array.dtype if dtype is None else dtype)  # always a copy
        context = _context(device)
        if new_array.ctx == context:
            return new_array
        return new_array.copyto(
            context
        )  # only mx.np has as_in_ctx, and as_in_context is deprecated


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    def create(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
        if shape and 0 not in shape:
            return make(shape, dtype or _FLOAT, ctx=_context(device))
        # MXNet takes these sizes as unknown otherwise
        with mx.util.np_shape(True):
            return make(shape, dtype or _FLOAT, ctx=_context(device))

    return create


empty, zeros, ones = map(_of_shape, (mx.np.empty, mx.np.zeros, mx.np.ones))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any:
    if isinstance(value, mx.nd.NDArray):  # its gradient flows through
        with mx.util.np_shape(True):
            scalar = value.as_np_ndarray()
            if dtype is not None:
                scalar = scalar.astype(dtype)
            if device is not None:
                scalar = move(scalar, device, False)
            return mx.np.broadcast_to(scalar, shape).copy()
    number = _numbers(value, dtype)
    if number.ndim or _loses_sign(number) or _is_rounded(number):
        return tensor(np.full(shape, number), number.dtype, device)
    with mx.util.np_shape(True):
        return mx.np.full(shape, number.item(), number.dtype, ctx=_context(device))


def _loses_sign(number: np.ndarray[Any, Any]) -> bool:
    """Whether this is a negative zero, which MXNet's operators make positive."""
    return bool(number.dtype.kind == "f" and not number.any() and np.signbit(number).any())


def _is_rounded(number: np.ndarray[Any, Any]) -> bool:
    """Whether MXNet's operators round this integer, because they receive a 64-bit float."""
    return bool(number.dtype.kind == "i" and abs(number.item()) > _EXACT)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any:
    numbers = np.arange(start, stop, step, dtype=dtype)  # NumPy's is exact for every dtype
    if dtype is None and numbers.dtype.kind == "f":
        dtype = _FLOAT
    name = np.dtype(dtype or numbers.dtype).name
    limits = start, stop, step
    are_whole = all(float(limit).is_integer() and abs(limit) < _WHOLE for limit in limits)
    if are_whole and numbers.size and name in ("int32", "int64", "float32", "float64"):
        # MXNet's numbers are exact here, and made on the device
        with mx.util.np_shape(True):
            return mx.np.arange(start, stop, step, name, ctx=_context(device))
    return tensor(numbers, dtype, device)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    numbers = _draw(mx.np.random.uniform, shape, dtype, device)
    with mx.util.np_shape(True), autograd.pause():
        # MXNet rounds to 1 now and then: one number in 4000 of float16, one in 2e7 of float32
        largest = np.nextafter(numbers.dtype.type(1), numbers.dtype.type(0))
        return mx.np.minimum(numbers, float(largest), out=numbers)


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    return _draw(mx.np.random.normal, shape, dtype, device)


def seed(n: int) -> None:
    mx.random.seed(n)  # every device's generator


def _draw(
    sample: Callable[..., Any], shape: tuple[int, ...], dtype: Any, device: Device | None
) -> Any:
    float_dtype = np.dtype(dtype or _FLOAT)
    if float_dtype.kind != "f":
        raise TypeError(f"random numbers are floats, not {float_dtype}")
    with mx.util.np_shape(True):
        return sample(size=shape, dtype=float_dtype.name, ctx=_context(device))


def _numbers(data: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """The data as a NumPy array; Python's floats get 32 bits."""
    try:
        array = np.asarray(data, dtype)
    # NumPy 1.23 warns about a ragged list, and a warning may be an error
    except (TypeError, ValueError, Warning):
        array = np.asarray(None)
    if array.dtype.kind == "O":
        try:
            array = np.asarray(_plain(data), dtype)
        except Warning as error:
            raise ValueError(str(error)) from error
    if array.dtype.kind == "f" and dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        array = array.astype(_FLOAT)
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"MXNet has no {array.dtype}; its numbers are {', '.join(_DTYPES)}")
    return array


def _plain(data: Any) -> Any:
    """The list with NumPy's arrays in place of MXNet's, which NumPy would treat as objects."""
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data.asnumpy() if isinstance(data, NDArray) else data


def _context(device: Device | None) -> mx.Context:
    return mx.current_context() if device is None else native(device)
