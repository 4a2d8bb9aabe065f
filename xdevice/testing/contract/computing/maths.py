"""The array API standard's names: one network, and one loss, for every framework."""

import pickle
from typing import Any

import numpy as np
import pytest

from xdevice import device_of, tensor, to_numpy, using, value_and_grad
from xdevice.errors import ArgumentTypeError, CopyNeededError, NotATensorError, NotPortableWarning, NotSupportedError
from xdevice.framework import choosing
from xdevice.hardware import scopes
from xdevice.tensors.array_api.names import NAMES
from xdevice.tensors.array_api.namespace import namespace
from xdevice.testing.contract.promises import FIRST, FIXED, SECOND, Promises, home, needs, number

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype("float32")
Y = np.array([0, 2, 1, 1, 0])
WEIGHTS = [RNG.normal(size=shape).astype("float32") for shape in ((4, 6), (6,), (6, 3), (3,))]


def network(weights: Any, x: Any) -> Any:
    """Two layers."""
    xp = namespace(x)
    w1, b1, w2, b2 = weights
    hidden = xp.tanh(xp.add(xp.matmul(x, w1), b1))
    return xp.add(xp.matmul(hidden, w2), b2)


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The mean over the rows."""
    xp = namespace(scores)
    apart = xp.subtract(scores, xp.max(scores, axis=1, keepdims=True))
    logarithms = xp.subtract(apart, xp.log(xp.sum(xp.exp(apart), axis=1, keepdims=True)))
    return xp.negative(xp.mean(xp.take_along_axis(logarithms, xp.expand_dims(labels, axis=1), axis=1)))


def loss(weights: Any, x: Any, y: Any) -> Any:
    """The network's."""
    return cross_entropy(network(weights, x), y)


def expected(weights: Any) -> float:
    """The loss by NumPy, in 64 bits."""
    with using("numpy"):
        return float(loss([w.astype("float64") for w in weights], X.astype("float64"), Y))


def slope(which: int, place: tuple[int, ...], step: float = 1e-6) -> float:
    """The derivative by one weight, by NumPy's finite differences."""
    change = [w.astype("float64") for w in WEIGHTS]
    change[which][place] += step
    higher = expected(change)
    change[which][place] -= 2 * step
    return (higher - expected(change)) / (2 * step)


def arguments(device: Any = None) -> Any:
    """Weights, inputs and labels of the chosen framework."""
    weights = [tensor(w, device=device) for w in WEIGHTS]
    return weights, tensor(X, device=device), tensor(Y, dtype="int32", device=device)


@needs("creation.dtype", "creation.tensor", "exchange.to_numpy", "maths.namespace")
class Maths(Promises):
    def test_a_name_exists_or_says_why_not(self, backend: str) -> None:
        missing = [name for name in NAMES if name not in dir(namespace())]
        for name in missing:
            with pytest.raises(NotSupportedError, match=f"{backend} has no {name}: "):
                getattr(namespace(), name)
            assert not hasattr(namespace(), name)  # as other libraries ask
        assert len(missing) < len(NAMES) - 60
        assert all(hasattr(namespace(), name) for name in dir(namespace()))

    def test_a_namespace_follows_its_tensor(self, backend: str) -> None:
        x = tensor([1.0])
        with using("numpy"):
            found = namespace(x)
            assert type(found.zeros(2)) is not np.ndarray or backend == "numpy"
        assert found is namespace()
        assert backend in repr(found)
        assert pickle.loads(pickle.dumps(found)) is found

    def test_a_namespace_takes_several_tensors(self, backend: str) -> None:
        x = tensor([1.0])
        assert namespace(x, None, 2.0, tensor(1.0)) is namespace(x)
        assert namespace(None) is namespace()
        assert namespace(x).__name__ == choosing.backend().maths.module().__name__
        if backend != "numpy":
            with pytest.raises(ArgumentTypeError, match=f"{backend} .*numpy .*convert"):
                namespace(x, np.ones(2))
        with pytest.raises(NotATensorError):
            namespace(x, "text")

    def test_a_network_matches_numpy(self, backend: str) -> None:
        assert to_numpy(loss(*arguments())) == pytest.approx(expected(WEIGHTS), rel=1e-5)

    @needs("gradients.value_and_gradients")
    def test_a_network_has_gradients(self, backend: str) -> None:
        value, gradients = value_and_grad(loss)(*arguments())
        assert number(value) == pytest.approx(expected(WEIGHTS), rel=1e-5)
        for which, place in [(0, (0, 0)), (0, (3, 5)), (1, (2,)), (2, (4, 1)), (3, (0,))]:
            assert to_numpy(gradients[which])[place] == pytest.approx(slope(which, place), abs=1e-4)

    @needs(*FIXED)
    def test_new_arrays_follow_scope_and_dtype(self, backend: str) -> None:
        xp = namespace()
        with scopes.scope(home()):
            made = [xp.zeros((2, 3)), xp.asarray([1.0]), xp.linspace(0, 1, 3), xp.eye(2)]
            made += [xp.arange(3), xp.full((2,), 1)]
        assert {device_of(x) for x in made} == {home()}
        for dtype in ("float32", np.dtype("float32"), xp.float32):
            cast = xp.astype(xp.arange(2), dtype), xp.zeros_like(xp.arange(2), dtype=dtype)
            assert {to_numpy(x).dtype.name for x in (xp.ones((2,), dtype=dtype), *cast)} == {"float32"}

    def test_asarray_returns_a_tensor_itself(self, backend: str) -> None:
        xp, x = namespace(), tensor([1.0, 2.0])
        assert xp.asarray(x) is x
        assert xp.asarray(x, dtype=x.dtype, device=device_of(x)) is x
        assert xp.asarray(x, copy=True) is not x
        with pytest.raises(CopyNeededError):
            xp.asarray([1.0], copy=False)

    def test_native_names_work_with_a_warning(self, backend: str) -> None:
        xp = pickle.loads(pickle.dumps(namespace()))
        vars(xp).pop("einsum", None)
        with pytest.warns(NotPortableWarning, match=f"einsum is {backend}'s own"):
            found = xp.einsum
        assert callable(found)
        assert xp.einsum is found  # without another warning
        with pytest.raises(AttributeError, match="did you mean 'matmul'"):
            _ = xp.matmull

    @needs(gpus=2)
    def test_results_stay_on_their_device(self, backend: str) -> None:
        weights, x, y = arguments(SECOND)
        xp = namespace(x)
        for scope in (FIRST, SECOND, home()):
            with scope:
                found = [network(weights, x), loss(weights, x, y), xp.maximum(x, 0), xp.subtract(1, x), xp.sort(x)]
                found += [xp.where(xp.greater(x, 0), x, 0.0), xp.var(x, correction=1), xp.zeros_like(x), xp.tril(x)]
                found += [xp.cumulative_sum(x, axis=0, include_initial=True), xp.argmax(x), xp.take(x, y, axis=0)]
                found += [*xp.unstack(x), xp.clip(x, 0, 1), xp.concat([x, x]), xp.asarray(x), xp.full_like(x, 2.0)]
                assert {device_of(one) for one in found} == {SECOND}
                assert device_of(xp.zeros((2,))) is scope

    @needs("gradients.value_and_gradients", gpus=2)
    def test_network_gradients_are_with_weights(self, backend: str) -> None:
        weights, x, y = arguments(SECOND)
        _, gradients = value_and_grad(loss)(weights, x, y)
        assert {device_of(gradient) for gradient in gradients} == {SECOND}
        assert to_numpy(gradients[0])[0, 0] == pytest.approx(slope(0, (0, 0)), abs=1e-4)
