"""float16 on virtual GPUs that stand in: dense layers, products and convolutions.

MXNet's CPU has no float16 kernel for the operators in `WITHOUT_FLOAT16`. Their arguments are cast
to float32, and their results back to float16; GPUs add up in float32 and round, too. Casts are
added in calls, in the graphs of symbols that are bound, and in those of hybridized blocks.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import mxnet as mx
import numpy as np

from xdevice.backends.mxnet import mixing
from xdevice.virtual.mxnet.private_names import Array, Function, in_place_of, names

Context: TypeAlias = Any
DType: TypeAlias = Any
Executor: TypeAlias = Any
Graph: TypeAlias = dict[str, Any]  # the JSON of a symbol
Node: TypeAlias = dict[str, Any]
Symbol: TypeAlias = Any
Types: TypeAlias = Mapping[str, DType]  # the dtypes of arguments, by name

# MXNet 1.9.1 has float16 kernels of these for GPUs, and none for the CPU
WITHOUT_FLOAT16 = frozenset({
    "FullyConnected", "Convolution", "Deconvolution", "RNN", "LRN",
    "dot", "batch_dot", "_np_dot", "_npi_matmul", "_npi_tensordot", "_npi_tensordot_int_axes",
    "_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_selfatt_valatt",
    "_contrib_interleaved_matmul_encdec_qk", "_contrib_interleaved_matmul_encdec_valatt",
})  # fmt: skip

# the parts of a graph's JSON that make float16 without a float16 argument
_FLOAT16_IN_JSON = re.compile('"float16"|"__dtype__": "2"')
_TENSORDOT = "mxnet.ndarray.numpy._op:_api_internal.tensordot"
_public: Any = mx


class Output(NamedTuple):
    """An output of a node in a graph."""

    node: int  # the node's index
    number: int  # of the node's outputs


def start() -> None:
    """Replace the functions of MXNet that run operators, and those that bind graphs."""
    in_place_of("mxnet.ndarray.register:_imperative_invoke")(_invoke)
    in_place_of("mxnet.symbol:Symbol.simple_bind")(_simple_bind)
    in_place_of("mxnet.symbol:Symbol.bind")(_bind)
    names.replace("mxnet.ndarray:CachedOp", _CachedOp)
    native_tensordot = names.value(_TENSORDOT)
    tensordot: Any = in_place_of(_TENSORDOT)(_call_function)
    if hasattr(native_tensordot, "handle"):
        tensordot.handle = native_tensordot.handle  # an error finds the function's name by it


def _is_float16(value: object) -> bool:
    return (
        isinstance(value, mx.nd.NDArray)
        and value.dtype == np.float16
        and value.context.device_type == "gpu"
    )


def _cast(array: Array, dtype: str) -> Array:
    """The array in another dtype, of the same class; gradients flow through."""
    result: Array = mx.nd.Cast(array.as_nd_ndarray(), dtype=dtype)
    if isinstance(array, mx.np.ndarray):
        return result.as_np_ndarray()
    return result


def _as_float32(values: Sequence[object]) -> list[object]:
    return [_cast(value, "float32") if _is_float16(value) else value for value in values]


def _invoke(  # noqa: PLR0913, PLR0917  (MXNet's signature)
    native: Function,
    handle: mixing.Handle,
    inputs: Sequence[Array],
    keys: object,
    values: object,
    out: Array | Sequence[Array] | None,
    *options: object,
) -> Array | Sequence[Array]:
    name = mixing.name_of(handle)
    if name not in WITHOUT_FLOAT16 or not any(map(_is_float16, inputs)):
        return native(handle, inputs, keys, values, out, *options)
    result = native(handle, _as_float32(inputs), keys, values, None, *options)
    has_several_results = isinstance(result, list)
    results = result if has_several_results else [result]
    half_results = [_cast(array, "float16") for array in results]
    if out is None:
        return half_results if has_several_results else half_results[0]
    outputs = out if isinstance(out, (list, tuple)) else [out]
    for half_result, output in zip(half_results, outputs, strict=False):
        half_result.copyto(output)
    return out


def _call_function(native: Function, *args: object) -> Array:
    if not any(map(_is_float16, args)):
        return native(*args)
    return _cast(native(*_as_float32(args)), "float16")


def with_casts(symbol: Symbol, types: Types) -> Symbol:
    """The symbol with casts around operators that lack float16.

    The symbol itself is returned if no operator needs them.
    """
    text = symbol.tojson()
    if np.float16 not in types.values() and not _FLOAT16_IN_JSON.search(text):
        return symbol
    graph = json.loads(text)
    halves = _float16_outputs(graph, types)
    widened = {
        index
        for index, node in enumerate(graph["nodes"])
        if node["op"] in WITHOUT_FLOAT16 and Output(*node["inputs"][0][:2]) in halves
    }
    if not widened:
        return symbol
    new_graph = _GraphWithCasts(graph, halves, widened).new_graph()
    new_symbol = _public.sym.load_json(json.dumps(new_graph))
    return new_symbol if type(symbol) is mx.sym.Symbol else new_symbol.as_np_ndarray()


class _GraphWithCasts:
    """Copies a graph, and adds casts to the nodes that are widened.

    They get a cast for each float16 input and for each output.

    An edge of a graph is a list: the index of a node, the index of one of its outputs, and
    sometimes a version.
    """

    def __init__(self, graph: Graph, halves: set[Output], widened: set[int]) -> None:
        self._graph, self._halves, self._widened = graph, halves, widened
        self._new_nodes: list[Node] = []
        self._new_outputs: dict[Output, Output] = {}  # by the output in the original graph
        edges = [edge for node in graph["nodes"] for edge in node["inputs"]]
        self._used_outputs = {Output(*edge[:2]) for edge in (*edges, *graph["heads"])}

    def new_graph(self) -> Graph:
        for index, node in enumerate(self._graph["nodes"]):
            if index in self._widened:
                self._add_widened(index, node)
            else:
                inputs = [self._new_edge(edge) for edge in node["inputs"]]
                new_index = self._add({**node, "inputs": inputs})
                for output in self._used_outputs_of(index):
                    self._new_outputs[output] = Output(new_index, output.number)
        arguments = [i for i, node in enumerate(self._new_nodes) if node["op"] == "null"]
        return {
            "nodes": self._new_nodes,
            "arg_nodes": arguments,
            "heads": [self._new_edge(head) for head in self._graph["heads"]],
            "attrs": self._graph["attrs"],
        }

    def _add_widened(self, index: int, node: Node) -> None:
        name = node["name"]
        inputs = []
        for i, edge in enumerate(node["inputs"]):
            new_edge = self._new_edge(edge)
            if Output(*edge[:2]) in self._halves:
                new_edge = [*self._add_cast(f"{name}_argument{i}", new_edge, "float32"), 0]
            inputs.append(new_edge)
        new_index = self._add({**node, "inputs": inputs, "name": f"{name}_float32"})
        for output in self._used_outputs_of(index):
            cast_name = f"{name}{output.number or ''}"
            edge = [new_index, output.number, 0]
            self._new_outputs[output] = self._add_cast(cast_name, edge, "float16")

    def _add(self, node: Node) -> int:
        self._new_nodes.append(node)
        return len(self._new_nodes) - 1

    def _add_cast(self, name: str, edge: list[int], dtype: str) -> Output:
        node = {"op": "Cast", "name": name, "attrs": {"dtype": dtype}, "inputs": [edge]}
        return Output(self._add(node), 0)

    def _new_edge(self, edge: list[int]) -> list[int]:
        return [*self._new_outputs[Output(*edge[:2])], *edge[2:]][:3]

    def _used_outputs_of(self, node: int) -> list[Output]:
        return [output for output in self._used_outputs if output.node == node]


def _float16_outputs(graph: Graph, types: Types) -> set[Output]:
    """The outputs of the graph's nodes that are float16.

    The dtype with which a variable was created is removed where ``types`` has another.
    """
    for node in graph["nodes"]:
        if node["name"] in types:
            node.get("attrs", {}).pop("__dtype__", None)
    internals = _public.sym.load_json(json.dumps(graph)).get_internals()
    arguments = set(internals.list_arguments())
    argument_types = {name: types[name] for name in arguments & set(types)}
    _, dtypes, _ = internals.infer_type_partial(**argument_types)
    index_of = {node["name"]: index for index, node in enumerate(graph["nodes"])}
    outputs = zip((internal.name for internal in internals), dtypes or [], strict=True)
    halves = set[Output]()
    for name, group in groupby(outputs, key=lambda output: output[0]):
        for j, (_, dtype) in enumerate(group):
            if dtype is np.float16:
                halves.add(Output(index_of[name], j))
    return halves


def _uses_gpu(context: Context, groups: dict[str, Context] | None) -> bool:
    """Whether a graph that is bound to these contexts runs on a GPU; ``groups`` is ``group2ctx``."""
    contexts = [context, *(groups or {}).values()]
    return any(bound_context.device_type == "gpu" for bound_context in contexts)


def _simple_bind(
    native: Function,
    self: Symbol,
    ctx: Context,
    grad_req: object = "write",
    type_dict: Types | None = None,
    *args: object,
    **options: Any,
) -> Executor:
    types = {name: np.dtype(dtype).type for name, dtype in (type_dict or {}).items()}
    symbol = self
    if _uses_gpu(ctx, options.get("group2ctx")):
        symbol = with_casts(self, types)
    if symbol is self:
        return native(self, ctx, grad_req, type_dict, *args, **options)
    dtypes, _, _ = self.infer_type_partial(**types)
    inferred = zip(self.list_arguments(), dtypes or [], strict=False)
    all_types = {name: dtype for name, dtype in inferred if dtype is not None} | types
    return _named_as(self, native(symbol, ctx, grad_req, all_types, *args, **options))


def _bind(
    native: Function,
    self: Symbol,
    ctx: Context,
    args: dict[str, Array] | Sequence[Array],
    *more: object,
    **options: Any,
) -> Executor:
    if isinstance(args, dict):
        arrays = args
    else:
        arrays = dict(zip(self.list_arguments(), args, strict=False))
    types = {name: array.dtype for name, array in arrays.items() if array is not None}
    symbol = self
    if _uses_gpu(ctx, options.get("group2ctx")):
        symbol = with_casts(self, types)
    return _named_as(self, native(symbol, ctx, args, *more, **options))


def _named_as(symbol: Symbol, executor: Executor) -> Executor:
    """The executor, with the symbol's names for its arguments and results."""
    executor._symbol = symbol
    return executor


