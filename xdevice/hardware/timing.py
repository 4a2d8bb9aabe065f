"""Measuring time, waiting for every device at both ends.

Frameworks queue work and return: without waiting, a clock measures the
queueing.
"""

from __future__ import annotations

import itertools
import time

from xdevice.hardware.questions import synchronize

__all__ = ["Benchmark", "Timer"]


class Timer:
    """A stopwatch that collects times in seconds, running from the moment it is made.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     timer = xdevice.Timer()
    ...     for _ in range(3):
    ...         timer.start()
    ...         seconds = timer.stop()
    >>> len(timer.times), timer.sum() >= timer.avg()
    (3, True)
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Wait for all devices, then start the clock."""
        synchronize()
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Wait for all devices, stop the clock, and return the seconds since the last start."""
        synchronize()
        self.times.append(time.perf_counter() - self._started)
        return self.times[-1]

    def avg(self) -> float:
        """The mean of the times; 0 before the first."""
        return self.sum() / max(len(self.times), 1)

    def sum(self) -> float:
        """The sum of the times."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """The running sums of the times."""
        return list(itertools.accumulate(self.times))

    def __repr__(self) -> str:
        turns = len(self.times)
        return f"<Timer: {turns} turns, {self.sum():.4g} s in all, {self.avg():.4g} s on average>"

    def _repr_html_(self) -> str:  # notebooks show it
        rows = [(str(turn), seconds) for turn, seconds in enumerate(self.times, 1)]
        return _table("Timer", "turn", [*rows, ("average", self.avg()), ("sum", self.sum())])


class Benchmark:
    """Print the time of a block as ``label: 0.1234 sec``, after waiting for all devices.

    The time in seconds is kept as ``seconds``. A block left by an exception
    prints nothing.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"), xdevice.Benchmark("product"):  # doctest: +ELLIPSIS
    ...     _ = xdevice.ones((2, 2)) @ xdevice.ones((2, 2))
    product: 0... sec
    """

    def __init__(self, label: str = "Done") -> None:
        self.label = label
        self.seconds: float | None = None

    def __enter__(self) -> Benchmark:
        self.timer = Timer()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.seconds = self.timer.stop()
            print(f"{self.label}: {self.seconds:.4f} sec")

    def __repr__(self) -> str:
        return f"<Benchmark {self.label!r}: {_seconds(self.seconds)} s>"

    def _repr_html_(self) -> str:
        return _table("Benchmark", "block", [(self.label, self.seconds)])


def _table(caption: str, first: str, rows: list[tuple[str, float | None]]) -> str:
    """A table in HTML without colours, which suits a notebook's light and dark theme."""
    from html import escape

    heads = "".join(f'<th scope="col">{name}</th>' for name in (first, "seconds"))
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{_seconds(seconds)}</td></tr>'
        for name, seconds in rows
    )
    head = f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
    return f"<table>{head}<tbody>{lines}</tbody></table>"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.4g}"
