"""The barriers of more processes than a machine can run: 16 stand for all.

Each of them speaks the protocol for its ranks, one after the other, in one
thread. The stand-ins' own writing and reading takes most of both times, so
their ratio understates the gain, and rank 0's part is shown by itself.
"""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from parts.scaling_barrier_timing import (
    AGREED,
    COLLECTIVE,
    JobLayout,
    Round,
    TimedBarrier,
    measure,
)

from xdevice.distributed.barrier_setup import BarrierSetup, position_of
from xdevice.distributed.membership import Membership
from xdevice.distributed.rendezvous.messages import Request
from xdevice.distributed.tree_barrier import Follower, Leader, Wait

if TYPE_CHECKING:
    from pathlib import Path

    from xdevice.contract import Job

STAND_INS = 16
ENTRIES = 1500
"""How often all processes together enter each barrier in a round."""

DIGEST = b"d" * 16

Node: TypeAlias = "Leader | Follower"


def measure_in_stand_in(layout: JobLayout, number: int, folder: Path) -> list[Round]:
    """Measure both barriers in one stand-in, which has its share of the ranks."""
    size = layout.world_size
    ranks = range(number * size // STAND_INS, (number + 1) * size // STAND_INS)
    by_rank_0 = barrier_by_rank_0(layout, ranks)
    tree = Tree(layout, ranks, folder)
    by_tree = TimedBarrier(tree.enter, lambda: tree.root_seconds)
    return measure(by_rank_0, by_tree, entries=max(5, ENTRIES // size))


def barrier_by_rank_0(layout: JobLayout, ranks: range) -> TimedBarrier:
    """A barrier by rank 0 for all these ranks, and the clock of its coordinator."""
    on_one_host = layout._replace(per_host=layout.world_size)
    infos = [on_one_host.info(rank) for rank in ranks]
    with ThreadPoolExecutor(len(infos)) as pool:
        memberships = list(pool.map(lambda info: Membership(info, 100, AGREED), infos))
    channels = [membership._barrier.channel for membership in memberships]

    def enter() -> None:
        for channel in channels:
            channel.send(**Request(COLLECTIVE).message())
        for channel in channels:
            answer = channel.receive(60)
            if not answer or "entered" not in answer:
                raise SystemExit(f"the coordinator has refused the collective: {answer}")

    coordinator = memberships[0]._coordinator
    if coordinator is None:
        return TimedBarrier(enter, lambda: 0.0)
    clock = time.pthread_getcpuclockid(coordinator.ident or 0)
    return TimedBarrier(enter, lambda: time.clock_gettime(clock))


class Tree:
    """The nodes of several ranks in the tree barrier, and rank 0's CPU time in it."""

    def __init__(self, layout: JobLayout, ranks: range, folder: Path) -> None:
        # On this channel rank 0 would report a failure of the job. Nothing is
        # sent on it, and both ends stay open.
        self._channel, self._other_end = socket.socketpair()
        nodes = nodes_of(layout, ranks, folder, self._channel.fileno())
        root = nodes.pop(0, None)
        self._root = root if isinstance(root, Leader) else None
        self._followers = [node for node in nodes.values() if isinstance(node, Follower)]
        leaders = [rank for rank, node in nodes.items() if isinstance(node, Leader)]
        leaders.sort(key=lambda rank: depth(rank, layout.job(rank)), reverse=True)
        self._leaders = [nodes[rank] for rank in leaders]  # the deepest ones first
        self.root_seconds = 0.0

    def enter(self) -> None:
        """Enter a collective with all ranks: ask upwards, then answer downwards."""
        wait = Wait(self._channel.fileno(), 60, 60, do_nothing, do_nothing)
        for node in (*self._followers, *self._leaders):
            node.ask(DIGEST, wait)
        if self._root is not None:
            start = time.thread_time()
            self._root.ask(DIGEST, wait)
            self._root.answer(wait)
            self.root_seconds += time.thread_time() - start
        for node in (*reversed(self._leaders), *self._followers):
            node.answer(wait)


def nodes_of(layout: JobLayout, ranks: range, folder: Path, channel: int) -> dict[int, Node]:
    """Each rank's node. The stand-ins exchange the offers as files in the folder."""
    setups = {rank: BarrierSetup(layout.info(rank), layout.job(rank), channel) for rank in ranks}
    for rank, setup in setups.items():
        write(folder / str(rank), json.dumps(setup.offer()))
    offers = {
        rank: [read_offer(folder / str(other)) for other in setup.needs()]
        for rank, setup in setups.items()
    }
    nodes: dict[int, Node] = {}
    with ThreadPoolExecutor(len(ranks)) as pool:
        results = pool.map(lambda rank: setups[rank].node(offers[rank]), ranks)
        for rank, node in zip(ranks, results, strict=True):
            if node is None:
                raise SystemExit("the processes have no tree barrier")
            nodes[rank] = node
    return nodes


def depth(rank: int, job: Job) -> int:
    """How many leaders are above the leader of this rank's host."""
    levels = 0
    parent = position_of(rank, job).parent
    while parent is not None:
        levels += 1
        parent = position_of(parent, job).parent
    return levels


def write(path: Path, text: str) -> None:
    """Write a file that other processes never read before it is complete."""
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    path.with_suffix(".new").replace(path)


def read_offer(path: Path) -> Any:
    """The offer in the file, once the file exists."""
    while not path.exists():
        time.sleep(0.01)
    return json.loads(path.read_text(encoding="utf-8"))


def do_nothing() -> None:
    pass
