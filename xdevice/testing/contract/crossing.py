"""`strict`, `watch_transfers` and `transfer_guard`: what is mixed or copied between devices is seen, or forbidden."""

import asyncio
import operator
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from xdevice import (
    cpu,
    device_of,
    devices,
    gpu,
    ones,
    strict,
    synchronize,
    tensor,
    to_device,
    to_numpy,
)
from xdevice.errors import MixedDeviceError, NotSupportedError, TransferError
from xdevice.tensors import creation
from xdevice.tensors.transfers.guard import transfer_guard
from xdevice.tensors.transfers.report import watch_transfers
from xdevice.testing import Native
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    home,
    needs,
    raised,
    same_values,
    values,
)

MAKERS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda device: creation.empty((2, 3), device=device),
    "zeros": lambda device: creation.zeros((2, 3), device=device),
    "ones": lambda device: creation.ones((2, 3), dtype="float32", device=device),
    "arange": lambda device: creation.arange(5, device=device),
    "rand": lambda device: creation.rand((2, 3), device=device),
    "randn": lambda device: creation.randn((2, 3), device=device),
}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": lambda x, y: y - x,
    "multiply": operator.mul,
    "matmul": operator.matmul,
    "compare": operator.gt,
}
PAIRS = [(FIRST, SECOND), (SECOND, FIRST), (cpu(), SECOND), (FIRST, cpu())]
BYTES = 2 * 2 * 4  # of `square`


def square(device: Any) -> Any:
    """A (2, 2) tensor of ones on the device, 32 bits each."""
    return ones((2, 2), dtype="float32", device=device)


def outcome(call: Callable[[], Any]) -> Any:
    """The values, or the type of the error."""
    try:
        return values(call())
    except Exception as error:
        return type(error)


def seen(report: Any) -> list[tuple[str, str, int, int]]:
    """What was copied: from, to, how often, how many bytes."""
    return sorted((found.from_, found.to, found.copies, found.nbytes) for found in report.findings)


def program(folder: Path, line: str, **names: Any) -> Any:
    """What a program's only line makes as ``y``, of the tensor ``x``: this file is none of the user's."""
    file = folder / "main.py"
    file.write_text(line, encoding="utf-8")
    exec(compile(line, file, "exec"), {"to_device": to_device, "to_numpy": to_numpy} | names, names)
    return names.get("y")


async def awaited(fn: Callable[..., Any], *args: Any) -> Any:
    await asyncio.sleep(0)
    return fn(*args)


def generated(fn: Callable[..., Any], *args: Any) -> Generator[Any, None, None]:
    yield fn(*args)


async def generated_async(fn: Callable[..., Any], *args: Any) -> AsyncGenerator[Any, None]:
    yield fn(*args)


async def first(results: Any) -> Any:
    return await anext(results)


# what starts a function later, and what gives its result then
LATER = [
    (awaited, asyncio.run),
    (generated, next),
    (generated_async, lambda each: asyncio.run(first(each))),
]


