"""How a process joins its job: it connects to rank 0, authenticates itself, and sends a join message."""

import errno
import os
import socket
import time
import uuid
from contextlib import ExitStack, closing
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.failures import BARRIER_MARGIN, error_of_rank, reported
from xdevice.distributed.process_info import ProcessInfo, block
from xdevice.distributed.rendezvous import authentication
from xdevice.distributed.rendezvous.coordinator import Coordinator
from xdevice.distributed.rendezvous.interfaces import interfaces, own_address, stands_for_loopback
from xdevice.distributed.rendezvous.messages import Channel, JoinMessage
from xdevice.distributed.rendezvous.ports import listening, port_taken
from xdevice.errors import DistributedError
from xdevice.kit.loopback import is_loopback

_REFUSALS = 10  # so many failed handshakes mean a wrong token; a few may mean that too many connections came at once


def join(
    info: ProcessInfo, agreed: dict[str, Any], timeout: float
) -> tuple[Coordinator | None, Channel, Channel, Job]:
    """Rank 0's coordinator, the barrier channel, the control channel and the job, once all processes have joined."""
    place = {name: getattr(info, name) for name in ("rank", "world_size", "local_rank")}
    process = {"pid": os.getpid(), "id": uuid.uuid4().hex, "name": socket.gethostname()}
    joining = {**place, **process, **agreed}
    coordinator = _opened(info, joining, timeout) if info.rank == 0 else None
    deadline = time.monotonic() + timeout
    with ExitStack() as always, ExitStack() as undo:
        if coordinator is not None:
            always.callback(authentication.discard_token, info)
            undo.callback(coordinator.join, 1)
        barrier, control = (
            undo.enter_context(closing(_connected(info, timeout, deadline))) for _ in range(2)
        )
        own = os.environ.get("XDEVICE_HOST") or barrier.socket.getsockname()[0]
        for channel, kind in ((barrier, "barrier"), (control, "control")):
            channel.send(channel=kind, host=info.host if info.rank == 0 else own, **joining)
        job = _joined(info, barrier, timeout, deadline)
        undo.pop_all()
    return coordinator, barrier, control, job


def _opened(info: ProcessInfo, joining: JoinMessage, timeout: float) -> Coordinator:
    token = authentication.create_token(info)
    try:
        try:
            listener = listening("" if stands_for_loopback(info.host) else info.host, info.port)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or is_loopback(info.host):
                raise
            listener = listening(
                "", info.port
            )  # a name or an address that is another one on this host
    except OSError as error:
        raise port_taken(0, info.port, error) from error
    coordinator = Coordinator(listener, token, joining, timeout)
    coordinator.start()
    return coordinator


def _connected(info: ProcessInfo, timeout: float, deadline: float) -> Channel:
    pause, refused = 0.01, 0
    while True:
        try:
            token = authentication.find_token(info)
            return Channel(authentication.connected((info.host, info.port), token, deadline))
        except authentication.HandshakeError as error:
            hint = "choose another port, with xdevice launch --master-port or XDEVICE_MASTER_PORT"
            raise DistributedError(
                f"what answers at {info.host}:{info.port} {error}; {hint}"
            ) from error
        except (
            OSError
        ) as error:  # rank 0 does not listen yet, or too many connections have come at once
            if error.errno in (errno.EMFILE, errno.ENFILE):  # waiting does not help
                why = f"rank {info.rank} cannot connect to rank 0: {error.strerror}; raise the limit with ulimit -n"
                raise error_of_rank(why, info.rank) from error
            refused += isinstance(error, authentication.RefusedError)
            if refused == _REFUSALS:
                hint = f"give all processes of the job the same {authentication.TOKEN}"
                message = f"rank 0 (at {info.host}:{info.port}) does not accept this process's token; {hint}"
                raise error_of_rank(message, 0) from error
            if time.monotonic() + pause > deadline:
                raise _late(info, timeout, f"rank 0 cannot be reached ({error})") from error
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)


def _joined(info: ProcessInfo, barrier: Channel, timeout: float, deadline: float) -> Job:
    try:
        answer = barrier.receive(max(1.0, deadline - time.monotonic()) + BARRIER_MARGIN)
    except TimeoutError as error:
        raise _late(info, timeout, "rank 0 does not answer") from error
    if answer is None:
        why = "closed the connection before all processes had joined: it was killed, or has ended"
        raise error_of_rank(f"rank 0 (at {info.host}:{info.port}) {why}", 0)
    if "hosts" not in answer:
        raise reported(answer)
    hosts, local_ranks = tuple(answer["hosts"]), tuple(answer["local_ranks"])
    place = info.rank, info.world_size, info.local_rank
    own = own_address(hosts[info.rank], hosts)
    at = own, interfaces().get(own or "")
    return Job(
        *place, hosts, local_ranks, info.port, *at, str(answer["secret"]), info.trusts_network
    )


def _late(info: ProcessInfo, timeout: float, why: str) -> DistributedError:
    waited = f"rank {info.rank} has waited {timeout:g} s at {info.host}:{info.port}: {why}"
    hint = "start every process, or give init() a longer timeout"
    if not is_loopback(info.host):
        hint += f", and let firewalls pass {block(info.port, info.world_size)} between the hosts"
    return error_of_rank(f"{waited}; {hint}", 0, late=True)
