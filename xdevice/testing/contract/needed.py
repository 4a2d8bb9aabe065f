"""What a promise needs of an adapter, as its code says: the functions of xdevice that it calls."""

from __future__ import annotations

import dis
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from xdevice.contract import CAPABILITIES
from xdevice.device import Device

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONAL = {
    **{name: (f"creation.{name}",) for name in CAPABILITIES["creation"] if name != "dtype"},
    "to_numpy": ("exchange.to_numpy",),
    "convert": ("exchange.to_numpy", "creation.tensor", "creation.dtype"),
    "save": ("exchange.to_numpy",),
    "load": ("creation.zeros", "creation.tensor"),
    "split_batch": ("collectives.split",),
    "cpu": ("cpu",),
    "memory_stats": ("memory.memory_stats",),
    "empty_cache": ("memory.empty_cache",),
}
"""Public functions that use what an adapter may lack, with the functions of capabilities that they use, or the CPU."""

_SUITE = __name__.rpartition(".")[0]

_needs = {getattr(import_module("xdevice"), name): needs for name, needs in _OPTIONAL.items()}


def needed_by(promise: Any) -> set[str]:
    """The functions of capabilities that the promise calls, itself or through the suite's own functions.

    A parameter of a promise may be such a function too, or the CPU, or hold them; any other object needs nothing.
    """
    found: set[str] = set()
    seen: set[FunctionType] = set()
    waiting: list[Any] = [promise]
    while waiting:
        used = waiting.pop()
        if isinstance(used, tuple):
            waiting += used
        elif isinstance(used, Device) and used.kind == "cpu":
            found.add("cpu")
        if not isinstance(used, FunctionType) or used in seen:
            continue
        seen.add(used)
        if used in _needs:
            found.update(_needs[used])
        elif used.__module__.startswith(_SUITE):
            waiting += [used.__globals__.get(name) for name in _globals_of(used.__code__)]
    return found


def _globals_of(code: CodeType) -> Iterator[str]:
    """The global names that the code loads, and those of the functions in it."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            yield step.argval
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals_of(part)
