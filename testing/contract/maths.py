"""`namespace`: a network under every framework, and each standard function."""

import math
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest

from xdevice import Device, device_of, devices, tensor, to_device, to_numpy, using, value_and_grad
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    CopyNeededError,
    DeviceNotFoundError,
    DeviceSpellingError,
    DeviceTypeError,
    NotATensorError,
    NotPortableWarning,
    NotSupportedError,
)
from xdevice.framework import choosing
from xdevice.hardware import scopes
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.namespace import NAMES, namespace
from xdevice.testing import Tensor
from xdevice.testing.contract.promises import (
    FIRST,
    FIXED,
    SECOND,
    Promises,
    Tree,
    home,
    needs,
    number,
    raised,
    values,
)

INF = math.inf

VALUES: dict[str, Any] = {
    "x": np.array([[0.5, -1.25, 2.0], [3.0, -0.75, 1.5]], "float32"),
    "y": np.array([[1.0, 2.0, 0.5], [0.25, 4.0, 3.0]], "float32"),  # positive
    "small": np.array([[100, -3, 7], [2, 100, 5]], "int8"),  # whose sums take more than 8 bits
    "n": np.array([[4, 1, 3], [2, 0, 5]], "int32"),
    "rows": np.array([1, 0], "int32"),
    "flags": np.array([[True, False, True], [False, False, True]]),
    "square": np.array([[2.0, 1.0], [0.5, 3.0]], "float32"),
}

ONE_ARGUMENT = """
    abs ceil cos cosh exp expm1 floor isnan negative positive round sign signbit sin sinh square tan
    tanh trunc
"""
POSITIVE_ARGUMENT = "log log10 log1p log2 reciprocal sqrt"
TWO_ARGUMENTS = """
    add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal
    logaddexp maximum minimum multiply not_equal remainder subtract
"""
REDUCTIONS = "max min prod sum"

Arrays: TypeAlias = Any
"""The `VALUES` as attributes, in the arrays of one namespace."""

Call: TypeAlias = Callable[[Any, Arrays], Any]
"""A call of a namespace, or of its function, with some of the arrays."""

