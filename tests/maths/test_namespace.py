"""What a namespace promises beyond the values of its functions: signatures, dtypes, what it tells of itself."""

from __future__ import annotations

import inspect
import operator

import array_api_strict as strict
import numpy as np
import pytest

import xdevice
import xdevice.typing
from xdevice import ArgumentError, to_numpy
from xdevice.tensors.namespace import DTYPE_NAMES, EXTENSIONS, NAMES, namespace

BY_NATURE = ("broadcast_arrays", "broadcast_shapes", "meshgrid", "result_type")
"""Functions that take any number of arguments by the standard."""


def is_wide():
    """Whether JAX has dtypes of 64 bits."""
    return xdevice.backend("jax").framework.config.jax_enable_x64


def functions():
    xp = namespace()
    found = {name: getattr(xp, name) for name in dir(xp) if name in NAMES}
    for part in EXTENSIONS:
        inner = getattr(xp, part) if part in dir(xp) else None
        found |= {
            f"{part}.{name}": getattr(inner, name)
            for name in dir(inner)
            if name in EXTENSIONS[part]
        }
    return {
        name: function
        for name, function in found.items()
        if callable(function) and name not in DTYPE_NAMES
    }


UNSIGNED = {"uint16", "uint32", "uint64"}
LACKING = {
    "paddle": UNSIGNED,
    "mxnet": {
        *UNSIGNED,
        "int16",
        "complex64",
        "complex128",
        "fft",
        "nextafter",
        "linalg.eig",
        "linalg.eigvals",
    },
}
"""What a framework cannot have, of all that the standard names."""


OWN_KEYWORDS = {"torch": {"dim": 0}, "numpy": {"initial": 0}, "jax": {"initial": 0}}
"""Keywords of the frameworks' own sums."""


def test_a_keyword_that_the_standard_lacks_warns_or_is_an_error(backend):
    xp = namespace()
    x = xp.asarray([1.0, 2.0])
    if backend in OWN_KEYWORDS:
        with pytest.warns(xdevice.NotPortableWarning, match=f"= of sum is {backend}'s own"):
            xp.sum(x, **OWN_KEYWORDS[backend])
    else:
        with pytest.raises(TypeError):
            xp.sum(x, dim=0)
    xp.sum(x, axis=0, dtype=xp.float32, keepdims=True)


def test_every_name_of_the_standard_is_there_but_those_that_are_listed(backend):
    xp = namespace()
    known = {
        name
        for name in strict.__all__
        if not name.endswith("_flags") and not name.startswith("ArrayAPIStrict")
    }
    assert known - set(NAMES) <= {"Device", "__array_api_strict_version__", "__version__"}
    for part, names in EXTENSIONS.items():
        assert set(getattr(strict, part).__all__) <= set(names)
    parts = [part for part in EXTENSIONS if part in dir(xp)]
    there = set(dir(xp)) | {f"{part}.{name}" for part in parts for name in dir(getattr(xp, part))}
    lacking = set(NAMES) - there
    lacking |= {f"{part}.{name}" for part in parts for name in EXTENSIONS[part]} - there
    assert lacking == LACKING.get(backend, set())


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


def test_ranges_are_of_every_integer_dtype(backend):
    xp = namespace()
    for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):
        if name in dir(xp):
            found = xp.arange(1, 8, 2, dtype=name)
            assert (to_numpy(found).tolist(), found.dtype) == ([1, 3, 5, 7], getattr(xp, name))


def test_places_and_counts_are_of_every_integer_dtype(backend):
    xp = namespace()
    x = xp.asarray([1.0, 2.0, 3.0])
    names = (
        ("int8", "int16", "uint8")
        if backend == "torch"
        else ("int8", "int16", "uint8", "uint16", "uint32")
    )
    for name in (name for name in names if name in dir(xp)):
        places = xp.asarray([2, 0, 1], dtype=name)
        assert to_numpy(xp.take(x, places)).tolist() == [3, 1, 2]
        assert to_numpy(xp.take_along_axis(x, places)).tolist() == [3, 1, 2]
        assert to_numpy(xp.repeat(x, places)).tolist() == [1, 1, 3]


