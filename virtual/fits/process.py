"""The measuring of one process for ``xdevice fits``: of the program, and of its children.

Each Python that gets virtual GPUs by its environment joins (`join`), measures
its frameworks, and writes a record (`records`) when it ends: by itself,
by ``os._exit``, by SIGTERM, or by replacing itself with another program. A
child that cannot be measured is noticed where it is started.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from xdevice.contract import MemoryUse, ProgramStopped, Request
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.virtual import visible_devices
from xdevice.virtual.fits.estimate import most_that_surely_fits
from xdevice.virtual.fits.records import ENV, Folder, Record, RecordFile

_process: _Process | None = None


class _Process:
    """This process, or this fork of a process."""

    def __init__(
        self,
        folder: Folder,
        request: Request,
        frameworks: Sequence[Backend],
        is_fork: bool,
        title: str = "",
    ) -> None:
        """Measure this process; ``title``: of the process that forked it, if it is a fork."""
        self.folder = folder
        self.request = request
        self.frameworks: list[Backend] = []
        self.is_fork = is_fork
        self._file: RecordFile = folder.new_record()
        self._totals: Any = None
        self._earlier_error = getattr(sys, "last_value", None)  # of the process that forked this
        self._known_end: tuple[str, str] | None = None  # how the program failed or was stopped
        self.record = Record(
            os.getpid(),
            os.getppid(),
            f"a fork of {title}" if title else _title(),
            time.monotonic(),
            is_fork or _is_of_multiprocessing(),
            visible_devices.indices(request),
        )
        if not is_fork:
            self._file.write(self.record)
        for owner in frameworks:
            self.measure(owner)

    def measure(self, owner: Backend) -> None:
        """Measure a framework whose virtual GPUs have been made."""
        if self._totals is None:
            self._totals = self._file.map_totals()
        self.frameworks.append(owner)
        self.record = self.record._replace(gpus=visible_devices.indices(self.request))
        self._file.write(self.record)
        assert self.request.memory is not None, "xdevice fits gives each GPU a size"
        limit = most_that_surely_fits(self.request.memory, self.request.model or "")
        options = self.folder.options()
        owner.virtual.measure_memory(limit, options.stop_after, options.computes, self._totals)

    def refuse(self, owner: Backend) -> None:
        self.record = self.record._replace(refused=(*self.record.refused, str(owner)))
        self._file.write(self.record)

    def note_start(self, command: str, is_python: bool) -> None:
        """Note that this process starts another one."""
        if is_python:
            started = (*self.record.started_pythons, command)
            self.record = self.record._replace(started_pythons=started)
        elif command not in self.record.started_others:
            started = (*self.record.started_others, command)
            self.record = self.record._replace(started_others=started)
        self._file.write(self.record)

    def end(self, error: str = "", stopped: str = "") -> None:
        """Write the record, complete: the process ends."""
        if self._known_end is not None:
            error, stopped = self._known_end
        uses = tuple((str(owner), owner.virtual.memory_use()) for owner in self.frameworks)
        is_trivial = not any(map(is_used, dict(uses).values())) and not self.record.started_pythons
        if self.is_fork and is_trivial and not self.record.refused:
            self._file.remove()
            return
        self.record = self.record._replace(
            ended=time.monotonic(), error=error, stopped=stopped, uses=uses
        )
        for _, use in uses:
            if use.gpus:
                self.record = self.record._replace(gpus=use.gpus)
        self._file.write(self.record)

    def end_by_itself(self) -> None:
        error = getattr(sys, "last_value", None)
        if error is None or error is self._earlier_error:
            self.end(_exit_status)
        elif isinstance(error, KeyboardInterrupt):
            self.end(stopped="interrupted")
        else:
            self.end(f"ended with {type(error).__name__}")

    def finish(self, error: str, stopped: str) -> None:
        """Write the record of the program's own process, whose end is known exactly.

        It is written again when the process ends: functions of `atexit` use memory, too.
        """
        self._known_end = error, stopped
        self.end()


def is_used(use: MemoryUse) -> bool:
    return bool(use.host_shortage) or any(peak.reserved for peak in use.peaks)


_exit_status = ""
"""How the process fails, if it was asked to exit with another status than 0."""


def join(request: Request) -> None:
    """Measure this process, if it belongs to a program that is measured."""
    global _process
    if _process is not None or ENV not in os.environ:
        return
    folder = Folder(Path(os.environ[ENV]))
    if not folder.path.is_dir():  # the program has ended, and left this process behind
        return
    _process = _Process(folder, request, (), is_fork=False)
    sys.addaudithook(_note_start)
    _replace_exits()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_fork)
    atexit.register(_end)


def check(owner: Backend) -> None:
    """Raise an error if the framework is to be measured and cannot be."""
    if _process is not None:
        try:
            check_is_measured(owner)
        except NotSupportedError:
            _process.refuse(owner)
            raise


def check_is_measured(owner: Backend) -> None:
    """Raise an error if the memory that the framework's virtual GPUs use cannot be measured."""
    virtual = owner.load_unprepared("virtual")
    if virtual.has("enable") and not virtual.has("measure_memory"):
        raise NotSupportedError(
            f"xdevice fits is not known under {owner}: its virtual GPUs do not have the "
            "allocator of its GPUs, so they cannot tell what these would reserve; PyTorch's can"
        )