CALLS: dict[str, Call] = {
    "all": lambda xp, a: (xp.all(a.flags), xp.all(a.flags, axis=0, keepdims=True)),
    "any": lambda xp, a: (xp.any(a.n), xp.any(a.flags, axis=-1)),
    "argmax": lambda xp, a: (xp.argmax(a.x), xp.argmax(a.x, axis=1, keepdims=True)),
    "argsort": lambda xp, a: (xp.argsort(a.y), xp.argsort(a.n, axis=0, descending=True)),
    "astype": lambda xp, a: (xp.astype(a.y, xp.int32), xp.astype(a.n, xp.float32, copy=False)),
    "bitwise_and": lambda xp, a: (xp.bitwise_and(a.n, 1), xp.bitwise_and(a.flags, a.flags)),
    "broadcast_to": lambda xp, a: xp.broadcast_to(a.n, (2, 2, 3)),
    "clip": lambda xp, a: (xp.clip(a.x, 0, 1), xp.clip(a.n, min=2), xp.clip(a.x, None, a.y)),
    "concat": lambda xp, a: (
        xp.concat([a.x, a.y]),
        xp.concat((a.n, a.n), axis=1),
        xp.concat([a.n, a.n], axis=None),
    ),
    "count_nonzero": lambda xp, a: xp.count_nonzero(a.n, axis=1),
    "cumulative_sum": lambda xp, a: (
        xp.cumulative_sum(a.x, axis=1),
        xp.cumulative_sum(a.small, axis=0, include_initial=True),
    ),
    "diff": lambda xp, a: xp.diff(a.x, n=2, axis=1),
    "expand_dims": lambda xp, a: xp.expand_dims(a.x, axis=-1),
    "flip": lambda xp, a: (xp.flip(a.n), xp.flip(a.n, axis=1)),
    "full_like": lambda xp, a: (xp.full_like(a.n, 7), xp.full_like(a.n, 7, dtype=xp.float32)),
    "isdtype": lambda xp, a: [
        xp.isdtype(a.n.dtype, k) for k in ("integral", "real floating", ("bool", "numeric"))
    ],
    "linspace": lambda xp, a: xp.linspace(0, 1, num=4, dtype=xp.float32, endpoint=False),
    "logical_and": lambda xp, a: (xp.logical_and(a.flags, a.flags), xp.logical_not(a.flags)),
    "matmul": lambda xp, a: xp.matmul(a.x, xp.matrix_transpose(a.y)),
    "moveaxis": lambda xp, a: xp.moveaxis(xp.expand_dims(a.n, axis=0), 0, 2),
    "nonzero": lambda xp, a: xp.nonzero(a.n),
    "permute_dims": lambda xp, a: xp.permute_dims(a.n, (1, 0)),
    "pow": lambda xp, a: (xp.pow(a.y, 2), xp.pow(a.n, 2)),
    "repeat": lambda xp, a: xp.repeat(a.n, 2, axis=1),
    "reshape": lambda xp, a: (xp.reshape(a.n, (3, 2)), xp.reshape(a.n, (-1,))),
    "result_type": lambda xp, a: [
        dtype_name(xp.result_type(*xs)) for xs in ((a.small, a.n), (xp.float32, 2.0))
    ],
    "roll": lambda xp, a: (xp.roll(a.n, 2), xp.roll(a.n, shift=(1, 1), axis=(0, 1))),
    "sort": lambda xp, a: (xp.sort(a.x), xp.sort(a.x, axis=0, descending=True)),
    "squeeze": lambda xp, a: xp.squeeze(xp.expand_dims(a.n, axis=0), 0),
    "stack": lambda xp, a: xp.stack([a.n, a.n], axis=1),
    "std": lambda xp, a: (xp.std(a.x), xp.std(a.x, axis=1, correction=1, keepdims=True)),
    "take": lambda xp, a: xp.take(a.x, a.rows, axis=0),
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
    "linalg.matrix_norm": lambda xp, a: (
        xp.linalg.matrix_norm(a.x),
        xp.linalg.matrix_norm(a.x, keepdims=True),
    ),
    "linalg.outer": lambda xp, a: xp.linalg.outer(xp.unstack(a.x)[0], xp.unstack(a.y)[1]),
    "linalg.solve": lambda xp, a: xp.linalg.solve(a.square, a.square),
    "linalg.trace": lambda xp, a: xp.linalg.trace(a.square),
    "linalg.vector_norm": lambda xp, a: xp.linalg.vector_norm(a.x, axis=1, ord=1),
}


WRAPPED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "add": lambda f, x: f(x, 300),
    "less": lambda f, x: f(x, 300),
    "maximum": lambda f, x: f(x, 300),
    "pow": lambda f, x: f(x, 300),
    "remainder": lambda f, x: f(x, 300),
    "isin": lambda f, x: f(x, 300),
    "searchsorted": lambda f, x: f(x, 300),
    "equal": lambda f, x: f(x, -1),
    "greater": lambda f, x: f(x, -1),
    "subtract": lambda f, x: f(x, -1),
    "bitwise_and": lambda f, x: f(x, -1),
    "floor_divide": lambda f, x: f(x, -1),
    "multiply": lambda f, x: f(256, x),
    "where": lambda f, x: f(x, x, 300),
    "clip": lambda f, x: f(x, 0, 300),
    "full_like": lambda f, x: f(x, 300),
}
"""Calls with a number that ``uint8`` cannot hold.

A framework would use it modulo 256.
"""


def call_each(name: str, *calls: Call) -> Call:
    """Several calls of the namespace's function with that name."""
    return lambda xp, arrays: [call(getattr(xp, name), arrays) for call in calls]


REDUCTION_CALLS: list[Call] = [
    lambda f, a: f(a.x),
    lambda f, a: f(a.x, axis=(0, 1)),
    lambda f, a: f(a.x, axis=-1, keepdims=True),
]
for function in ONE_ARGUMENT.split():
    CALLS[function] = call_each(function, lambda f, a: f(a.x))
for function in ("isfinite", "isinf"):  # of integers a framework may give constants
    CALLS[function] = call_each(function, lambda f, a: f(a.x), lambda f, a: f(a.n))
for function in POSITIVE_ARGUMENT.split():
    CALLS[function] = call_each(function, lambda f, a: f(a.y))
