"""The temporary memory that a compiled function needs on a GPU, by the liveness of its values.

XLA's analysis for the CPU is of no use here: it recomputes nothing, also where
the program asks for it with `jax.checkpoint`. So the function's jaxpr is walked
in its order, with the functions that it calls in their places, by these rules:

- Products, convolutions, reductions, loops and all other operations that XLA
  does not fuse write their results into memory, and read their operands there.
- Pointwise operations, slices and broadcasts are fused into those that read
  them: their results take no memory, and what they are computed from lives
  until then. Products read what is written; a cheap operation on one array,
  such as a ReLU, whose result only products read, is fused into these, too. A
  softmax is only if several products read it, as in training.
- A result that several operations read, and that is made of several arrays of
  its size, as a sum of gradients is, is written, too.
- Reshapes and transpositions take no memory.
- Memory is freed after its last use. A pointwise operation writes into the
  memory of an operand of its size that it frees, unless it reads a reduction of
  that operand's rows, too: XLA computes a softmax in one kernel, which reads a
  row several times.
- A loop needs what one turn needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from jax.extend import core

Equation: TypeAlias = Any
Variable: TypeAlias = Any

_RENAMING = """
copy copy_p expand_dims mesh_cast optimization_barrier pvary reshape reshard sharding_constraint squeeze
stop_gradient transpose
"""
_POINTWISE = """
abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type broadcast_in_dim cbrt ceil
clamp complex concatenate conj convert_element_type cos cosh digamma div dynamic_slice eq erf erf_inv erfc
exp exp2 expm1 floor gather ge gt imag integer_pow iota is_finite le lgamma log log1p logistic lt max min
mul ne neg nextafter not or pad population_count pow random_bits random_fold_in random_seed random_split
random_unwrap random_wrap real reduce_precision rem rev round rsqrt select_n shift_left
shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt square sub tan tanh threefry2x32
xor
"""
_REDUCING = """
argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_and reduce_max reduce_min reduce_or
reduce_prod reduce_sum reduce_xor
"""
_CHEAPLY_FUSED = """
abs add add_any broadcast_in_dim clamp convert_element_type div ge gt le lt max min mul ne neg select_n sub
"""
_RENAMED = frozenset(_RENAMING.split())
_FUSED = frozenset(_POINTWISE.split())
_READS_FUSED = frozenset(_REDUCING.split())
_CHEAP = _RENAMED.union(_CHEAPLY_FUSED.split())
_LOOPS = frozenset(("scan", "while", "cond"))


class _Value:
    """The result of an operation, or an argument."""

    __slots__ = ("is_written", "nbytes", "sources")

    def __init__(self, nbytes: int, sources: Iterable[_Value] = (), is_written: bool = True):
        self.nbytes = nbytes
        self.is_written = is_written
        self.sources = frozenset(sources)  # what has to be in memory, so that it can be read

    def read(self) -> frozenset[_Value]:
        """What is read in memory where the value is used."""
        return frozenset((self,)) if self.is_written else self.sources


class _Operation:
    def __init__(self, equation: Equation, inputs: list[_Value], outputs: list[_Value]) -> None:
        self.name: str = equation.primitive.name
        self.inputs = inputs
        self.outputs = outputs
        self.inner = _inner(equation)  # bytes, of one turn of a loop
        self.reduces_rows = _reduces_rows(equation)


def temporary_bytes(jaxpr: core.Jaxpr) -> int:
    """The most temporary memory at one time, without arguments and results."""
    arguments = [_Value(0) for _ in (*jaxpr.constvars, *jaxpr.invars)]
    operations: list[_Operation] = []
    results = _flatten(jaxpr, arguments, operations)
    _write_operands(operations)
    _find_sources(operations)
    without_temporary = {source for value in results for source in _renamed(value)}
    return _peak(operations, without_temporary.union(arguments))


def _flatten(
    jaxpr: core.Jaxpr, arguments: list[_Value], operations: list[_Operation]
) -> list[_Value]:
    """Append the operations of the function and of those that it calls; return its results."""
    values: dict[Variable, _Value] = dict(
        zip((*jaxpr.constvars, *jaxpr.invars), arguments, strict=True)
    )

    def value_of(variable: Variable) -> _Value:
        if isinstance(variable, core.Literal):
            return _Value(0)
        return values[variable]

    for equation in jaxpr.eqns:
        inputs = [value_of(variable) for variable in equation.invars]
        called = _called(equation)
        if called is not None:
            outputs = _flatten(called, [*_constants(called), *inputs], operations)
        else:
            name = equation.primitive.name
            is_written = name not in _FUSED and name not in _RENAMED
            outputs = [_Value(_nbytes(v), (), is_written) for v in equation.outvars]
            operations.append(_Operation(equation, inputs, outputs))
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value_of(variable) for variable in jaxpr.outvars]


def _called(equation: Equation) -> core.Jaxpr | None:
    """The function that the equation calls once, if it does."""
    if equation.primitive.name in _LOOPS:
        return None
    jaxprs = list(_jaxprs(equation.params))
    if len(jaxprs) != 1 or len(jaxprs[0].invars) != len(equation.invars):
        return None
    return jaxprs[0]


def _jaxprs(params: Mapping[str, Any]) -> Iterable[core.Jaxpr]:
    for param in params.values():
        for each in param if isinstance(param, (tuple, list)) else (param,):
            if isinstance(each, core.ClosedJaxpr):
                yield each.jaxpr
            elif isinstance(each, core.Jaxpr):
                yield each


def _constants(jaxpr: core.Jaxpr) -> list[_Value]:
    return [_Value(0) for _ in jaxpr.constvars]


def _inner(equation: Equation) -> int:
    """The memory that a turn of a loop, or a branch, needs with its results."""
    if equation.primitive.name not in _LOOPS:
        return 0
    needs = [
        temporary_bytes(jaxpr) + sum(map(_nbytes, jaxpr.outvars))
        for jaxpr in _jaxprs(equation.params)
    ]
    return max(needs, default=0)


def _reduces_rows(equation: Equation) -> bool:
    """Whether the equation reduces the last axis alone, as a softmax does."""
    if equation.primitive.name not in _READS_FUSED:
        return False
    return tuple(equation.params.get("axes", ())) == (len(equation.invars[0].aval.shape) - 1,)


def _nbytes(variable: Variable) -> int:
    """The size of an array; 0 for a literal, a key, or what has no known size."""
    if isinstance(variable, core.Literal):
        return 0
    try:
        return int(variable.aval.size) * int(variable.aval.dtype.itemsize)
    except (AttributeError, TypeError):
        return 0


def _write_operands(operations: list[_Operation]) -> None:
    """Write what operations read that cannot be fused with what computes it."""
    for_products = _only_for_products(operations)
    for operation in reversed(operations):
        if operation.name in _FUSED or operation.name in _READS_FUSED:
            continue
        is_renamed = operation.name in _RENAMED
        if is_renamed and not any(value.is_written for value in operation.outputs):
            continue
        for value in operation.inputs:
            value.is_written = value.is_written or value not in for_products
        if is_renamed:  # its operand is written in its place
            for value in operation.outputs:
                value.is_written = False


def _readers(operations: list[_Operation]) -> dict[_Value, set[_Operation]]:
    """The operations that read each value, also by another name."""
    readers: dict[_Value, set[_Operation]] = {}
    for operation in reversed(operations):
        reading = {operation}
        if operation.name in _RENAMED:
            reading = set().union(*(readers.get(value, ()) for value in operation.outputs))
        for value in operation.inputs:
            readers.setdefault(value, set()).update(reading)
    return readers


def _only_for_products(operations: list[_Operation]) -> set[_Value]:
    """The results of cheap operations that only products read, and that are made of one array."""
    readers = _readers(operations)
    softmaxes = _softmaxes(operations)
    chosen: set[_Value] = set()
    arrays: dict[_Value, set[_Value]] = {}  # what a cheap chain is made of, without small parts
    for operation in operations:
        if operation.name not in _CHEAP:
            continue
        for value in operation.outputs:
            parts = (arrays.get(part, {part}) for part in operation.inputs)
            whole = set().union(*parts)
            arrays[value] = {part for part in whole if 2 * part.nbytes > value.nbytes}
            products = readers.get(value, set())
            is_written = value in softmaxes and len(products) == 1
            names = {reader.name for reader in products}
            if names == {"dot_general"} and len(arrays[value]) == 1 and not is_written:
                chosen.add(value)
    return chosen


def _softmaxes(operations: list[_Operation]) -> set[_Value]:
    """Exponentials that are divided by the sums of their rows, and what cheap operations make of them."""
    exponentials: set[_Value] = set()
    sums: set[_Value] = set()
    softmaxes: set[_Value] = set()
    for operation in operations:
        inputs, outputs = operation.inputs, operation.outputs
        if operation.name == "exp":
            exponentials.update(outputs)
        elif operation.reduces_rows and not exponentials.isdisjoint(inputs):
            sums.update(outputs)
        elif operation.name in _CHEAP:
            is_normalized = not (exponentials.isdisjoint(inputs) or sums.isdisjoint(inputs))
            if is_normalized or not softmaxes.isdisjoint(inputs):
                softmaxes.update(outputs)
            for group in (exponentials, sums):
                if not group.isdisjoint(inputs):
                    group.update(outputs)
    return softmaxes


def _find_sources(operations: list[_Operation]) -> None:
    readers = _readers(operations)
    for operation in operations:
        sources = frozenset(source for value in operation.inputs for source in value.read())
        for value in operation.outputs:
            value.sources = sources
            arrays = [source for source in sources if 2 * source.nbytes > value.nbytes]
            if operation.name in _FUSED and len(arrays) > 1 and len(readers.get(value, ())) > 1:
                value.is_written = True


def _renamed(value: _Value) -> frozenset[_Value]:
    """The value, or what it is another name of."""
    return frozenset(
        (value, *(() if value.is_written or len(value.sources) != 1 else value.sources))
    )


def _peak(operations: list[_Operation], elsewhere: set[_Value]) -> int:
    """The most memory of what is written; what is elsewhere is not counted."""
    last_uses: dict[_Value, int] = {}
    for i, operation in enumerate(operations):
        if any(value.is_written for value in operation.outputs):
            for value in operation.inputs:
                last_uses.update(dict.fromkeys(value.read(), i))
    freed_after: dict[int, list[_Value]] = {}
    for value, i in last_uses.items():
        freed_after.setdefault(i, []).append(value)
    rows = _reduced_rows(operations)
    live: set[_Value] = set()
    now = most = 0
    for i, operation in enumerate(operations):
        written = [value for value in operation.outputs if value.is_written]
        written = [value for value in written if value not in elsewhere and value in last_uses]
        freed = [value for value in freed_after.get(i, ()) if value in live]
        if operation.name in _FUSED:
            freed = _reused(written, freed, live, rows)
            now = sum(value.nbytes for value in live)
        now += sum(value.nbytes for value in written)
        live.update(written)
        most = max(most, now + operation.inner)
        live.difference_update(freed)
        now = sum(value.nbytes for value in live)
    return most


def _reduced_rows(operations: list[_Operation]) -> dict[_Value, frozenset[_Value]]:
    """The arrays whose rows were reduced, for each result of such a reduction."""
    return {
        value: value.sources
        for operation in operations
        if operation.reduces_rows
        for value in operation.outputs
    }


def _reused(
    written: list[_Value],
    freed: list[_Value],
    live: set[_Value],
    rows: Mapping[_Value, frozenset[_Value]],
) -> list[_Value]:
    """Free the operands whose memory the results take, and return the others."""
    others = list(freed)
    for value in written:
        read_again = {array for source in value.sources for array in rows.get(source, ())}
        for operand in others:
            if operand.nbytes == value.nbytes and operand not in read_again:
                live.discard(operand)
                others.remove(operand)
                break
    return others
