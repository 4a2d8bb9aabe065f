"""`compose` with the libraries that it is for: SciPy and scikit-learn."""

from __future__ import annotations

import asyncio
import collections
import copy
import functools
import itertools
import operator
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import array_api_compat
import numpy as np
import pytest

import xdevice
from xdevice.errors import NotSupportedError
from xdevice.framework import choosing
from xdevice.framework.adapters import find
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.composing.indexing import item, with_item

# tox -e mxnet has NumPy 1, and all-weekly MXNet beside NumPy 2
if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    reason = "SciPy and scikit-learn for NumPy 1 do not know all that is called here"
    pytest.skip(reason, allow_module_level=True)

import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
import sklearn
from scipy._lib import _array_api, _array_api_override
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

# JAX's arrays, which libraries know, cannot be written to, as scikit-learn does.
pytestmark = pytest.mark.frameworks("numpy", "torch", "tensorflow", "paddle", "mxnet")

A = np.random.default_rng(0).normal(size=(12, 4))
V = A[:, 0]
COMPOSED = ("tensorflow", "paddle", "mxnet")
"""The frameworks whose tensors SciPy does not know."""


@pytest.fixture(autouse=True)
def dispatching(monkeypatch):
    """SciPy and scikit-learn as with SCIPY_ARRAY_API=1, which SciPy reads when it is imported."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    for module in (_array_api, _array_api_override):
        monkeypatch.setattr(module, "SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        yield


def tensor_of(numbers):
    return xdevice.tensor(numbers, dtype="float32")


CALLS = {
    "zscore": (scipy.stats.zscore, V),
    "skew": (scipy.stats.skew, V),
    "logsumexp": (scipy.special.logsumexp, V),
    "trapezoid": (scipy.integrate.trapezoid, V),
    "StandardScaler": (lambda x: StandardScaler().fit_transform(x), A),
    "PCA": (lambda x: PCA(2, svd_solver="covariance_eigh").fit_transform(x), A),
    "Ridge": (lambda x: Ridge(solver="svd").fit(x, x[:, 0]).predict(x), A),
}


@pytest.mark.parametrize("name", CALLS)
def test_scipy_and_scikit_learn_compute_with_the_framework(backend, name):
    function, numbers = CALLS[name]
    result = xdevice.compose(function)(tensor_of(numbers))
    assert tensor_owner(result) == backend
    expected = np.asarray(function(numbers.astype("float32")))
    actual = xdevice.to_numpy(result)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore:Dynamo detected a call")  # of array-api-compat's cache
@pytest.mark.parametrize("name", ["zscore", "logsumexp"])
def test_a_compiled_function_may_call_what_is_composed(backend, name):
    if backend in {"numpy", "mxnet"}:  # MXNet compiles blocks only, whose symbols have no device
        return
    function, numbers = CALLS[name]
    composed = xdevice.compose(function)
    assert composed  # as torch.compile asks
    composed(tensor_of(numbers))  # PaddlePaddle cannot trace the first use
    compilers = find(backend).compilers
    compiled = compilers.compiled(lambda x: composed(x), compilers.compilers()[0])
    result = compiled(tensor_of(numbers))
    np.testing.assert_allclose(xdevice.to_numpy(result), function(numbers), rtol=1e-3, atol=1e-3)


def test_a_mask_in_a_compiled_function_is_refused(backend):
    if backend != "tensorflow":
        return
    compiled = find(backend).compilers.compiled(xdevice.compose(lambda x: x[x > 0]), "function")
    with pytest.raises(NotSupportedError, match="use where"):
        compiled(tensor_of(V))


def test_an_estimator_shows_its_arrays_as_tensors(backend):
    scaler = xdevice.compose(StandardScaler()).fit(tensor_of(A))
    assert tensor_owner(scaler.mean_) == backend
    np.testing.assert_allclose(xdevice.to_numpy(scaler.mean_), A.mean(axis=0), atol=1e-5)


def test_a_module_is_composed_too(backend):
    result = xdevice.compose(scipy.stats).zscore(tensor_of(V))
    assert tensor_owner(result) == backend


def test_a_result_with_names_keeps_them(backend):
    result = xdevice.compose(scipy.stats.describe)(tensor_of(V))
    assert tensor_owner(result.mean) == backend
    np.testing.assert_allclose(xdevice.to_numpy(result.variance), V.var(ddof=1), rtol=1e-3)


class Fitted:
    """What a library returns that computes in NumPy: objects that hold its arrays."""

    def __init__(self, x):
        self.inner = {"mean": np.asarray(x).mean(axis=0)}

    def fit(self, x):
        self.mean_ = np.asarray(x).mean(axis=0)
        return self

    def bounds(self):
        return np.stack([self.mean_, self.mean_])


class Report(dict):
    pass


HELD = {
    "an attribute": lambda x: xdevice.compose(Fitted)(x).fit(x).mean_,
    "what was read before": lambda x: _fitted(x).mean_,
    "a method without tensors": lambda x: xdevice.compose(Fitted)(x).fit(x).bounds()[0],
    "a dict in an object": lambda x: xdevice.compose(Fitted)(x).inner["mean"],
    "a kind of dict": lambda x: xdevice.compose(lambda x: Report(m=np.asarray(x).mean(0)))(x)["m"],
    "an object from a function": lambda x: xdevice.compose(lambda x: Fitted(x).fit(x))(x).mean_,
    "a generator": lambda x: next(iter(xdevice.compose(_parts)(x))),
    "an array without axes": lambda x: xdevice.compose(lambda x: np.array(np.asarray(x).sum()))(x),
    "a masked array": lambda x: (
        xdevice.compose(lambda x: np.ma.masked_less(np.asarray(x), 0))(x).data
    ),
    "SciPy's minimize": lambda x: xdevice.compose(scipy.optimize.minimize)(_squares, x[0]).x,
    "a function of NumPy": lambda x: xdevice.compose(lambda x: np.sqrt(x * x + A * A))(x),
    "an operator of NumPy": lambda x: xdevice.compose(lambda x: A - x)(x),
    "what a callback returns": lambda x: xdevice.compose(lambda f: np.asarray(f()) + 1)(lambda: x),
    "a generator of tensors": lambda x: xdevice.compose(lambda parts: np.stack([*parts]))(
        part for part in (x, x)
    ),
    "a named tuple of tensors": lambda x: xdevice.compose(lambda pair: np.asarray(pair.right))(
        Pair(x, x)
    ),
}
Pair = collections.namedtuple("Pair", ["left", "right"])


def _fitted(x):
    estimator = xdevice.compose(Fitted)(x)
    estimator.fit(x)
    return estimator


def _parts(x):
    yield np.asarray(x)[:2]


def _squares(x):
    return float(((x - 1) ** 2).sum())


@pytest.mark.parametrize("name", HELD)
def test_no_array_of_numpy_is_returned_in_an_object(backend, name):
    if backend == "torch" and name.endswith("of NumPy"):
        return  # whose tensors are its own, and which NumPy warns of
    result = HELD[name](tensor_of(A))
    assert tensor_owner(result) == backend
    assert xdevice.device_of(result) == xdevice.device_of(tensor_of(A))


def test_an_object_that_is_given_arrays_of_numpy_shows_those_of_numpy(backend):
    estimator = xdevice.compose(Fitted)(tensor_of(A))
    estimator.fit(A)
    assert type(estimator.mean_) is np.ndarray


def test_operators_with_arrays_of_numpy_are_computed_on_the_cpu(backend):
    if backend == "torch":  # whose tensors are its own, and which NumPy warns of
        return

    def both(x):
        y = x * 1.0
        y += A
        return (A + x) * 2 == 2 * (x + A), y, np.float32(2) - x

    same, added, subtracted = xdevice.compose(both)(tensor_of(A))
    assert xdevice.to_numpy(same).all()
    np.testing.assert_allclose(xdevice.to_numpy(added), 2 * A, atol=1e-5)
    np.testing.assert_allclose(xdevice.to_numpy(subtracted), 2 - A, atol=1e-5)


def test_composed_objects_are_copied_pickled_and_methods(backend):
    x = tensor_of(A)
    scaler = xdevice.compose(StandardScaler()).fit(x)
    for copied in (copy.deepcopy(scaler), copy.copy(scaler)):
        np.testing.assert_array_equal(
            xdevice.to_numpy(copied.mean_), xdevice.to_numpy(scaler.mean_)
        )
    zscore = pickle.loads(pickle.dumps(xdevice.compose(scipy.stats.zscore)))
    assert tensor_owner(zscore(x)) == backend
    assert tensor_owner(functools.partial(zscore, axis=1)(x)) == backend

    class Library:
        @xdevice.compose
        def scaled(self, x, factor):
            return x * factor

    assert tensor_owner(Library().scaled(x, 2.0)) == backend


def test_a_tensor_as_an_array_refuses_what_scipy_computes_in_numpy(backend):
    array = xdevice.compose(tensor_of(A[:4]))
    if backend in COMPOSED:
        with pytest.raises(NotSupportedError, match="SCIPY_ARRAY_API=1"):
            scipy.linalg.logm(array)


def test_what_takes_an_array_by_dlpack_does_not_write_to_the_tensor(backend):
    if backend not in {"tensorflow", "paddle"}:
        return
    x = tensor_of(V)
    other = np.from_dlpack(xdevice.compose(x))
    shared = np.from_dlpack(xdevice.compose(x), copy=False)
    assert other.ctypes.data != shared.ctypes.data
    np.testing.assert_array_equal(other, shared)


SLICES = [
    *itertools.starmap(
        slice, itertools.product((None, 1, -2, 7), (None, 0, 3, -1), (None, 2, -1, -3))
    ),
    *(0, -1),
]


def test_slices_are_read_and_written_as_in_numpy(backend):
    """With the functions of NumPy itself, which has the right answers; the contract has the others."""
    if backend != "numpy":
        return
    x = np.arange(20.0).reshape(4, 5)
    for key in itertools.product(SLICES[::7], SLICES):
        expected = x.copy()
        value = -1 - np.arange(x[key].size).reshape(x[key].shape)
        expected[key] = value
        np.testing.assert_array_equal(item(xdevice.namespace(), x, key), x[key])
        np.testing.assert_array_equal(with_item(xdevice.namespace(), x, key, value), expected)


def test_a_gradient_is_not_lost_on_the_host(backend):
    if backend in COMPOSED:
        loss = xdevice.compose(lambda x: x.__array_namespace__().asarray(np.asarray(x).max()))
        with pytest.raises(NotSupportedError, match="needs a gradient"):
            xdevice.value_and_grad(loss)(tensor_of(V / 10))


def test_compose_in_a_thread_and_a_task_is_theirs_alone(backend):
    """The scope and the choice of a call are seen by the call alone."""
    inside, others = threading.Event(), threading.Event()
    chosen = []

    def waits(x):
        inside.set()
        assert others.wait(60)
        chosen.append(choosing.backend())
        return x * 2

    x = tensor_of(V)
    thread = threading.Thread(target=lambda: chosen.append(xdevice.compose(waits)(x)))
    thread.start()
    assert inside.wait(60)
    with xdevice.using("numpy"):
        assert choosing.backend() == "numpy"
        others.set()
        thread.join()
    if backend != "numpy":  # whose arrays every library takes
        assert chosen[0] == backend
    assert tensor_owner(chosen[1]) == backend

    async def task():
        return xdevice.compose(scipy.stats.zscore)(x)

    async def both():
        return await asyncio.gather(task(), task())

    assert [tensor_owner(result) for result in asyncio.run(both())] == [backend] * 2


def test_the_namespace_of_arrays_has_the_names_of_the_standard_only(backend):
    if backend not in COMPOSED:
        return
    xp = array_api_compat.array_namespace(xdevice.compose(tensor_of(V)))
    assert dir(xp) == dir(xdevice.namespace())
    assert not hasattr(xp, "relu")
    assert not hasattr(xp.linalg, "lstsq")
    with pytest.raises(TypeError, match=r"NumPy|numpy"):
        xp.add(xdevice.compose(tensor_of(V)), V)
    with pytest.raises(NotSupportedError, match="asks for a NumPy array"):
        _ = V + xdevice.compose(tensor_of(V))
    for compare in (operator.eq, operator.ne):  # Python would answer False, or True
        with pytest.raises(TypeError, match="convert it"):
            compare(xdevice.compose(tensor_of(V)), V)
        with pytest.raises(TypeError, match="convert it"):
            compare(V, xdevice.compose(tensor_of(V)))
    with pytest.raises(AttributeError, match=r"no 'reshape'.*to_numpy"):
        xdevice.compose(tensor_of(V)).reshape(3, 4)


def test_array_api_compat_answers_about_a_composed_tensor(backend):
    x = tensor_of(V)
    array = xdevice.compose(x)
    if backend in COMPOSED:
        assert array_api_compat.is_array_api_obj(array)
        assert array_api_compat.is_writeable_array(array)
        assert not array_api_compat.is_lazy_array(array)
        assert array_api_compat.device(array) == xdevice.device_of(x)
        assert array_api_compat.to_device(array, array.device) is array
    assert array_api_compat.size(array) == 12


@pytest.mark.weekly
def test_the_documented_number_of_functions_is_right(backend):
    """On a virtual gpu:1: those that return NumPy's numbers, as tensors there; the others raise."""
    if backend not in COMPOSED:
        return
    script = Path(__file__).parent / "composed_libraries.py"
    page = Path(__file__).parents[2] / "docs" / "tensors" / "maths.md"
    run = subprocess.run(
        [sys.executable, script, backend, "gpu:1"],
        capture_output=True,
        text=True,
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] in page.read_text(encoding="utf-8")


def test_the_error_for_a_numpy_array_in_a_result_names_its_path(backend, two_gpus):
    def times(x):
        return {"x": x, "times": [(x, np.ones(2))]}

    with pytest.raises(NotSupportedError, match=r"a NumPy array at \['times'\]\[0\]\[1\] for"):
        xdevice.compose(times)(xdevice.ones(2, device=two_gpus[1]))
