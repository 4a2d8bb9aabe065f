"""Creating tensors, and reading their values as NumPy arrays."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from xdevice import (
    Device,
    arange,
    backend_of,
    device_of,
    empty,
    full,
    ones,
    rand,
    randn,
    seed,
    tensor,
    using,
    zeros,
)
from xdevice.errors import ArgumentError, NotATensorError
from xdevice.hardware import questions as hardware
from xdevice.tensors import creation
from xdevice.tensors.exchange import convert, to_numpy
from xdevice.tensors.moving import to_device
from xdevice.testing import Native, Tensor
from xdevice.testing.contract.promises import FIXED, Promises, home, needs, raised, values

FACTORIES: dict[str, Callable[..., Any]] = {
    **{
        name: partial(getattr(creation, name), (2, 3))
        for name in ("empty", "zeros", "ones", "rand", "randn")
    },
    "full": lambda **k: full((2, 3), 7.5, **k),
    "arange": lambda **k: arange(6, **k),
    "tensor": lambda **k: tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], **k),
}
DTYPES = [(name, dtype) for name in FACTORIES for dtype in ("float32", "float16")]
DTYPES.extend((name, "int32") for name in ("zeros", "ones", "arange", "full", "tensor"))

LAYOUTS: dict[str, Any] = {
    "negative strides": np.arange(4.0, dtype="float32")[::-1],
    "strided": np.arange(8.0, dtype="float32")[::2],
    "transposed": np.arange(6.0, dtype="float32").reshape(2, 3).T,
    "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
    "other byte order": np.arange(4, dtype=">f4"),
    "a scalar": np.float32(2.5),
    "empty": np.zeros((0, 3), dtype="float32"),
}

NAN, INF = math.nan, math.inf
DTYPE_NAMES = [
    "float33",
    "text",
    "object",
    "float",
    "int",
    "half",
    "",
    0,
    False,
    [],
    (),
    np.zeros,
    str,
    object(),
]
SMALL = [
    -1,
    [-1],
    [[1], [256]],
    [NAN],
    [1, [NAN, 2.0]],
    INF,
    [1.0, -INF],
    1e10,
    2 + 1j,
    np.array([-1]),
]
WIDE = [np.array([NAN]), [np.float64(NAN)], [1j], np.array([2**31]), 2.0**31, [[1], [NAN, 3.0]]]
WITHIN_RANGE: list[Any] = [
    ([[0, 255], [1.9, True]], "uint8", [[0, 255], [1, 1]]),
    ([NAN, 2.0], "bool", [True, True]),
    ([-(2**31), 2**31 - 1], "int32", [-(2**31), 2**31 - 1]),
]
RANGES = [(0, INF), (0, 5, NAN), (1j,), ("5",), (0, None, 0), (0, 3, 0)]
HUGE = [2**63 - 1, (2**31,) * 3, 2**64 + 3, 2**70]
REFUSALS: list[tuple[str, Callable[[Any], Any], str, list[Any]]] = [
    ("zeros", zeros, "shape", ["23", 2.5, (2, 3.0), None, (True, 2), (-1, 2), object()]),
    ("ones", lambda dtype: ones(2, dtype=dtype), "dtype", [*DTYPE_NAMES, np.array([1])]),
    ("ones", lambda dtype: ones(2, dtype=dtype), "did you mean 'float32'", ["flaot32", "flot32"]),
    ("tensor", tensor, "cannot be made", ["text", [[1, 2], [3]], object(), [1, "a"], None]),
    ("tensor", lambda data: tensor(data, dtype="uint8"), "does not", SMALL),
    ("tensor", lambda data: tensor(data, dtype="int32"), "does not", WIDE),
    ("full", lambda value: full((2,), value, dtype="int32"), "does not", [NAN]),
    ("arange", lambda ends: arange(*ends, dtype="uint8"), "does not", [(-1, 2), (250, 300)]),
    ("arange", lambda ends: arange(*ends), "never arrives|not a number", RANGES),
    *((name, getattr(creation, name), "smaller", HUGE) for name in ("ones", "empty", "rand")),
    ("rand", lambda dtype: rand((3,), dtype=dtype), "rand", ["int32", "bool"]),
    ("randn", lambda dtype: randn((3,), dtype=dtype), "randn", ["int32", "bool"]),
    ("full", lambda value: full((2,), value), "not a number", ["a", None, object(), [1]]),
    ("seed", seed, "is not possible", [-1, 2**32, 1.5, "one", None, True]),
]
"""Refused calls: the factory, a call of it, the error's message, arguments."""
REFUSED = [
    (name, call, message, argument)
    for name, call, message, arguments in REFUSALS
    for argument in arguments
]


