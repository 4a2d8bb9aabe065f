"""What a process of ``scaling.py --gate`` does: meet the others, then ask to enter so many collectives.

``scaling_gate.py ENTRIES BEGAN EACH``: when the job was started, in seconds of the clock, and for how many
processes of a larger job each process stands: rank 0 cannot tell, and has as much to do.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter, time

from xdevice.distributed.entry import Entry
from xdevice.distributed.member import Membership
from xdevice.distributed.seat import seat

entries, began, each = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
here = seat()
seats = [replace(here, rank=here.rank * each + i, world_size=here.world_size * each) for i in range(each)]
words = {"backend": "none", "engine": "none", "version": "none", "timeout": "none"}
with ThreadPoolExecutor(each) as pool:
    members = list(pool.map(lambda own: Membership(own, 60, words), seats))
met = time() - began


def enter(entry: Entry) -> None:
    """As `Membership.enter`, for all processes that this one stands for."""
    for member in members:
        member._gate.say(**entry.message())
    for member in members:
        if "entered" not in (member._gate.next(60) or {}):
            raise SystemExit("not let in")


for _ in range(5):
    enter(Entry("warm"))
start = perf_counter()
for _ in range(entries):
    enter(Entry.of("all_reduce('sum')", ["float32[430500]"]))
taken = (perf_counter() - start) / entries
for member in members:
    member.last = "shutdown"  # or its watcher would report that rank 0 has closed the line
enter(Entry("shutdown"))
for member in members:
    member.close()
if here.rank == 0:
    print(met, taken)
