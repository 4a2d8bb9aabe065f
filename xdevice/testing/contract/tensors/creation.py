"""New tensors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xdevice import arange, backend_of, device_of, empty, full, ones, rand, randn, tensor, to_numpy, using, zeros
from xdevice.errors import ArgumentError, NotATensorError
from xdevice.tensors import creation
from xdevice.testing.contract.promises import FIXED, Promises, at_home, home, needs, spelled
from xdevice.testing.native import Native

FACTORIES: dict[str, Callable[..., Any]] = {
    "empty": lambda **k: empty((2, 3), **k),
    "zeros": lambda **k: zeros((2, 3), **k),
    "ones": lambda **k: ones((2, 3), **k),
    "full": lambda **k: full((2, 3), 7.5, **k),
    "arange": lambda **k: arange(6, **k),
    "rand": lambda **k: rand((2, 3), **k),
    "randn": lambda **k: randn((2, 3), **k),
    "tensor": lambda **k: tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], **k),
}


LAYOUTS: dict[str, Any] = {
    "negative strides": np.arange(4.0, dtype="float32")[::-1],
    "strided": np.arange(8.0, dtype="float32")[::2],
    "transposed": np.arange(6.0, dtype="float32").reshape(2, 3).T,
    "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
    "other byte order": np.arange(4, dtype=">f4"),
    "a scalar": np.float32(2.5),
    "empty": np.zeros((0, 3), dtype="float32"),
}


class Creation(Promises):
    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    @pytest.mark.parametrize("word", ["{kind}", "/{KIND}:0", None])
    def test_factories_use_the_device_given(self, backend: str, native: Native, name: str, word: str | None) -> None:
        made = FACTORIES[name](device=spelled(word) if word else home())
        assert type(made) is type(native.ones())
        assert device_of(made) == home()
        assert tuple(made.shape) == ((6,) if name == "arange" else (2, 3))

    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_follow_the_native_default(self, backend: str, native: Native, name: str) -> None:
        assert device_of(FACTORIES[name](device=None)) == device_of(native.ones())

    @needs("creation.{name}", "exchange.to_numpy")
    @pytest.mark.parametrize("name", FACTORIES)
    @pytest.mark.parametrize("dtype", ["float32", "float16", np.float32, np.dtype("float16")])
    def test_factories_use_the_dtype_given(self, backend: str, name: str, dtype: Any) -> None:
        assert to_numpy(FACTORIES[name](dtype=dtype)).dtype == np.dtype(dtype)

    @needs("creation.{name}", "exchange.to_numpy")
    @pytest.mark.parametrize("name", ["zeros", "ones", "arange", "full", "tensor"])
    def test_integers_can_be_asked_for(self, backend: str, name: str) -> None:
        assert to_numpy(FACTORIES[name](dtype="int32")).dtype == np.int32

    @needs("creation.ones", "creation.zeros", "exchange.to_numpy")
    def test_a_native_dtype_will_do(self, backend: str) -> None:
        made = ones(3, dtype=zeros(1, dtype="float16").dtype)
        assert to_numpy(made).dtype == np.float16

    @needs(*FIXED, "exchange.to_numpy")
    def test_values_are_what_was_asked_for(self, backend: str) -> None:
        assert to_numpy(zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]
        assert to_numpy(ones(2)).tolist() == [1, 1]
        assert to_numpy(full((2,), 2.5)).tolist() == [2.5, 2.5]
        assert to_numpy(arange(4)).tolist() == [0, 1, 2, 3]
        assert to_numpy(arange(1, 2, 0.25)).tolist() == [1, 1.25, 1.5, 1.75]
        assert to_numpy(arange(5, 0, -2)).tolist() == [5, 3, 1]
        assert to_numpy(tensor(3.5)).shape == ()

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4,), [2, 3], 5, np.int64(3)])
    @pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full", "rand", "randn"])
    @needs("creation.{name}", "creation.full")
    def test_shapes_are_integers_or_sequences(self, backend: str, name: str, shape: Any) -> None:
        expected = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
        made = full(shape, 1.0) if name == "full" else getattr(creation, name)(shape)
        assert tuple(made.shape) == expected

    @pytest.mark.parametrize("name", ["zeros", "rand"])
    @needs("creation.{name}")
    def test_shapes_may_be_separate_arguments(self, backend: str, name: str) -> None:
        assert tuple(getattr(creation, name)(2, 3).shape) == (2, 3)

    @needs("creation.zeros")
    @pytest.mark.parametrize("shape", ["23", 2.5, (2, 3.0), None, (True, 2), (-1, 2), object()])
    def test_what_is_no_shape_is_an_error(self, backend: str, shape: Any) -> None:
        with pytest.raises(ArgumentError):
            zeros(shape)

    @needs("creation.zeros")
    @pytest.mark.parametrize("dtype", ["float33", "text", "object", "float", "int", "half", ""])
    def test_an_unknown_dtype_is_an_error(self, backend: str, dtype: Any) -> None:
        with pytest.raises(ArgumentError):
            zeros(3, dtype=dtype)

    @needs("creation.tensor")
    @pytest.mark.parametrize("data", ["text", [[1, 2], [3]], object(), [1, "a"], None])
    def test_data_of_another_kind_is_an_error(self, backend: str, data: Any) -> None:
        with pytest.raises(ArgumentError):
            tensor(data)

    @needs("creation.arange", "creation.full", "creation.tensor", "exchange.to_numpy")
    def test_numbers_out_of_range_are_an_error(self, backend: str) -> None:
        nan, inf = math.nan, math.inf
        small: Any = (-1, [-1], [[1], [256]], [nan], [1, [nan, 2.0]], inf, [1.0, -inf], 1e10, 2 + 1j)
        for data in (*small, np.array([-1])):
            with pytest.raises(ArgumentError, match="does not"):
                tensor(data, dtype="uint8")
        wide: Any = (np.array([nan]), [np.float64(nan)], [1j], np.array([2**31]), 2.0**31, [[1], [nan, 3.0]])
        for data in wide:
            with pytest.raises(ArgumentError, match="does not"):
                tensor(data, dtype="int32")
        with pytest.raises(ArgumentError):
            full((2,), nan, dtype="int32")
        for start, stop in ((-1, 2), (250, 300)):
            with pytest.raises(ArgumentError):
                arange(start, stop, dtype="uint8")
        assert to_numpy(tensor([[0, 255], [1.9, True]], dtype="uint8")).tolist() == [[0, 255], [1, 1]]
        assert to_numpy(tensor([-(2**31), 2**31 - 1], dtype="int32")).tolist() == [-(2**31), 2**31 - 1]
        assert to_numpy(tensor([nan, 2.0], dtype="bool")).tolist() == [True, True]

    @pytest.mark.parametrize("shape", [2**63 - 1, (2**31,) * 3, 2**64 + 3, 2**70])
    @pytest.mark.parametrize("name", ["ones", "empty", "rand"])
    @needs("creation.{name}")
    def test_an_impossible_size_is_an_error(self, backend: str, name: str, shape: Any) -> None:
        with pytest.raises(ArgumentError, match="smaller"):
            getattr(creation, name)(shape)

    @needs("creation.ones")
    @pytest.mark.parametrize("dtype", [0, False, [], (), np.zeros, str, object(), np.array([1])])
    def test_what_is_no_dtype_is_an_error(self, backend: str, dtype: Any) -> None:
        with pytest.raises(ArgumentError, match="dtype"):
            ones(2, dtype=dtype)

    @pytest.mark.parametrize("name", ["rand", "randn"])
    @pytest.mark.parametrize("dtype", ["int32", "bool"])
    @needs("creation.{name}")
    def test_random_numbers_are_floats(self, backend: str, name: str, dtype: Any) -> None:
        with pytest.raises(ArgumentError):
            getattr(creation, name)((3,), dtype=dtype)

    @needs("creation.rand", "creation.seed", "exchange.to_numpy")
    def test_float16_rand_stays_below_one(self, backend: str) -> None:
        creation.seed(3)
        assert to_numpy(rand((2**18,), dtype="float16")).max() < 1

    @needs("creation.full")
    @pytest.mark.parametrize("value", ["a", None, object(), [1]])
    def test_only_a_number_can_fill_a_tensor(self, backend: str, value: Any) -> None:
        with pytest.raises(ArgumentError):
            full((2,), value)

    @needs("creation.arange", "exchange.to_numpy")
    @pytest.mark.parametrize("ends", [(10, 0), (0, 5, -1), (3, 3), (0, 0, 2)])
    def test_an_empty_range_is_an_empty_tensor(self, backend: str, ends: Any) -> None:
        assert to_numpy(arange(*ends)).tolist() == []

    @needs("creation.arange")
    @pytest.mark.parametrize("ends", [(0, float("inf")), (0, 5, float("nan")), (1j,), ("5",), (0, None, 0)])
    def test_a_range_needs_finite_reals(self, backend: str, ends: Any) -> None:
        with pytest.raises(ArgumentError):
            arange(*ends)

    @needs("creation.full", "creation.tensor", "exchange.to_numpy")
    def test_overflow_never_changes_the_dtype(self, backend: str) -> None:
        makers: list[Callable[[], Any]] = [lambda: full((2,), 300, dtype="uint8"), lambda: tensor([300], dtype="uint8")]
        for make in makers:
            try:
                made = make()
            except ArgumentError:
                continue
            assert to_numpy(made).dtype == np.uint8

    @needs("creation.arange")
    def test_a_range_with_step_0_is_an_error(self, backend: str) -> None:
        with pytest.raises(ArgumentError, match="never arrives"):
            arange(0, 3, 0)

    @needs("creation.tensor", "exchange.to_numpy")
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "int8", "bool"])
    def test_numpy_values_and_dtypes_are_kept(self, backend: str, dtype: Any) -> None:
        data = np.array([[0, 1], [1, 0]], dtype=dtype)
        back = to_numpy(tensor(data))
        assert back.dtype == data.dtype
        assert np.array_equal(back, data)

    @needs("creation.tensor", "exchange.to_numpy")
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_numpy_arrays_of_any_layout_work(self, backend: str, layout: Any) -> None:
        data = LAYOUTS[layout]
        back = to_numpy(tensor(data))
        assert back.dtype == np.float32
        assert back.shape == data.shape
        assert np.array_equal(back, data)

    @needs("creation.arange", "creation.tensor", "exchange.to_numpy")
    def test_whole_numbers_stay_whole(self, backend: str) -> None:
        assert to_numpy(tensor([1, 2, 3])).dtype.kind == "i"
        assert to_numpy(arange(3)).dtype.kind == "i"
        assert to_numpy(tensor([1.0, 2.0])).dtype.kind == "f"

    @needs("creation.tensor", "exchange.to_numpy")
    def test_the_data_is_copied_always(self, backend: str) -> None:
        data = np.arange(64, dtype="float32")
        made = tensor(data)
        data[:] = -1
        assert to_numpy(made).tolist() == list(range(64))

    @needs("address", "creation.tensor")
    def test_a_tensor_of_a_tensor_is_a_copy(self, backend: str, native: Native) -> None:
        x = native.ones()
        y = tensor(x)
        assert native.address(x) != native.address(y)
        assert type(y) is type(x)

    @pytest.mark.parametrize("name", ["rand", "randn"])
    @needs("creation.{name}", "creation.seed", "exchange.to_numpy")
    def test_a_seed_repeats_random_numbers(self, backend: str, name: str) -> None:
        make = getattr(creation, name)
        creation.seed(7)
        a, b = to_numpy(make((50,))), to_numpy(make((50,)))
        creation.seed(7)
        assert np.array_equal(to_numpy(make((50,))), a)
        assert not np.array_equal(a, b)
        creation.seed(8)
        assert not np.array_equal(to_numpy(make((50,))), a)

    @needs("creation.rand", "creation.randn", "creation.seed", "exchange.to_numpy")
    def test_random_numbers_are_distributed_right(self, backend: str) -> None:
        creation.seed(1)
        uniform, normal = to_numpy(rand((10000,))), to_numpy(randn((10000,)))
        assert uniform.min() >= 0 and uniform.max() < 1
        assert abs(uniform.mean() - 0.5) < 0.02
        assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05

    @needs("creation.{name}", "exchange.to_numpy")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_take_framework_and_device_from_like(self, backend: str, native: Native, name: str) -> None:
        beside = native.ones()
        with using("numpy"):
            for like in (beside, {"x": [beside], "n": 1}):
                made = FACTORIES[name](like=like)
                assert (backend_of(made), device_of(made)) == (backend, device_of(beside))
        assert backend_of(FACTORIES[name](like=np.ones(2))) == "numpy"
        with pytest.raises(NotATensorError):
            FACTORIES[name](like="text")

    def test_backend_of_names_the_owner(self, backend: str, native: Native) -> None:
        x = native.ones()
        for obj in (x, [x], {"x": (x, "text", 1, np.array(["a"]))}):
            with using("numpy"):
                assert backend_of(obj) == backend
        assert backend_of(np.ones(2)) == "numpy"
        for nothing in (1, "text", list[Any](), {"a": None}):
            with pytest.raises(NotATensorError):
                backend_of(nothing)

    @needs("gradient", "creation.full")
    def test_full_keeps_the_gradient_of_its_number(self, backend: str, native: Native) -> None:
        assert at_home(lambda: native.gradient(lambda x: full((3,), x[0]))) == [6.0, 0.0, 0.0]
        assert at_home(lambda: native.gradient(lambda x: full((3,), x[0], dtype="float32"))) == [6.0, 0.0, 0.0]

    @needs("creation.seed")
    @pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "one", None, True])
    def test_what_is_no_seed_is_an_error(self, backend: str, seed: Any) -> None:
        with pytest.raises(ArgumentError):
            creation.seed(seed)
