"""`strict`, `watch_transfers`, `transfer_guard`: mixed devices and copies."""

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from xdevice import (
    Device,
    DeviceNotFoundError,
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
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors import creation
from xdevice.testing import Model, Native, Tensor
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    at_home,
    home,
    needs,
    raised,
    same_values,
    values,
)
from xdevice.transfers.guard import transfer_guard
from xdevice.transfers.report import Report, watch_transfers

FACTORIES: dict[str, Callable[[Device], Tensor]] = {
    "empty": lambda device: creation.empty((2, 3), device=device),
    "zeros": lambda device: creation.zeros((2, 3), device=device),
    "ones": lambda device: creation.ones((2, 3), dtype="float32", device=device),
    "arange": lambda device: creation.arange(5, device=device),
    "rand": lambda device: creation.rand((2, 3), device=device),
    "randn": lambda device: creation.randn((2, 3), device=device),
}
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "subtract": lambda x, y: y - x,
    "multiply": operator.mul,
    "matmul": operator.matmul,
    "compare": operator.gt,
}
PAIRS = [(FIRST, SECOND), (SECOND, FIRST), (cpu(), SECOND), (FIRST, cpu())]
BYTES = 2 * 2 * 4  # of `square`


def square(device: Device | None) -> Tensor:
    """A (2, 2) tensor of ones on the device, 32 bits each."""
    return ones((2, 2), dtype="float32", device=device)


def outcome(call: Callable[[], Tensor]) -> Any:
    """The values, or the type of the error."""
    try:
        return values(call())
    except Exception as error:
        return type(error)


class Copies(NamedTuple):
    """The copies of one line, as a report counts them."""

    source: str
    target: str
    number: int
    nbytes: int


def copies_in(report: Report) -> list[Copies]:
    return sorted(
        Copies(finding.from_, finding.to, finding.copies, finding.nbytes)
        for finding in report.findings
    )


def run_line(folder: Path, line: str, **variables: Any) -> Any:
    """Run a line as a user's program, main.py, and return its variable ``y``.

    Copies are reported at the user's line, and this file is not a user's.
    """
    file = folder / "main.py"
    file.write_text(line, encoding="utf-8")
    functions = {"to_device": to_device, "to_numpy": to_numpy}
    exec(compile(line, file, "exec"), functions | variables, variables)
    return variables.get("y")


@needs("creation.ones", "exchange.to_numpy")
class OneDevice(Promises):
    """Programs that use one device, under any framework."""

    def test_a_program_on_one_device_copies_nothing(self, backend: str) -> None:
        if len(devices()) > 1 and not self.has(backend, "transfers.watch"):
            # If the block opens, against the promise, `with` closes it.
            with pytest.raises(NotSupportedError, match=f"^{backend} has no "), watch_transfers():
                pass
            return
        for device in {home(), devices()[-1]}:
            x = square(device)
            with device, watch_transfers() as report, transfer_guard("forbid"):
                y = to_device((x + x) * x, device)
            assert len(report) == report.copies == 0
            assert values(y) == [[2, 2], [2, 2]]

    def test_strict_allows_one_device_or_refuses(self, backend: str) -> None:
        if len(devices()) > 1 and not self.has(backend, "mixing.forbid"):
            with pytest.raises(NotSupportedError, match=f"^{backend} has no "), strict():
                pass
            return
        expected = square(None) @ square(None) * 2 + 1
        with strict():
            result = square(None) @ square(None) * 2 + 1
        assert same_values(result, expected)


