"""The machine whose GPUs the processes of a program share: a file that says what each has reserved.

Each request for virtual GPUs names a file in the environment, which child processes inherit. PyTorch's
plug-in makes it when a process first uses a GPU whose memory has a limit; the last process removes it.
"""

import os
import secrets
import tempfile
from pathlib import Path

from xdevice.contract import Request

ENV = "XDEVICE_VIRTUAL_MACHINE"

_MOST_GPUS = 64  # a row has the process and its bytes of each, in 64-bit integers: machine.h


def propagate() -> None:
    """Let the processes that this one starts be on the same machine."""
    name = f"xdevice-machine-{secrets.token_hex(8)}"
    os.environ.setdefault(ENV, os.path.join(tempfile.gettempdir(), name))


def path(request: Request) -> str:
    """The file of the machine's GPUs. A process that asks for other GPUs is on another machine."""
    propagate()
    number, memory = request.total or request.number, request.memory
    return f"{os.environ[ENV]}-{number}-{request.model or memory}"


def processes(request: Request, gpu: int) -> dict[int, int]:
    """The bytes that each process has of a GPU, by the process's number."""
    file = Path(path(request))
    numbers = memoryview(file.read_bytes() if file.exists() else b"").cast("q").tolist()
    length = 1 + _MOST_GPUS
    rows = [numbers[start : start + length] for start in range(0, len(numbers), length)]
    return {
        process: of_gpus[gpu]
        for process, *of_gpus in rows
        if process and of_gpus[gpu] and _is_alive(process)
    }


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
