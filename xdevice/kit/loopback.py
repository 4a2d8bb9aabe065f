"""Loopback: the addresses of a host that no other host can reach."""

from ipaddress import ip_address

HOW_TO_TRUST = (
    "start with xdevice launch --trust-network, XDEVICE_TRUST_NETWORK=1, or "
    "init(trust_network=True)"
)
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
