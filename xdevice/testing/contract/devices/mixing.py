"""`strict`: an operation on tensors of two devices is an error, and a correct program is none."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from xdevice import cpu, device_of, devices, gpu, ones, strict, synchronize, tensor, to_device, to_numpy
from xdevice.errors import MixedDeviceError, NotSupportedError
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, all_need, all_on_several, at_home, home, needs
from xdevice.testing.native import Native

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: y - x,
    "multiply": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "compare": lambda x, y: x > y,
}
PAIRS = [(FIRST, SECOND), (SECOND, FIRST), (cpu(), SECOND), (FIRST, cpu())]


def square(device: Any) -> Any:
    """A (2, 2) tensor of ones on the device."""
    return ones((2, 2), device=device)


def outcome(call: Callable[[], Any]) -> Any:
    """The values, or the type of the error."""
    try:
        return to_numpy(call()).tolist()
    except Exception as error:
        return type(error)


@all_need("creation.ones")
class OneDevice(Promises):
    """`strict` where nothing can be mixed, or the framework cannot tell."""

    @needs("exchange.to_numpy")
    def test_strict_allows_one_device_or_refuses(self, backend: str) -> None:
        expected = to_numpy(square(None) @ square(None) * 2 + 1)
        if len(devices()) > 1 and not self.has(backend, "mixing.forbid"):
            with pytest.raises(NotSupportedError, match=f"{backend} has no "), strict():
                pass
            return
        with strict():
            made = square(None) @ square(None) * 2 + 1
        assert np.array_equal(to_numpy(made), expected)


@all_on_several
@all_need("creation.ones", "exchange.to_numpy", "mixing.forbid")
class Mixing(OneDevice):
    """Mixing devices under `strict`."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("pair", PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
    def test_strict_error_names_both_devices(self, backend: str, operation: str, pair: tuple[Any, Any]) -> None:
        x, y = (square(device) for device in pair)
        with strict(), pytest.raises(MixedDeviceError, match="to_device") as error:
            OPERATIONS[operation](x, y)
        assert isinstance(error.value, RuntimeError)
        assert error.value.devices == set(pair)
        assert all(str(device) in str(error.value) for device in pair)

    @pytest.mark.parametrize("scope", [cpu(), FIRST, SECOND], ids=str)
    def test_a_scope_is_no_excuse(self, backend: str, scope: Any) -> None:
        x, y = square(FIRST), square(SECOND)
        with scope, strict(), pytest.raises(MixedDeviceError):
            _ = x + y

    def test_strict_error_leaves_tensors_unchanged(self, backend: str) -> None:
        x, y = square(FIRST), square(SECOND)
        with strict(), pytest.raises(MixedDeviceError):
            x += y
        assert (device_of(x), device_of(y)) == (FIRST, SECOND)
        assert to_numpy(x).tolist() == to_numpy(y).tolist() == [[1, 1], [1, 1]]

    def test_it_holds_in_other_threads(self, backend: str) -> None:
        x, y = square(FIRST), square(SECOND)
        with strict(), ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError):  # a framework may use own words
            pool.submit(lambda: x + y).result()

    def test_strict_in_a_thread_covers_that_thread(self, backend: str) -> None:
        x, y = square(FIRST), square(SECOND)

        def work() -> Any:
            with strict():
                return x + y

        with ThreadPoolExecutor(1) as pool, pytest.raises(MixedDeviceError):
            pool.submit(work).result()

    @needs("mixing_gradient")
    def test_it_holds_in_backward(self, backend: str, native: Native) -> None:
        with gpu(0):
            backward = native.mixing_gradient(square(FIRST), square(SECOND))
        with gpu(0), strict(), pytest.raises(MixedDeviceError) as error:
            backward()
        assert error.value.devices == {FIRST, SECOND}

    def test_strict_works_as_a_decorator(self, backend: str) -> None:
        x, y = square(FIRST), square(SECOND)

        @strict()
        def add(a: Any, b: Any) -> Any:
            with SECOND:
                return a + b

        with pytest.raises(MixedDeviceError):
            add(x, y)
        assert to_numpy(add(y, y)).tolist() == [[2, 2], [2, 2]]

    def test_strict_blocks_nest(self, backend: str) -> None:
        x, y = square(FIRST), square(SECOND)
        block = strict()
        with block:
            with block, strict():
                pass
            with pytest.raises(MixedDeviceError):
                _ = x + y
        assert outcome(lambda: x + y) is not MixedDeviceError

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_strict_ends_with_its_block(self, backend: str, operation: str) -> None:
        def mix() -> Any:
            return OPERATIONS[operation](square(FIRST), square(SECOND))

        before = outcome(mix)
        with pytest.raises(ZeroDivisionError), strict():
            raise ZeroDivisionError
        with strict():
            assert outcome(mix) is MixedDeviceError
        assert outcome(mix) == before
        assert before is not MixedDeviceError

    @needs("creation.tensor")
    def test_strict_allows_explicit_moves(self, backend: str) -> None:
        with strict():
            x = tensor([[1.0, 2.0], [3.0, 4.0]], device=FIRST)
            with gpu(0):
                hidden = x @ x * 0.5 + 1
            with gpu(1):
                y = to_device(hidden, SECOND) - ones((2, 2))
            parts = to_device({"x": x, "y": y}, home())
            with home():
                total = parts["x"] + parts["y"]
            synchronize()
        assert (device_of(y), device_of(total)) == (SECOND, home())
        assert to_numpy(total).tolist() == [[4.5, 7.0], [10.5, 15.0]]

    @needs("gradient")
    def test_strict_allows_gradients_across_devices(self, backend: str, native: Native) -> None:
        def there_and_back(x: Any) -> Any:
            return to_device(to_device(x, FIRST), SECOND)

        with gpu(1), strict():
            assert native.gradient(there_and_back) == [2.0, 2.0, 2.0]

    @needs("model", "output")
    def test_strict_covers_model_inputs(self, backend: str, native: Native) -> None:
        model = to_device(at_home(native.model), SECOND)
        x, y = (ones((4, 3), device=device) for device in (FIRST, SECOND))
        with gpu(1), strict():
            assert device_of(native.output(model, y)) == SECOND
            with pytest.raises(RuntimeError):  # MixedDeviceError is one; a framework's model may refuse in own words
                native.output(model, x)
