"""Membership of a job that another launcher has started: the engine is all that connects it."""

import threading
from collections.abc import Callable

from xdevice.contract import Job
from xdevice.device import Device
from xdevice.distributed.failures import as_text
from xdevice.distributed.membership import Membership
from xdevice.distributed.messages import Fingerprint
from xdevice.errors import DistributedError
from xdevice.framework.adapters import Backend
from xdevice.tensors.making import make

_TICK = 0.5  # seconds between two looks at the engine's time


class UnlaunchedMembership(Membership):
    """Each process watches its own engine's time.

    Before each collective the processes gather a digest of it, and each finds
    out by itself whether all make the same call.
    """

    def __init__(self, job: Job, timeout: float, owner: Backend) -> None:
        super().__init__(job, timeout)
        self._owner = owner
        self._has_closed = threading.Event()
        threading.Thread(
            target=self._watch, name="xdevice.distributed.watchdog", daemon=True
        ).start()

    def enter(self, fingerprint: Fingerprint) -> None:
        """Return when every process has called this with the same fingerprint."""
        extra = self._extra  # the others may still be in the last work
        digests = self.work(fingerprint.name, lambda: self._digests(fingerprint), extra)
        different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if different:
            ranks = ", ".join(map(str, different))
            self.fail(
                DistributedError(
                    f"rank {self.job.rank} calls {fingerprint.text()}, and not all processes do: "
                    f"rank {ranks} and rank 0 differ; every process makes the same calls in "
                    "order, with the same structure, shapes and dtypes"
                )
            )
        self._raise_failure()

    def _digests(self, fingerprint: Fingerprint) -> list[bytes]:
        """The digests of all processes' fingerprints, in the order of ranks."""
        numbers = list(fingerprint.bits())
        vector = make(self._owner, "tensor", "uint8", Device("cpu", 0), numbers)
        rows = self._owner.engine.all_gather(vector)
        return [self._owner.exchange.to_numpy(row).tobytes() for row in rows]

    def shut_down(self, stop: Callable[[], None]) -> None:
        self.enter(Fingerprint("shutdown()"))
        self.work("the end of the engine", stop)

    def engine_error(self, error: Exception, name: str) -> DistributedError:
        self._work = None
        self.failure_was_raised = True
        return self.fail(DistributedError(f"{name} failed on rank {self.job.rank}: {error}"))

    def report_error(self, error: BaseException) -> None:
        """Nothing is sent: the others notice by their engine, or by their clocks."""
        self.fail(DistributedError(f"rank {self.job.rank} has failed: {as_text(error)}"))

    def report_exit(self) -> None:
        """Nothing is sent, as in `report_error`."""

    def close(self) -> None:
        self._has_closed.set()

    def close_descriptors(self) -> None:
        """There are none; the watchdog does not exist in a forked child."""

    def _watch(self) -> None:
        """End the process if its engine works for longer than the timeout."""
        while not self._has_closed.wait(_TICK):
            work = self._work
            if work is not None and work.seconds > self.timeout + work.extra:
                self._exit(self.fail(self._undiagnosed(work)))
