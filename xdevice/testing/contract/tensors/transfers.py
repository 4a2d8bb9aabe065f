"""Copies between devices: seen at the line that makes them, and forbidden before they are made."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from xdevice import device_of, devices, ones, to_device, to_numpy, transfer_guard, watch_transfers
from xdevice.errors import NotSupportedError, TransferError
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, values

BYTES = 2 * 3 * 4  # of `square`


def square(device: Any) -> Any:
    """A (2, 3) tensor of ones, 32 bits each."""
    return ones((2, 3), dtype="float32", device=device)


def seen(report: Any) -> list[tuple[str, str, int, int]]:
    """What was copied: from, to, how often, how many bytes."""
    return sorted((found.from_, found.to, found.copies, found.nbytes) for found in report.findings)


def program(folder: Path, line: str, **names: Any) -> Any:
    """What a program's only line makes as ``y``, of the tensor ``x``: this file is none of the user's."""
    file = folder / "main.py"
    file.write_text(line, encoding="utf-8")
    exec(compile(line, file, "exec"), {"to_device": to_device, "to_numpy": to_numpy} | names, names)
    return names.get("y")


@needs("creation.ones")
class OnOneDevice(Promises):
    @needs("exchange.to_numpy")
    def test_a_program_on_one_device_copies_nothing(self, backend: str) -> None:
        if len(devices()) > 1 and not self.has(backend, "transfers.watch"):
            with pytest.raises(NotSupportedError, match=f"{backend} has no "), watch_transfers():
                pass
            return
        for device in {home(), devices()[-1]}:
            x = square(device)
            with device, watch_transfers() as report, transfer_guard("forbid"):
                y = to_device((x + x) * x, device)
            assert (len(report), report.copies) == (0, 0)
            assert values(y) == [[2, 2, 2]] * 2


@needs("creation.ones", "transfers.watch", gpus=2)
class Transfers(OnOneDevice):
    """Copies under `watch_transfers` and `transfer_guard`."""

    def test_a_copy_is_seen_with_its_line_its_devices_and_its_bytes(self, backend: str, tmp_path: Path) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')"
        with watch_transfers() as report:
            program(tmp_path, line, x=x)
        to_device(x, SECOND)  # after the block
        assert seen(report) == [("gpu:0", "gpu:1", 1, BYTES)]
        assert (report.findings[0].file, report.findings[0].source) == (str(tmp_path / "main.py"), line)

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
    def test_values_that_are_read_are_one_copy_at_the_callers_line(self, backend: str, tmp_path: Path) -> None:
        x, line = [square(SECOND) for _ in range(3)], "for each in x: to_numpy(each)"
        with watch_transfers() as report:
            program(tmp_path, line, x=x)
        assert seen(report) == [("gpu:1", "host", 3, 3 * BYTES)]
        assert report.findings[0].source == line

    @needs("cpu")
    @pytest.mark.parametrize("direction", ["host_to_device", "device_to_host", "device_to_device"])
    def test_each_direction_has_a_level(self, backend: str, direction: str, tmp_path: Path) -> None:
        host, first = square(home()), square(FIRST)
        moves = {
            "host_to_device": (host, FIRST),
            "device_to_host": (first, home()),
            "device_to_device": (first, SECOND),
        }
        forbidden, device = moves.pop(direction)
        with transfer_guard("allow", **{direction: "forbid"}):  # type: ignore[arg-type]  # one of its parameters
            assert all(device_of(to_device(*move)) == move[1] for move in moves.values())
            with pytest.raises(TransferError, match=f"main.py:1: {BYTES} B.*transfer_guard.*forbids"):
                program(tmp_path, "y = to_device(x, device)", x=forbidden, device=device)

    @needs("exchange.to_numpy")
    def test_implicit_levels_allow_what_the_program_asks_for(self, backend: str) -> None:
        x = square(FIRST)
        with transfer_guard("forbid_implicit"):
            assert values(to_device(x, SECOND)) == [[1, 1, 1]] * 2
            with pytest.raises(TransferError):
                print(x)

    def test_a_forbidden_move_leaves_everything_where_it_was(self, backend: str) -> None:
        tree = {"a": square(FIRST), "b": [square(SECOND)]}
        with pytest.raises(TransferError):
            transfer_guard("forbid")(to_device)(tree, SECOND)
        assert (device_of(tree["a"]), device_of(tree["b"])) == (FIRST, SECOND)

    @needs("model")
    def test_a_forbidden_move_of_a_model_leaves_it(self, backend: str, model: Any) -> None:
        model = to_device(model, FIRST)
        with transfer_guard("forbid"), pytest.raises(TransferError):
            to_device(model, SECOND)
        assert device_of(model) == FIRST

    def test_a_line_may_allow_its_copies(self, backend: str, tmp_path: Path) -> None:
        x, line = square(FIRST), "y = to_device(x, 'gpu:1')  # xdevice: allow"
        with watch_transfers() as report, transfer_guard("forbid"):
            y = program(tmp_path, line, x=x)
        assert (device_of(y), len(report), report.allowed) == (SECOND, 0, 1)

    def test_levels_are_of_the_thread_and_nest(self, backend: str) -> None:
        x = square(FIRST)
        with ThreadPoolExecutor(1) as pool, transfer_guard("forbid"):
            assert device_of(pool.submit(to_device, x, SECOND).result()) == SECOND
            with transfer_guard("allow"):
                to_device(x, SECOND)
            with pytest.raises(TransferError):
                to_device(x, SECOND)
        assert device_of(to_device(x, SECOND)) == SECOND
