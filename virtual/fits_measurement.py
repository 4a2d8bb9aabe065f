"""The measurement of a program and its children, seen from the command that starts the program."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.hardware.virtual import ProgramEnd
from xdevice.virtual import request
from xdevice.virtual.fits import Ended, estimate
from xdevice.virtual.fits_records import ENV, Folder, Settings
from xdevice.virtual.fits_report import Report


class Measurement:
    """The folder in which the processes write their records, and the report about them."""

    def __init__(self, size: int, stop_after: int | None) -> None:
        if size:
            request.measure_for(size)
        memory = request.memory()
        if memory is None:
            raise ArgumentError(
                "--fits has neither a size nor a model; write --fits 24GiB, or --fits --gpu-model rtx4090"
            )
        self._size = memory
        self._folder = Folder(Path(tempfile.mkdtemp(prefix="xdevice-fits-")))
        self._folder.write_settings(Settings(memory, stop_after))
        self.environment = {ENV: str(self._folder.path)}

    def is_refused(self) -> bool:
        return self._folder.is_refused()

    def stopped_since(self) -> float | None:
        return self._folder.stopped_since()

    def terminate(self) -> None:
        for record in self._folder.records():
            if record.ended is None:
                with suppress(OSError):
                    os.kill(record.pid, signal.SIGTERM)

    def report(self, ended: str, is_complete: bool, has_failed: bool) -> Report:
        records = self._folder.records()
        return Report(estimate(self._size, records, Ended(ended, is_complete, has_failed)))

    def end_of_program(self) -> ProgramEnd | None:
        for record in self._folder.records():
            if record.is_program and record.ended is not None:
                return ProgramEnd(record.error, record.stopped)
        return None

    def close(self) -> None:
        shutil.rmtree(self._folder.path, ignore_errors=True)
