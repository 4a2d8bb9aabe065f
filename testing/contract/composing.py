"""`compose`: tensors in libraries that know the array API standard but not their framework."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from xdevice import compose, device_of, tensor, to_numpy, value_and_grad
from xdevice.errors import MixedDeviceError, NotSupportedError, TransferError
from xdevice.framework import choosing
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware import scopes
from xdevice.transfers.guard import transfer_guard
from xdevice.testing import Tensor
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    home,
    needs,
    on_several,
    raised,
)

NUMBERS = [[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]

SLICES: list[Any] = [
    1,
    (0, 2),
    (..., slice(None, None, -2)),
    (None, slice(1)),
    (slice(1, None), slice(None, None, 2)),
    (slice(None), slice(2, 2)),
]


def standardized(x: Any) -> Any:
    """What a library does that knows the standard alone."""
    xp = array_namespace(x)
    mean = xp.mean(x, axis=0, keepdims=True)
    return (x - mean) / xp.sqrt(xp.sum((x - mean) ** 2, axis=0, keepdims=True))


def on_the_host(x: Any) -> Any:
    """What a library does that knows NumPy alone."""
    return np.sort(np.asarray(x), axis=1)[:, ::-1]


def same_numbers(x: Tensor, expected: Any) -> None:
    numbers = to_numpy(x)
    assert numbers.shape == np.shape(expected)
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)


@needs("creation.tensor", "maths.namespace")
class Composition(Promises):
    """Tensors as arrays of the standard, and libraries that take tensors."""

    def test_a_composed_tensor_is_an_array_that_other_libraries_know(self, backend: str) -> None:
        x = tensor(NUMBERS, device=home())
        array = compose(x)
        xp = array_namespace(array)
        assert is_array_api_obj(array)
        assert compose(array) is array
        assert tuple(array.shape) == (2, 3)
        result = xp.sum(array * 2, axis=1)
        assert xp.isdtype(result.dtype, "real floating")
        assert [float(number) for number in result] == [14.0, 112.0]

    def test_composing_changes_no_class(self, backend: str) -> None:
        x = tensor(NUMBERS)
        before = [dict(vars(cls)) for cls in type(x).__mro__]
        compose(standardized)(x)
        assert [dict(vars(cls)) for cls in type(x).__mro__] == before

    def test_a_composed_function_returns_tensors_where_its_arguments_are(
        self, backend: str, place: Any
    ) -> None:
        x = tensor(NUMBERS, device=place)
        result = compose(standardized)(x)
        assert tensor_owner(result) == backend
        assert type(result) is type(x)
        assert device_of(result) == place
        same_numbers(result, standardized(np.asarray(NUMBERS)))

    def test_what_the_function_makes_is_there_too(self, backend: str, place: Any) -> None:
        def with_a_constant(x: Any) -> Any:
            xp = array_namespace(x)
            return {"sum": x + xp.ones(3, dtype=x.dtype), "parts": [xp.arange(3), 5, None]}

        result = compose(with_a_constant)(tensor(NUMBERS, device=place))
        made, number, nothing = result["parts"]
        assert device_of(made) == device_of(result["sum"]) == place
        assert (number, nothing) == (5, None)

    @needs("gradients.value_and_gradients")
    def test_gradients_flow_through_a_composed_function(self, backend: str) -> None:
        def loss(x: Tensor) -> Any:
            return compose(lambda x: array_namespace(x).sum(x[:, 1:] ** 2))(x)

        _, gradient = value_and_grad(loss)(tensor(NUMBERS, device=home()))
        same_numbers(gradient, [[0, 4, 8], [0, 32, 64]])

    @needs("cpu")
    def test_a_library_that_computes_in_numpy_returns_tensors_of_the_cpu(
        self, backend: str
    ) -> None:
        x = tensor(NUMBERS, dtype="float32", device="cpu")
        result = compose(on_the_host)(x)
        assert tensor_owner(result) == backend
        assert device_of(result) == "cpu"
        assert result.dtype == x.dtype
        same_numbers(result, [[4, 2, 1], [32, 16, 8]])

    @on_several
    def test_a_library_that_computes_in_numpy_gets_no_tensor_of_a_gpu(self, backend: str) -> None:
        x = tensor(NUMBERS, device=FIRST)
        raised(Exception, "(?i)numpy|host")(compose(on_the_host), x)
        assert scopes.innermost() is None

    @on_several
    @needs("cpu")
    def test_a_library_may_compute_on_the_host_where_that_is_allowed(self, backend: str) -> None:
        x = tensor(NUMBERS, dtype="float32", device=SECOND)
        result = compose(on_the_host, allow_host=True)(x)
        assert tensor_owner(result) == backend
        assert device_of(result) == SECOND
        assert result.dtype == x.dtype
        same_numbers(result, [[4, 2, 1], [32, 16, 8]])

    @on_several
    @needs("cpu")
    def test_an_object_with_arrays_of_the_host_shows_tensors(self, backend: str) -> None:
        def on_the_host_in_an_object(x: Any) -> Any:
            return SimpleNamespace(numbers=np.asarray(x), by_name={"twice": 2 * np.asarray(x)})

        x = tensor(NUMBERS, dtype="float32", device=SECOND)
        result = compose(on_the_host_in_an_object, allow_host=True)(x)
        for numbers in (result.numbers, result.by_name["twice"]):
            assert tensor_owner(numbers) == backend
            assert device_of(numbers) == SECOND
        same_numbers(result.numbers, NUMBERS)

    @needs("transfers.watch", gpus=2)
    def test_a_guard_forbids_the_copies_that_compose_allows(self, backend: str) -> None:
        x = tensor(NUMBERS, device=SECOND)
        forbidden = transfer_guard("forbid")(compose(on_the_host, allow_host=True))
        raised(TransferError, "host")(forbidden, x)

    @on_several
    @needs("gradients.value_and_gradients")
    def test_no_gradient_is_lost_on_the_host(self, backend: str) -> None:
        def loss(x: Tensor) -> Any:
            return compose(lambda x: np.asarray(x).sum(), allow_host=True)(x)

        raised(Exception, "(?i)gradient|traced|concrete")(
            value_and_grad(loss), tensor(NUMBERS, device=SECOND)
        )

    @on_several
    def test_tensors_on_two_devices_are_an_error(self, backend: str) -> None:
        x, y = tensor(NUMBERS, device=FIRST), tensor(NUMBERS, device=SECOND)
        raised(MixedDeviceError, "gpu:1")(compose(lambda x, y: x + y), x, y)

    def test_an_error_of_the_library_is_its_own_and_leaves_nothing(self, backend: str) -> None:
        def fails(x: Any) -> None:
            raise LookupError("of the library")

        raised(LookupError, "of the library")(compose(fails), tensor(NUMBERS))
        assert scopes.innermost() is None
        array = compose(tensor(NUMBERS))
        if array.__class__.__module__.startswith("xdevice"):
            raised(NotSupportedError, "to_numpy")(np.asarray, array)

    def test_a_composed_object_takes_and_returns_tensors(self, backend: str) -> None:
        class Scaler:
            def fit(self, x: Any) -> Any:
                self.largest = array_namespace(x).max(x, axis=0)
                return self

            def transform(self, x: Any) -> Any:
                return x / self.largest

        x = tensor(NUMBERS, device=home())
        scaler = compose(Scaler)().fit(x)
        assert tensor_owner(scaler.largest) == backend
        same_numbers(scaler.transform(x), np.asarray(NUMBERS) / [8, 16, 32])

    def test_an_array_is_indexed_and_written_as_in_numpy(self, backend: str) -> None:
        x = tensor(NUMBERS, device=home())
        if compose(x) is x:
            return  # the framework's own tensors
        expected = np.asarray(NUMBERS)
        for key in (*SLICES, expected > 3):
            array, copy = compose(x), expected.copy()
            native_key = key
            if isinstance(key, np.ndarray):
                native_key = array > 3
            same_numbers(array[native_key].tensor, copy[key])
            array[native_key] = -1
            copy[key] = -1
            same_numbers(array.tensor, copy)
            assert device_of(array.tensor) == home()
        same_numbers(x, expected)

    @needs("transfers.watch", gpus=2)
    def test_slices_are_read_and_written_on_the_gpu(self, backend: str) -> None:
        def doubled_and_cleared(x: Any) -> Any:
            for key in SLICES:
                x = x + 0
                x[key] = x[key] * 2
                x[key] = 0
            return x

        x = tensor(NUMBERS, dtype="float32", device=SECOND)
        if compose(x) is x:
            return  # the framework's own tensors
        with transfer_guard("forbid"):
            result = compose(doubled_and_cleared)(x)
        assert device_of(result) == SECOND
        assert device_of(compose(x)[1:].tensor) == SECOND

    def test_a_part_of_an_array_shows_what_is_written_to_either(self, backend: str) -> None:
        x = tensor(NUMBERS, device=home())
        if compose(x) is x:
            return  # the framework's own tensors
        array = compose(x)
        row, flat = array[1], array.__array_namespace__().reshape(array.T, (-1,))
        row += 1
        flat[0] = 0
        array[1, 2] = 5
        same_numbers(array.tensor, [[0, 2, 4], [9, 17, 5]])
        same_numbers(row.tensor, [9, 17, 5])
        same_numbers(flat.tensor, [0, 9, 2, 17, 4, 5])
        assert choosing.backend() == backend
