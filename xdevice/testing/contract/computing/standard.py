"""The functions of a namespace against the array API standard's reference implementation, by samples."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xdevice import to_numpy
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.array_api.namespace import namespace
from xdevice.testing.contract.promises import Promises, needs

VALUES: dict[str, Any] = {
    "x": np.array([[0.5, -1.25, 2.0], [3.0, -0.75, 1.5]], "float32"),
    "y": np.array([[1.0, 2.0, 0.5], [0.25, 4.0, 3.0]], "float32"),  # positive
    "small": np.array([[100, -3, 7], [2, 100, 5]], "int8"),  # whose sums take more than 8 bits
    "n": np.array([[4, 1, 3], [2, 0, 5]], "int32"),
    "flags": np.array([[True, False, True], [False, False, True]]),
    "square": np.array([[2.0, 1.0], [0.5, 3.0]], "float32"),
}

ONE_ARGUMENT = (
    *("abs", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "negative", "positive"),
    *("round", "sign", "signbit", "sin", "sinh", "square", "tan", "tanh", "trunc"),
)
POSITIVE = ("log", "log10", "log1p", "log2", "reciprocal", "sqrt")
TWO_ARGUMENTS = (
    *("add", "atan2", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less"),
    *("less_equal", "logaddexp", "maximum", "minimum", "multiply", "not_equal", "remainder", "subtract"),
)
REDUCTIONS = ("max", "mean", "min", "prod", "sum")

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda xp, a: (xp.all(a.flags), xp.all(a.flags, axis=0, keepdims=True)),
    "any": lambda xp, a: (xp.any(a.n), xp.any(a.flags, axis=-1)),
    "argmax": lambda xp, a: (xp.argmax(a.x), xp.argmax(a.x, axis=1, keepdims=True)),
    "argsort": lambda xp, a: (xp.argsort(a.y), xp.argsort(a.n, axis=0, descending=True)),
    "astype": lambda xp, a: (xp.astype(a.y, xp.int32), xp.astype(a.n, xp.float32, copy=False)),
    "bitwise_and": lambda xp, a: (xp.bitwise_and(a.n, 1), xp.bitwise_and(a.flags, a.flags)),
    "broadcast_to": lambda xp, a: xp.broadcast_to(a.n, (2, 2, 3)),
    "clip": lambda xp, a: (xp.clip(a.x, 0, 1), xp.clip(a.n, min=2), xp.clip(a.x, None, a.y)),
    "concat": lambda xp, a: (xp.concat([a.x, a.y]), xp.concat((a.n, a.n), axis=1), xp.concat([a.n, a.n], axis=None)),
    "count_nonzero": lambda xp, a: xp.count_nonzero(a.n, axis=1),
    "cumulative_sum": lambda xp, a: (
        xp.cumulative_sum(a.x, axis=1),
        xp.cumulative_sum(a.small, axis=0, include_initial=True),
    ),
    "diff": lambda xp, a: xp.diff(a.x, n=2, axis=1),
    "expand_dims": lambda xp, a: xp.expand_dims(a.x, axis=-1),
    "flip": lambda xp, a: (xp.flip(a.n), xp.flip(a.n, axis=1)),
    "full_like": lambda xp, a: (xp.full_like(a.n, 7), xp.full_like(a.n, 7, dtype=xp.float32)),
    "isdtype": lambda xp, a: [xp.isdtype(a.n.dtype, k) for k in ("integral", "real floating", ("bool", "numeric"))],
    "linspace": lambda xp, a: xp.linspace(0, 1, num=4, dtype=xp.float32, endpoint=False),
    "logical_and": lambda xp, a: (xp.logical_and(a.flags, a.flags), xp.logical_not(a.flags)),
    "matmul": lambda xp, a: xp.matmul(a.x, xp.matrix_transpose(a.y)),
    "moveaxis": lambda xp, a: xp.moveaxis(xp.expand_dims(a.n, axis=0), 0, 2),
    "nonzero": lambda xp, a: xp.nonzero(a.n),
    "permute_dims": lambda xp, a: xp.permute_dims(a.n, (1, 0)),
    "pow": lambda xp, a: (xp.pow(a.y, 2), xp.pow(a.n, 2)),
    "repeat": lambda xp, a: xp.repeat(a.n, 2, axis=1),
    "reshape": lambda xp, a: (xp.reshape(a.n, (3, 2)), xp.reshape(a.n, (-1,))),
    "result_type": lambda xp, a: [dtype_name(xp.result_type(*xs)) for xs in ((a.small, a.n), (xp.float32, 2.0))],
    "roll": lambda xp, a: (xp.roll(a.n, 2), xp.roll(a.n, shift=(1, 1), axis=(0, 1))),
    "sort": lambda xp, a: (xp.sort(a.x), xp.sort(a.x, axis=0, descending=True)),
    "squeeze": lambda xp, a: xp.squeeze(xp.expand_dims(a.n, axis=0), 0),
    "stack": lambda xp, a: xp.stack([a.n, a.n], axis=1),
    "std": lambda xp, a: (xp.std(a.x), xp.std(a.x, axis=1, correction=1, keepdims=True)),
    "take": lambda xp, a: xp.take(a.x, xp.asarray([1, 0]), axis=0),
    "tensordot": lambda xp, a: xp.tensordot(a.x, a.y, axes=((1,), (1,))),
    "tile": lambda xp, a: xp.tile(a.n, (2, 1)),
    "tril": lambda xp, a: (xp.tril(a.x), xp.triu(a.x, k=1)),
    "unique_counts": lambda xp, a: tuple(xp.unique_counts(a.n)),
    "unstack": lambda xp, a: xp.unstack(a.n, axis=1),
    "var": lambda xp, a: (xp.var(a.x), xp.var(a.x, axis=(0, 1), correction=1)),
    "vecdot": lambda xp, a: xp.vecdot(a.x, a.y, axis=-2),
    "where": lambda xp, a: (xp.where(a.flags, a.x, a.y), xp.where(a.flags, a.x, 0.0)),
    "zeros_like": lambda xp, a: (xp.zeros_like(a.small), xp.ones_like(a.x, dtype=xp.int32)),
    "linalg.det": lambda xp, a: xp.linalg.det(a.square),
    "linalg.inv": lambda xp, a: xp.linalg.inv(a.square),
    "linalg.matrix_norm": lambda xp, a: (xp.linalg.matrix_norm(a.x), xp.linalg.matrix_norm(a.x, keepdims=True)),
    "linalg.outer": lambda xp, a: xp.linalg.outer(a.x[0, ...], a.y[1, ...]),
    "linalg.solve": lambda xp, a: xp.linalg.solve(a.square, a.square),
    "linalg.trace": lambda xp, a: xp.linalg.trace(a.square),
    "linalg.vector_norm": lambda xp, a: xp.linalg.vector_norm(a.x, axis=1, ord=1),
}
CALLS |= {name: lambda xp, a, name=name: getattr(xp, name)(a.x) for name in ONE_ARGUMENT}
CALLS |= {name: lambda xp, a, name=name: getattr(xp, name)(a.y) for name in POSITIVE}
CALLS |= {
    name: lambda xp, a, name=name: (getattr(xp, name)(a.x, a.y), getattr(xp, name)(a.x, 2.0)) for name in TWO_ARGUMENTS
}
CALLS |= {
    name: lambda xp, a, name=name: (
        *(getattr(xp, name)(a.x, **given) for given in ({}, {"axis": (0, 1)}, {"axis": -1, "keepdims": True})),
        getattr(xp, name)(a.x if name == "mean" else a.small, axis=0),
    )
    for name in REDUCTIONS
}


def reference() -> Any:
    """The standard's reference implementation."""
    try:
        import array_api_strict
    except ModuleNotFoundError:
        pytest.fail("array-api-strict is not installed, with which results are compared; pip install array-api-strict")
    return array_api_strict


