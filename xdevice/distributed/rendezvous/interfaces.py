"""This process's address as the other hosts of its job reach it, and the network interface that has it."""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from xdevice.kit.loopback import is_loopback

_SIOCGIFCONF = 0x8912  # Linux: ask for the IPv4 addresses of all interfaces
_RECORD, _ROOM = (
    40,
    40 * 1024,
)  # the kernel's struct ifreq: 16 bytes of name, the address from byte 20


def interfaces() -> dict[str, str]:
    """The interface of each IPv4 address of this host, secondary ones too; empty where the system does not tell."""
    with (
        suppress(ImportError, OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket,
    ):
        import array
        import fcntl  # not on Windows

        found = array.array("B", bytes(_ROOM))
        request = struct.pack("iL", _ROOM, found.buffer_info()[0])
        size = struct.unpack("iL", fcntl.ioctl(any_socket, _SIOCGIFCONF, request))[0]
        records = [found[i : i + _RECORD].tobytes() for i in range(0, size, _RECORD)]
        return {
            socket.inet_ntoa(each[20:24]): each[:16].partition(b"\0")[0].decode()
            for each in records
        }
    return {}


def own_address(host: str, hosts: Sequence[str]) -> str | None:
    """The IPv4 address of this host, which the job calls ``host`` among its ``hosts``.

    A host's own name may stand for loopback, as Debian's 127.0.1.1, and its address may be known outside only: then it
    is the address from which this host sends to another one.
    """
    named, known = _resolved(host), interfaces()
    if named is None or is_loopback(named) or (known and named not in known):
        others = [other for other in dict.fromkeys(hosts) if other != host]
        found = (_source_of_packets_to(other) for other in others)
        return next(
            (address for address in found if address is not None and not is_loopback(address)),
            named,
        )
    return named


def stands_for_loopback(host: str) -> bool:
    """Whether it is a name for another address elsewhere, and on this host for loopback."""
    address = None if is_loopback(host) else _resolved(host)
    return address is not None and is_loopback(address)


def _resolved(host: str) -> str | None:
    with suppress(OSError):
        return socket.gethostbyname(host)
    return None


def _source_of_packets_to(host: str) -> str | None:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect((host, 9))  # which sends nothing
        return str(any_socket.getsockname()[0])
    return None
