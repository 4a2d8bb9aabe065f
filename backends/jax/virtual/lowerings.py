"""Primitives that only the CPU lowers, such as those of Hessenberg's and Schur's decompositions: GPUs refuse them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xdevice.backends.jax import hardware

_mlir: Any = import_module("jax._src.interpreters.mlir")
_dispatch: Any = import_module("jax._src.dispatch")


def start() -> None:
    """Refuse them on virtual GPUs, in JAX's words; on the CPU they are lowered as before."""
    rules = _mlir._platform_specific_lowerings
    for primitive in rules["cpu"].keys() - rules["cuda"].keys() - _mlir._lowerings.keys():
        entry = rules["cpu"][primitive]  # a function in older versions
        refusing = _refusing(primitive.name, getattr(entry, "rule", entry))
        rules["cpu"][primitive] = type(entry)(refusing, entry.inline) if hasattr(entry, "rule") else refusing
        _dispatch.prim_requires_devices_during_lowering.add(primitive)  # else one lowering serves all devices


def _refusing(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    def lower(context: Any, *args: Any, **params: Any) -> Any:
        devices = getattr(context.module_context.axis_context, "device_assignment", None) or ()
        if any(map(hardware.ordinal, devices)):
            raise NotImplementedError(f"MLIR translation rule for primitive '{name}' not found for platform cuda")
        return rule(context, *args, **params)

    return lower
