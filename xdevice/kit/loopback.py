"""Loopback: the addresses of a host that no other host can reach."""

import os
import socket
from ipaddress import ip_address

from xdevice.contract import Job

HOW_TO_TRUST = "set XDEVICE_TRUST_NETWORK=1, or call init(trust_network=True)"
"""How an engine may listen beyond loopback, as the end of an error."""


def is_loopback(host: str) -> bool:
    """Whether the name or address is one of this host's loopback interface.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def gloo_settings(job: Job) -> dict[str, str]:
    """The variable that keeps gloo on loopback on one host.

    gloo itself takes the interface of the host's name. The user can name
    another one, as between hosts.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME") or not job.is_on_one_host:
        return {}
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return {"GLOO_SOCKET_IFNAME": loopback}
