"""The kernels of virtual GPUs: the fallback, and operations for which torch does not call it."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from xdevice.virtual.torch.in_python import nested
from xdevice.virtual.torch.in_python.call import Alias, Call, Plan, planned, refusal
from xdevice.virtual.torch.private_names import core, overload_of, untraced
from xdevice.virtual.torch.runtime import NAME


class NestedCall(Call):
    """A call with nested tensors among its arguments."""

    __slots__ = ("nested",)

    def __init__(self, plan: Plan, resizable: bool = False) -> None:
        super().__init__(plan, resizable)
        self.nested: list[Alias] = []

    def _alias(self, tensor: torch.Tensor, key: int | str) -> torch.Tensor:
        is_elsewhere = tensor.device.type != NAME or self.index not in (None, tensor.device.index)
        if is_elsewhere or not tensor.is_nested:
            return super()._alias(tensor, key)
        self.index = tensor.device.index
        alias = nested.to_host(tensor)
        self.nested.append(Alias(alias, tensor))
        return alias

    def _virtual(self, value: Any) -> Any:
        for host, virtual in self.nested:
            if host is value:
                return virtual
        return super()._virtual(value)


def on_host(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    plan = Plan(name, call)
    return lambda *args, **kwargs: Call(plan).run(args, kwargs)


def _direct(name: str, call: type[Call]) -> Callable[..., Any]:
    """A kernel for an operation that torch composes itself, without calling the fallback."""
    plan = cache(lambda: planned(overload_of(name)))
    return lambda *args, **kwargs: call(plan()).run(args, kwargs)


def _dense_only(op: Any, *args: Any, **kwargs: Any) -> Any:
    raise refusal(op._schema.name, "is for tensors that are")


def register_fallbacks(everything: Any) -> None:
    everything.fallback(
        untraced(lambda op, *args, **kwargs: Call(planned(op)).run(args, kwargs)), "PrivateUse1"
    )
    everything.fallback(
        untraced(lambda op, *args, **kwargs: NestedCall(planned(op)).run(args, kwargs)), nested.KEY
    )
    for kind in ("Sparse", "SparseCsr", "Quantized"):
        everything.fallback(_dense_only, f"{kind}PrivateUse1")


def kernels() -> dict[tuple[str, str], Callable[..., Any]]:
    """The operations, by name and dispatch key, for which torch does not call the fallback."""
    by_key = {(name, "PrivateUse1"): _direct(name, Call) for name in _composed_on_other_devices()}
    # torch creates nested and compressed tensors itself, and would compose their operations
    for name in _names("NestedTensorCPU"):
        by_key[name, nested.KEY] = _direct(name, NestedCall)
    for layout in ("Sparse", "SparseCsr"):
        for name in _names(f"{layout}CPU"):
            by_key[name, f"{layout}PrivateUse1"] = partial(_dense_only, overload_of(name))
    return by_key


def _composed_on_other_devices() -> set[str]:
    """The operations with a kernel for the CPU that torch composes for devices without a kernel.

    It composes them from operations that round differently, or from their out= variant, which takes
    three calls instead of one.
    """
    names = {
        "_convolution",
        "convolution_backward",
        "silu_backward",
        "mish_backward",
        "mode.values",
    }
    for key in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
        for name in _names(key):
            if core._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"):
                names.add(name)
    return names


def _names(key: str) -> set[str]:
    """The operations for which torch has a kernel of that dispatch key."""
    operations = core._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::") for name in operations if name.startswith("aten::")}
