"""The kernels of virtual GPUs: torch's fallback, and what torch would otherwise do in another way."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from xdevice.virtual.torch.in_python import nested
from xdevice.virtual.torch.in_python.call import Call, Plan, planned, refusal
from xdevice.virtual.torch.private_names import core, overload_of, untraced
from xdevice.virtual.torch.runtime import NAME


class NestedCall(Call):
    """One in which nested tensors take part."""

    __slots__ = ("nested",)

    def __init__(self, plan: Plan, roomy: bool = False) -> None:
        super().__init__(plan, roomy)
        self.nested: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # on the host, and on the virtual GPU

    def _alias(self, tensor: torch.Tensor, key: int | str) -> torch.Tensor:
        if (
            not tensor.is_nested
            or tensor.device.type != NAME
            or self.index not in (None, tensor.device.index)
        ):
            return super()._alias(tensor, key)
        self.index = tensor.device.index
        alias = nested.to_host(tensor)
        self.nested.append((alias, tensor))
        return alias

    def _virtual(self, value: Any) -> Any:
        for alias, tensor in self.nested:
            if alias is value:
                return tensor
        return super()._virtual(value)


def on_host(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    plan = Plan(name, call)
    return lambda *args, **kwargs: Call(plan).run(args, kwargs)


def _direct(name: str, call: type[Call]) -> Callable[..., Any]:
    """A kernel for an operation that torch would otherwise compose itself, without calling the fallback."""
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
    """By name and dispatch key: operations for which torch has another way than a kernel and the fallback."""
    # without a kernel, torch would compose these from other operations, which round differently from the CPU's,
    # or from their out= variant, in three calls instead of one
    names = {
        "_convolution",
        "convolution_backward",
        "silu_backward",
        "mish_backward",
        "mode.values",
    }
    for composed in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
        here = _names(composed)
        names |= {
            name
            for name in here
            if core._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU")
        }
    dense = {(name, "PrivateUse1"): _direct(name, Call) for name in names}
    # torch makes nested and compressed tensors itself, and would compute what it composes from their parts
    found = {(name, nested.KEY): _direct(name, NestedCall) for name in _names("NestedTensorCPU")}
    for kind in ("Sparse", "SparseCsr"):
        names = _names(f"{kind}CPU")
        found |= {
            (name, f"{kind}PrivateUse1"): partial(_dense_only, overload_of(name)) for name in names
        }
    return dense | found


def _names(key: str) -> set[str]:
    """The operations for which torch has a kernel of that dispatch key."""
    found = core._dispatch_get_registrations_for_dispatch_key(key)
    return {full.removeprefix("aten::") for full in found if full.startswith("aten::")}
