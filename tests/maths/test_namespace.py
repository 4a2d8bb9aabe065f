"""What a namespace promises beyond the values of its functions: signatures, dtypes, what it tells of itself."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import xdevice
from xdevice import to_numpy
from xdevice.tensors.names import DTYPE_NAMES, EXTENSIONS, NAMES
from xdevice.tensors.namespace import namespace

BY_NATURE = ("broadcast_arrays", "broadcast_shapes", "meshgrid", "result_type")
"""Functions that take any number of arguments by the standard."""


def functions():
    xp = namespace()
    found = {name: getattr(xp, name) for name in dir(xp) if name in NAMES}
    inner = [(part, name) for part, names in EXTENSIONS.items() if part in dir(xp) for name in names]
    found |= {f"{part}.{name}": getattr(getattr(xp, part), name) for part, name in inner if name in dir(getattr(xp, part))}
    return {name: function for name, function in found.items() if callable(function) and name not in DTYPE_NAMES}


def test_every_function_names_its_arguments(backend):
    bare = []
    for name, function in functions().items():
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # a compiled function of PyTorch, which array-api-compat gives as it is
            assert backend == "torch"
            continue
        if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
            bare.append(name)
    assert sorted(bare) == sorted(BY_NATURE)


def test_arguments_are_taken_by_position_and_by_name_as_in_the_standard(backend):
    xp = namespace()
    assert xp.zeros(shape=(2, 3)).shape == (2, 3)
    assert xp.ones(shape=2).shape == (2,)
    assert to_numpy(xp.full(shape=(2,), fill_value=3.0)).tolist() == [3.0, 3.0]
    x = xp.zeros((2, 3))
    assert tuple(xp.expand_dims(x, 0).shape) == tuple(xp.expand_dims(x, axis=0).shape) == (1, 2, 3)
    with pytest.raises(TypeError):
        xp.zeros(2, 3)


def test_an_empty_range_has_the_dtype_of_a_full_one(backend):
    xp = namespace()
    assert xp.arange(5, 0.5).dtype == xp.arange(0.5, 5).dtype
    assert xp.arange(5, 2).dtype == xp.arange(2, 5).dtype
    assert tuple(xp.arange(5, 0.5).shape) == (0,)


def test_zero_has_the_sign_that_it_was_given(backend):
    xp = namespace()
    for value in (-0.0, 0.0, -0.0):
        assert np.signbit(to_numpy(xp.asarray(value))) == np.signbit(value)
        assert np.signbit(to_numpy(xp.asarray(value, dtype="float16"))) == np.signbit(value)
        assert np.signbit(to_numpy(xp.full((1,), value)))[0] == np.signbit(value)


@pytest.mark.parametrize(
    ("data", "kind"), [([1, 2], "i"), ([True, False], "b"), ([1, 2.5], "f"), ([2.5, 1], "f"), ([[1], [0.5]], "f")]
)
def test_a_list_of_numbers_keeps_their_kind(backend, data, kind):
    for make in (namespace().asarray, xdevice.tensor):
        found = to_numpy(make(data))
        assert found.dtype.kind == kind
        assert found.tolist() == data


def test_equal_numbers_stay_in_their_order(backend):
    xp = namespace()
    x = np.arange(60) % 3
    for descending, expected in ((False, np.argsort(x, kind="stable")), (True, np.argsort(-x, kind="stable"))):
        places = xp.argsort(xp.asarray(x, dtype="float32"), descending=descending, stable=True)
        assert to_numpy(places).tolist() == expected.tolist()


def test_what_is_in_a_set_can_be_what_is_not(backend):
    xp = namespace()
    x = xp.asarray([1, 2, 3])
    assert to_numpy(xp.isin(x, xp.asarray([1, 3]), invert=True)).tolist() == [False, True, False]


def test_several_tensors_come_back_in_a_tuple(backend):
    xp = namespace()
    x = xp.ones((3,))
    for found in (xp.meshgrid(x, x), xp.broadcast_arrays(x, xp.ones((2, 1))), xp.unstack(x)):
        assert type(found) is tuple


def test_a_namespace_tells_of_its_devices_and_dtypes(backend):
    xp = namespace()
    info = xp.__array_namespace_info__()
    assert set(info.devices()) == set(xdevice.devices())
    assert info.default_device() in info.devices()
    assert list(info.dtypes()) == [name for name in DTYPE_NAMES if name in dir(xp)]
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert info.default_dtypes()["real floating"] == xp.asarray([0.5]).dtype
    assert info.default_dtypes()["indexing"] == xp.argmax(xp.asarray([1])).dtype
    with pytest.raises(xdevice.ArgumentError, match="'floating' is not a kind of dtypes; give one of 'bool'"):
        info.dtypes(kind="floating")


def test_a_dtype_that_a_framework_lacks_says_so(backend):
    xp = namespace()
    for name in set(DTYPE_NAMES) - set(dir(xp)):
        with pytest.raises(xdevice.NotSupportedError, match=f"{backend} has no {name}: it has no such dtype"):
            getattr(xp, name)