_NativeCachedOp: Any = names.optional("mxnet.ndarray:CachedOp", otherwise=object)


class _CachedOp(_NativeCachedOp):  # type: ignore[misc]  # MXNet has no types
    """The graph of a hybridized block, with a variant for each combination of its arguments' dtypes."""

    def __init__(self, sym: Symbol, flags: Sequence[object] = ()) -> None:
        super().__init__(sym, flags)
        self._native_symbol = sym
        self._flags = flags
        self._variants: dict[tuple[DType, ...], Function] = {}

    def __call__(self, *args: Array, **options: object) -> Any:
        if not args or args[0].ctx.device_type != "gpu":
            return super().__call__(*args, **options)
        dtypes = tuple(array.dtype for array in args)
        if dtypes not in self._variants:
            self._variants[dtypes] = self._variant(dtypes)
        return self._variants[dtypes](*args, **options)

    def _variant(self, dtypes: tuple[DType, ...]) -> Function:
        types = dict(zip(self._native_symbol.list_inputs(), dtypes, strict=True))
        symbol = with_casts(self._native_symbol, types)
        if symbol is self._native_symbol:
            return super().__call__  # type: ignore[no-any-return]  # MXNet has no types
        return _NativeCachedOp(symbol, self._flags)  # type: ignore[no-any-return]  # as above