def arrays(xp: Any) -> Any:
    """The values as arrays of a namespace."""
    made = {key: xp.asarray(value.tolist(), dtype=getattr(xp, str(value.dtype))) for key, value in VALUES.items()}
    return SimpleNamespace(**made)


def flat(result: Any) -> Iterator[Any]:
    """The arrays of a result, one after the other."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from flat(part)
    else:
        yield result


class Standard(Promises):
    @needs("maths.namespace", "creation.tensor", "creation.dtype", "exchange.to_numpy")
    @pytest.mark.parametrize("name", sorted(CALLS))
    def test_a_function_does_what_the_standard_says(self, backend: str, name: str) -> None:
        strict, xp = reference(), namespace()
        extension, _, function = name.rpartition(".")
        home = getattr(xp, extension, None) if extension else xp
        if home is None or function not in dir(home):
            return  # that it says why is a promise of its own
        expected, found = list(flat(CALLS[name](strict, arrays(strict)))), list(flat(CALLS[name](xp, arrays(xp))))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            if not hasattr(theirs, "dtype"):
                assert ours == theirs
                continue
            assert tuple(ours.shape) == theirs.shape
            wanted = dtype_name(theirs.dtype).removeprefix("array_api_strict.")
            assert dtype_name(ours.dtype).removesuffix("_") in ({"int32", "int64"} if wanted == "int64" else {wanted})
            np.testing.assert_allclose(to_numpy(ours), np.asarray(theirs._array), rtol=1e-5, atol=1e-6)
