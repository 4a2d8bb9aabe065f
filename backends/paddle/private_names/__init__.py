"""The private names of PaddlePaddle that this adapter replaces or reads: see ``names.txt``.

``paddle.base.core`` is not public, and lacks on a build for the CPU what ``ADDED`` lists.
"""

from functools import partial

from xdevice.kit import private_names

LAST_TRIED = "3.3.1"

_lists = private_names.listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*STAND_IN, *_lists["OTHERS"]]

in_place_of = partial(private_names.in_place_of, NAMES)

ADDED = (  # functions of paddle.base.core that only a build for CUDA has, and that virtual GPUs provide
    *("cuda_empty_cache", "cudnn_version", "get_cuda_current_device_id", "get_cuda_device_count"),
    *("gpu_memory_available", "nccl_version", "NCCLConfig", "ProcessGroupNCCL"),
)
