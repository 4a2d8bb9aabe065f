"""The group that this process belongs to: joined once, left once, also where the process ends in it.

At the end of a process that fails, its engine would wait for its peers, and they for it. So an at-exit guard tells the
others of the failure, and ends the process where its frameworks take too long.
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
from typing import Any

from xdevice.contract import Engine, Job
from xdevice.distributed.failures import LAST_RESORT, PEER_FAILED, exit_after_failed_rank
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo, process_info_in
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.errors import DistributedError, DistributedTimeoutError
from xdevice.framework.adapters import Backend


class Group:
    """What exists between `init` and `shutdown`. A job of one process has no membership and no engine."""

    def __init__(
        self,
        engine: Engine | None = None,
        membership: Membership | None = None,
        owner: Backend | None = None,
    ) -> None:
        self.engine, self.membership = engine, membership
        self.owner = owner  # whose tensors the engine takes; None for those of any framework
        self.job = (
            membership.job if membership is not None else Job(0, 1, 0, ("127.0.0.1",), (0,), 0)
        )
        self._thread, self._lock = threading.get_ident(), threading.RLock()

    def one_at_a_time(self, name: str) -> AbstractContextManager[object]:
        """One collective at a time, from one thread: two threads' would come in another order in each process."""
        if self.membership is None:
            return nullcontext()
        if threading.get_ident() != self._thread:
            raise DistributedError(
                f"{name} comes from another thread than init(); call collectives from that one"
            )
        return self._lock


@dataclass
class _Here:
    """Which process this is, the group that it is in, and how it is to end."""

    info: ProcessInfo | None = None  # once it is known
    group: Group | None = None
    broken: bool = False  # whether it has left a group whose engine could not be stopped
    exit_status: int = 0  # what it is to end with, once an error has ended it
    hook: Any = None  # the excepthook that was there before

    @property
    def membership(self) -> Membership | None:
        return None if self.group is None else self.group.membership

    def process(self) -> ProcessInfo:
        """As in the last `init`, else as the environment said when it was first asked for."""
        if self.info is None:
            self.info = process_info_in(os.environ)
        return self.info

    def place(self) -> ProcessInfo | Job:
        return self.process() if self.group is None else self.group.job


_ALONE = Group()
here = _Here()


def is_initialized() -> bool:
    """Whether this process is between `init` and `shutdown`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.is_initialized()
    False
    """
    return here.group is not None


def rank() -> int:
    """This process's number in the job, from 0; known before `init` too, and 0 without a launcher.

    Raises
    ------
    ArgumentError
        The launcher's variables contradict each other, or are incomplete; likewise for `local_rank` and `world_size`.
    DistributedError
        The launcher's variables contradict each other, or are incomplete; likewise for `local_rank` and `world_size`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.rank()
    0
    """
    return here.place().rank


def local_rank() -> int:
    """This process's number on its host, from 0: the number of its GPU, for example.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return here.place().local_rank


def world_size() -> int:
    """How many processes the job has; 1 without a launcher.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return here.place().world_size


def current() -> Group:
    """The group that this process is in; without a launcher, a group of this process alone."""
    if here.group is not None:
        return here.group
    if here.process().world_size == 1:
        return _ALONE
    raise DistributedError(
        "this process has not joined a group; call xdevice.distributed.init() first"
    )


def on_rank_0(name: str, act: Callable[[], None]) -> None:
    """Let rank 0 act while the others wait; without a group this process acts itself.

    If rank 0 raises, the job has failed, and every process raises.
    """
    group, membership = here.group, here.membership
    if group is None or membership is None:
        act()
        return
    with group.one_at_a_time(name):
        try:
            if membership.info.rank == 0:
                act()
        except BaseException as error:
            membership.raised(error)  # the others wait for it
            raise
        membership.enter(Fingerprint(name))


@contextmanager
def joining(info: ProcessInfo) -> Generator[None, None, None]:
    """While the processes meet: an error ends this one as it would later."""
    here.info = info
    if here.hook is None:
        here.hook, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)
    try:
        yield
    except BaseException:
        here.broken = True
        raise


def enter(group: Group) -> None:
    """From now on the others are told when this process ends."""
    here.group, here.broken = group, False


def leave() -> None:
    """Leave the group without the others, which have left it or have been told."""
    membership, here.group = here.membership, None
    if membership is not None:
        membership.close()


def abort(error: BaseException) -> None:
    """Tell the other processes of the error, and leave the group without them."""
    _tell(error)
    leave()


def _tell(error: BaseException) -> None:
    membership = here.membership
    if membership is not None:
        here.broken = True
        membership.raised(error)


def _reset_in_child() -> None:
    """In a forked child: leave the group, which the parent stays in, and tell the others nothing."""
    membership, here.info, here.group, here.broken, here.exit_status = (
        here.membership,
        None,
        None,
        False,
        0,
    )
    if membership is not None:
        membership.close_descriptors()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    try:
        here.hook(kind, error, trace)
    finally:  # also where a hook of the user's fails
        _tell(error)
    if not here.broken:
        return
    here.exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1
    rank = here.process().rank
    own = (rank,) if isinstance(error, DistributedTimeoutError) else (rank, None)
    if (
        isinstance(error, DistributedError) and error.rank not in own
    ):  # because of another rank, or of the network
        here.exit_status = PEER_FAILED
    if not (sys.flags.interactive or hasattr(sys, "ps1")):  # else the process goes on
        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=_end_late, daemon=True).start()


def _end_late() -> None:
    """End the process if a thread of the user's, or a handler that runs before ours, keeps it alive."""
    time.sleep(LAST_RESORT)
    _flush_open_files()
    os._exit(here.exit_status)


def _at_exit() -> None:
    """Runs after handlers that were registered later, and before those of frameworks, which may wait for ever."""
    membership = here.membership
    if not here.broken:
        if membership is None:
            return
        membership.left()
    with suppress(OSError, ValueError):  # too many open files, and stderr is closed
        faulthandler.dump_traceback_later(LAST_RESORT, exit=True, file=_null())
    if here.exit_status:
        _flush_open_files()
        if here.exit_status == PEER_FAILED:
            exit_after_failed_rank(here.process())
        os._exit(here.exit_status)


def _null() -> Any:
    """A file that discards what is written to it; stderr where no file can be opened."""
    try:
        return open(os.devnull, "w")
    except OSError:
        return sys.__stderr__


def _flush_open_files() -> None:
    """Write what is buffered for every open file, which ``os._exit`` would lose."""
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    # by type(): isinstance() would run the __class__ property of lazy objects
    files: list[Any] = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed meanwhile, or a full disk
            if not file.closed and file.writable():
                file.flush()
