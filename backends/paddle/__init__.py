"""PaddlePaddle: the CPU, ``gpu`` (CUDA, ROCm or Kunlun XPU), and plug-in devices by their names.

Notes: moving a tensor with ``.to``, ``.cuda`` or ``.cpu`` cuts its gradient, and ``.to`` may free
the source; `to_device` does neither. ``set_device``, and so a native scope, applies to the whole
process. uint16 data becomes bfloat16 without a warning, and the reverse in ``.numpy()``.
Page-locked memory is a place, ``gpu_pinned``, which `device_of` reports and which cannot be
requested. ``to_static(full_graph=True)`` fails in xdevice's functions if a framework was imported
only after xdevice's first use, and a compiled function uses it first: call `device_of` once before.
"""

import os
import sys
import threading
import warnings
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from xdevice.backends.kit.places import prepared_import

CANNOT: dict[str, str] = {
    "is_data": "every tensor counts as numbers",
    **dict.fromkeys(
        ("is_node", "flatten_one_level"),
        "PaddlePaddle keeps no registry of containers; register a class with optree",
    ),
}

_BEFORE_3 = (
    "PaddlePaddle 2.6 lacks operations of the array API standard; pip install 'paddlepaddle>=3'"
)
GPU_BUILD = (
    "install paddlepaddle-gpu in place of paddlepaddle; "
    "its install page has the command for each CUDA"
)


def _import_safely() -> None:
    is_imported = "paddle" in sys.modules
    with ExitStack() as stack, warnings.catch_warnings():
        # PaddlePaddle 3.3.1 segfaults on import after TensorFlow 2.21: it binds to TensorFlow's
        # copies of symbols that both libraries export. RTLD_DEEPBIND makes it prefer its own. No
        # upstream issue is known; a test in tests/quirks/test_paddle.py fails when this is no
        # longer needed.
        if "tensorflow" in sys.modules and hasattr(os, "RTLD_DEEPBIND"):
            stack.callback(sys.setdlopenflags, sys.getdlopenflags())
            sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
        stack.enter_context(prepared_import("paddle"))
        # PaddlePaddle 3.3.1 looks for a compiler cache on every import and warns that there is none
        warnings.filterwarnings("ignore", "No ccache found", UserWarning)
        import paddle as paddle
    _keep_from_compiler()
    if not is_imported:
        _stay_dynamic()
    if not hasattr(paddle, "signbit"):
        CANNOT["maths"] = _BEFORE_3


def _keep_from_compiler() -> None:
    """Let ``to_static(full_graph=True)`` run xdevice's functions as they are.

    It transforms the source code of every function that is called, so that conditions may depend on
    tensors. It fails for much that is in functions of xdevice, which have no such conditions.
    """
    folders = []
    for name in ("xdevice", "xdevice.backends"):
        # a module with nothing but the path: of the real one, PaddlePaddle reads all attributes,
        # which imports what xdevice imports only when it is used
        folder = ModuleType(name)
        folder.__file__ = sys.modules[name].__file__
        folders.append(folder)
    sys.modules["paddle"].jit.ignore_module(folders)


def _stay_dynamic() -> None:
    """Keep dynamic mode when the thread that imported PaddlePaddle ends.

    PaddlePaddle 3.3.1 enters dynamic mode as a context, and keeps the context in a variable of that
    thread. When the thread ends, the context is left, and every other thread is in static mode. So
    the main thread gets the context.
    """
    if threading.current_thread() is threading.main_thread():
        return
    # imported late, because it imports PaddlePaddle
    from xdevice.backends.paddle.private_names import names

    if not names.has("threads that stay in dynamic mode after the first has ended"):
        return
    from paddle.base import framework

    settings: Any = framework.global_var
    context = settings._functional_dygraph_context_manager
    variables: Any = framework.GlobalThreadLocal
    initialize = variables.__init__

    def initialize_thread(self: Any) -> None:
        initialize(self)
        if threading.current_thread() is threading.main_thread():
            self._functional_dygraph_context_manager = context

    variables.__init__ = initialize_thread


_import_safely()
