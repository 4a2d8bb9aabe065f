"""``watch_transfers``: what a block copies, and what to do about it."""

import time
from typing import Any

from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.tensors.transfers.recording import Recorder
from xdevice.tensors.transfers.report import Report
from xdevice.tensors.transfers.watching import close_for, open_for, watched


class watch_transfers:  # noqa: N801  (reads as a verb: `with watch_transfers() as report:`)
    """Within a ``with`` block, record every copy between the host and a device, or between devices.

    The framework's own copies and ours, of every thread, each with the line of the program that makes it. The report
    says what each costs and what to write instead; it changes while the block is open. Nothing is watched, and nothing
    costs anything, while no block is open.

    Parameters
    ----------
    bus
        What a copy is said to cost, since no time is measured: a bandwidth, and a time for each copy.

    Raises
    ------
    ArgumentError
        ``bus`` lacks a unit, or is not positive.
    NotSupportedError
        On entering: the chosen framework has several devices, and its adapter cannot see copies.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.watch_transfers() as report:
    ...     x = xdevice.ones(3)
    >>> len(report)
    0
    """

    __slots__ = ("_bus", "_open")

    def __init__(self, bus: str | Bus = DEFAULT) -> None:
        self._bus = bus if isinstance(bus, Bus) else Bus.parsed(bus)
        self._open: list[tuple[Recorder, Report, float]] = []

    def __enter__(self) -> Report:
        recorder = Recorder()
        open_for(recorder)
        report = Report(recorder, self._bus)
        self._open.append((recorder, report, time.perf_counter()))
        return report

    def __exit__(self, *error: Any) -> None:
        recorder, report, began = self._open.pop()
        report.end(watched(), time.perf_counter() - began)
        close_for(recorder)
