"""The machine whose GPUs the processes of a program share: a file that says what each has reserved.

Each request for virtual GPUs names a file in the environment, which child processes inherit. PyTorch's
plug-in makes it when a process first uses a GPU whose memory has a limit; the last process removes it.
"""

import os
import secrets
import tempfile

from xdevice.contract import Request

ENV = "XDEVICE_VIRTUAL_MACHINE"


def propagate() -> None:
    """Let the processes that this one starts be on the same machine."""
    name = f"xdevice-machine-{secrets.token_hex(8)}"
    os.environ.setdefault(ENV, os.path.join(tempfile.gettempdir(), name))


def path(request: Request) -> str:
    """The file of the machine's GPUs. A process that asks for other GPUs is on another machine."""
    number, memory = request.total or request.number, request.memory
    return f"{os.environ[ENV]}-{number}-{request.model or memory}"
