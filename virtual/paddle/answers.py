"""Functions of PaddlePaddle whose results differ on virtual GPUs that stand in."""

import sys
from functools import wraps
from typing import Any

from xdevice.virtual.paddle.private_names import Function, replace_name

CORE = "paddle.base.core"

# Modules of PaddlePaddle that call these functions to choose a device. All modules of
# paddle.distributed do, too.
_CHOOSE_DEVICES = {
    "paddle.amp.auto_cast",
    "paddle.base.dygraph.tensor_patch_methods",
    "paddle.base.framework",
    "paddle.cuda",
    "paddle.device",
    "paddle.device.cuda",
    "paddle.framework.random",
    "paddle.hapi.model",
    "paddle.tensor.creation",
    "paddle.utils.install_check",
}


def replace_in_core(values: dict[str, object]) -> None:
    """Replace names of ``paddle.base.core``, or add those that only a build with CUDA has."""
    for name, value in values.items():
        replace_name(f"{CORE}:{name}", value)


def answer_by_caller(for_programs: Function, for_paddle: Function) -> Function:
    """A function with one result for programs, and another for modules that choose kernels.

    PaddlePaddle's modules find out whether there is CUDA by the functions that programs use:
    ``nn.functional.conv`` calls the public ``paddle.device.is_compiled_with_cuda``, and
    ``is_custom_place`` is a method of one compiled class. For a module that chooses a kernel the
    result must be that there is no CUDA, since CUDA's kernels are missing. Only the module of the
    caller tells the two apart.
    """

    @wraps(for_programs)
    def answer(*args: object) -> Any:
        caller = sys._getframe(1)
        if _chooses_kernels(caller.f_globals.get("__name__", "")):
            return for_paddle(*args)
        return for_programs(*args)

    return answer


def _chooses_kernels(module: str) -> bool:
    if module in _CHOOSE_DEVICES or module.startswith("paddle.distributed."):
        return False
    return module.partition(".")[0] in ("paddle", "xdevice")