def test_one_count_repeats_every_number(backend):
    xp = namespace()
    x = xp.asarray([1.0, 2.0])
    assert to_numpy(xp.repeat(x, xp.asarray([2]))).tolist() == [1, 1, 2, 2]


def test_vectors_of_two_lengths_have_no_product(backend):
    if backend in ("torch", "numpy", "jax"):
        pytest.skip("their own functions have their own errors, or none")
    xp = namespace()
    with pytest.raises(
        xdevice.ArgumentError, match="vecdot of vectors of 1 and 3 numbers; give some of one length"
    ):
        xp.vecdot(xp.ones((2, 1)), xp.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "float64"])
def test_sums_and_products_have_the_dtype_that_is_asked_for(backend, dtype):
    xp = namespace()
    if (backend, dtype) == ("jax", "float64"):
        pytest.skip("JAX has it only when told")
    x, wanted = xp.asarray([1, 2, 3], dtype="int32"), getattr(xp, dtype)
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
        assert getattr(xp, name)(x, dtype=wanted).dtype == wanted


def test_a_shift_beyond_every_bit_leaves_the_sign(backend):
    xp = namespace()
    shifts = xp.asarray([70, 1000], dtype="int32")
    assert to_numpy(
        xp.bitwise_right_shift(xp.asarray([-287, 287], dtype="int32"), shifts)
    ).tolist() == [-1, 0]


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
    ("data", "kind"),
    [([1, 2], "i"), ([True, False], "b"), ([1, 2.5], "f"), ([2.5, 1], "f"), ([[1], [0.5]], "f")],
)
def test_a_list_of_numbers_keeps_their_kind(backend, data, kind):
    for make in (namespace().asarray, xdevice.tensor):
        found = to_numpy(make(data))
        assert found.dtype.kind == kind
        assert found.tolist() == data


def test_equal_numbers_stay_in_their_order(backend):
    xp = namespace()
    x = np.arange(60) % 3
    for descending, expected in (
        (False, np.argsort(x, kind="stable")),
        (True, np.argsort(-x, kind="stable")),
    ):
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
    off = (
        {"int64", "uint64", "float64", "complex128"}
        if backend == "jax" and not is_wide()
        else set()
    )
    stored_only = {"uint16", "uint32", "uint64"} if backend == "torch" else set()
    assert list(info.dtypes()) == [
        name for name in DTYPE_NAMES if name in dir(xp) and name not in off | stored_only
    ]
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"} - off
    x = xp.ones(2)
    for name in off:  # one answer everywhere, and a warning nowhere
        for make in (
            xp.asarray,
            xp.astype,
            xp.zeros_like,
            lambda x, dtype: xp.astype(x, getattr(xp, dtype)),
        ):
            with pytest.raises(ArgumentError, match="jax_enable_x64"):
                make(x, dtype=name) if make in (xp.asarray, xp.zeros_like) else make(x, name)
    assert info.default_dtypes()["real floating"] == xp.asarray([0.5]).dtype
    assert info.default_dtypes()["indexing"] == xp.argmax(xp.asarray([1])).dtype
    with pytest.raises(
        xdevice.ArgumentError, match="'floating' is not a kind of dtypes; give one of 'bool'"
    ):
        info.dtypes(kind="floating")


