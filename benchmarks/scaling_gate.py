"""What a process of ``scaling.py --gate`` does: meet the others, then ask to enter so many collectives.

``scaling_gate.py ENTRIES BEGAN EACH``: when the job was started, in seconds of the clock, and for how many
processes of a larger job each process stands: rank 0 cannot tell, and has as much to do.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter, time

from xdevice.distributed.member import Membership
from xdevice.distributed.seat import seat

entries, began, each = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
here = seat()
seats = [replace(here, rank=here.rank * each + i, world_size=here.world_size * each) for i in range(each)]
words = {"backend": "none", "engine": "none", "version": "none", "timeout": "none"}
with ThreadPoolExecutor(each) as pool:
    members = list(pool.map(lambda own: Membership(own, 60, words), seats))
met = time() - began


def enter(what: str) -> None:
    """As `Membership.enter`, for all that this process stands for."""
    for member in members:
        member._gate.send(what)
    for member in members:
        if member._gate.next(60) != "ok":
            raise SystemExit("not let in")


for _ in range(5):
    enter("warm")
start = perf_counter()
for _ in range(entries):
    enter("all_reduce('sum')|float32[430500]")
taken = (perf_counter() - start) / entries
for member in members:
    member.last = "shutdown"  # its watcher is not to mind that rank 0 hangs up
enter("shutdown")
for member in members:
    member.close()
if here.rank == 0:
    print(met, taken)