@needs("creation.ones", "exchange.to_numpy")
class OneDevice(Promises):
    """Where nothing can be mixed or copied, or the framework cannot tell."""

    def test_a_program_on_one_device_copies_nothing(self, backend: str) -> None:
        if len(devices()) > 1 and not self.has(backend, "transfers.watch"):
            raised(NotSupportedError, f"{backend} has no ")(lambda: watch_transfers().__enter__())
            return
        for device in {home(), devices()[-1]}:
            x = square(device)
            with device, watch_transfers() as report, transfer_guard("forbid"):
                y = to_device((x + x) * x, device)
            assert (len(report), report.copies) == (0, 0)
            assert values(y) == [[2, 2]] * 2

    def test_strict_allows_one_device_or_refuses(self, backend: str) -> None:
        expected = square(None) @ square(None) * 2 + 1
        if len(devices()) > 1 and not self.has(backend, "mixing.forbid"):
            raised(NotSupportedError, f"{backend} has no ")(lambda: strict().__enter__())
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
    def test_strict_error_names_both_devices(
        self, backend: str, operation: str, pair: tuple[Any, Any]
    ) -> None:
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
        assert (
            values(x)
            == values(y)
            == [
                [1, 1],
                [1, 1],
            ]
        )

    def test_it_holds_in_other_threads(self, backend: str, apart: Any) -> None:
        with (
            strict(),
            ThreadPoolExecutor(1) as pool,
            pytest.raises(RuntimeError),
        ):  # a framework may use own words
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

        raised(MixedDeviceError)(add, *apart)
        assert values(add(apart[1], apart[1])) == [[2, 2], [2, 2]]

    @pytest.mark.parametrize("later", LATER, ids=["coroutine", "generator", "async generator"])
    def test_strict_holds_for_what_a_decorated_call_runs_later(
        self, backend: str, apart: Any, later: Any
    ) -> None:
        def add(a: Any, b: Any) -> Any:
            with SECOND:
                return a + b

        start, finish = later
        mixed = strict()(lambda: start(add, *apart))()  # the lambda says nothing of what comes back
        raised(MixedDeviceError)(finish, mixed)
        same = strict()(lambda: start(add, apart[1], apart[1]))()
        assert values(finish(same)) == [[2, 2], [2, 2]]

    def test_strict_blocks_nest(self, backend: str, apart: Any) -> None:
        block = strict()
        with block:
            with block, strict():
                pass
            raised(MixedDeviceError)(operator.add, *apart)
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
        assert outcome(mix) == before is not MixedDeviceError

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
        assert values(total) == [
            [4.5, 7.0],
            [10.5, 15.0],
        ]

    @needs("gradient")
    def test_strict_allows_gradients_across_devices(self, backend: str, native: Native) -> None:
        with gpu(1), strict():
            assert native.gradient(lambda x: to_device(to_device(x, FIRST), SECOND)) == [
                2.0,
                2.0,
                2.0,
            ]

    @needs("model", "output")
    def test_strict_covers_model_inputs(self, backend: str, native: Native, model: Any) -> None:
        model = to_device(model, SECOND)
        x, y = (ones((4, 3), device=device) for device in (FIRST, SECOND))
        with gpu(1), strict():
            assert device_of(native.output(model, y)) == SECOND
            with pytest.raises(
                RuntimeError
            ):  # MixedDeviceError is one; a framework's model may refuse in own words
                native.output(model, x)