EMPTY_TENSORS: dict[str, Callable[[str, Device], Tensor]] = {
    "zeros": lambda dtype, device: zeros((0, 3), dtype=dtype, device=device),
    "ones": lambda dtype, device: ones((0, 3), dtype=dtype, device=device),
    "empty": lambda dtype, device: empty((0, 3), dtype=dtype, device=device),
    "rand": lambda dtype, device: rand((0, 3), dtype=dtype, device=device),
    "randn": lambda dtype, device: randn((0, 3), dtype=dtype, device=device),
    "full": lambda dtype, device: full((2, 0), 1, dtype=dtype, device=device),
    "tensor": lambda dtype, device: tensor([], dtype=dtype, device=device),
    "arange": lambda dtype, device: arange(0, dtype=dtype, device=device),
}


class Creation(Promises):
    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_make_on_each_device(
        self, backend: str, native: Native, name: str, place: Device
    ) -> None:
        other_spelling = f"cuda:{place.index}" if place.kind == "gpu" else place.kind
        spellings = [str(place), f"/{place.kind.upper()}:{place.index}", other_spelling]
        shape = (6,) if name == "arange" else (2, 3)
        for device in (place, hardware.native(place), *spellings):
            x = FACTORIES[name](device=device)
            assert device_of(x) == place
            assert type(x) is type(native.ones())
            assert tuple(x.shape) == shape

    @needs(*(f"creation.{name}" for name in EMPTY_TENSORS), "exchange.to_numpy")
    @pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
    def test_empty_tensors_are_made_on_each_device(
        self, backend: str, place: Device, dtype: str
    ) -> None:
        for name, make in EMPTY_TENSORS.items():
            if name in ("rand", "randn") and dtype != "float32":
                continue
            empty_tensor = make(dtype, place)
            assert device_of(empty_tensor) == place, name
            assert to_numpy(empty_tensor).size == 0, name

    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_follow_the_native_default(
        self, backend: str, native: Native, name: str
    ) -> None:
        assert device_of(FACTORIES[name](device=None)) == device_of(native.ones())

    @needs("creation.{name}", "exchange.to_numpy", "dtype.{dtype}")
    @pytest.mark.parametrize(("name", "dtype"), DTYPES)
    def test_factories_use_the_dtype_given(self, backend: str, name: str, dtype: str) -> None:
        assert to_numpy(FACTORIES[name](dtype=dtype)).dtype == np.dtype(dtype)

    @needs("creation.{name}", "exchange.to_numpy")
    @pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32")], ids=["class", "dtype"])
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_accept_numpys_dtypes(self, backend: str, name: str, dtype: Any) -> None:
        assert to_numpy(FACTORIES[name](dtype=dtype)).dtype == np.float32

    @needs("creation.ones", "creation.zeros", "exchange.to_numpy")
    def test_factories_accept_native_dtypes(self, backend: str) -> None:
        native_dtype = zeros(1, dtype="int32").dtype
        assert to_numpy(ones(3, dtype=native_dtype)).dtype == np.int32

    @needs(*FIXED, "exchange.to_numpy")
    def test_factories_fill_in_the_requested_values(self, backend: str, place: Device) -> None:
        assert values(zeros((2, 3), device=place)) == [[0, 0, 0], [0, 0, 0]]
        assert values(ones(2, device=place)) == [1, 1]
        assert values(full((2,), 2.5, device=place)) == [2.5, 2.5]
        assert values(arange(4, device=place)) == [0, 1, 2, 3]
        assert values(arange(1, 2, 0.25, device=place)) == [1, 1.25, 1.5, 1.75]
        assert values(arange(5, 0, -2, device=place)) == [5, 3, 1]
        assert values(tensor([[1, 2], [3, 4]], device=place)) == [[1, 2], [3, 4]]
        assert values(tensor(np.arange(6.0)[::-2], device=place)) == [5, 3, 1]
        assert to_numpy(tensor(3.5, device=place)).shape == ()

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4,), [2, 3], 4, np.int64(4)])
    @pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full", "rand", "randn"])
    @needs("creation.{name}", "creation.full")
    def test_shapes_are_integers_or_sequences(self, backend: str, name: str, shape: Any) -> None:
        expected = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
        x = full(shape, 1.0) if name == "full" else getattr(creation, name)(shape)
        assert tuple(x.shape) == expected

    @pytest.mark.parametrize("name", ["zeros", "rand"])
    @needs("creation.{name}")
    def test_shapes_may_be_separate_arguments(self, backend: str, name: str) -> None:
        assert tuple(getattr(creation, name)(2, 3).shape) == (2, 3)

    @needs("creation.{name}")
    @pytest.mark.parametrize(("name", "call", "message", "argument"), REFUSED)
    def test_a_bad_argument_is_an_error(
        self, backend: str, name: str, call: Any, message: str, argument: Any
    ) -> None:
        raised(ArgumentError, message)(call, argument)

    @needs("creation.tensor", "exchange.to_numpy")
    @pytest.mark.parametrize(("data", "dtype", "expected"), WITHIN_RANGE)
    def test_numbers_within_range_are_kept(
        self, backend: str, data: Any, dtype: str, expected: Any
    ) -> None:
        assert values(tensor(data, dtype=dtype)) == expected

    @needs("creation.rand", "creation.seed", "exchange.to_numpy", "dtype.float16")
    def test_float16_rand_stays_below_one(self, backend: str) -> None:
        seed(3)
        assert to_numpy(rand((2**18,), dtype="float16")).max() < 1

    @needs("creation.arange", "exchange.to_numpy")
    @pytest.mark.parametrize("ends", [(10, 0), (0, 5, -1), (3, 3), (0, 0, 2)])
    def test_an_empty_range_is_an_empty_tensor(self, backend: str, ends: Any) -> None:
        assert values(arange(*ends)) == []

    @needs("creation.full", "creation.tensor", "exchange.to_numpy")
    def test_overflow_never_changes_the_dtype(self, backend: str) -> None:
        factories: list[Callable[[], Tensor]] = [
            lambda: full((2,), 300, dtype="uint8"),
            lambda: tensor([300], dtype="uint8"),
        ]
        for factory in factories:
            with suppress(ArgumentError):
                assert to_numpy(factory()).dtype == np.uint8

    @needs("creation.arange", "creation.full", "creation.tensor", "exchange.to_numpy")
    def test_large_integers_are_exact_or_refused(self, backend: str) -> None:
        large = 2**60 + 1  # a float of 64 bits would round it
        factories: list[Callable[[], Tensor]] = [
            lambda: tensor([large], dtype="int64"),
            lambda: full((1,), large, dtype="int64"),
            lambda: full((1,), -large, dtype="int64"),
            lambda: arange(large, large + 1, dtype="int64"),
        ]
        for factory, number in zip(factories, (large, large, -large, large), strict=True):
            with suppress(ArgumentError):
                assert values(factory()) == [number]

    @needs("creation.tensor", "exchange.to_numpy", "dtype.{dtype}")
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "int8", "bool"])
    def test_numpy_values_and_dtypes_are_kept(self, backend: str, dtype: Any) -> None:
        array = to_numpy(tensor(np.array([[0, 1], [1, 0]], dtype=dtype)))
        assert array.dtype == np.dtype(dtype)
        assert array.tolist() == [[0, 1], [1, 0]]

    @needs("creation.tensor", "exchange.to_numpy")
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_numpy_arrays_of_any_layout_work(self, backend: str, layout: Any) -> None:
        data = LAYOUTS[layout]
        array = to_numpy(tensor(data))
        assert array.dtype == np.float32
        assert array.shape == data.shape
        assert array.tolist() == data.tolist()

    @needs("creation.arange", "creation.tensor", "exchange.to_numpy")
    def test_whole_numbers_stay_whole(self, backend: str) -> None:
        assert to_numpy(tensor([1, 2, 3])).dtype.kind == "i"
        assert to_numpy(arange(3)).dtype.kind == "i"
        assert to_numpy(tensor([1.0, 2.0])).dtype.kind == "f"

    @needs("creation.tensor", "exchange.to_numpy")
    def test_tensor_always_copies_its_data(self, backend: str) -> None:
        data = np.arange(64, dtype="float32")
        x = tensor(data)
        data[:] = -1
        assert values(x) == list(range(64))

    @needs("address", "creation.tensor")
    def test_a_tensor_of_a_tensor_is_a_copy(self, backend: str, native: Native) -> None:
        x = native.ones()
        y = tensor(x)
        assert native.address(x) != native.address(y)
        assert type(y) is type(x)

    @pytest.mark.parametrize("name", ["rand", "randn"])
    @needs("creation.{name}", "creation.seed", "exchange.to_numpy")
    def test_a_seed_repeats_random_numbers(self, backend: str, name: str, place: Device) -> None:
        def draw() -> Any:
            return values(getattr(creation, name)((50,), device=place))

        seed(7)
        first, second = draw(), draw()
        assert first != second
        assert len(set(first)) > 40
        seed(7)
        assert draw() == first
        seed(8)
        assert draw() != first

    @needs("creation.rand", "creation.randn", "creation.seed", "exchange.to_numpy")
    def test_random_numbers_are_distributed_right(self, backend: str) -> None:
        seed(1)
        uniform, normal = to_numpy(rand((10000,))), to_numpy(randn((10000,)))
        assert uniform.min() >= 0
        assert uniform.max() < 1
        assert abs(uniform.mean() - 0.5) < 0.02
        assert abs(normal.mean()) < 0.05
        assert abs(normal.std() - 1) < 0.05

    @needs("creation.{name}", "exchange.to_numpy")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_take_framework_and_device_from_like(
        self, backend: str, native: Native, name: str
    ) -> None:
        x = native.ones()
        with using("numpy"):
            for like in (x, {"x": [x], "n": 1}):
                new_tensor = FACTORIES[name](like=like)
                assert backend_of(new_tensor) == backend
                assert device_of(new_tensor) == device_of(x)
        assert backend_of(FACTORIES[name](like=np.ones(2))) == "numpy"
        raised(NotATensorError)(lambda: FACTORIES[name](like="text"))

    def test_backend_of_names_the_owner(self, backend: str, native: Native) -> None:
        x = native.ones()
        for obj in (x, [x], {"x": (x, "text", 1, np.array(["a"]))}):
            with using("numpy"):
                assert backend_of(obj) == backend
        assert backend_of(np.ones(2)) == "numpy"
        for without_tensors in (1, "text", list[Any](), {"a": None}):
            raised(NotATensorError)(backend_of, without_tensors)

    @needs("gradient", "creation.full")
    @pytest.mark.parametrize("dtype", [None, "float32"])
    def test_full_keeps_the_gradient_of_its_number(
        self, backend: str, native: Native, dtype: Any
    ) -> None:
        with home():
            gradient = native.gradient(lambda x: full((3,), x[0], dtype=dtype))
        assert gradient == [6, 0, 0]


