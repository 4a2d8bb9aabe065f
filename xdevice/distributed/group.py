"""The group that this process belongs to: joined once, left once."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from xdevice.contract import Engine, Job
from xdevice.distributed import at_exit
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo, process_info_in
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.errors import DistributedError
from xdevice.framework.adapters import Backend


class Group:
    """What exists between `init` and `shutdown`. A job of one process has no membership and no engine."""

    def __init__(
        self, engine: Engine | None = None, membership: Membership | None = None, owner: Backend | None = None
    ) -> None:
        self.engine, self.membership = engine, membership
        self.owner = owner  # whose tensors the engine takes; None for those of any framework
        self.job = membership.job if membership is not None else Job(0, 1, 0, ("127.0.0.1",), (0,), 0)
        self._thread, self._lock = threading.get_ident(), threading.RLock()

    def one_at_a_time(self, name: str) -> AbstractContextManager[object]:
        """One collective at a time, from one thread: two threads' would come in another order in each process."""
        if self.membership is None:
            return nullcontext()
        if threading.get_ident() != self._thread:
            raise DistributedError(f"{name} comes from another thread than init(); call collectives from that one")
        return self._lock


@dataclass
class _Here:
    """Which process this is, once it is known, and the group that it is in."""

    info: ProcessInfo | None = None
    group: Group | None = None

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
    raise DistributedError("this process has not joined a group; call xdevice.distributed.init() first")


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


def abort(error: BaseException) -> None:
    """Tell the other processes of the error, and leave the group without them."""
    at_exit.abort(error)
    leave()


def _reset_in_child() -> None:
    """In a forked child: leave the group, which the parent stays in."""
    membership, here.group, here.info = here.membership, None, None
    at_exit.reset_in_child()
    if membership is not None:
        membership.close_descriptors()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


def leave() -> None:
    """Leave the group without the others, which have left it or have been told."""
    membership, here.group = here.membership, None
    if membership is not None:
        at_exit.release()
        membership.close()