for function in TWO_ARGUMENTS.split():
    CALLS[function] = call_each(function, lambda f, a: f(a.x, a.y), lambda f, a: f(a.x, 2.0))
for function in REDUCTIONS.split():
    CALLS[function] = call_each(function, *REDUCTION_CALLS, lambda f, a: f(a.small, axis=0))
CALLS["mean"] = call_each("mean", *REDUCTION_CALLS, lambda f, a: f(a.x, axis=0))


def arrays_of(xp: Any, **options: Device) -> Arrays:
    """The `VALUES` as arrays of a namespace."""
    arrays = SimpleNamespace()
    for name, value in VALUES.items():
        dtype = getattr(xp, str(value.dtype))
        setattr(arrays, name, xp.asarray(value.tolist(), dtype=dtype, **options))
    return arrays


def flat(result: Tree) -> Iterator[Any]:
    """The arrays of a result, one after the other."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from flat(part)
    else:
        yield result


RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype("float32")
Y = np.array([0, 2, 1, 1, 0])
WEIGHTS = [RNG.normal(size=shape).astype("float32") for shape in ((4, 6), (6,), (6, 3), (3,))]


def network(weights: list[Tensor], x: Tensor) -> Any:
    """Two dense layers, with tanh between them."""
    xp = namespace(x)
    w1, b1, w2, b2 = weights
    hidden = xp.tanh(xp.add(xp.matmul(x, w1), b1))
    return xp.add(xp.matmul(hidden, w2), b2)


def loss(weights: list[Tensor], x: Tensor, y: Tensor) -> Any:
    """The network's cross-entropy, the mean over the rows."""
    xp, scores = namespace(x), network(weights, x)
    shifted = xp.subtract(scores, xp.max(scores, axis=1, keepdims=True))
    log_sums = xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))
    log_probabilities = xp.subtract(shifted, log_sums)
    labels = xp.expand_dims(y, axis=1)
    return xp.negative(xp.mean(xp.take_along_axis(log_probabilities, labels, axis=1)))


def numpy_loss(weights: list[np.ndarray[Any, Any]]) -> float:
    """The loss by NumPy, in 64 bits."""
    with using("numpy"):
        return float(loss([w.astype("float64") for w in weights], X.astype("float64"), Y))


def numpy_slope(layer: int, index: tuple[int, ...], step: float = 1e-6) -> float:
    """The derivative with respect to one weight, by finite differences."""
    weights = [w.astype("float64") for w in WEIGHTS]
    weights[layer][index] += step
    higher = numpy_loss(weights)
    weights[layer][index] -= 2 * step
    return (higher - numpy_loss(weights)) / (2 * step)


def arguments(device: Device | None = None) -> tuple[list[Tensor], Tensor, Tensor]:
    """Weights, inputs and labels of the chosen framework."""
    weights = [tensor(w, device=device) for w in WEIGHTS]
    return weights, tensor(X, device=device), tensor(Y, dtype="int32", device=device)


