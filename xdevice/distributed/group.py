"""The group of this process, from `init` to `shutdown` or to the process's end.

The engine of a process that fails would wait for the other processes at exit,
and they for it. So an at-exit handler tells the others of the failure, and
ends this process if its frameworks take too long.
"""

import atexit
import faulthandler
import gc
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from xdevice.contract import Engine, Job
from xdevice.distributed.deadlines import LAST_RESORT, PEER_FAILED
from xdevice.distributed.failures import exit_after_failed_rank
from xdevice.distributed.launcher_variables import job_in
from xdevice.distributed.membership import Membership
from xdevice.distributed.messages import Fingerprint
from xdevice.errors import DistributedError, DistributedTimeoutError
from xdevice.files import save_load
from xdevice.framework.adapters import Backend

_JOB_OF_ONE = Job(0, 1, 0, 1)


class Group:
    """The processes that compute together.

    A job of one process has no membership and no engine.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        membership: Membership | None = None,
        owner: Backend | None = None,
    ) -> None:
        self.engine = engine
        self.membership = membership
        self.owner = owner  # the framework of the engine
        self.job = _JOB_OF_ONE if membership is None else membership.job
        self._thread = threading.get_ident()
        self._lock = threading.RLock()

    def one_at_a_time(self, name: str) -> AbstractContextManager[object]:
        """Allow one collective at a time, from the thread that called `init`.

        The order of two threads' collectives would differ between processes.
        """
        if self.membership is None:
            return nullcontext()
        if threading.get_ident() != self._thread:
            raise DistributedError(
                f"{name} comes from another thread than init(); call collectives from that one"
            )
        return self._lock


ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


@dataclass
class _State:
    """Which process this is, the group that it is in, and how it is to end."""

    job: Job | None = None  # once it is known
    group: Group | None = None
    broken: bool = False  # whether it has left a group whose engine could not be stopped
    exit_status: int = 0  # the status to end with, once an error has ended this process
    previous_hook: ExceptHook | None = None  # `sys.excepthook` before the first group

    @property
    def membership(self) -> Membership | None:
        return None if self.group is None else self.group.membership

    def position(self) -> Job:
        """This process as in its group or the last `init`, else as in the environment.

        The environment is read at the first call.
        """
        if self.group is not None:
            return self.group.job
        if self.job is None:
            self.job = job_in(os.environ)
        return self.job


_GROUP_OF_ONE = Group()
state = _State()


def is_initialized() -> bool:
    """Whether this process is between `init` and `shutdown`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.is_initialized()
    False
    """
    return state.group is not None


def rank() -> int:
    """The number of this process in the job, from 0.

    It is also known before `init`, and 0 without a launcher.

    Raises
    ------
    ArgumentError
        The launcher's variables contradict each other, or are not numbers.
        `local_rank` and `world_size` raise the same errors.
    DistributedError
        The launcher's variables do not tell the local rank.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.rank()
    0
    """
    return state.position().rank


def local_rank() -> int:
    """The number of this process on its host, from 0.

    It can be the number of the process's GPU.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return state.position().local_rank


def world_size() -> int:
    """The number of processes in the job; 1 without a launcher.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return state.position().world_size


def current() -> Group:
    """The group that this process is in.

    Without a launcher, it is a group of this process alone.
    """
    if state.group is not None:
        return state.group
    if state.position().world_size == 1:
        return _GROUP_OF_ONE
    raise DistributedError(
        "this process has not joined a group; call xdevice.distributed.init() first"
    )


def on_rank_0(name: str, action: Callable[[], None]) -> None:
    """Run the action on rank 0 while the others wait.

    Without a group it runs in this process. If rank 0 raises, the job has
    failed, and every process raises.
    """
    group = state.group
    if group is None or group.membership is None:
        action()
        return
    membership = group.membership
    with group.one_at_a_time(name):
        try:
            if membership.job.rank == 0:
                action()
        except BaseException as error:
            membership.report_error(error)  # the others wait for it
            raise
        membership.enter(Fingerprint(name))


save_load.run_in_one_process = on_rank_0


@contextmanager
def joining(job: Job) -> Generator[None, None, None]:
    """A block in which an error ends this process as a later one does.

    The processes meet in it.
    """
    state.job = job
    if state.previous_hook is None:
        state.previous_hook = sys.excepthook
        sys.excepthook = _on_exception
        atexit.register(_at_exit)
    try:
        yield
    except BaseException:
        state.broken = True
        raise


def enter(group: Group) -> None:
    """Make this the group of the process.

    If the process ends in it, the others are told.
    """
    state.group = group
    state.broken = False


def leave() -> None:
    """Leave the group; the others have left it, too, or have been told."""
    membership = state.membership
    state.group = None
    if membership is not None:
        membership.close()


def abort(error: BaseException) -> None:
    """Tell the other processes of the error, and leave the group."""
    _report(error)
    leave()


def _report(error: BaseException) -> None:
    membership = state.membership
    if membership is not None:
        state.broken = True
        membership.report_error(error)


def _reset_in_child() -> None:
    """In a forked child: leave the parent's group, and send nothing."""
    membership = state.membership
    state.job = None
    state.group = None
    state.broken = False
    state.exit_status = 0
    if membership is not None:
        membership.close_descriptors()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


# The end of a process that fails


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Our `sys.excepthook`: call the previous one, and tell the others.

    It also chooses the exit status.
    """
    try:
        if state.previous_hook is not None:
            state.previous_hook(kind, error, trace)
    finally:  # also if the previous hook fails
        _report(error)
    if not state.broken:
        return
    if _is_because_of_others(error):
        state.exit_status = PEER_FAILED
    else:
        state.exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1
    is_interactive = sys.flags.interactive or hasattr(sys, "ps1")
    if not is_interactive:  # an interactive process goes on
        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=_exit_late, daemon=True).start()


def _is_because_of_others(error: BaseException) -> bool:
    """Whether another rank, or the network, is the reason for this error."""
    if not isinstance(error, DistributedError):
        return False
    own_rank = state.position().rank
    if isinstance(error, DistributedTimeoutError):
        return error.rank != own_rank
    return error.rank not in (own_rank, None)


def _exit_late() -> None:
    """End the process if a thread or an earlier exit handler keeps it alive."""
    time.sleep(LAST_RESORT)
    _flush_open_files()
    os._exit(state.exit_status)


def _at_exit() -> None:
    """Tell the others that this process ends.

    End it even if a framework waits for ever.

    Handlers that were registered later have run already; those of the
    frameworks run after this one.
    """
    membership = state.membership
    if not state.broken:
        if membership is None:
            return
        membership.report_exit()
    with suppress(OSError, ValueError):  # too many open files, and stderr is closed
        faulthandler.dump_traceback_later(LAST_RESORT, exit=True, file=_null_file())
    if state.exit_status:
        _flush_open_files()
        if state.exit_status == PEER_FAILED:
            exit_after_failed_rank(state.position().launcher)
        os._exit(state.exit_status)


def _null_file() -> IO[str]:
    """A file that discards its contents; stderr if no file can be opened."""
    try:
        return open(os.devnull, "w")
    except OSError:
        return sys.__stderr__ or sys.stderr


def _flush_open_files() -> None:
    """Write the buffers of all open files, which ``os._exit`` would lose."""
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    # by type(): isinstance() would run the __class__ property of lazy objects
    files: list[Any] = [obj for obj in gc.get_objects() if issubclass(type(obj), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed meanwhile, or a full disk
            if not file.closed and file.writable():
                file.flush()
