"""What a process leaves in the environment for the processes that it starts."""

import os
import sys

from xdevice.contract import Request
from xdevice.virtual import machine, visible_devices
from xdevice.virtual.request import to_environment

AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")
"""The folder whose ``sitecustomize`` Python imports at its start, while it is on ``PYTHONPATH``."""

COMMANDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "commands")
"""The folder with ``nvidia-smi`` and ``pynvml``, first on the paths while virtual GPUs stand in."""

_PYTHON = "XDEVICE_VIRTUAL_PYTHON"  # which runs these commands, whatever Python a program finds
_WARNED = "XDEVICE_{}_WARNED"


def propagate(request: Request) -> None:
    """Let child processes make the same request when they start, even if they do not import xdevice."""
    to_environment(request)
    machine.propagate()
    _put_first("PYTHONPATH", AT_START)
    if request.stand_in:
        _put_first("PATH", COMMANDS, os.defpath)
        _put_first("PYTHONPATH", COMMANDS)
        os.environ[_PYTHON] = sys.executable


def _put_first(variable: str, folder: str, default: str = "") -> None:
    path = os.environ.get(variable, default).split(os.pathsep)
    others = [other for other in path if other not in ("", folder)]
    os.environ[variable] = os.pathsep.join([folder, *others])


def give_to_program(request: Request) -> None:
    """Let the programs that a command starts have the virtual GPUs."""
    propagate(request)
    if request.stand_in:
        visible_devices.set_aside()


def has_warned(subject: str) -> bool:
    """Whether this process or a parent has printed the warning about the subject.

    Later calls return True. The subject is ``STAND_IN``, ``HIDDEN`` or ``BUS``. Only the process of rank 0
    prints the warning.
    """
    name = _WARNED.format(subject)
    is_printed = os.environ.get(name) == "1"
    is_first_rank = os.environ.get("XDEVICE_RANK", "0") == "0"
    os.environ[name] = "1"
    return is_printed or not is_first_rank
