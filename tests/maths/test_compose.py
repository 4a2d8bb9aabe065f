"""`compose` with the libraries that it is for: SciPy and scikit-learn."""

from __future__ import annotations

import asyncio
import itertools
import os
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
import scipy.special
import scipy.stats
import sklearn
from scipy._lib import _array_api, _array_api_override
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

# JAX's arrays, which libraries know, cannot be written to, as scikit-learn does.
pytestmark = pytest.mark.only_under("numpy", "torch", "tensorflow", "paddle", "mxnet")

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


def test_a_tensor_as_an_array_refuses_what_scipy_computes_in_numpy(backend):
    array = xdevice.compose(tensor_of(A[:4]))
    if backend in COMPOSED:
        with pytest.raises(NotSupportedError, match="SCIPY_ARRAY_API=1"):
            scipy.linalg.logm(array)


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
    with pytest.raises(TypeError):
        _ = V + xdevice.compose(tensor_of(V))


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