@needs("creation.ones", "transfers.watch", gpus=2)
class Transfers(OneDevice):
    """Copies under `watch_transfers` and `transfer_guard`."""

    def test_a_copy_is_seen_with_its_line_its_devices_and_its_bytes(
        self, backend: str, tmp_path: Path
    ) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')"
        with watch_transfers() as report:
            program(tmp_path, line, x=x)
        to_device(x, SECOND)  # after the block
        assert seen(report) == [("gpu:0", "gpu:1", 1, BYTES)]
        assert (report.findings[0].file, report.findings[0].source) == (
            str(tmp_path / "main.py"),
            line,
        )

    @needs("creation.{name}")
    @pytest.mark.parametrize("name", MAKERS)
    def test_a_factory_makes_its_tensor_on_the_device(self, backend: str, name: str) -> None:
        for device in (FIRST, SECOND):
            beside = MAKERS[name](
                device
            )  # a device's state of random numbers may be sent to it, once
            with transfer_guard("forbid"):
                made = (
                    MAKERS[name](device),
                    getattr(creation, name)(5 if name == "arange" else (2,), like=beside),
                )
            assert [device_of(each) for each in made] == [device] * 2

    @needs("creation.full")
    def test_a_number_is_all_that_full_may_send(self, backend: str) -> None:
        with watch_transfers() as report:
            made = creation.full((8, 8), 1.5, dtype="float32", device=SECOND)
        assert device_of(made) == SECOND
        assert report.nbytes <= 8
        assert {found.to for found in report} <= {"gpu:1"}

    @needs("cpu")
    def test_there_and_back_are_two_copies_which_log_says(self, backend: str, caplog: Any) -> None:
        x = square(home())
        with watch_transfers() as report, transfer_guard("log"):
            to_device(to_device(x, SECOND), home())
        assert seen(report) == [("gpu:1", "host", 1, BYTES), ("host", "gpu:1", 1, BYTES)]
        assert {found.kind for found in report.findings} == {"copy"}
        assert [record.name for record in caplog.records] == ["xdevice.transfers"] * 2
        assert f"{BYTES} B, host → gpu:1" in caplog.text

    @needs("exchange.to_numpy")
    def test_values_that_are_read_are_one_copy_at_the_callers_line(
        self, backend: str, tmp_path: Path
    ) -> None:
        x, line = [square(SECOND) for _ in range(3)], "for each in x: to_numpy(each)"
        with watch_transfers() as report:
            program(tmp_path, line, x=x)
        assert seen(report) == [("gpu:1", "host", 3, 3 * BYTES)]
        assert report.findings[0].source == line

    @needs("cpu")
    @pytest.mark.parametrize("direction", ["host_to_device", "device_to_host", "device_to_device"])
    def test_each_direction_has_a_level(self, backend: str, direction: str, tmp_path: Path) -> None:
        host, first = square(home()), square(FIRST)
        moves = {"host_to_device": (host, FIRST), "device_to_host": (first, home())}
        moves["device_to_device"] = (first, SECOND)
        forbidden, device = moves.pop(direction)
        with transfer_guard("allow", **{direction: "forbid"}):  # type: ignore[arg-type]  # one of its parameters
            assert all(device_of(to_device(*move)) == move[1] for move in moves.values())
            with pytest.raises(
                TransferError, match=f"main.py:1: {BYTES} B.*transfer_guard.*forbids"
            ):
                program(tmp_path, "y = to_device(x, device)", x=forbidden, device=device)

    @needs("exchange.to_numpy")
    def test_implicit_levels_allow_what_the_program_asks_for(self, backend: str) -> None:
        x = square(FIRST)
        with transfer_guard("forbid_implicit"):
            assert values(to_device(x, SECOND)) == [[1, 1]] * 2
            raised(TransferError)(print, x)

    def test_a_forbidden_move_leaves_everything_where_it_was(self, backend: str) -> None:
        tree = {"a": square(FIRST), "b": [square(SECOND)]}
        raised(TransferError)(transfer_guard("forbid")(to_device), tree, SECOND)
        assert (device_of(tree["a"]), device_of(tree["b"])) == (FIRST, SECOND)

    @needs("model")
    def test_a_forbidden_move_of_a_model_leaves_it(self, backend: str, model: Any) -> None:
        model = to_device(model, FIRST)
        raised(TransferError)(transfer_guard("forbid")(to_device), model, SECOND)
        assert device_of(model) == FIRST

    def test_a_line_may_allow_its_copies(self, backend: str, tmp_path: Path) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')  # xdevice: allow"
        with watch_transfers() as report, transfer_guard("forbid"):
            y = program(tmp_path, line, x=x)
        assert (device_of(y), len(report), report.allowed) == (SECOND, 0, 1)

    @pytest.mark.parametrize("later", LATER, ids=["coroutine", "generator", "async generator"])
    def test_a_guard_holds_for_what_a_decorated_call_runs_later(
        self, backend: str, later: Any
    ) -> None:
        start, finish = later
        x, guard = square(FIRST), transfer_guard("forbid")
        raised(TransferError)(finish, guard(lambda: start(to_device, x, SECOND))())
        assert device_of(finish(guard(lambda: start(to_device, x, FIRST))())) == FIRST
        assert device_of(to_device(x, SECOND)) == SECOND

    def test_levels_are_of_the_thread_and_nest(self, backend: str) -> None:
        x = square(FIRST)
        with ThreadPoolExecutor(1) as pool, transfer_guard("forbid"):
            assert device_of(pool.submit(to_device, x, SECOND).result()) == SECOND
            with transfer_guard("allow"):
                to_device(x, SECOND)
            raised(TransferError)(to_device, x, SECOND)
        assert device_of(to_device(x, SECOND)) == SECOND