def test_a_dtype_that_a_framework_lacks_says_so(backend):
    xp = namespace()
    for name in set(DTYPE_NAMES) - set(dir(xp)):
        with pytest.raises(
            xdevice.NotSupportedError, match=f"{backend} has no {name}: it has no such dtype"
        ):
            getattr(xp, name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_numbers_near_zero_are_not_zero(backend, dtype):
    xp = namespace()
    if dtype not in dir(xp) or (backend, dtype) == ("jax", "float64"):
        pytest.skip(f"{backend} has no {dtype}, or has it only when told")
    small, zero = xp.asarray([1e-16, 1e-30, 0.0, np.nan], dtype=dtype), xp.zeros((4,), dtype=dtype)
    assert to_numpy(xp.equal(small, zero)).tolist() == [False, False, True, False]
    assert to_numpy(xp.not_equal(small, zero)).tolist() == [True, True, False, True]
    if (str(backend), dtype) != ("torch", "complex64"):  # PyTorch has no order of complex numbers
        assert xp.unique_values(xp.asarray([0.0, 1e-30, 1e-16], dtype=dtype)).shape[0] == 3


def test_the_negative_of_zero_is_negative_zero(backend):
    xp = namespace()
    assert np.signbit(to_numpy(xp.negative(xp.asarray([0.0, -0.0])))).tolist() == [True, False]


def test_a_remainder_of_zero_has_the_sign_of_the_divisor(backend):
    if backend in ("torch", "jax"):
        pytest.skip("their own functions keep the sign of the first operand")
    xp = namespace()
    x1, x2 = xp.asarray([-0.0, 0.0, 4.0, -4.0, 5.0]), xp.asarray([2.0, -2.0, -2.0, 2.0, -3.0])
    found = to_numpy(xp.remainder(x1, x2))
    assert found.tolist() == [0, 0, 0, 0, -1]
    assert np.signbit(found).tolist() == [False, True, True, False, True]


def test_an_axis_that_is_not_there_is_an_index_error_and_a_value_error(backend):
    xp = namespace()
    own = {
        "torch": IndexError,
        "numpy": IndexError,
        "jax": ValueError,
    }  # their own functions raise their own
    for expected in (
        [own[backend]] if backend in own else [IndexError, ValueError, xdevice.AxisError]
    ):
        for axis in (3, -4):
            with pytest.raises(expected):
                xp.expand_dims(xp.zeros((2, 3)), axis=axis)


def test_lists_of_several_kinds_of_numbers_become_the_highest_kind(backend):
    xp = namespace()
    assert to_numpy(xp.asarray([False, -5])).tolist() == [0, -5]
    if "complex64" in dir(xp):
        assert to_numpy(xp.asarray([1, 2j, 3.5])).tolist() == [1, 2j, 3.5]
        assert xp.full((2,), 1j).dtype == xp.asarray(1j).dtype


def test_an_imaginary_number_is_true(backend):
    xp = namespace()
    if "complex64" in dir(xp):
        x = xp.asarray([1j])
        assert bool(xp.any(x))
        assert bool(xp.all(x, axis=0))


def test_hypot_of_long_sides_is_finite(backend):
    xp = xdevice.namespace()
    found = xp.hypot(xp.asarray([3.0, 1e30], dtype="float32"), 2**70)
    assert xdevice.to_numpy(found).tolist() == pytest.approx([2.0**70, 1e30])


def test_limits_name_the_dtype_as_the_namespace_does(backend):
    xp = xdevice.namespace()
    for name in ("float32", "int32"):
        dtype = getattr(xp, name)
        limits = xp.finfo if name == "float32" else xp.iinfo
        assert limits(dtype).dtype == dtype
        assert limits(xp.zeros(2, dtype=dtype)).dtype == dtype


def test_shapes_that_do_not_broadcast_are_a_value_error(backend):
    with pytest.raises(ValueError, match="broadcast"):
        xdevice.namespace().broadcast_shapes((3,), (4,))


def test_a_tensor_has_the_operators_that_its_type_promises(backend):
    x = namespace().asarray([[2.0, 1.0], [1.0, 3.0]])
    truths = x > 1
    of_operators = {name for name, function in vars(operator).items() if callable(function)}
    promised = sorted(of_operators & set(vars(xdevice.typing.Tensor)) - {"__init__"})
    assert "__matmul__" in promised
    for name in promised:
        left = truths if name in ("__and__", "__or__") else x
        both = (left,) if name in ("__neg__", "__abs__") else (left, left)
        if name == "__getitem__":
            both = (x, (0, slice(1)))
        assert xdevice.to_numpy(getattr(operator, name)(*both)).ndim
