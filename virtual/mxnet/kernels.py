"""What MXNet computes on GPUs alone: float16 in dense layers, products and convolutions; ``fft``, ``count_sketch``.

MXNet's CPU has no float16 kernel for the operators in `WIDER`. Their arguments are cast to float32, and their results
back, as GPUs accumulate in float32 and round: in calls, and in graphs, of symbols that are bound and of hybridized
blocks. The others are custom operators, by NumPy.
"""

import json
import re
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

from xdevice.backends.mxnet import mixing
from xdevice.virtual.mxnet.private_names import in_place_of, names

WIDER = frozenset({  # with a kernel for float16 on GPUs and none on the CPU, MXNet 1.9.1
    *("FullyConnected", "Convolution", "Deconvolution", "RNN", "LRN", "dot", "batch_dot", "_np_dot", "_npi_matmul"),
    *("_npi_tensordot", "_npi_tensordot_int_axes"),
    *(f"_contrib_interleaved_matmul_{part}" for part in ("selfatt_qk", "selfatt_valatt", "encdec_qk", "encdec_valatt")),
})  # fmt: skip

HALF = re.compile('"float16"|"__dtype__": "2"')  # what a graph says that makes float16 by itself
Entry = tuple[int, int]  # a node's index, and which of its outputs
public: Any = mx


def start() -> None:
    """Let operations on GPUs have these kernels."""
    in_place_of("mxnet.ndarray.register:_imperative_invoke")(_rounding)
    in_place_of("mxnet.symbol:Symbol.simple_bind")(_simple_bind)
    in_place_of("mxnet.symbol:Symbol.bind")(_bind)
    names.replace("mxnet.ndarray:CachedOp", _CachedOp)
    tensordot = names.value("mxnet.ndarray.numpy._op:_api_internal.tensordot")
    ours: Any = in_place_of("mxnet.ndarray.numpy._op:_api_internal.tensordot")(_rounding_function)
    if hasattr(tensordot, "handle"):
        ours.handle = tensordot.handle  # by which an error finds its name
    for name, kernel in KERNELS.items():
        mx.operator.register(f"xdevice_{name}")(_properties(kernel))
        for home in (public.nd, public.sym):
            path = f"{home.__name__}:contrib.{name}"
            names.replace(path, _custom(home, name, names.value(path)))


def _is_half(value: Any) -> bool:
    return (
        isinstance(value, mx.nd.NDArray)
        and value.dtype == np.float16
        and value.context.device_type == "gpu"
    )


def _cast(value: Any, dtype: str) -> Any:
    """The array in another type, of the same class; gradients flow through."""
    made: Any = mx.nd.Cast(value.as_nd_ndarray(), dtype=dtype)
    return made.as_np_ndarray() if isinstance(value, mx.np.ndarray) else made


def _wide(values: Any) -> list[Any]:
    return [_cast(value, "float32") if _is_half(value) else value for value in values]


def _rounding(  # noqa: PLR0913, PLR0917  (MXNet's signature)
    invoke: Callable[..., Any],
    handle: Any,
    given: Any,
    keys: Any,
    values: Any,
    out: Any,
    *rest: Any,
) -> Any:
    if mixing.name_of(handle) not in WIDER or not any(map(_is_half, given)):
        return invoke(handle, given, keys, values, out, *rest)
    made = invoke(handle, _wide(given), keys, values, None, *rest)
    several = isinstance(made, list)
    results = [_cast(each, "float16") for each in (made if several else [made])]
    if out is None:
        return results if several else results[0]
    for result, there in zip(
        results, out if isinstance(out, (list, tuple)) else [out], strict=False
    ):
        result.copyto(there)
    return out


def _rounding_function(run: Callable[..., Any], *given: Any) -> Any:
    return _cast(run(*_wide(given)), "float16") if any(map(_is_half, given)) else run(*given)


