"""Gloo, the engine of PyTorch and PaddlePaddle, on one host."""

import os
import socket

from xdevice.contract import Job


def gloo_settings(job: Job) -> dict[str, str]:
    """The variable that keeps gloo on loopback on one host.

    gloo itself takes the interface of the host's name. The user can name
    another one, as between hosts.
    """
    if os.environ.get("GLOO_SOCKET_IFNAME") or not job.is_on_one_host:
        return {}
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return {"GLOO_SOCKET_IFNAME": loopback}
