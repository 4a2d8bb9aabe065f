"""Copies, each seen before JAX makes it.

JAX's Python code reads arrays in one function and sends values in two, which are replaced for a block. C++, which
calls compiled functions, leaves to them what it would send itself: see `shortcuts`. Nothing is compiled anew.
"""

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from xdevice.backends.jax.transfers import shortcuts
from xdevice.backends.jax.transfers.told import Told
from xdevice.contract import Watcher
from xdevice.kit.private_names import replaced

_pxla: Any = import_module("jax._src.interpreters.pxla")
_jaxlib = _pxla.xc

_HAS_BUFFERS = sys.version_info >= (3, 12)  # Python code can replace a class's __buffer__
_READERS = "array", "asarray", "asanyarray", "ascontiguousarray"


def unseen() -> Iterable[str]:
    yield "what a compiled function copies while it runs: for callbacks, and between the devices of sharded arrays"
    yield "arrays that functions compiled ahead of time, by .lower().compile(), bring from another device"
    if not _HAS_BUFFERS:
        yield f"what reads arrays other than JAX and NumPy's {', '.join(_READERS)}, before Python 3.12"


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    with ExitStack() as stack:
        told = Told(watcher, stack)
        stack.callback(told.close)
        for owner, name, new in _replacements(told):
            stack.enter_context(replaced(owner, name, new))
        stack.enter_context(shortcuts.guarded())
        yield


def _replacements(told: Told) -> Iterable[tuple[Any, str, Callable[[Any], Any]]]:
    """What is replaced: its owner, its name, and what makes the new one of the old."""
    yield shortcuts.Array, "_value", lambda value: property(told.reading(value.__get__))
    yield shortcuts.Array, "copy_to_host_async", told.reading
    if _HAS_BUFFERS:
        yield shortcuts.Array, "__buffer__", told.reading
    else:
        yield from ((np, name, told.reading) for name in _READERS)
    yield _jaxlib, "batched_device_put", told.putting
    if hasattr(_jaxlib, "batched_copy_array_to_devices_with_sharding"):
        yield _jaxlib, "batched_copy_array_to_devices_with_sharding", told.copying
    yield shortcuts.pjit, "_get_fastpath_data", shortcuts.through_python
    yield _pxla, "shard_args", shortcuts.unmarked
