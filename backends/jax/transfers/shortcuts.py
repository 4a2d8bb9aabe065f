"""How C++ calls compiled functions: while watching, it leaves to Python what sends something.

JAX gives C++ a shortcut to a compiled function for each signature. Settings are part of it, and one of them is ours:
the shortcuts made while watching are others than those before and after, which are kept. In ours, the layout of an
argument from the host is marked, for which C++ asks Python to send it, and a call that brings arrays together has none.
Functions compiled ahead of time, and all in older versions, go through Python where JAX's transfer guard refuses.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

pjit: Any = import_module("jax._src.pjit")
_config: Any = import_module("jax._src.config")
_pxla: Any = import_module("jax._src.interpreters.pxla")
guard: Any = getattr(_config, "guard_lib", None) or _config.transfer_guard_lib  # what older versions call it
_layouts: Any = import_module("jax._src.layout")
_Layout: Any = getattr(_layouts, "DeviceLocalLayout", None) or _layouts.Layout  # the former in older versions
Array: Any = _pxla.xc.ArrayImpl
_settings: Any = getattr(_config, "config_ext", None)  # None before JAX 0.4.36
_caches: list[Any] = [cache for name, cache in vars(pjit).items() if name.startswith("_cpp_pjit_cache")]


def _setting() -> Any:
    """A setting of our own, which is part of the signature of every call."""
    try:
        return _settings.Config("xdevice_watched", False, include_in_jit_key=True)
    except TypeError:  # older versions give it no name
        return _settings.Config(False, include_in_jit_key=True)


_watched: Any = _setting() if _settings is not None else None


@contextmanager
def guarded() -> Generator[None]:
    """Let calls of compiled functions that send something pass through Python, in every thread."""
    levels, forbidden = guard.global_state(), guard.TransferGuardLevel.DISALLOW
    before, levels.host_to_device = levels.host_to_device, forbidden
    _set_watched(True)
    try:
        yield
    finally:
        _set_watched(False)
        if levels.host_to_device == forbidden:  # else the program has chosen another meanwhile
            levels.host_to_device = before


def _set_watched(on: bool) -> None:
    if _watched is not None:
        _watched.set_global(on)
        return
    for cache in _caches:
        cache.clear()  # what is compiled stays


class _Marked(_Layout):  # type: ignore[misc]  # JAX's, an Any
    """The layout of an argument from the host; the one that it has anyhow, in case it is not taken off."""


def through_python(shortcut: Callable[..., Any]) -> Callable[..., Any]:
    """In place of the function that lets C++ make the calls to come: it is to leave to Python what sends something."""

    def get_fastpath_data(executable: Any, tree: Any, arguments: Any, results: Any, *rest: Any) -> Any:
        shardings = {x.sharding for x in (*arguments, *results) if type(x) is Array}
        if len(shardings) > 1 and len({frozenset(sharding.device_set) for sharding in shardings}) > 1:
            return None  # arrays are brought together
        data = shortcut(executable, tree, arguments, results, *rest)
        if not hasattr(data, "in_device_local_layouts"):  # None, or an older version's
            return data
        inputs = zip((*getattr(data, "const_args", ()), *arguments), data.kept_var_bitvec, strict=True)
        sent = [x for x, is_used in inputs if is_used]
        return data._replace(in_device_local_layouts=list(map(_marked, sent, data.in_device_local_layouts)))

    return get_fastpath_data


def _marked(x: Any, layout: Any) -> Any:
    return _Marked(tuple(range(np.ndim(x)))) if layout is None and type(x) is not Array else layout


def unmarked(shard: Callable[..., Any]) -> Callable[..., Any]:
    """In place of the function that sends arguments."""

    def shard_args(shardings: Any, layouts: Any, *rest: Any, **options: Any) -> Any:
        return shard(shardings, [None if type(x) is _Marked else x for x in layouts], *rest, **options)

    return shard_args
