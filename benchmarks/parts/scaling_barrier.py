"""What the barrier before a collective costs, by rank 0 and by the tree; the same processes do both by turns.

``table`` is what ``scaling.py --barrier`` prints. Up to 64 processes are real
ones, forked from this one, with a `Membership` each. Of more, 16 real ones
stand for all: each speaks the protocol for its ranks, one after the other, in
one thread. There the stand-ins' own writing and reading takes most of both
times, so their ratio understates the gain, and rank 0's part is shown by
itself. Hosts are addresses of loopback.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from xdevice.contract import Job
from xdevice.distributed.barrier_setup import BarrierSetup, position_of
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint, Request
from xdevice.distributed.rendezvous.ports import free_block
from xdevice.distributed.tree_barrier import Leader, Wait
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REAL, STAND_INS, ROUNDS = 64, 16, 7
COUNTS = (2, 8, 64, 256, 1024, 4096)
TIMEOUT = 3.0
"""Of the jobs with a fault, in seconds."""

AGREED = {"backend": "none", "engine": "none", "version": "none", "timeout": "none"}
COLLECTIVE = Fingerprint.of("all_reduce('sum')", ["float32[430500] on cpu"])
HEAD = (
    "processes", "on hosts of", "by rank 0, µs", "by the tree, µs", "before / after",
    "rank 0's CPU, before / after",
)  # fmt: skip


def table(counts: Sequence[int]) -> Iterator[str]:
    """The lines of the table, as they are found."""
    os.environ["XDEVICE_TOKEN"] = "a token of this benchmark's"
    files = 4 * max(counts) + 256
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(files, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),) * 2
    )
    yield "| " + " | ".join(HEAD) + " |\n" + "| ---: " * len(HEAD) + "|"
    for n in counts:
        for per_host in dict.fromkeys((min(n, 64), min(n, 8))):
            print(f"barrier: {n} processes, {per_host} on a host", file=sys.stderr)
            work = real if n <= REAL else stand_in
            rows: list[Row] = json.loads(
                forked(min(n, STAND_INS) if work is stand_in else n, work, n, per_host)[0]
            )
            times = [median(row[i] for row in rows) * 1e6 for i in (0, 2)]
            ratios = [median(row[i] / max(row[i + 2], 1e-9) for row in rows) for i in (0, 1)]
            yield f"| {n} | {per_host} | {times[0]:,.0f} | {times[1]:,.0f} | {ratios[0]:.1f} | {ratios[1]:.1f} |"


def faults(n: int) -> Iterator[str]:
    """What comes of a job of real processes on eight hosts, in which the leader of the second is killed or frozen."""
    per_host = max(1, n // 8)
    yield "| the leader of a host | processes | who raise | and name it | the last after, s |"
    yield "| --- " + "| ---: " * 4 + "|"
    for fault, number in (("is killed", signal.SIGKILL), ("is frozen", signal.SIGSTOP)):
        told = [json.loads(text) for text in forked(n, faulty, n, per_host, number) if text]
        named = sum(rank == per_host for rank, _ in told)
        yield f"| {fault} | {n} | {len(told)} | {named} | {max(seconds for _, seconds in told):.1f} |"


def forked(count: int, work: Callable[..., Any], n: int, per_host: int, *more: Any) -> list[str]:
    """What so many processes have returned, as JSON."""
    port, children, readers = free_block(2 * n + 3) if n <= 4096 else 20_000, [], []
    with TemporaryDirectory() as folder:
        for index in range(count):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(
                        writer,
                        json.dumps(work(index, n, per_host, port, Path(folder), *more)).encode(),
                    )
                    time.sleep(
                        1 if more and index == 0 else 0
                    )  # rank 0's coordinator tells the others
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            os.close(writer)
            children.append(child)
            readers.append(reader)
        found = [read(reader) for i, reader in enumerate(readers) if not more or i != per_host]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return found


def read(reader: int) -> str:
    text = b""
    while part := os.read(reader, 65536):
        text += part
    os.close(reader)
    return text.decode()


# Real processes

Row = list[float]
"""Seconds of an entry, and of rank 0's CPU for it: by rank 0, then together."""