@needs("creation.ones", "exchange.to_numpy", "mixing.forbid", gpus=2)
class Mixing(OneDevice):
    """Mixing devices under `strict`."""

    @pytest.fixture
    def apart(self, xdevice_backend: Backend) -> tuple[Any, Any]:
        """Tensors of ones on the two GPUs."""
        return square(FIRST), square(SECOND)

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("pair", PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
    def test_strict_error_names_both_devices(
        self, backend: str, operation: str, pair: tuple[Any, Any]
    ) -> None:
        x, y = square(pair[0]), square(pair[1])
        with strict():
            error = raised(MixedDeviceError, "to_device")(OPERATIONS[operation], x, y)
        assert isinstance(error, RuntimeError)
        assert error.devices == set(pair)
        for device in pair:
            assert str(device) in str(error)

    @pytest.mark.parametrize("scope", [cpu(), FIRST, SECOND], ids=str)
    def test_strict_holds_inside_a_scope(
        self, backend: str, scope: Any, apart: tuple[Tensor, Tensor]
    ) -> None:
        with scope, strict(), pytest.raises(MixedDeviceError):
            operator.add(*apart)

    def test_strict_error_leaves_tensors_unchanged(
        self, backend: str, apart: tuple[Tensor, Tensor]
    ) -> None:
        x, y = apart
        with strict(), pytest.raises(MixedDeviceError):
            x += y
        assert device_of(x) == FIRST
        assert device_of(y) == SECOND
        assert values(x) == values(y) == [[1, 1], [1, 1]]

    def test_strict_holds_in_other_threads(
        self, backend: str, apart: tuple[Tensor, Tensor]
    ) -> None:
        # MixedDeviceError is a RuntimeError; a framework may raise its own.
        with strict(), ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError):
            pool.submit(operator.add, *apart).result()

    def test_strict_in_a_thread_covers_that_thread(
        self, backend: str, apart: tuple[Tensor, Tensor]
    ) -> None:
        def work() -> Tensor:
            with strict():
                return operator.add(*apart)

        with ThreadPoolExecutor(1) as pool, pytest.raises(MixedDeviceError):
            pool.submit(work).result()

    @needs("mixing_gradient")
    def test_strict_holds_in_the_backward_pass(
        self, backend: str, native: Native, apart: tuple[Tensor, Tensor]
    ) -> None:
        with gpu(0):
            backward = native.mixing_gradient(*apart)
        with gpu(0), strict():
            error = raised(MixedDeviceError)(backward)
        assert error.devices == {FIRST, SECOND}

    def test_strict_works_as_a_decorator(self, backend: str, apart: tuple[Tensor, Tensor]) -> None:
        @strict()
        def add(a: Tensor, b: Tensor) -> Tensor:
            with SECOND:
                return a + b

        x, y = apart
        raised(MixedDeviceError)(add, x, y)
        assert values(add(y, y)) == [[2, 2], [2, 2]]

    def test_strict_blocks_nest(self, backend: str, apart: tuple[Tensor, Tensor]) -> None:
        block = strict()
        with block:
            with block, strict():
                pass
            raised(MixedDeviceError)(operator.add, *apart)
        assert outcome(lambda: operator.add(*apart)) is not MixedDeviceError

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_strict_ends_with_its_block(self, backend: str, operation: str) -> None:
        def mix() -> Tensor:
            return OPERATIONS[operation](square(FIRST), square(SECOND))

        native_outcome = outcome(mix)
        assert native_outcome is not MixedDeviceError
        with pytest.raises(ZeroDivisionError), strict():
            raise ZeroDivisionError
        assert outcome(mix) == native_outcome
        with strict():
            assert outcome(mix) is MixedDeviceError
        assert outcome(mix) == native_outcome

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
        assert device_of(y) == SECOND
        assert device_of(total) == home()
        assert values(total) == [[4.5, 7.0], [10.5, 15.0]]

    @needs("gradient")
    def test_strict_allows_gradients_across_devices(self, backend: str, native: Native) -> None:
        with gpu(1), strict():
            gradient = native.gradient(lambda x: to_device(to_device(x, FIRST), SECOND))
        assert gradient == [2, 2, 2]

    @needs("model", "output")
    def test_strict_covers_model_inputs(self, backend: str, native: Native, model: Model) -> None:
        model = to_device(model, SECOND)
        x = ones((4, 3), device=FIRST)
        y = ones((4, 3), device=SECOND)
        with gpu(1), strict():
            assert device_of(native.output(model, y)) == SECOND
            # MixedDeviceError is a RuntimeError. A model may raise its own.
            raised(RuntimeError)(native.output, model, x)


