"""A job: which process of how many this is, and where the others are."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from xdevice.errors import DistributedError

_SIOCGIFADDR = 0x8915  # Linux: ask for an interface's address


@dataclass(frozen=True)
class Job:
    """One process of a job, once all of them have met.

    A block of ports belongs to the job, the same on every host: ``port`` is where the processes meet, ``port + 1``
    is for the engine's own master, ``port + 2 + rank`` for each process, and as many again for what else an
    engine starts beside one.
    """

    rank: int
    world_size: int
    local_rank: int
    hosts: tuple[str, ...]  # of each rank, as the others reach it
    local_ranks: tuple[int, ...]  # of each rank
    port: int

    @property
    def master(self) -> str:
        """Where the engine's master is: ``host:port``."""
        return f"{self.hosts[0]}:{self.port + 1}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each rank's own ``host:port``."""
        return tuple(f"{host}:{self.port + 2 + rank}" for rank, host in enumerate(self.hosts))

    @property
    def interface(self) -> str | None:
        """The network interface with this process's address, where that can be known: engines take the host name's."""
        return interface_with(self.hosts[self.rank])

    def helper_port(self, rank: int) -> int:
        """A port on that rank's host for what its engine starts beside it."""
        return self.port + 2 + self.world_size + rank


def interface_with(address: str) -> str | None:
    """The name of the network interface that has the IPv4 address; ``None`` where nobody tells."""
    try:
        import fcntl  # not on Windows

        wanted = socket.inet_aton(socket.gethostbyname(address))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for _, name in socket.if_nameindex():
                try:
                    # the kernel's struct ifreq: 16 bytes of name, then the address from byte 20
                    found = fcntl.ioctl(any_socket, _SIOCGIFADDR, name.encode().ljust(40, b"\0"))[20:24]
                except OSError:
                    continue  # it has none
                if found == wanted:
                    return name
    except (ImportError, OSError):
        pass
    return None


def check_ports(rank: int, world_size: int, port: int) -> None:
    """Raise `DistributedError` if a port that this rank's engine may need is taken on this host."""
    needed = [port + 2 + rank, port + 2 + world_size + rank]
    for number in [port + 1, *needed] if rank == 0 else needed:
        try:
            listening("", number).close()
        except OSError as error:
            raise port_taken(rank, number, error) from error


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; a connection that somebody has closed lately is no hindrance."""
    family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def port_taken(rank: int, port: int, error: OSError) -> DistributedError:
    """The error for a port that cannot be had."""
    return DistributedError(
        f"rank {rank} needs port {port}, which cannot be had on {socket.gethostname()} ({error.strerror or error}); "
        "choose another first port, with xdevice launch --master-port or XDEVICE_MASTER_PORT"
    )
