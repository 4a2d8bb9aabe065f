"""The machine whose GPUs the processes of a program share: a file that says what each has reserved.

Each request for virtual GPUs names a file in the environment, which child processes inherit. PyTorch's
plug-in makes it when a process first uses a GPU whose memory has a limit; the last process removes it.
"""

import os
import secrets
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

from xdevice.contract import Request

ENV = "XDEVICE_VIRTUAL_MACHINE"
_ROW = struct.Struct("=65q")  # of machine.h: the process, and its bytes of each of 64 GPUs


class Holder(NamedTuple):
    """A process with memory of the GPUs."""

    process: int
    bytes: tuple[int, ...]  # of each GPU


def propagate() -> None:
    """Let the processes that this one starts be on the same machine."""
    name = f"xdevice-machine-{secrets.token_hex(8)}"
    os.environ.setdefault(ENV, os.path.join(tempfile.gettempdir(), name))


def path(request: Request) -> str:
    """The file of the machine's GPUs. A process that asks for other GPUs is on another machine."""
    propagate()
    number, memory = request.total or request.number, request.memory
    return f"{os.environ[ENV]}-{number}-{request.model or memory}"


def holders(request: Request) -> list[Holder] | None:
    """The processes that have memory of the GPUs now; ``None`` if that is not known.

    It is known if a process has used a GPU whose memory has a limit, under PyTorch.
    """
    if ENV not in os.environ:
        return None
    try:
        rows = Path(path(request)).read_bytes()
    except OSError:
        return None
    found = [Holder(process, tuple(sizes)) for process, *sizes in _ROW.iter_unpack(rows)]
    return [holder for holder in found if holder.process and _exists(holder.process)]


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True