@needs("creation.dtype", "creation.tensor", "exchange.to_numpy", "maths.namespace")
class Maths(Promises):
    def test_a_name_exists_or_says_why_not(self, backend: str) -> None:
        missing = [name for name in NAMES if name not in dir(namespace())]
        for name in missing:
            raised(NotSupportedError, f"{backend} has no {name}: ")(getattr, namespace(), name)
            assert not hasattr(namespace(), name)  # other libraries ask this way
        assert len(missing) < len(NAMES) - 60
        for name in dir(namespace()):
            assert hasattr(namespace(), name)

    def test_a_namespace_follows_its_tensor(self, backend: str) -> None:
        x = tensor([1.0])
        with using("numpy"):
            xp = namespace(x)
            assert type(xp.zeros(2)) is type(x)
        assert xp is namespace()
        assert backend in repr(xp)
        assert pickle.loads(pickle.dumps(xp)) is xp

    def test_a_namespace_takes_several_tensors(self, backend: str) -> None:
        x = tensor([1.0])
        assert namespace(x, None, 2.0, tensor(1.0)) is namespace(x)
        assert namespace(None) is namespace()
        assert namespace(x).__name__ == choosing.backend().maths.module().__name__
        if backend != "numpy":
            raised(ArgumentTypeError, f"{backend} .*numpy .*convert")(namespace, x, np.ones(2))
        raised(NotATensorError)(namespace, x, "text")

    def test_a_network_matches_numpy(self, backend: str) -> None:
        assert to_numpy(loss(*arguments())) == pytest.approx(numpy_loss(WEIGHTS), rel=1e-5)

    @needs("gradients.value_and_gradients")
    def test_a_network_has_gradients(self, backend: str) -> None:
        value, gradients = value_and_grad(loss)(*arguments())
        assert number(value) == pytest.approx(numpy_loss(WEIGHTS), rel=1e-5)
        for layer, index in [(0, (0, 0)), (0, (3, 5)), (1, (2,)), (2, (4, 1)), (3, (0,))]:
            slope = numpy_slope(layer, index)
            assert to_numpy(gradients[layer])[index] == pytest.approx(slope, abs=1e-4)

    @needs(*FIXED)
    def test_new_arrays_follow_scope_and_dtype(self, backend: str) -> None:
        xp = namespace()
        with scopes.scope(home()):
            new_arrays = [
                xp.zeros((2, 3)),
                xp.asarray([1.0]),
                xp.linspace(0, 1, 3),
                xp.eye(2),
                xp.arange(3),
                xp.full((2,), 1),
            ]
        assert {device_of(x) for x in new_arrays} == {home()}
        integers = xp.arange(2)
        for dtype in ("float32", np.dtype("float32"), xp.float32):
            for x in (
                xp.ones((2,), dtype=dtype),
                xp.astype(integers, dtype),
                xp.zeros_like(integers, dtype=dtype),
            ):
                assert to_numpy(x).dtype == np.float32

    def test_asarray_returns_a_tensor_itself(self, backend: str) -> None:
        xp, x = namespace(), tensor([1.0, 2.0])
        assert xp.asarray(x) is x is xp.asarray(x, dtype=x.dtype, device=device_of(x))
        assert xp.asarray(x, copy=True) is not x
        raised(CopyNeededError)(xp.asarray, [1.0], copy=False)

    @pytest.mark.parametrize("name", sorted(WRAPPED))
    def test_a_number_beyond_the_dtype_is_an_error(self, backend: str, name: str) -> None:
        xp = namespace()
        x = xp.asarray([1, 255], dtype="uint8")
        message = "(300|256|-1) does not fit into uint8, from 0 to 255; .*int32"
        raised(ArgumentError, message)(WRAPPED[name], getattr(xp, name), x)

    def test_a_number_beyond_all_integers_is_an_error_beside_booleans(self, backend: str) -> None:
        xp = namespace()
        booleans = xp.asarray([True, False])
        message = "does not fit into int(32|64), .*; beside booleans, write it as a float"
        raised(ArgumentError, message)(xp.where, booleans, booleans, 2**63)
        raised(ArgumentError, message)(xp.add, -(2**63) - 1, booleans)

    def test_beside_booleans_an_integer_is_computed_with_or_refused(self, backend: str) -> None:
        xp = namespace()
        booleans = xp.asarray([True, False])
        calls: list[Callable[[], Tensor]] = [
            lambda: xp.where(booleans, booleans, 2**40),
            lambda: xp.where(booleans, 2**40, 1),
            lambda: xp.add(booleans, 2**40),
            lambda: xp.equal(2**40, booleans),
        ]
        for call in calls:
            try:
                array = to_numpy(call())
            except ArgumentError:  # JAX has integers of 64 bits only if they are enabled
                assert dtype_name(xp.result_type(xp.bool, 1)) == "int32"
                raised(ArgumentError, "does not fit into int32")(call)
            else:
                assert array.dtype == bool or array.max() >= 2**40

    @pytest.mark.parametrize("bound", [0.5, -0.25, 1e10, float("nan"), float("inf")])
    def test_clip_of_integers_refuses_what_their_dtype_does_not_hold(
        self, backend: str, bound: float
    ) -> None:
        xp = namespace()
        x = xp.asarray([1, 2, 100], dtype="int32")
        raised(ArgumentError, "int32")(xp.clip, x, bound)
        raised(ArgumentError, "int32")(xp.clip, x, max=-bound)

    def test_clip_keeps_the_dtype(self, backend: str) -> None:
        xp = namespace()
        int32 = xp.asarray([1, 2, 100], dtype="int32")
        uint8 = xp.asarray([1, 5], dtype="uint8")
        float32 = xp.asarray([0.25, 7.0], dtype="float32")
        clipped = [
            (xp.clip(int32, 2.0, 50.0), "int32", [2, 2, 50]),
            (xp.clip(int32, -INF, INF), "int32", [1, 2, 100]),
            (xp.clip(int32, max=xp.asarray(3, dtype="uint8")), "int32", [1, 2, 3]),
            (xp.clip(float32, xp.asarray(1, dtype="int32"), 2), "float32", [1.0, 2.0]),
        ]
        for result, dtype, expected in clipped:
            assert dtype_name(result.dtype) == dtype
            assert values(result) == expected
        refuse = raised(ArgumentError, "clip of u?int.* keeps the dtype, which does not hold all")
        refuse(xp.clip, int32, float32[0])
        refuse(xp.clip, uint8, max=int32[0])
        raised(ArgumentError, "clip of booleans is not defined")(xp.clip, xp.equal(int32, 1), 0, 1)

    def test_a_float_beyond_the_largest_is_infinite(self, backend: str) -> None:
        xp = namespace()
        x = xp.asarray([1.0, 2.0], dtype="float32")
        booleans = xp.asarray([True, False])
        with np.errstate(over="ignore"):  # NumPy warns, and under other frameworks rounds numbers
            assert values(xp.where(booleans, x, -1e40)) == [1.0, -INF]
            assert values(xp.clip(x, -1e40, 1e40)) == [1.0, 2.0]
            assert values(xp.full_like(x, 1e40)) == [INF, INF]
            assert values(xp.full((2,), 1e40, dtype="float32")) == [INF, INF]
            assert values(xp.add(x, 1e40)) == [INF, INF]

    @pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift", "pow"])
    def test_integers_have_no_negative_powers_and_shifts(self, backend: str, name: str) -> None:
        xp = namespace()
        x = xp.asarray([1, 2], dtype="int32")
        message = f"{name} of int32 by -1 is not an integer; convert the tensor"
        raised(ArgumentError, message)(getattr(xp, name), x, -1)
        assert values(xp.pow(xp.asarray([2.0]), -1)) == [0.5]

    def test_a_number_beyond_the_integers_is_a_float_where_the_result_is_one(
        self, backend: str
    ) -> None:
        xp = namespace()
        half, one_byte = xp.asarray([0.5]), xp.asarray([150], dtype="uint8")
        assert values(xp.divide(one_byte, 300)) == [0.5]
        assert values(xp.atan2(300, one_byte)) == pytest.approx([1.1071], abs=1e-3)
        assert values(xp.multiply(half, 2**70)) == [2.0**69]
        assert values(xp.logical_and(one_byte, 256)) == [True]
        assert values(xp.full_like(half, 2**100)) == [2.0**100]
        assert values(xp.full_like(one_byte, 1.5)) == [1]
        assert values(xp.full(1, 2**100, dtype=xp.float32)) == [2.0**100]
        assert values(xp.full(1, -0.5, dtype=xp.uint8)) == [0]
        message = "does not fit into float64, nor into any other dtype"
        raised(ArgumentError, message)(xp.multiply, half, 10**400)

    def test_native_names_work_with_a_warning(self, backend: str) -> None:
        xp = pickle.loads(pickle.dumps(namespace()))
        vars(xp).pop("einsum", None)
        with pytest.warns(NotPortableWarning, match=f"einsum is {backend}'s own"):
            einsum = xp.einsum
        assert callable(einsum)
        assert xp.einsum is einsum
        raised(AttributeError, "did you mean 'matmul'")(getattr, xp, "matmull")

    def test_a_framework_is_not_chosen_by_its_name(self, backend: str) -> None:
        raised(NotATensorError, r"not 'torch'; .*using\('torch'\)")(namespace, "torch")
        x = tensor([1.0])
        for call in (lambda: to_device(x, x), lambda: namespace().ones(2, device=x)):
            raised(DeviceTypeError, r"a tensor is not a device; .*like=x")(call)

    def test_the_dtypes_of_a_device_are_those_that_it_has(self, backend: str) -> None:
        info = namespace().__array_namespace_info__()
        for device in info.devices():
            for name, dtype in info.dtypes(device=device).items():
                x = tensor([1], dtype=dtype, device=device)
                assert device_of(x) == device, name
                assert x.dtype == dtype, name
        for function in (info.dtypes, info.default_dtypes):
            raised(DeviceNotFoundError, "gpu:97 does not exist")(function, device="gpu:97")
            raised(DeviceSpellingError)(function, device="gpu:x")

    def test_a_tensor_moves_to_the_devices_that_have_its_dtype(self, backend: str) -> None:
        info = namespace().__array_namespace_info__()
        for name, dtype in info.dtypes(device=home()).items():
            x = tensor([1], dtype=dtype, device=home())
            for device in info.devices():
                if name in info.dtypes(device=device):
                    assert device_of(to_device(x, device)) == device, name
                else:
                    message = rf"{device} has no .*{name}.*; convert it first"
                    for tree in (x, [x], {"x": x, "n": 1}):
                        raised(ArgumentError, message)(to_device, tree, device)

    def test_results_stay_on_their_device(self, backend: str, two_gpus: object) -> None:
        weights, x, y = arguments(SECOND)
        xp = namespace(x)
        for scope in (FIRST, home()):
            with scope:
                results = [
                    network(weights, x),
                    loss(weights, x, y),
                    xp.maximum(x, 0),
                    xp.subtract(1, x),
                    xp.sort(x),
                    xp.where(xp.greater(x, 0), x, 0.0),
                    xp.var(x, correction=1),
                    xp.zeros_like(x),
                    xp.tril(x),
                    xp.cumulative_sum(x, axis=0, include_initial=True),
                    xp.argmax(x),
                    xp.take(x, y, axis=0),
                    *xp.unstack(x),
                    xp.clip(x, 0, 1),
                    xp.concat([x, x]),
                    xp.asarray(x),
                    xp.full_like(x, 2.0),
                ]
                assert {device_of(result) for result in results} == {SECOND}
                assert device_of(xp.zeros((2,))) is scope

    @needs("gradients.value_and_gradients")
    def test_network_gradients_are_with_weights(self, backend: str, two_gpus: object) -> None:
        weights, x, y = arguments(SECOND)
        _, gradients = value_and_grad(loss)(weights, x, y)
        assert {device_of(gradient) for gradient in gradients} == {SECOND}
        assert to_numpy(gradients[0])[0, 0] == pytest.approx(numpy_slope(0, (0, 0)), abs=1e-4)


