"""Many processes, on each framework's own engine.

A script that runs by itself runs under ``xdevice launch -n 4`` too::

    from xdevice import distributed

    with distributed.process_group():
        gradients = distributed.all_reduce(gradients, op="mean")

Nothing in it hangs. If a process is killed, frozen or missing, raises, or
makes other calls than the others, the job ends with an error that names its
rank.
"""

from xdevice.distributed.deadlines import PEER_FAILED
from xdevice.distributed.group import is_initialized, local_rank, rank, world_size
from xdevice.distributed.lifetime import init, process_group, shutdown
from xdevice.distributed.operations import all_gather, all_reduce, barrier, broadcast

__all__ = [
    "PEER_FAILED",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "init",
    "is_initialized",
    "local_rank",
    "process_group",
    "rank",
    "shutdown",
    "world_size",
]


def __dir__() -> list[str]:
    return __all__
