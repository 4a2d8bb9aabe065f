"""The address at which other hosts reach this process, and its interface."""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from xdevice.kit.loopback import is_loopback

# Linux: the request for the IPv4 addresses of all interfaces, and the answer's
# struct ifreq. Its first 16 bytes are the name, and the address begins at byte
# 20.
_SIOCGIFCONF = 0x8912
_RECORD_SIZE = 40
_BUFFER_SIZE = 1024 * _RECORD_SIZE


def interfaces() -> dict[str, str]:
    """The interface of each IPv4 address of this host, also of secondary ones.

    Empty if the system does not tell.
    """
    with (
        suppress(ImportError, OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket,
    ):
        import array
        import fcntl  # not on Windows

        buffer = array.array("B", bytes(_BUFFER_SIZE))
        request = struct.pack("iL", _BUFFER_SIZE, buffer.buffer_info()[0])
        answer = fcntl.ioctl(any_socket, _SIOCGIFCONF, request)
        size = struct.unpack("iL", answer)[0]
        interface_of = {}
        for start in range(0, size, _RECORD_SIZE):
            record = buffer[start : start + _RECORD_SIZE].tobytes()
            address = socket.inet_ntoa(record[20:24])
            interface_of[address] = record[:16].partition(b"\0")[0].decode()
        return interface_of
    return {}


def own_address(host: str, hosts: Sequence[str]) -> str | None:
    """The IPv4 address of this host, which is ``host`` among the job's ``hosts``.

    A host's own name may stand for loopback, as Debian's 127.0.1.1, or for an
    address that only other hosts know. Then it is the address from which this
    host sends to another one.
    """
    named = _resolve(host)
    addresses = interfaces()
    if named is not None and not is_loopback(named) and (not addresses or named in addresses):
        return named
    for other in dict.fromkeys(hosts):
        if other == host:
            continue
        address = _source_of_packets_to(other)
        if address is not None and not is_loopback(address):
            return address
    return named


def stands_for_loopback(host: str) -> bool:
    """Whether the name is loopback here, and another address elsewhere."""
    if is_loopback(host):
        return False
    address = _resolve(host)
    return address is not None and is_loopback(address)


def _resolve(host: str) -> str | None:
    with suppress(OSError):
        return socket.gethostbyname(host)
    return None


def _source_of_packets_to(host: str) -> str | None:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect((host, 9))  # which sends nothing
        return str(any_socket.getsockname()[0])
    return None
