"""How a process joins its job: it connects to rank 0, and sends a message."""

import errno
import os
import socket
import time
import uuid
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, NoReturn

from xdevice.contract import Job
from xdevice.distributed.failures import error_in_message, error_of_rank
from xdevice.distributed.process_info import ProcessInfo, block
from xdevice.distributed.rendezvous import authentication
from xdevice.distributed.rendezvous.coordinator import Coordinator
from xdevice.distributed.rendezvous.interfaces import interfaces, own_address, stands_for_loopback
from xdevice.distributed.rendezvous.messages import Channel, JoinMessage
from xdevice.distributed.rendezvous.ports import listening, port_taken
from xdevice.errors import DistributedError
from xdevice.distributed.deadlines import BARRIER_MARGIN
from xdevice.kit.loopback import is_loopback

# So many refusals mean a wrong token. Fewer may mean that too many connections
# came at once.
_REFUSALS = 10


class Joined(NamedTuple):
    """What a process has once all processes have joined."""

    coordinator: Coordinator | None  # on rank 0
    barrier: Channel
    control: Channel
    job: Job


def join(info: ProcessInfo, agreed: dict[str, Any], timeout: float) -> Joined:
    """Join the job, and return when all its processes have.

    All must agree on ``agreed``.
    """
    message: JoinMessage = {
        "rank": info.rank,
        "world_size": info.world_size,
        "local_rank": info.local_rank,
        "pid": os.getpid(),
        "id": uuid.uuid4().hex,
        "name": socket.gethostname(),
        **agreed,
    }
    coordinator = None
    if info.rank == 0:
        coordinator = _start_coordinator(info, message, timeout)
    deadline = time.monotonic() + timeout
    with ExitStack() as at_end, ExitStack() as undo:
        if coordinator is not None:
            at_end.callback(authentication.discard_token, info)
            undo.callback(coordinator.join, 1)
        barrier = undo.enter_context(closing(_connect(info, timeout, deadline)))
        control = undo.enter_context(closing(_connect(info, timeout, deadline)))
        host = info.host
        if info.rank:
            host = os.environ.get("XDEVICE_HOST") or barrier.socket.getsockname()[0]
        barrier.send(channel="barrier", host=host, **message)
        control.send(channel="control", host=host, **message)
        job = _wait_for_job(info, barrier, timeout, deadline)
        undo.pop_all()
    return Joined(coordinator, barrier, control, job)


def _start_coordinator(info: ProcessInfo, message: JoinMessage, timeout: float) -> Coordinator:
    token = authentication.create_token(info)
    try:
        listener = _listen(info)
    except OSError as error:
        raise port_taken(0, info.port, error) from error
    coordinator = Coordinator(listener, token, message, timeout)
    coordinator.start()
    return coordinator


def _listen(info: ProcessInfo) -> socket.socket:
    """Listen at rank 0's address, or on all interfaces if none has it."""
    if stands_for_loopback(info.host):
        return listening("", info.port)
    try:
        return listening(info.host, info.port)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL or is_loopback(info.host):
            raise
        return listening("", info.port)


def _connect(info: ProcessInfo, timeout: float, deadline: float) -> Channel:
    """A channel to rank 0, which may not listen yet: retry until the deadline."""
    pause = 0.01
    refusals = 0
    while True:
        try:
            token = authentication.find_token(info)
            return Channel(authentication.connect((info.host, info.port), token, deadline))
        except authentication.HandshakeError as error:
            hint = "choose another port, with xdevice launch --master-port or XDEVICE_MASTER_PORT"
            raise DistributedError(
                f"what answers at {info.host}:{info.port} {error}; {hint}"
            ) from error
        except OSError as error:
            if isinstance(error, authentication.RefusedError):
                refusals += 1
            if refusals == _REFUSALS:
                _raise_refused(info, error)
            if error.errno in (errno.EMFILE, errno.ENFILE):  # waiting does not help
                message = f"rank {info.rank} cannot connect to rank 0: {error.strerror}"
                hint = "raise the limit with ulimit -n"
                raise error_of_rank(f"{message}; {hint}", info.rank) from error
            if time.monotonic() + pause > deadline:
                raise _late(info, timeout, f"rank 0 cannot be reached ({error})") from error
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)


def _raise_refused(info: ProcessInfo, error: OSError) -> NoReturn:
    message = f"rank 0 (at {info.host}:{info.port}) does not accept this process's token"
    hint = f"give all processes of the job the same {authentication.TOKEN}"
    raise error_of_rank(f"{message}; {hint}", 0) from error


def _wait_for_job(info: ProcessInfo, barrier: Channel, timeout: float, deadline: float) -> Job:
    """The job, as rank 0 describes it once all processes have joined."""
    try:
        answer = barrier.receive(max(1.0, deadline - time.monotonic()) + BARRIER_MARGIN)
    except TimeoutError as error:
        raise _late(info, timeout, "rank 0 does not answer") from error
    if answer is None:
        reason = "closed the connection before all processes had joined"
        message = f"rank 0 (at {info.host}:{info.port}) {reason}: it was killed, or has ended"
        raise error_of_rank(message, 0)
    if "hosts" not in answer:
        raise error_in_message(answer)
    hosts = tuple(answer["hosts"])
    address = own_address(hosts[info.rank], hosts)
    return Job(
        info.rank,
        info.world_size,
        info.local_rank,
        hosts,
        tuple(answer["local_ranks"]),
        info.port,
        address,
        interfaces().get(address or ""),
        str(answer["secret"]),
        info.trusts_network,
    )


def _late(info: ProcessInfo, timeout: float, reason: str) -> DistributedError:
    message = f"rank {info.rank} has waited {timeout:g} s at {info.host}:{info.port}: {reason}"
    hint = "start every process, or give init() a longer timeout"
    if not is_loopback(info.host):
        hint += f", and let firewalls pass {block(info.port, info.world_size)} between the hosts"
    return error_of_rank(f"{message}; {hint}", 0, late=True)
