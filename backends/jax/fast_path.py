"""Compiled functions that copy pass through Python while copies are watched.

JAX's C++ code calls a compiled function by a fast path, which it keeps for each
signature of the arguments; without a fast path, the call goes through Python.
JAX's settings are part of the signature. xdevice adds a setting of its own,
which is on while copies are watched. Watched calls therefore have fast paths of
their own, and the program's fast paths are kept. Nothing is compiled anew.

A watched call differs from the program's in two ways:

- A fast path marks the layout of each argument that comes from the host. C++
  sends an argument itself only if it has no layout, and asks Python to send the
  others.
- A call that brings arrays of several devices together has no fast path.

Functions compiled ahead of time have no such fast path, and older versions of
JAX cannot mark layouts. JAX's transfer guard serves these: C++ leaves a call to
Python if the guard forbids a copy.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from xdevice.backends.jax.private_names import guard, names, optional

Function: TypeAlias = Callable[..., Any]
Argument: TypeAlias = Any  # an array of JAX or NumPy, or a number
FastPathData: TypeAlias = Any  # JAX's; None if C++ may not call the function
Layout: TypeAlias = Any  # JAX's; None is the default

names.require("watch_transfers()")
_pjit: ModuleType = import_module("jax._src.pjit")
_pxla: ModuleType = import_module("jax._src.interpreters.pxla")
jaxlib = _pxla.xc
JaxArray = jaxlib.ArrayImpl

# the second is the name in older versions
_Layout: Any = optional("jax._src.layout:DeviceLocalLayout", "jax._src.layout:Layout")

# JAX has settings that are part of a signature since 0.4.36
_new_setting = optional("jax._src.config:config_ext.Config", otherwise=lambda *_, **__: None)
try:
    _watched = _new_setting("xdevice_watched", False, include_in_jit_key=True)
except TypeError:  # older versions give a setting no name
    _watched = _new_setting(False, include_in_jit_key=True)


@contextmanager
def avoided() -> Generator[None]:
    """A block in which calls that send something go through Python, in every thread."""
    levels = guard.global_state()
    forbidden = guard.TransferGuardLevel.DISALLOW
    programs_level = levels.host_to_device
    levels.host_to_device = forbidden
    _set_watched(True)
    try:
        yield
    finally:
        _set_watched(False)
        # the program may have chosen another level in the block
        if levels.host_to_device == forbidden:
            levels.host_to_device = programs_level


def _set_watched(is_watched: bool) -> None:
    if _watched is not None:
        _watched.set_global(is_watched)
        return
    for name, cache in vars(_pjit).items():
        if name.startswith("_cpp_pjit_cache"):
            cache.clear()  # the fast paths only: compiled functions stay


class _MarkedLayout(_Layout):  # type: ignore[misc]  # JAX's class has no types
    """The default layout of an argument from the host.

    It is correct even where `without_marks` does not remove it.
    """


def with_marks(get: Function) -> Function:
    """In place of JAX's function that makes the data of a fast path."""

    def get_fastpath_data(
        executable: object,
        tree: object,
        arguments: list[Argument],
        results: list[Argument],
        *more: object,
    ) -> FastPathData:
        if _are_on_several_devices([*arguments, *results]):
            return None
        data = get(executable, tree, arguments, results, *more)
        # there are no layouts if the data is None, or made by an older version
        if not hasattr(data, "in_device_local_layouts"):
            return data
        return data._replace(in_device_local_layouts=_marked_layouts(data, arguments))

    return get_fastpath_data


def _are_on_several_devices(arrays: list[Argument]) -> bool:
    shardings = {array.sharding for array in arrays if type(array) is JaxArray}
    if len(shardings) <= 1:
        return False
    return len({frozenset(sharding.device_set) for sharding in shardings}) > 1


def _marked_layouts(data: FastPathData, arguments: list[Argument]) -> list[Layout]:
    """The layouts of the arguments that the function uses."""
    constants = getattr(data, "const_args", ())
    inputs = zip((*constants, *arguments), data.kept_var_bitvec, strict=True)
    used_inputs = [value for value, is_used in inputs if is_used]
    layouts = []
    for value, layout in zip(used_inputs, data.in_device_local_layouts, strict=False):
        if layout is None and type(value) is not JaxArray:
            layouts.append(_MarkedLayout(tuple(range(np.ndim(value)))))
        else:
            layouts.append(layout)
    return layouts


def without_marks(shard: Function) -> Function:
    """In place of JAX's function that sends arguments to devices."""

    def shard_args(shardings: object, layouts: list[Layout], *more: Any, **options: Any) -> object:
        own_layouts = [None if type(layout) is _MarkedLayout else layout for layout in layouts]
        return shard(shardings, own_layouts, *more, **options)

    return shard_args


REPLACEMENTS: tuple[tuple[object, str, Callable[[Function], Function]], ...] = (
    (_pjit, "_get_fastpath_data", with_marks),
    (_pxla, "shard_args", without_marks),
)
"""What a watched block replaces: the owner, the name, and what makes the new function."""
