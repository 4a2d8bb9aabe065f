"""Other libraries take a namespace for the framework's: array-api-extra, array-api-compat, scikit-learn."""

from __future__ import annotations

import array_api_compat
import array_api_compat.numpy as standard_numpy
import array_api_extra as xpx
import numpy as np
import pytest

import xdevice
from xdevice import to_numpy
from xdevice.tensors.namespace import namespace

# functions that the standard has by now
pytestmark = pytest.mark.filterwarnings("ignore:`xpx:DeprecationWarning")

MATRIX, VECTOR, PLACES = [[1.0, 2.0], [3.0, 4.0]], [1.0, 5.0, 2.0, 2.0], [1, 0, 1]


def nan_among(xp, v):
    return xp.where(v > 4, xp.asarray(float("nan"), dtype=v.dtype), v)


CALLS = {
    "angle": lambda xp, a, v, n: xpx.angle(v, xp=xp),
    "apply_where": lambda xp, a, v, n: xpx.apply_where(
        v > 2, v, lambda x: x * 2, fill_value=0.0, xp=xp
    ),
    "argpartition": lambda xp, a, v, n: xp.take(v, xpx.argpartition(v, 1, xp=xp)[:1]),
    "at": lambda xp, a, v, n: xpx.at(v, 0).set(9.0, xp=xp, copy=True),
    "atleast_nd": lambda xp, a, v, n: xpx.atleast_nd(v, ndim=2, xp=xp),
    "broadcast_shapes": lambda xp, a, v, n: v + len(xpx.broadcast_shapes((2, 1), (3,))),
    "cov": lambda xp, a, v, n: xpx.cov(a, xp=xp),
    "create_diagonal": lambda xp, a, v, n: xpx.create_diagonal(v, xp=xp),
    "default_dtype": lambda xp, a, v, n: v + (xpx.default_dtype(xp, device=None) is not None),
    "deg2rad": lambda xp, a, v, n: xpx.deg2rad(v, xp=xp),
    "diag_indices": lambda xp, a, v, n: xp.stack(xpx.diag_indices(2, xp=xp)),
    "expand_dims": lambda xp, a, v, n: xpx.expand_dims(v, axis=(0, 2), xp=xp),
    "isclose": lambda xp, a, v, n: xpx.isclose(v, v + 1e-9, xp=xp),
    "isin": lambda xp, a, v, n: xpx.isin(v, v[1:2], xp=xp),
    "kron": lambda xp, a, v, n: xpx.kron(a, a, xp=xp),
    "lazy_apply": lambda xp, a, v, n: xpx.lazy_apply(lambda x: x * 2, v, xp=xp),
    "nan_to_num": lambda xp, a, v, n: xpx.nan_to_num(nan_among(xp, v), xp=xp),
    "nanmax": lambda xp, a, v, n: xpx.nanmax(nan_among(xp, v), xp=xp),
    "nanmean": lambda xp, a, v, n: xpx.nanmean(nan_among(xp, v), xp=xp),
    "nanmin": lambda xp, a, v, n: xpx.nanmin(nan_among(xp, v), xp=xp),
    "nansum": lambda xp, a, v, n: xpx.nansum(nan_among(xp, v), xp=xp),
    "nunique": lambda xp, a, v, n: xpx.nunique(v, xp=xp),
    "one_hot": lambda xp, a, v, n: xpx.one_hot(n, 2, xp=xp),
    "pad": lambda xp, a, v, n: xpx.pad(v, 1, xp=xp),
    "partition": lambda xp, a, v, n: xpx.partition(v, 1, xp=xp)[:1],
    "rad2deg": lambda xp, a, v, n: xpx.rad2deg(v, xp=xp),
    "searchsorted": lambda xp, a, v, n: xpx.searchsorted(xp.sort(v), v, xp=xp),
    "setdiff1d": lambda xp, a, v, n: xpx.setdiff1d(v, v[1:2], xp=xp),
    "sinc": lambda xp, a, v, n: xpx.sinc(v, xp=xp),
    "tril_indices": lambda xp, a, v, n: xp.stack(xpx.tril_indices(2, xp=xp)),
    "triu_indices": lambda xp, a, v, n: xp.stack(xpx.triu_indices(2, xp=xp)),
    "union1d": lambda xp, a, v, n: xpx.union1d(v, v, xp=xp),
    "unravel_index": lambda xp, a, v, n: xp.stack(xpx.unravel_index(n + 1, (2, 2), xp=xp)),
}
NAMES = [name for name in CALLS if hasattr(xpx, name)]  # some came with later versions

ASK_THE_ARRAY = {"apply_where", "at", "create_diagonal", "isclose", "pad"}
"""Functions that ask array-api-compat about the array itself, which knows none of these frameworks, and refuses it."""
USE_THE_ARRAY = {
    "isin",
    "lazy_apply",
    "nanmean",
    "nunique",
    "one_hot",
    "setdiff1d",
    "sinc",
    "unravel_index",
}
"""Functions that use the array's own attribute ``device``, or operators that MXNet's arrays lack."""
REFUSED = {
    "tensorflow": ASK_THE_ARRAY,
    "paddle": ASK_THE_ARRAY,
    "mxnet": ASK_THE_ARRAY | USE_THE_ARRAY,
}


def test_every_function_of_array_api_extra_is_called():
    public = {name for name in xpx.__all__ if callable(getattr(xpx, name))}
    assert public == set(NAMES)


def tensors():
    device = xdevice.try_gpu(1)
    for values, dtype in ((MATRIX, "float32"), (VECTOR, "float32"), (PLACES, "int32")):
        yield xdevice.tensor(values, dtype=dtype, device=device)


def expected(name):
    a, v = (np.asarray(values, "float32") for values in (MATRIX, VECTOR))
    if (
        name == "isin"
    ):  # that of NumPy 1.23, which MXNet needs, is not the one that array-api-extra calls
        return np.isin(v, v[1:2])
    return CALLS[name](standard_numpy, a, v, np.asarray(PLACES, "int32"))


@pytest.mark.parametrize("name", NAMES)
def test_array_api_extra_computes_with_it_or_refuses_by_name(backend, name):
    call = CALLS[name]
    a, v, n = tensors()
    with xdevice.scope(xdevice.device_of(a)):
        if name in REFUSED.get(backend, ()):
            with pytest.raises(
                (TypeError, ValueError, AttributeError, RuntimeError),
                match=r"Tensor|array|[Ss]hape",
            ):
                call(namespace(), a, v, n)
            return
        result = call(namespace(), a, v, n)
    np.testing.assert_allclose(to_numpy(result), expected(name), rtol=1e-5, atol=1e-5)


def test_array_api_compat_tells_whose_it_is(backend):
    xp = namespace()
    asked = [
        name
        for name in dir(array_api_compat)
        if name.startswith("is_") and name.endswith("_namespace")
    ]
    answers = {name.split("_")[1] for name in asked if getattr(array_api_compat, name)(xp)}
    assert answers == ({backend} if backend in ("torch", "jax", "numpy") else set())


@pytest.mark.weekly  # scikit-learn takes seconds to import
def test_scikit_learn_dispatches_on_it(backend):
    from sklearn.utils import _array_api as dispatch

    xp = namespace()
    assert dispatch._is_numpy_namespace(xp) is (backend == "numpy")
    if backend in ("torch", "numpy"):
        x = xp.asarray([[1.0, 2.0], [3.0, 5.0]])
        assert dispatch.get_namespace(x, xp=xp)[0] is xp
        assert dispatch.supported_float_dtypes(xp)
        assert float(dispatch._average(x, xp=xp)) == 2.75
