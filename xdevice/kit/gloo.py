"""gloo, the library by which several frameworks compute in several processes on CPUs."""

import os
from collections.abc import Sequence

from xdevice.errors import DistributedError
from xdevice.kit.loopback import is_loopback

INTERFACE = "GLOO_SOCKET_IFNAME"


def settings(hosts: Sequence[str], address: str | None, interface: str | None) -> dict[str, str]:
    """The variable that names its network interface: by default it is the one of the host's name, often loopback."""
    if os.environ.get(INTERFACE):
        return {}
    if (
        address is not None
        and is_loopback(address)
        and len(set(hosts)) > 1
        and not all(map(is_loopback, hosts))
    ):
        why = f"this host is {address} to itself, where the job's other hosts do not reach it"
        raise DistributedError(
            f"{why}; name it in --hosts by an address of its own, or set {INTERFACE} to its network interface"
        )
    return {} if interface is None else {INTERFACE: interface}