def joined(rank: int, n: int, per_host: int, port: int) -> Membership:
    os.environ["XDEVICE_HOST"] = address(rank // per_host)
    membership = Membership(
        ProcessInfo(rank, n, rank % per_host, "127.0.0.1", port, "a benchmark"), 60, AGREED
    )
    membership.enter(Fingerprint("the first barrier"))
    return membership


def address(host: int) -> str:
    return f"127.0.{(host + 1) // 250}.{(host + 1) % 250}" if host else "127.0.0.1"


def real(rank: int, n: int, per_host: int, port: int, _folder: Path) -> list[Row]:
    barrier = joined(rank, n, per_host, port)._barrier
    node = barrier._node
    if node is None:
        raise SystemExit("the processes have no tree barrier")

    def by_rank_0() -> None:
        barrier._by_rank_0(Request(COLLECTIVE), 60)

    def by_tree() -> None:
        barrier._by_tree(node, COLLECTIVE, 60)

    return measured(
        (by_rank_0, time.process_time), (by_tree, time.process_time), max(20, 1000 // n)
    )


def measured(before: tuple[Any, Any], after: tuple[Any, Any], times: int) -> list[Row]:
    """A row for each round, of two barriers, each with its clock of rank 0's CPU time."""
    rows = []
    for _ in range(ROUNDS):
        row: Row = []
        for enter, clock in (before, after):
            enter()
            spent, began = clock(), time.perf_counter()
            for _ in range(times):
                enter()
            row += [(time.perf_counter() - began) / times, (clock() - spent) / times]
        rows.append(row)
    after[0]()
    return rows


def faulty(
    rank: int, n: int, per_host: int, port: int, _folder: Path, fault: int
) -> tuple[Any, float]:
    """Which rank is named, and how long after the fault."""
    membership = joined(rank, n, per_host, port)
    membership.set_timeout(TIMEOUT)
    began = time.monotonic()
    try:
        for number in range(5):
            began = time.monotonic()
            if number == 3 and rank == per_host:
                os.kill(os.getpid(), fault)
            membership.enter(COLLECTIVE)
    except DistributedError as error:
        return error.rank, time.monotonic() - began
    return None, 0.0


# Stand-ins


def stand_in(index: int, n: int, per_host: int, port: int, folder: Path) -> list[Row]:
    ranks = range(index * n // STAND_INS, (index + 1) * n // STAND_INS)
    star, clock = by_star(ranks, n, port)
    return measured((star, clock), by_tree(ranks, n, per_host, folder), max(5, 1500 // n))


def by_star(ranks: range, n: int, port: int) -> tuple[Callable[[], None], Callable[[], float]]:
    """A barrier by rank 0, for all these ranks, and the clock of its coordinator."""
    infos = [ProcessInfo(rank, n, rank, "127.0.0.1", port, "a benchmark") for rank in ranks]
    with ThreadPoolExecutor(len(infos)) as pool:
        memberships = list(pool.map(lambda info: Membership(info, 100, AGREED), infos))
    coordinator = memberships[0]._coordinator

    def enter() -> None:
        for membership in memberships:
            membership._barrier.channel.send(**Request(COLLECTIVE).message())
        for membership in memberships:
            if "entered" not in (membership._barrier.channel.receive(60) or {}):
                raise SystemExit("not let in")

    if coordinator is None:
        return enter, lambda: 0.0
    number = time.pthread_getcpuclockid(coordinator.ident or 0)
    return enter, lambda: time.clock_gettime(number)


def by_tree(
    ranks: range, n: int, per_host: int, folder: Path
) -> tuple[Callable[[], None], Callable[[], float]]:
    """A tree barrier for all these ranks, and the clock of rank 0's part in it."""
    hosts = tuple(address(rank // per_host) for rank in range(n))
    silent = (
        socket.socketpair()
    )  # in place of the channel on which rank 0 would say that the job has failed
    infos = {
        rank: ProcessInfo(rank, n, rank % per_host, "127.0.0.1", 1, "a benchmark") for rank in ranks
    }
    job = {rank: Job(rank, n, rank % per_host, hosts, (0,) * n, 1) for rank in ranks}
    setups = {
        rank: BarrierSetup(info, job[rank], silent[0].fileno()) for rank, info in infos.items()
    }
    for rank, one in setups.items():
        write(folder / str(rank), json.dumps(one.offer()))
    with ThreadPoolExecutor(len(ranks)) as pool:
        offers = {
            rank: [read_offer(folder / str(r)) for r in one.needs()] for rank, one in setups.items()
        }
        nodes = dict(
            zip(ranks, pool.map(lambda rank: setups[rank].node(offers[rank]), ranks), strict=True)
        )
    if None in nodes.values():
        raise SystemExit("the processes have no tree barrier")
    depths = {
        rank: depth(rank, job[rank]) for rank, node in nodes.items() if isinstance(node, Leader)
    }
    leaders: list[Any] = [nodes[rank] for rank in sorted(depths, key=lambda rank: -depths[rank])]
    followers: list[Any] = [node for node in nodes.values() if not isinstance(node, Leader)]
    spent, digest = [0.0], b"d" * 16

    def enter() -> None:
        wait = Wait(silent[0].fileno(), 60, 60, lambda: None, lambda: None)
        for follower in followers:
            follower.ask(digest, wait)
        for leader in leaders:
            began = time.thread_time()
            leader.ask(digest, wait)
            spent[0] += time.thread_time() - began if leader is nodes.get(0) else 0
        for leader in reversed(leaders):
            began = time.thread_time()
            leader.answer(wait)
            spent[0] += time.thread_time() - began if leader is nodes.get(0) else 0
        for follower in followers:
            follower.answer(wait)

    return enter, lambda: spent[0]


def depth(rank: int, job: Job) -> int:
    """How many leaders are above that of this rank's host."""
    above, parent = 0, position_of(rank, job).parent
    while parent is not None:
        above, parent = above + 1, position_of(parent, job).parent
    return above


def write(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    path.with_suffix(".new").replace(path)


def read_offer(path: Path) -> Any:
    while not path.exists():
        select.select([], [], [], 0.01)
    return json.loads(path.read_text(encoding="utf-8"))