def widen(symbol: Any, known: Mapping[str, Any]) -> Any:
    """The symbol with casts, or itself where no operator needs them; ``known`` are the types of arguments."""
    text = symbol.tojson()
    if np.float16 not in known.values() and not HALF.search(text):
        return symbol
    graph = json.loads(text)
    half = _half(graph, known)
    wide = {
        k
        for k, node in enumerate(graph["nodes"])
        if node["op"] in WIDER and tuple(node["inputs"][0][:2]) in half
    }
    if not wide:
        return symbol
    used = {(k, j) for node in graph["nodes"] for k, j, *_ in node["inputs"]} | {
        (k, j) for k, j, *_ in graph["heads"]
    }
    nodes: list[dict[str, Any]] = []
    there: dict[Entry, list[int]] = {}

    def add(**node: Any) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def cast(name: str, entry: list[int], dtype: str) -> list[int]:
        return [add(op="Cast", name=name, attrs={"dtype": dtype}, inputs=[entry]), 0, 0]

    def moved(entry: list[int]) -> list[int]:
        return [*there[entry[0], entry[1]], *entry[2:]][:3]

    for k, node in enumerate(graph["nodes"]):
        given, name = [moved(entry) for entry in node["inputs"]], node["name"]
        if k in wide:
            for i, (was, entry) in enumerate(zip(node["inputs"], given, strict=True)):
                if tuple(was[:2]) in half:
                    given[i] = cast(f"{name}_argument{i}", entry, "float32")
        at = add(**{**node, "inputs": given, "name": f"{name}_float32" if k in wide else name})
        for j in {j for user, j in used if user == k}:
            entry = [at, j, 0]
            there[k, j] = cast(f"{name}{j or ''}", entry, "float16")[:2] if k in wide else entry[:2]
    arguments = [k for k, node in enumerate(nodes) if node["op"] == "null"]
    heads = [moved(head) for head in graph["heads"]]
    text = json.dumps(
        {"nodes": nodes, "arg_nodes": arguments, "heads": heads, "attrs": graph["attrs"]}
    )
    made = public.sym.load_json(text)
    return made if type(symbol) is mx.sym.Symbol else made.as_np_ndarray()


def _half(graph: Any, known: Mapping[str, Any]) -> set[Entry]:
    """The results of the graph's nodes that are float16; a type that a variable was made with counts no more."""
    for node in graph["nodes"]:
        if node["name"] in known:
            node.get("attrs", {}).pop("__dtype__", None)
    inside = public.sym.load_json(json.dumps(graph)).get_internals()
    arguments = set(inside.list_arguments())
    types = (
        inside.infer_type_partial(**{name: known[name] for name in arguments & set(known)})[1] or []
    )
    order = {node["name"]: k for k, node in enumerate(graph["nodes"])}
    named = zip((each.name for each in inside), types, strict=True)
    groups = [
        (order[name], list(group)) for name, group in groupby(named, key=lambda each: each[0])
    ]
    return {
        (k, j) for k, group in groups for j, (_, dtype) in enumerate(group) if dtype is np.float16
    }


def _on_gpu(context: Any, groups: Any) -> bool:
    return any(each.device_type == "gpu" for each in (context, *(groups or {}).values()))


def _simple_bind(
    bind: Any,
    self: Any,
    ctx: Any,
    grad_req: Any = "write",
    type_dict: Any = None,
    *given: Any,
    **options: Any,
) -> Any:
    known = {name: np.dtype(dtype).type for name, dtype in (type_dict or {}).items()}
    graph = widen(self, known) if _on_gpu(ctx, options.get("group2ctx")) else self
    if graph is self:
        return bind(self, ctx, grad_req, type_dict, *given, **options)
    inferred = zip(self.list_arguments(), self.infer_type_partial(**known)[0] or [], strict=False)
    types = {name: dtype for name, dtype in inferred if dtype is not None}
    return _bound(bind(graph, ctx, grad_req, {**types, **known}, *given, **options), self)


def _bind(bind: Any, self: Any, ctx: Any, args: Any, *given: Any, **options: Any) -> Any:
    named = args if isinstance(args, dict) else dict(zip(self.list_arguments(), args, strict=False))
    known = {name: array.dtype for name, array in named.items() if array is not None}
    graph = widen(self, known) if _on_gpu(ctx, options.get("group2ctx")) else self
    return _bound(bind(graph, ctx, args, *given, **options), self)


def _bound(executor: Any, symbol: Any) -> Any:
    """The executor, which names its arguments and results as the symbol does."""
    executor._symbol = symbol
    return executor


