"""PaddlePaddle: the CPU, ``gpu`` (CUDA, ROCm or Kunlun XPU), and plug-in devices under their own word.

Surprises: moving a tensor with ``.to``, ``.cuda`` or ``.cpu`` cuts its gradient (here it flows on), and
``.to`` may free the tensor that it moves; ``set_device`` and so a native scope are the whole
process's; uint16 data becomes bfloat16 in silence, and the other way round in ``.numpy()``;
page-locked memory is a place of its own, ``gpu_pinned``, which is told but cannot be asked for.
"""

import os
import sys
import threading
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from xdevice.backends.paddle import plug_in
from xdevice.kit import virtual_request

CANNOT: dict[str, str] = {
    "data": "every tensor counts as numbers",
    "trees": "PaddlePaddle keeps no registry of containers; register a class with optree",
}
"""What this framework cannot do, and why."""

GPU_BUILD = "install paddlepaddle-gpu in place of paddlepaddle; its install page has the command for each CUDA"
"""What to type to get a build for GPUs."""


def _import_safely() -> None:
    # PaddlePaddle 3.3.1 segfaults on import where TensorFlow 2.21 has been loaded before: it binds to
    # TensorFlow's copies of symbols that both libraries export. RTLD_DEEPBIND makes it prefer its own.
    # No upstream issue is known to us; tests/quirks/test_paddle.py says when this can go.
    crashes = "tensorflow" in sys.modules and hasattr(os, "RTLD_DEEPBIND")
    flags = sys.getdlopenflags() if crashes else 0
    before = "paddle" in sys.modules
    if crashes:
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        with warnings.catch_warnings(), _virtual_gpus():
            # PaddlePaddle 3.3.1 looks for a compiler cache on every import and warns that there is none
            warnings.filterwarnings("ignore", "No ccache found", UserWarning)
            import paddle as paddle
    finally:
        if crashes:
            sys.setdlopenflags(flags)
    if not before:
        _stay_dynamic()
    if not before and virtual_request.current().number:
        paddle.device.set_device("cpu")  # or a virtual GPU is where new tensors go


def _stay_dynamic() -> None:
    """Keep dynamic mode when the thread that imported PaddlePaddle ends.

    PaddlePaddle 3.3.1 enters dynamic mode as a context, which it keeps in a variable of that thread. When the thread
    ends, the context is left, and every other thread is in static mode. So the main thread gets it.
    """
    if threading.current_thread() is threading.main_thread():
        return
    from paddle.base import framework

    context = framework.global_var._functional_dygraph_context_manager
    variables: Any = framework.GlobalThreadLocal
    begin = variables.__init__

    def begin_thread(self: Any) -> None:
        begin(self)
        if threading.current_thread() is threading.main_thread():
            self._functional_dygraph_context_manager = context

    variables.__init__ = begin_thread


def _virtual_gpus() -> AbstractContextManager[Any]:
    """What puts virtual GPUs in place for the import, if they are wanted and it is not too late."""
    wanted = virtual_request.current()
    if not wanted.number or "paddle" in sys.modules:
        return nullcontext()
    return plug_in.in_place(wanted.number, wanted.force)


_import_safely()
