"""Passing a request for virtual GPUs to child processes, by their environment variables."""

import os
import sys

from xdevice.virtual.request import ENV, VISIBLE, Request

AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")
"""The folder whose ``sitecustomize`` Python imports at its start, while it is on ``PYTHONPATH``."""

_WARNED = "XDEVICE_{}_WARNED"


def propagate(request: Request) -> None:
    """Let child processes make the same request when they start, even if they do not import xdevice."""
    os.environ[ENV] = str(request)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    other_folders = [folder for folder in path if folder not in ("", AT_START)]
    os.environ["PYTHONPATH"] = os.pathsep.join([AT_START, *other_folders])


def set_aside_visible_devices() -> None:
    """Remove ``CUDA_VISIBLE_DEVICES``.

    A value that was set before the request for virtual GPUs refers to real GPUs.
    """
    value = os.environ.pop(VISIBLE, None)
    if value is not None:
        effect = "which are real, and does not choose among those that stand in"
        print(
            f"xdevice: {VISIBLE}={value!r} was set for the machine's GPUs, {effect}; "
            "set it after they are asked for",
            file=sys.stderr,
        )


def has_warned(subject: str) -> bool:
    """Whether this process or a parent has printed the warning about the subject.

    Later calls return True. The subject is ``STAND_IN`` or ``BUS``. Only the process of rank 0
    prints the warning.
    """
    name = _WARNED.format(subject)
    is_printed = os.environ.get(name) == "1"
    is_first_rank = os.environ.get("XDEVICE_RANK", "0") == "0"
    os.environ[name] = "1"
    return is_printed or not is_first_rank