_Graph: Any = names.optional("mxnet.ndarray:CachedOp", otherwise=object)


class _CachedOp(_Graph):  # type: ignore[misc]  # MXNet has no types
    """A graph of its own for each set of types."""

    def __init__(self, sym: Any, flags: Any = ()) -> None:
        super().__init__(sym, flags)
        self._made, self._graphs = (sym, flags), dict[Any, Any]()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if not args or args[0].ctx.device_type != "gpu":
            return super().__call__(*args, **options)
        types = tuple(each.dtype for each in args)
        if types not in self._graphs:
            symbol, flags = self._made
            graph = widen(symbol, dict(zip(symbol.list_inputs(), types, strict=True)))
            self._graphs[types] = super().__call__ if graph is symbol else _Graph(graph, flags)
        return self._graphs[types](*args, **options)


class _Kernel(NamedTuple):
    arguments: list[str]
    length: Callable[
        [int, int], int
    ]  # of the result's last axis, by that of the first argument, and ``out_dim``
    forward: Callable[[Any, int], Any]  # the result, of the values and the length of its last axis
    backward: Callable[
        [Any, int], Any
    ]  # the gradient, likewise, with that of the result before the values


def _fft(given: Any, _: int) -> Any:
    """Complex numbers are two numbers, side by side; no result is divided by their count."""
    return np.fft.fft(given[0]).astype(np.complex64).view(np.float32)


def _ifft(given: Any, _: int) -> Any:
    return np.fft.ifft(given[0].view(np.complex64), norm="forward").real


def _sketch(given: Any, length: int) -> Any:
    """The columns of ``data``, times ``s``, summed where ``h`` says."""
    data, h, s = given
    made, columns = np.zeros((*data.shape[:-1], length), data.dtype), (..., h.ravel().astype(int))
    np.add.at(made, columns, data * s.ravel())  # type: ignore[arg-type]  # NumPy's types know no Ellipsis here
    return made


def _of_sketch(given: Any, _: int) -> Any:
    gradient, _data, h, s = given
    return gradient[..., h.ravel().astype(int)] * s.ravel()


KERNELS = {
    "fft": _Kernel(["data"], lambda length, _: length * 2, _fft, _ifft),
    "ifft": _Kernel(["data"], lambda length, _: length // 2, _ifft, _fft),
    "count_sketch": _Kernel(["data", "h", "s"], lambda _, out_dim: out_dim, _sketch, _of_sketch),
}


def _custom(home: Any, name: str, on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **options: Any) -> Any:
        if any(
            isinstance(x, mx.nd.NDArray) and x.context.device_type != "gpu"
            for x in (*given, *options.values())
        ):
            return on_cpu(*given, **options)  # MXNet's error
        for size in ("compute_size", "processing_batch_size"):
            options.pop(size, None)
        return home.Custom(*given, op_type=f"xdevice_{name}", **options)

    return call


def _properties(kernel: _Kernel) -> type:
    class Operator(mx.operator.CustomOp):  # type: ignore[misc]  # MXNet has no types
        def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            self._give(kernel.forward, in_data, req[0], out_data[0])

        # MXNet gives everything by name
        def backward(self, req: Any, in_grad: Any, **given: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            self._give(kernel.backward, (*given["out_grad"], *given["in_data"]), req[0], in_grad[0])
            for kind, gradient in zip(req[1:], in_grad[1:], strict=True):
                self.assign(gradient, kind, mx.nd.zeros_like(gradient))

        def _give(self, compute: Any, values: Any, kind: Any, there: Any) -> None:
            made = compute([x.asnumpy() for x in values], there.shape[-1])
            self.assign(there, kind, mx.nd.array(made, ctx=there.context))

    class Properties(mx.operator.CustomOpProp):  # type: ignore[misc]  # as above
        def __init__(self, out_dim: str = "0") -> None:
            super().__init__(need_top_grad=True)
            self._out_dim = int(out_dim)

        def list_arguments(self) -> list[str]:
            return kernel.arguments

        def infer_shape(self, in_shape: Any) -> Any:
            *others, length = in_shape[0]
            return in_shape, [[*others, kernel.length(length, self._out_dim)]], []

        def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
            return Operator()

    return Properties