NUMPYS_READERS: dict[str, Callable[[Tensor], Any]] = {
    "asarray": np.asarray,
    "asanyarray": np.asanyarray,
    "add": lambda x: np.add(x, 1),
    "sum": np.sum,
    "concatenate": lambda x: np.concatenate([x, x]),
    "array of a list": lambda x: np.array([x, x]),
    "from_dlpack": np.from_dlpack,
    "memoryview": memoryview,
}
"""Functions that return an array of NumPy, a tensor, or an error."""


@needs("creation.ones", "transfers.watch", gpus=2)
class Transfers(OneDevice):
    """Copies under `watch_transfers` and `transfer_guard`."""

    def test_a_copy_is_reported_with_its_line_devices_and_bytes(
        self, backend: str, tmp_path: Path
    ) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')"
        with watch_transfers() as report:
            run_line(tmp_path, line, x=x)
        to_device(x, SECOND)  # after the block: not in the report
        assert copies_in(report) == [("gpu:0", "gpu:1", 1, BYTES)]
        assert report.findings[0].file == str(tmp_path / "main.py")
        assert report.findings[0].source == line

    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_a_factory_creates_its_tensor_on_the_device(self, backend: str, name: str) -> None:
        size = 6 if name == "arange" else (2, 3)
        for device in (FIRST, SECOND):
            # The first call may send the state of the random numbers to the
            # device, once.
            like = FACTORIES[name](device)
            with transfer_guard("forbid"):
                assert device_of(FACTORIES[name](device)) == device
                assert device_of(getattr(creation, name)(size, like=like)) == device

    @needs("creation.full")
    def test_full_sends_only_its_number_to_the_device(self, backend: str) -> None:
        with watch_transfers() as report:
            x = creation.full((8, 8), 1.5, dtype="float32", device=SECOND)
        assert device_of(x) == SECOND
        assert report.nbytes <= 8
        for finding in report:
            assert finding.to == "gpu:1"

    @needs("cpu")
    def test_a_round_trip_is_two_logged_copies(
        self, backend: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        x = square(home())
        with watch_transfers() as report, transfer_guard("log"):
            to_device(to_device(x, SECOND), home())
        assert copies_in(report) == [("gpu:1", "host", 1, BYTES), ("host", "gpu:1", 1, BYTES)]
        assert {finding.kind for finding in report.findings} == {"copy"}
        assert [record.name for record in caplog.records] == ["xdevice.transfers"] * 2
        assert f"{BYTES} B, host → gpu:1" in caplog.text

    @needs("cpu")
    def test_numpys_functions_read_no_gpu_unseen(self, backend: str) -> None:
        x = square(SECOND)
        for name, read in NUMPYS_READERS.items():
            try:
                with transfer_guard("forbid_implicit"):
                    result = read(x)
            except Exception:  # of the guard, of NumPy, or of the framework
                continue
            holds_objects = isinstance(result, np.ndarray) and result.dtype == object
            if not holds_objects:  # else nothing was read: NumPy holds the tensor itself
                assert tensor_owner(result) == backend, name

    @needs("parameter")
    def test_a_tensor_beside_a_parameter_is_copied_once(self, backend: str, native: Native) -> None:
        x, parameter = square(FIRST), at_home(native.parameter)
        with watch_transfers() as report:
            moved = to_device([x, parameter, x], SECOND)
        assert device_of(moved) == SECOND
        assert [copy for copy in copies_in(report) if copy[0] == "gpu:0"] == [
            ("gpu:0", "gpu:1", 1, BYTES)
        ]

    @pytest.mark.parametrize("dtype", ["int32", "float32"])
    def test_a_move_of_a_few_numbers_is_one_copy(self, backend: str, dtype: str) -> None:
        x = creation.ones(2, dtype=dtype, device=FIRST)
        for tree in (x, [x], (x, {"x": x})):
            with watch_transfers() as report:
                to_device(tree, SECOND)
            assert [copy[:3] for copy in copies_in(report)] == [("gpu:0", "gpu:1", 1)]

    def test_a_tree_that_cannot_be_on_the_device_is_not_copied(self, backend: str) -> None:
        tree = [square(FIRST), np.ones(2)]
        with watch_transfers() as report, transfer_guard("forbid"):
            raised(DeviceNotFoundError, "under numpy.*name it in skip=")(to_device, tree, SECOND)
        assert report.copies == 0

    @needs("exchange.to_numpy")
    def test_reading_values_is_a_copy_at_the_callers_line(
        self, backend: str, tmp_path: Path
    ) -> None:
        x, line = [square(SECOND) for _ in range(3)], "for tensor in x: to_numpy(tensor)"
        with watch_transfers() as report:
            run_line(tmp_path, line, x=x)
        assert copies_in(report) == [("gpu:1", "host", 3, 3 * BYTES)]
        assert report.findings[0].source == line

    @needs("cpu")
    @pytest.mark.parametrize("direction", ["host_to_device", "device_to_host", "device_to_device"])
    def test_each_direction_has_a_level(self, backend: str, direction: str, tmp_path: Path) -> None:
        on_host, on_gpu = square(home()), square(FIRST)
        moves = {
            "host_to_device": (on_host, FIRST),
            "device_to_host": (on_gpu, home()),
            "device_to_device": (on_gpu, SECOND),
        }
        x, device = moves.pop(direction)
        message = f"main.py:1: {BYTES} B.*transfer_guard.*forbids"
        with transfer_guard("allow", **{direction: "forbid"}):  # type: ignore[arg-type]  # one of its parameters
            for allowed, target in moves.values():
                assert device_of(to_device(allowed, target)) == target
            with pytest.raises(TransferError, match=message):
                run_line(tmp_path, "y = to_device(x, device)", x=x, device=device)

    @needs("exchange.to_numpy")
    def test_forbid_implicit_allows_explicit_moves(self, backend: str) -> None:
        x = square(FIRST)
        with transfer_guard("forbid_implicit"):
            assert values(to_device(x, SECOND)) == [[1, 1], [1, 1]]
            raised(TransferError)(print, x)

    def test_a_forbidden_move_moves_nothing(self, backend: str) -> None:
        tree = {"a": square(FIRST), "b": [square(SECOND)]}
        raised(TransferError)(transfer_guard("forbid")(to_device), tree, SECOND)
        assert device_of(tree["a"]) == FIRST
        assert device_of(tree["b"]) == SECOND
        raised(TransferError)(transfer_guard("forbid")(to_numpy), tree["a"])

    @needs("model")
    def test_a_forbidden_move_leaves_the_model_in_place(self, backend: str, model: Model) -> None:
        model = to_device(model, FIRST)
        raised(TransferError)(transfer_guard("forbid")(to_device), model, SECOND)
        assert device_of(model) == FIRST

    def test_a_line_may_allow_its_copies(self, backend: str, tmp_path: Path) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')  # xdevice: allow"
        with watch_transfers() as report, transfer_guard("forbid"):
            y = run_line(tmp_path, line, x=x)
        assert device_of(y) == SECOND
        assert len(report) == 0
        assert report.allowed == 1

    def test_guard_levels_belong_to_a_thread_and_nest(self, backend: str) -> None:
        x = square(FIRST)
        with ThreadPoolExecutor(1) as pool, transfer_guard("forbid"):
            assert device_of(pool.submit(to_device, x, SECOND).result()) == SECOND
            with transfer_guard("allow"):
                to_device(x, SECOND)
            raised(TransferError)(to_device, x, SECOND)
        assert device_of(to_device(x, SECOND)) == SECOND
