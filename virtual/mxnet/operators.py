"""Operators that MXNet has for GPUs only, computed with NumPy.

They are ``fft``, ``ifft`` and ``count_sketch``.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import mxnet as mx
import numpy as np

from xdevice.virtual.mxnet.private_names import Array, Function, names

HostArray: TypeAlias = np.ndarray[Any, Any]
Arrays: TypeAlias = list[Array]
Compute: TypeAlias = Callable[[Sequence[HostArray], int], HostArray]
Shape: TypeAlias = Sequence[int]

_public: Any = mx


class _Operator(NamedTuple):
    arguments: list[str]
    length: Callable[[int, int], int]
    """The length of the result's last axis, from that of the first argument and ``out_dim``."""
    forward: Compute
    """The result, from the arguments and the length of the result's last axis."""
    backward: Compute
    """The first argument's gradient, from the arrays and the length of the gradient's last axis.

    The arrays are the result's gradient and the arguments.
    """


def start() -> None:
    """Add the operators to ``mx.nd.contrib`` and ``mx.sym.contrib``."""
    for name, operator in OPERATORS.items():
        mx.operator.register(f"xdevice_{name}")(_properties(operator))
        for module in (_public.nd, _public.sym):
            path = f"{module.__name__}:contrib.{name}"
            names.replace(path, _on_gpus(module, name, names.value(path)))


def _fft(arrays: Sequence[HostArray], _: int) -> HostArray:
    """The transform, with the real and the imaginary part of each number side by side."""
    return np.fft.fft(arrays[0]).astype(np.complex64).view(np.float32)


def _ifft(arrays: Sequence[HostArray], _: int) -> HostArray:
    """The inverse transform, which is not divided by the length."""
    return np.fft.ifft(arrays[0].view(np.complex64), norm="forward").real


def _count_sketch(arrays: Sequence[HostArray], length: int) -> HostArray:
    """Each column of ``data``, times ``s``, is added to the column of the result that ``h`` gives."""
    data, h, s = arrays
    result = np.zeros((*data.shape[:-1], length), data.dtype)
    columns = (..., h.ravel().astype(int))
    # NumPy's types know no Ellipsis here
    np.add.at(result, columns, data * s.ravel())  # type: ignore[arg-type]
    return result


def _count_sketch_gradient(arrays: Sequence[HostArray], _: int) -> HostArray:
    gradient, _data, h, s = arrays
    result: HostArray = gradient[..., h.ravel().astype(int)] * s.ravel()
    return result


OPERATORS = {
    "fft": _Operator(["data"], lambda length, _: length * 2, _fft, _ifft),
    "ifft": _Operator(["data"], lambda length, _: length // 2, _ifft, _fft),
    "count_sketch": _Operator(
        ["data", "h", "s"], lambda _, out_dim: out_dim, _count_sketch, _count_sketch_gradient
    ),
}


def _on_gpus(module: Any, name: str, native: Function) -> Function:
    def call(*args: object, **options: object) -> Array:
        values = (*args, *options.values())
        arrays = [value for value in values if isinstance(value, mx.nd.NDArray)]
        if any(array.context.device_type != "gpu" for array in arrays):
            return native(*args, **options)  # raises MXNet's error
        for size in ("compute_size", "processing_batch_size"):
            options.pop(size, None)
        return module.Custom(*args, op_type=f"xdevice_{name}", **options)

    return call


def _properties(operator: _Operator) -> type:
    """The operator as a class that `mx.operator.register` takes."""

    class CustomOp(mx.operator.CustomOp):  # type: ignore[misc]  # MXNet has no types
        def forward(
            self, is_train: bool, req: list[str], in_data: Arrays, out_data: Arrays, aux: Arrays
        ) -> None:
            self._compute(operator.forward, in_data, req[0], out_data[0])

        # MXNet passes all arguments by name
        def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, req: list[str], in_grad: Arrays, **arrays: Arrays
        ) -> None:
            inputs = [*arrays["out_grad"], *arrays["in_data"]]
            self._compute(operator.backward, inputs, req[0], in_grad[0])
            for request, gradient in zip(req[1:], in_grad[1:], strict=True):
                self.assign(gradient, request, mx.nd.zeros_like(gradient))

        def _compute(self, compute: Compute, arrays: Arrays, request: str, output: Array) -> None:
            result = compute([array.asnumpy() for array in arrays], output.shape[-1])
            self.assign(output, request, mx.nd.array(result, ctx=output.context))

    class CustomOpProp(mx.operator.CustomOpProp):  # type: ignore[misc]  # as above
        def __init__(self, out_dim: str = "0") -> None:
            super().__init__(need_top_grad=True)
            self._out_dim = int(out_dim)

        def list_arguments(self) -> list[str]:
            return operator.arguments

        def infer_shape(
            self, in_shape: list[Shape]
        ) -> tuple[list[Shape], list[Shape], list[Shape]]:
            *leading, length = in_shape[0]
            return in_shape, [[*leading, operator.length(length, self._out_dim)]], []

        def create_operator(self, ctx: object, in_shapes: object, in_dtypes: object) -> CustomOp:
            return CustomOp()

    return CustomOpProp
