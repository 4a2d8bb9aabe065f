"""Answers of PaddlePaddle's functions that differ on virtual GPUs which stand in."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from xdevice.virtual.paddle.private_names import replace_name

Function: TypeAlias = Callable[..., Any]

CORE = "paddle.base.core"

# Modules of PaddlePaddle that ask in order to choose a device; all modules of paddle.distributed
# do, too.
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


def replace_in_core(values: dict[str, Any]) -> None:
    """Replace names of ``paddle.base.core``, or add those that only a build with CUDA has."""
    for name, value in values.items():
        replace_name(f"{CORE}:{name}", value)


def answer_by_caller(for_programs: Function, for_paddle: Function) -> Function:
    """A function that gives programs one answer, and modules of PaddlePaddle that choose a kernel another.

    PaddlePaddle's modules ask whether there is CUDA by the names that programs use:
    ``nn.functional.conv`` calls the public ``paddle.device.is_compiled_with_cuda``, and
    ``is_custom_place`` is a method of one compiled class. To those that choose a kernel it must be
    said that there is no CUDA, since CUDA's kernels are missing. Only the module of the caller
    tells the two apart.
    """

    @wraps(for_programs)
    def answer(*args: Any) -> Any:
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if _chooses_kernels(caller.f_globals.get("__name__", "")):
            return for_paddle(*args)
        return for_programs(*args)

    return answer


def _chooses_kernels(module: str) -> bool:
    if module in _CHOOSE_DEVICES or module.startswith("paddle.distributed."):
        return False
    return module.partition(".")[0] in ("paddle", "xdevice")
