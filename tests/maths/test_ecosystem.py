"""Other libraries take a namespace for the framework's: array-api-extra, array-api-compat, scikit-learn."""

from __future__ import annotations

import array_api_compat
import array_api_compat.numpy as standard_numpy
import array_api_extra as xpx
import numpy as np
import pytest
from sklearn.utils import _array_api as dispatch

from xdevice import to_numpy
from xdevice.tensors.namespace import namespace

MATRIX, VECTOR, PLACES = [[1.0, 2.0], [3.0, 4.0]], [1.0, 5.0, 2.0, 2.0], [1, 0, 1]

CALLS = {
    "angle": lambda xp, a, v, n: xpx.angle(v, xp=xp),
    "apply_where": lambda xp, a, v, n: xpx.apply_where(
        v > 2, v, lambda x: x * 2, fill_value=0.0, xp=xp
    ),
    "argpartition": lambda xp, a, v, n: xp.take(v, xpx.argpartition(v, 1, xp=xp)[:1]),
    "at": lambda xp, a, v, n: xpx.at(v, 0).set(9.0, xp=xp, copy=True),
    "atleast_nd": lambda xp, a, v, n: xpx.atleast_nd(v, ndim=2, xp=xp),
    "cov": lambda xp, a, v, n: xpx.cov(a, xp=xp),
    "create_diagonal": lambda xp, a, v, n: xpx.create_diagonal(v, xp=xp),
    "isclose": lambda xp, a, v, n: xpx.isclose(v, v + 1e-9, xp=xp),
    "isin": lambda xp, a, v, n: xpx.isin(v, v[1:2], xp=xp),
    "kron": lambda xp, a, v, n: xpx.kron(a, a, xp=xp),
    "nan_to_num": lambda xp, a, v, n: xpx.nan_to_num(v, xp=xp),
    "nunique": lambda xp, a, v, n: xpx.nunique(v, xp=xp),
    "one_hot": lambda xp, a, v, n: xpx.one_hot(n, 2, xp=xp),
    "pad": lambda xp, a, v, n: xpx.pad(v, 1, xp=xp),
    "partition": lambda xp, a, v, n: xpx.partition(v, 1, xp=xp)[:1],
    "setdiff1d": lambda xp, a, v, n: xpx.setdiff1d(v, v[1:2], xp=xp),
    "sinc": lambda xp, a, v, n: xpx.sinc(v, xp=xp),
    "union1d": lambda xp, a, v, n: xpx.union1d(v, v, xp=xp),
}

ASK_THE_ARRAY = {"apply_where", "at", "create_diagonal", "isclose", "pad"}
"""Functions that ask array-api-compat about the array itself, which knows none of these frameworks, and refuses it."""
ASK_FOR_ITS_DEVICE = {"isin", "nunique", "one_hot", "setdiff1d", "sinc"}
"""Functions that use the array's own attribute ``device``, or a shape of unknown length: MXNet's arrays lack them."""
REFUSED = {
    "tensorflow": ASK_THE_ARRAY,
    "paddle": ASK_THE_ARRAY,
    "mxnet": ASK_THE_ARRAY | ASK_FOR_ITS_DEVICE,
}


@pytest.mark.parametrize("name", CALLS)
def test_array_api_extra_computes_with_it_or_refuses_by_name(backend, name):
    def call(xp):
        a, v = (xp.asarray(np.asarray(values, "float32")) for values in (MATRIX, VECTOR))
        return CALLS[name](xp, a, v, xp.asarray(np.asarray(PLACES, "int32")))

    if name in REFUSED.get(backend, ()):
        with pytest.raises(
            (TypeError, ValueError, AttributeError, RuntimeError), match=r"Tensor|array|Shape"
        ):
            call(namespace())
        return
    np.testing.assert_allclose(
        to_numpy(call(namespace())), call(standard_numpy), rtol=1e-5, atol=1e-5
    )


def test_array_api_compat_tells_whose_it_is(backend):
    xp = namespace()
    asked = [
        name
        for name in dir(array_api_compat)
        if name.startswith("is_") and name.endswith("_namespace")
    ]
    answers = {name.split("_")[1] for name in asked if getattr(array_api_compat, name)(xp)}
    assert answers == ({backend} if backend in ("torch", "jax", "numpy") else set())


def test_scikit_learn_dispatches_on_it(backend):
    xp = namespace()
    assert dispatch._is_numpy_namespace(xp) is (backend == "numpy")
    if backend in ("torch", "numpy"):
        x = xp.asarray([[1.0, 2.0], [3.0, 5.0]])
        assert dispatch.get_namespace(x, xp=xp)[0] is xp
        assert dispatch.supported_float_dtypes(xp)
        assert float(dispatch._average(x, xp=xp)) == 2.75
