"""The meeting of a job's processes: each connects to rank 0, proves that it is of the job, and introduces itself."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from xdevice.contract import Job
from xdevice.distributed.coordinator import Coordinator
from xdevice.distributed.failing import blamed, failed
from xdevice.distributed.lines import Line
from xdevice.distributed.periods import AT_GATE
from xdevice.distributed.ports import interface_with, listening, port_taken
from xdevice.distributed.proof import HungUpError, UnprovedError, prove
from xdevice.distributed.token import TOKEN, discard, found, offered
from xdevice.errors import DistributedError, DistributedTimeoutError
from xdevice.kit.loopback import is_loopback

if TYPE_CHECKING:
    from xdevice.distributed.seat import Seat

_REFUSALS = 10
"""If so many proofs are refused, the token is wrong; a few may be because too many connections came at once."""


def opened(seat: Seat, hello: dict[str, Any], timeout: float) -> Coordinator:
    """Rank 0's coordinator, which listens at the job's first port."""
    token = offered(seat)
    try:
        try:
            listener = listening(seat.host, seat.port)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or is_loopback(seat.host):
                raise
            listener = listening("", seat.port)  # a name or an address that is another one on this host
    except OSError as error:
        raise port_taken(0, seat.port, error) from error
    coordinator = Coordinator(listener, token, hello, timeout)
    coordinator.start()
    return coordinator


def meet(seat: Seat, hello: dict[str, Any], timeout: float) -> tuple[Line, Line, Job]:
    """This process's gate and alarm, and the job, once all of its processes have met.

    Raises
    ------
    DistributedTimeoutError
        Rank 0, or another process, has not come in time.
    DistributedError
        Rank 0 refuses this process, or what listens at its port is another program.
    """
    deadline = time.monotonic() + timeout
    lines: list[Line] = []
    try:
        for _ in range(2):
            lines.append(_connected(seat, timeout, deadline))
        gate, alarm = lines
        return gate, alarm, _introduced(seat, hello, gate, alarm, deadline, timeout)
    except BaseException:
        for line in lines:
            line.close()
        raise
    finally:
        if seat.rank == 0:
            discard(seat)


def _connected(seat: Seat, timeout: float, deadline: float) -> Line:
    """A line to rank 0 on which both ends have proved that they know the token."""
    pause, refused = 0.01, 0
    while True:
        connection = None
        try:
            token = found(seat)
            connection = socket.create_connection((seat.host, seat.port), max(0.1, deadline - time.monotonic()))
            prove(connection, token, deadline)
            return Line(connection)
        except UnprovedError as error:
            _close(connection)
            hint = "choose another port, with xdevice launch --master-port or XDEVICE_MASTER_PORT"
            raise DistributedError(f"what answers at {seat.host}:{seat.port} {error}; {hint}") from error
        except OSError as error:  # rank 0 does not listen yet, or too many connections have come at once
            _close(connection)
            if error.errno in (errno.EMFILE, errno.ENFILE):  # waiting does not help
                why = f"rank {seat.rank} cannot connect to rank 0: {error.strerror}; raise the limit with ulimit -n"
                raise blamed(DistributedError, why, seat.rank) from error
            refused += isinstance(error, HungUpError) and error.asked
            if refused == _REFUSALS:
                hint = f"give all processes of the job the same {TOKEN}"
                there = f"rank 0 (at {seat.host}:{seat.port})"
                raise blamed(DistributedError, f"{there} does not accept this process's token; {hint}", 0) from error
            if time.monotonic() + pause > deadline:
                raise _late(seat, timeout, f"rank 0 cannot be reached ({error})") from error
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()


def _introduced(  # noqa: PLR0913, PLR0917  (one call, of what `meet` has)
    seat: Seat, hello: dict[str, Any], gate: Line, alarm: Line, deadline: float, timeout: float
) -> Job:
    own = os.environ.get("XDEVICE_HOST") or gate.socket.getsockname()[0]
    for line, kind in ((gate, "gate"), (alarm, "alarm")):
        line.say(line=kind, host=seat.host if seat.rank == 0 else own, **hello)
    try:
        news = gate.next(max(1.0, deadline - time.monotonic()) + AT_GATE)
    except TimeoutError as error:
        raise _late(seat, timeout, "rank 0 does not answer") from error
    if news is None:
        there = f"rank 0 (at {seat.host}:{seat.port})"
        raise blamed(DistributedError, f"{there} hung up before all processes had met: it was killed, or has ended", 0)
    if "hosts" not in news:
        raise failed(news)
    hosts = tuple(news["hosts"])
    local_ranks = tuple(news["local_ranks"])
    place = seat.rank, seat.world_size, seat.local_rank
    found_at = interface_with(hosts[seat.rank])
    return Job(*place, hosts, local_ranks, seat.port, found_at, str(news["secret"]), seat.trusts_network)


def _late(seat: Seat, timeout: float, why: str) -> DistributedError:
    waited = f"rank {seat.rank} has waited {timeout:g} s at {seat.host}:{seat.port}: {why}"
    return blamed(DistributedTimeoutError, f"{waited}; start every process, or give init() a longer timeout", 0)
