"""The group that this process belongs to: joined once, left once."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

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


_ALONE = Group()
_group: Group | None = None
_info: ProcessInfo | None = None  # which process this is, once it is known


def is_initialized() -> bool:
    """Whether this process is between `init` and `shutdown`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.is_initialized()
    False
    """
    return _group is not None


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
    return _group.job.rank if _group is not None else _this_process().rank


def local_rank() -> int:
    """This process's number on its host, from 0: the number of its GPU, for example.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return _group.job.local_rank if _group is not None else _this_process().local_rank


def world_size() -> int:
    """How many processes the job has; 1 without a launcher.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return _group.job.world_size if _group is not None else _this_process().world_size


def current() -> Group:
    """The group that this process is in; without a launcher, a group of this process alone."""
    if _group is not None:
        return _group
    if _this_process().world_size == 1:
        return _ALONE
    raise DistributedError("this process has not joined a group; call xdevice.distributed.init() first")


def know(info: ProcessInfo) -> None:
    global _info
    _info = info


def enter(group: Group) -> None:
    global _group
    _group = group


def _this_process() -> ProcessInfo:
    """Which process this is: as in the last `init`, else as the environment said when it was first asked for."""
    global _info
    if _info is None:
        _info = process_info_in(os.environ)
    return _info


def on_rank_0(name: str, act: Callable[[], None]) -> None:
    """Let rank 0 act while the others wait; without a group this process acts itself.

    If rank 0 raises, the job has failed, and every process raises.
    """
    group = _group
    if group is None or group.membership is None:
        act()
        return
    membership = group.membership
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
    global _group, _info
    group, _group, _info = _group, None, None
    at_exit.reset_in_child()
    if group is not None and group.membership is not None:
        group.membership.close_descriptors()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


def leave() -> None:
    """Leave the group without the others, which have left it or have been told."""
    global _group
    group, _group = _group, None
    if group is not None and group.membership is not None:
        at_exit.release()
        group.membership.close()
