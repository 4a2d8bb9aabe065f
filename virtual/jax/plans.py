"""The memory that a compiled function of a GPU needs, as ``compiled.memory_analysis()`` tells it.

XLA's plan is that for the CPU, whose temporary memory is another one. That of a GPU follows from
the function's jaxpr (`liveness`), so it is kept from the call of ``lower`` on.
"""

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from jax.extend import core

from xdevice.backends.jax import hardware
from xdevice.virtual.jax import liveness
from xdevice.virtual.jax.private_names import Function, in_place_of, names

_LOWER, _COMPILE = "jax.stages:Traced.lower", "jax.stages:Lowered.compile"
_ANALYSIS = "jax.stages:Compiled.memory_analysis"

_jaxprs: MutableMapping[object, core.Jaxpr] = WeakKeyDictionary()
"""The jaxpr of each function that was lowered or compiled ahead of time."""


def replace() -> None:
    if names.has("the memory that a compiled function needs"):
        in_place_of(_LOWER)(_lower)
        in_place_of(_COMPILE)(_compile)
        in_place_of(_ANALYSIS)(_memory_analysis)


def _lower(native: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    lowered = native(self, *args, **kwargs)
    _jaxprs[lowered._lowering] = self.jaxpr.jaxpr
    return lowered


def _compile(native: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    compiled = native(self, *args, **kwargs)
    if self._lowering in _jaxprs:
        _jaxprs[compiled._executable] = _jaxprs[self._lowering]
    return compiled


def _memory_analysis(native: Function, self: Any) -> Any:
    analysis = native(self)
    jaxpr = _jaxprs.get(self._executable)
    if analysis is None or jaxpr is None:
        return analysis
    devices = self.runtime_executable().local_devices()
    if all(hardware.ordinal(device) for device in devices):
        analysis.temp_size_in_bytes = liveness.temporary_bytes(jaxpr) // len(devices)
    return analysis