@needs("exchange.to_numpy")
class Exchange(Promises):
    def test_to_numpy_returns_host_values(self, backend: str, x: Tensor) -> None:
        array = to_numpy(x)
        assert array.ravel().tolist() == [1] * 6
        assert type(array) is np.ndarray

    def test_to_numpy_shares_no_memory(self, backend: str, x: Tensor, place: Device) -> None:
        x = to_device(x, place)
        array = to_numpy(x)
        array[:] = 5
        assert to_numpy(x).ravel().tolist() == [1, 1, 1, 1, 1, 1]

    @needs("creation.ones")
    @pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
    def test_to_numpy_keeps_every_shape(self, backend: str, shape: Any) -> None:
        assert to_numpy(ones(shape)).shape == shape

    @needs("parameter")
    def test_parameters_read_back_without_gradient(self, backend: str, native: Native) -> None:
        assert to_numpy(native.parameter()).shape == (2, 3)

    @pytest.mark.parametrize("value", [[1, 2], "text", None, 3.0])
    def test_to_numpy_rejects_other_objects(self, backend: str, value: object) -> None:
        raised(NotATensorError)(to_numpy, value)

    @needs("creation.dtype", "creation.ones", "creation.tensor")
    @pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
    def test_a_tensor_round_trips_through_numpy(self, backend: str, shape: Any) -> None:
        x = ones(shape, dtype="float32", device=home())
        array = convert(x, "numpy", device="cpu")
        assert type(array) is np.ndarray
        y = convert(array, backend, device=home(), copy=True)
        assert type(y) is type(x)
        assert device_of(y) == home()
        assert to_numpy(y).dtype == "float32"
        assert values(y) == np.ones(shape).tolist()
        assert convert(x, backend) is x
