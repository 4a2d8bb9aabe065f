"""gloo, a library for collectives on CPUs, which several frameworks use."""

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface

from xdevice.errors import DistributedError
from xdevice.kit.loopback import is_loopback

INTERFACE = "GLOO_SOCKET_IFNAME"
# Linux: the requests for an interface's first IPv4 address, and for its mask
_SIOCGIFADDR = 0x8915
_SIOCGIFNETMASK = 0x891B
_ADDRESS = slice(20, 24)  # where a response has the address


def settings(hosts: Sequence[str], address: str | None, interface: str | None) -> dict[str, str]:
    """The variable that names gloo's network interface.

    By default gloo takes the interface of the host's name, which is often
    loopback.
    """
    if os.environ.get(INTERFACE):
        return {}
    spans_hosts = len(set(hosts)) > 1 and not all(map(is_loopback, hosts))
    if spans_hosts and address is not None and is_loopback(address):
        raise DistributedError(
            f"this host is {address} to itself, where the job's other hosts do not reach it; name "
            f"it in --hosts by an address of its own, or set {INTERFACE} to its network interface"
        )
    if interface is None:
        return {}
    return {INTERFACE: interface}


def check_first_address(hosts: Sequence[str], address: str | None, interface: str | None) -> None:
    """Raise if gloo would use an address of another subnet than the job's.

    gloo takes the interface's first address. A secondary address with a label
    has its own interface.
    """
    if os.environ.get(INTERFACE) or not address or not interface or len(set(hosts)) == 1:
        return
    first = _first_address(interface)
    if first is None or IPv4Address(address) in first.network:
        return
    raise DistributedError(
        f"this host's address {address} is not the first of {interface}, and gloo uses the first, "
        f"{first.ip}, which is in another subnet; name an address of that subnet in --hosts, "
        f"give {address} a label (ip addr add {address}/24 dev {interface} label {interface}:1), "
        f"or set {INTERFACE}={interface} if the other hosts reach {first.ip}"
    )


def _first_address(interface: str) -> IPv4Interface | None:
    """The first IPv4 address of the interface, with its network.

    ``None`` if it is not known.
    """
    with suppress(ImportError, OSError):
        import fcntl  # not on Windows

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("40s", interface.encode()[:15])
            response = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
            address = socket.inet_ntoa(response[_ADDRESS])
            response = fcntl.ioctl(any_socket, _SIOCGIFNETMASK, request)
            mask = socket.inet_ntoa(response[_ADDRESS])
        return IPv4Interface(f"{address}/{mask}")
    return None
