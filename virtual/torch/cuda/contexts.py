"""GPUs of other ranks: in a job with a GPU for each process, the line that first uses another's.

CUDA makes a context there, which stays until the process ends. Forgetting `torch.cuda.set_device`
gives each rank one on GPU 0.
"""

import atexit
import os
import warnings
from contextlib import suppress
from typing import Any

from xdevice.distributed.launcher_variables import job_in
from xdevice.errors import XDeviceError
from xdevice.virtual.torch.compiled import FIRST_USE, compiled
from xdevice.virtual.torch.cuda.async_copies import current_line


def find() -> None:
    """Warn at the line that first uses another rank's GPU."""
    compiled().observe_first_use(_called_by_the_plug_in)
    # at the end autograd's threads are waited for, one on each GPU
    atexit.register(compiled().observe_first_use, FIRST_USE())


def _warn_of_other(index: int) -> None:
    with suppress(XDeviceError):  # variables that contradict each other
        job = job_in(os.environ)
        if job.local_world_size == compiled().visible() > 1 and job.local_rank != index:
            _warn(job.local_rank, index)


def _warn(rank: int, index: int) -> None:
    line = current_line()
    message = (
        f"rank {rank} first uses cuda:{index} here, which is rank {index}'s, and has a context "
        f"there until it ends; call torch.cuda.set_device({rank}) earlier, or name the device"
    )
    warnings.warn_explicit(message, RuntimeWarning, line.file, line.number)


_called_by_the_plug_in: Any = FIRST_USE(_warn_of_other)  # kept alive
