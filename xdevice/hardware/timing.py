"""Taking time, with every device waited for at both ends.

Frameworks queue work and return: a clock read without waiting measures the queueing.
"""

from __future__ import annotations

import itertools
import time

from xdevice.hardware.devices import synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class Timer:
    """A stopwatch that collects times in seconds, running from the moment it is made.

    Raises
    ------
    BackendNotInstalledError
        No framework is installed.

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


class Benchmark:
    """A block whose time is printed, as ``label: 0.1234 sec``; all devices are waited for.

    The time in seconds is kept as ``seconds``. A block left by an exception prints nothing.

    Raises
    ------
    BackendNotInstalledError
        No framework is installed.

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.seconds = self.timer.stop()
            print(f"{self.label}: {self.seconds:.4f} sec")