def begin(owner: Backend) -> None:
    """Measure the framework, if that was asked for: its virtual GPUs have just been made."""
    if _process is not None:
        _process.measure(owner)


def begin_program(title: str) -> None:
    """Note that this is the program's own process, whose end is noted by `end_program`."""
    if _process is not None:
        _process.record = _process.record._replace(is_program=True, title=title)


def end_program(error: str, stopped: str) -> None:
    if _process is not None:
        _process.finish(error, stopped)


def refuse_program() -> None:
    """Note that the program has not begun, for a reason that was printed."""
    if _process is not None:
        _process.folder.note_refused()


def stop() -> NoReturn:
    """End this process: it has made the steps after which the program is to stop."""
    assert _process is not None
    _process.folder.note_stopped()
    if _process.record.is_program:
        raise ProgramStopped
    raise SystemExit(0)  # its parent reads that it has succeeded


def _end() -> None:
    if _process is not None:
        _process.end_by_itself()


def _begin_fork() -> None:
    """In a child by fork: it has a record of its own."""
    global _process, _exit_status
    if _process is not None:
        _exit_status = ""
        title = _process.record.title.removeprefix("a fork of ")
        _process = _Process(
            _process.folder, _process.request, _process.frameworks, is_fork=True, title=title
        )


def _replace_exits() -> None:
    """Write the record before the process ends without Python's own exit functions."""
    native_exit, native_sys_exit = os._exit, sys.exit

    def exit_at_once(status: int) -> NoReturn:
        if _process is not None:
            _process.end(_words_of(status))
        native_exit(status)

    def exit_with_status(status: Any = None, /) -> NoReturn:
        global _exit_status
        _exit_status = _words_of(status)
        native_sys_exit(status)

    os._exit = exit_at_once
    sys.exit = exit_with_status
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_by_signal)


def _words_of(status: object) -> str:
    return f"ended with status {status}" if status not in (None, 0) else ""


def _end_by_signal(number: int, frame: object) -> None:
    """Write the record, and end as the signal would have ended the process."""
    if _process is not None:
        _process.end(stopped="ended by SIGTERM")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _title() -> str:
    """What this Python runs, such as ``train.py``; known before ``sys.argv`` is."""
    words = [word for word in sys.orig_argv[1:] if not word.startswith("-")]
    if _is_of_multiprocessing():
        return "a process of multiprocessing"
    return os.path.basename(words[0]) if words else "python"


def _is_of_multiprocessing() -> bool:
    return any("from multiprocessing." in word for word in sys.orig_argv)


# What this process starts


def _note_start(event: str, arguments: tuple[Any, ...]) -> None:
    read = _STARTS.get(event)
    if read is None or _process is None or not _is_the_programs():
        return
    words = read(*arguments)
    if not words or not os.path.exists(words[0]):
        return
    _process.note_start(os.path.basename(words[0]), _is_python(words[0]))
    if event == "os.exec":  # the program that replaces this one has a record of its own
        _process.end_by_itself()


def _is_the_programs() -> bool:
    """Whether the program starts the process, and not xdevice or a framework that is imported.

    xdevice builds its plug-ins by a compiler, and PaddlePaddle asks ``which`` for one.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in _NOT_THE_PROGRAMS:
            return False
        frame = frame.f_back
    return True


_NOT_THE_PROGRAMS = ("xdevice.virtual.plugins.building", "xdevice.framework.at_import")


def _words_of_popen(executable: Any, arguments: Any, folder: Any, environment: Any) -> list[str]:
    if isinstance(arguments, (str, bytes, os.PathLike)):
        arguments = [arguments]
    words = [os.fsdecode(word) for word in arguments]
    path = (environment or os.environ).get("PATH")
    found = shutil.which(os.fsdecode(executable or words[0]), path=path)
    return [found, *words[1:]] if found else []


def _words_of_exec(path: Any, arguments: Any, environment: Any) -> list[str]:
    if isinstance(path, int):  # an open file
        return []
    return [os.fsdecode(path), *(os.fsdecode(word) for word in list(arguments)[1:])]


_STARTS: dict[str, Callable[..., list[str]]] = {
    "subprocess.Popen": _words_of_popen,
    "os.exec": _words_of_exec,
    "os.posix_spawn": _words_of_exec,
    "os.system": lambda command: ["/bin/sh"],
}
"""For each audit event of a start: the words of the command, with the path of its program first."""


def _is_python(path: str) -> bool:
    """Whether the program is Python, or a script that Python runs."""
    if os.path.basename(os.path.realpath(path)).startswith(("python", "pypy")):
        return True
    try:
        with open(path, "rb") as file:
            first, second = file.readline(512), file.readline(512)
    except OSError:
        return False
    return first[:2] == b"#!" and (b"python" in first or second.startswith(b"'''exec'"))
