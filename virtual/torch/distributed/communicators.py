"""The communicators that NCCL would make, whose memory is not PyTorch's.

NCCL allocates its buffers itself. How much it takes depends on the number of
GPUs, on their links, and on its settings, so it is a range.
"""

from typing import Any

import torch

from xdevice.backends.torch.mixing import tensors_in

COMMUNICATOR = 2 << 30
"""The most bytes of a communicator.

NVIDIA/nccl, issues 864 (6 GB for three or more) and 964 (0.5 and 0.7 GB).
"""

ALL_TO_ALL = 3360 << 20
"""The most bytes that all-to-all adds to a communicator.

NVIDIA/nccl, issue 1685: from 1.06 to 4.34 GB on eight H100s.
"""

_EXCHANGES = ("alltoall_", "alltoall_base_", "send", "recv_")
"""Operations for which NCCL connects pairs of processes."""

_communicators: dict[tuple[str, int], int] = {}
"""The most bytes of each communicator: by the group's name and the GPU."""


def note(operation: str, group: Any, args: tuple[Any, ...]) -> None:
    """Note that a process group of NCCL has computed an operation of ``c10d``."""
    if group.size() == 1:
        return
    on_gpus = [tensor for tensor in tensors_in(args) if tensor.is_cuda]
    index = on_gpus[0].get_device() if on_gpus else torch.cuda.current_device()
    most = COMMUNICATOR + (ALL_TO_ALL if operation in _EXCHANGES else 0)
    key = (group.group_name, index)
    _communicators[key] = max(_communicators.get(key, 0), most)


def most_bytes(index: int) -> int:
    """The most that NCCL may have allocated on this GPU."""
    return sum(most for (_, gpu), most in _communicators.items() if gpu == index)
