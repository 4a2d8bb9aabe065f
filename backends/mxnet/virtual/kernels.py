"""What MXNet computes on GPUs alone: float16 in dense layers, products and convolutions; ``fft``, ``count_sketch``.

The CPU computes the first in float32, and the result is rounded, as GPUs do (in graphs: `half`). The others are custom
operators, by NumPy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

from xdevice.backends.mxnet import mixing
from xdevice.backends.mxnet.private_names import in_place_of
from xdevice.backends.mxnet.virtual import half
from xdevice.backends.mxnet.virtual.half import WIDER

public: Any = mx


def start() -> None:
    """Let operations on GPUs have these kernels."""
    in_place_of("mxnet.ndarray.register:_imperative_invoke")(_rounding)
    half.start()
    operations = public.ndarray.numpy._op._api_internal
    operations.tensordot = _rounding_function(operations.tensordot)
    for name, kernel in KERNELS.items():
        mx.operator.register(f"xdevice_{name}")(_properties(kernel))
        for home in (public.nd, public.sym):
            vars(home.contrib)[name] = _custom(home, name, getattr(home.contrib, name))


def _is_half(value: Any) -> bool:
    return isinstance(value, mx.nd.NDArray) and value.dtype == np.float16 and value.context.device_type == "gpu"


def _cast(value: Any, dtype: str) -> Any:
    """The array in another type, of the same class; gradients flow through."""
    made: Any = mx.nd.Cast(value.as_nd_ndarray(), dtype=dtype)
    return made.as_np_ndarray() if isinstance(value, mx.np.ndarray) else made


def _wide(values: Any) -> list[Any]:
    return [_cast(value, "float32") if _is_half(value) else value for value in values]


def _rounding(  # noqa: PLR0913, PLR0917  (MXNet's signature)
    invoke: Callable[..., Any], handle: Any, given: Any, keys: Any, values: Any, out: Any, *rest: Any
) -> Any:
    if mixing.name_of(handle) not in WIDER or not any(map(_is_half, given)):
        return invoke(handle, given, keys, values, out, *rest)
    made = invoke(handle, _wide(given), keys, values, None, *rest)
    several = isinstance(made, list)
    results = [_cast(each, "float16") for each in (made if several else [made])]
    if out is None:
        return results if several else results[0]
    for result, there in zip(results, out if isinstance(out, (list, tuple)) else [out], strict=False):
        result.copyto(there)
    return out


def _rounding_function(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        return _cast(run(*_wide(given)), "float16") if any(map(_is_half, given)) else run(*given)

    vars(call)["handle"] = run.handle  # type: ignore[attr-defined]  # by which an error finds its name
    return call


class _Kernel(NamedTuple):
    """The names of its arguments; the shape of its result by theirs, the result by their values, and the gradient."""

    arguments: list[str]
    shape: Callable[[Any, int], Any]
    forward: Callable[[Any, int], Any]
    backward: Callable[[Any, Any], Any]


def _fft(x: Any) -> Any:
    """Complex numbers are two numbers, side by side; no result is divided by their count."""
    return np.fft.fft(x).astype(np.complex64).view(np.float32)


def _ifft(x: Any) -> Any:
    return np.fft.ifft(x.view(np.complex64), norm="forward").real


def _sketch(given: Any, out_dim: int) -> Any:
    """The columns of ``data``, times ``s``, summed where ``h`` says."""
    data, h, s = given
    made = np.zeros((out_dim, *data.shape[:-1]), data.dtype)
    np.add.at(made, h.ravel().astype(int), np.moveaxis(data * s.ravel(), -1, 0))
    return np.moveaxis(made, 0, -1)


KERNELS = {
    "fft": _Kernel(
        ["data"],
        lambda given, _: [*given[0][:-1], given[0][-1] * 2],
        lambda given, _: _fft(given[0]),
        lambda gradient, _: _ifft(gradient),
    ),
    "ifft": _Kernel(
        ["data"],
        lambda given, _: [*given[0][:-1], given[0][-1] // 2],
        lambda given, _: _ifft(given[0]),
        lambda gradient, _: _fft(gradient),
    ),
    "count_sketch": _Kernel(
        ["data", "h", "s"],
        lambda given, out_dim: [*given[0][:-1], out_dim],
        _sketch,
        lambda gradient, given: gradient[..., given[1].ravel().astype(int)] * given[2].ravel(),
    ),
}


def _custom(home: Any, name: str, on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **options: Any) -> Any:
        if any(isinstance(x, mx.nd.NDArray) and x.context.device_type != "gpu" for x in (*given, *options.values())):
            return on_cpu(*given, **options)  # MXNet's error
        for size in ("compute_size", "processing_batch_size"):
            options.pop(size, None)
        return home.Custom(*given, op_type=f"xdevice_{name}", **options)

    return call


def _properties(kernel: _Kernel) -> type:
    class Operator(mx.operator.CustomOp):  # type: ignore[misc]  # MXNet has no types
        def __init__(self, out_dim: int) -> None:
            super().__init__()
            self._out_dim = out_dim

        def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            made = kernel.forward([x.asnumpy() for x in in_data], self._out_dim)
            self.assign(out_data[0], req[0], mx.nd.array(made, ctx=out_data[0].context))

        # MXNet gives everything by name
        def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, req: Any, in_grad: Any, **given: Any
        ) -> None:
            made = kernel.backward(given["out_grad"][0].asnumpy(), [x.asnumpy() for x in given["in_data"]])
            self.assign(in_grad[0], req[0], mx.nd.array(made, ctx=in_grad[0].context))
            for kind, gradient in zip(req[1:], in_grad[1:], strict=True):
                self.assign(gradient, kind, mx.nd.zeros_like(gradient))

    class Properties(mx.operator.CustomOpProp):  # type: ignore[misc]  # as above
        def __init__(self, out_dim: str = "0") -> None:
            super().__init__(need_top_grad=True)
            self._out_dim = int(out_dim)

        def list_arguments(self) -> list[str]:
            return kernel.arguments

        def infer_shape(self, in_shape: Any) -> Any:
            return in_shape, [kernel.shape(in_shape, self._out_dim)], []

        def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
            return Operator(self._out_dim)

    return Properties
