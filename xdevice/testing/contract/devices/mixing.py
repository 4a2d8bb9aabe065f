"""`strict`: an operation on tensors of two devices is an error, and a correct program is none."""

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from xdevice import cpu, device_of, devices, gpu, ones, strict, synchronize, tensor, to_device
from xdevice.errors import MixedDeviceError, NotSupportedError
from xdevice.testing import Native
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, same_values, values

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": lambda x, y: y - x,
    "multiply": operator.mul,
    "matmul": operator.matmul,
    "compare": operator.gt,
}
PAIRS = [(FIRST, SECOND), (SECOND, FIRST), (cpu(), SECOND), (FIRST, cpu())]


def square(device: Any) -> Any:
    """A (2, 2) tensor of ones on the device."""
    return ones((2, 2), device=device)


def outcome(call: Callable[[], Any]) -> Any:
    """The values, or the type of the error."""
    try:
        return values(call())
    except Exception as error:
        return type(error)


@needs("creation.ones")
class OneDevice(Promises):
    """`strict` where nothing can be mixed, or the framework cannot tell."""

    @needs("exchange.to_numpy")
    def test_strict_allows_one_device_or_refuses(self, backend: str) -> None:
        expected = square(None) @ square(None) * 2 + 1
        if len(devices()) > 1 and not self.has(backend, "mixing.forbid"):
            with pytest.raises(NotSupportedError, match=f"{backend} has no "), strict():
                pass
            return
        with strict():
            made = square(None) @ square(None) * 2 + 1
        assert same_values(made, expected)


@needs("creation.ones", "exchange.to_numpy", "mixing.forbid", gpus=2)
class Mixing(OneDevice):
    """Mixing devices under `strict`."""

    @pytest.fixture
    def apart(self, xdevice_backend: Any) -> tuple[Any, Any]:
        """Tensors of ones on the two GPUs."""
        return square(FIRST), square(SECOND)

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
    def test_a_scope_is_no_excuse(self, backend: str, scope: Any, apart: Any) -> None:
        with scope, strict(), pytest.raises(MixedDeviceError):
            operator.add(*apart)

    def test_strict_error_leaves_tensors_unchanged(self, backend: str, apart: Any) -> None:
        x, y = apart
        with strict(), pytest.raises(MixedDeviceError):
            x += y
        assert (device_of(x), device_of(y)) == (FIRST, SECOND)
        assert values(x) == values(y) == [[1, 1], [1, 1]]

    def test_it_holds_in_other_threads(self, backend: str, apart: Any) -> None:
        with strict(), ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError):  # a framework may use own words
            pool.submit(operator.add, *apart).result()

    def test_strict_in_a_thread_covers_that_thread(self, backend: str, apart: Any) -> None:
        def work() -> Any:
            with strict():
                return operator.add(*apart)

        with ThreadPoolExecutor(1) as pool, pytest.raises(MixedDeviceError):
            pool.submit(work).result()

    @needs("mixing_gradient")
    def test_it_holds_in_backward(self, backend: str, native: Native, apart: Any) -> None:
        with gpu(0):
            backward = native.mixing_gradient(*apart)
        with gpu(0), strict(), pytest.raises(MixedDeviceError) as error:
            backward()
        assert error.value.devices == {FIRST, SECOND}

    def test_strict_works_as_a_decorator(self, backend: str, apart: Any) -> None:
        @strict()
        def add(a: Any, b: Any) -> Any:
            with SECOND:
                return a + b

        with pytest.raises(MixedDeviceError):
            add(*apart)
        assert values(add(apart[1], apart[1])) == [[2, 2], [2, 2]]

    def test_strict_blocks_nest(self, backend: str, apart: Any) -> None:
        block = strict()
        with block:
            with block, strict():
                pass
            with pytest.raises(MixedDeviceError):
                operator.add(*apart)
        assert outcome(lambda: operator.add(*apart)) is not MixedDeviceError

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
        assert values(total) == [[4.5, 7.0], [10.5, 15.0]]

    @needs("gradient")
    def test_strict_allows_gradients_across_devices(self, backend: str, native: Native) -> None:
        with gpu(1), strict():
            assert native.gradient(lambda x: to_device(to_device(x, FIRST), SECOND)) == [2.0, 2.0, 2.0]

    @needs("model", "output")
    def test_strict_covers_model_inputs(self, backend: str, native: Native, model: Any) -> None:
        model = to_device(model, SECOND)
        x, y = (ones((4, 3), device=device) for device in (FIRST, SECOND))
        with gpu(1), strict():
            assert device_of(native.output(model, y)) == SECOND
            with pytest.raises(RuntimeError):  # MixedDeviceError is one; a framework's model may refuse in own words
                native.output(model, x)