class Standard(Promises):
    @needs("maths.namespace", "creation.tensor", "creation.dtype", "exchange.to_numpy")
    @pytest.mark.parametrize("name", sorted(CALLS))
    def test_a_function_does_what_the_standard_says(self, backend: str, name: str) -> None:
        try:
            import array_api_strict as strict
        except ModuleNotFoundError:
            pytest.fail(
                "array-api-strict is not installed, and results are compared with it; "
                "pip install array-api-strict"
            )
        xp = namespace()
        extension, _, function = name.rpartition(".")
        owner = getattr(xp, extension, None) if extension else xp
        if function not in dir(owner):
            return  # test_a_name_exists_or_says_why_not checks the reason
        place = [home(), *devices("gpu")][-1]  # those of other kinds may lack dtypes
        results = flat(CALLS[name](xp, arrays_of(xp, device=place)))
        expected_results = flat(CALLS[name](strict, arrays_of(strict)))
        for result, expected in zip(results, expected_results, strict=True):
            if hasattr(expected, "dtype"):
                check_equal_arrays(result, expected)
                assert name == "linspace" or device_of(result) == place
            else:
                assert result == expected


def check_equal_arrays(result: Tensor, expected: Any) -> None:
    """Compare shape, dtype and numbers with array-api-strict's array."""
    assert tuple(result.shape) == expected.shape
    expected_dtype = dtype_name(expected.dtype).removeprefix("array_api_strict.")
    dtypes = {expected_dtype}
    if expected_dtype == "int64":
        dtypes.add("int32")  # the default integer of some frameworks
    assert dtype_name(result.dtype).removesuffix("_") in dtypes
    np.testing.assert_allclose(to_numpy(result), np.asarray(expected._array), rtol=1e-5, atol=1e-6)
