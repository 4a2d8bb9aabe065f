"""``torch.compile`` and ``torch.export``: inductor has no code for virtual GPUs, so their graphs run by aot_eager."""

from __future__ import annotations

from typing import Any

import torch

from xdevice.backends.torch.virtual import devices
from xdevice.backends.torch.virtual.internals import aten


def replace() -> None:
    """Run graphs with tensors on virtual GPUs by aot_eager, and leave all others to inductor."""
    wrapper: Any = torch._TorchCompileInductorWrapper  # pyright: ignore[reportPrivateUsage]  # no public counterpart
    own = wrapper.__call__

    def call(self: Any, model: Any, inputs: Any, **kwargs: Any) -> Any:
        made = [node.meta.get("example_value") for node in model.graph.nodes]  # a graph may go to a GPU by itself
        held = [*inputs, *model.parameters(), *model.buffers(), *made]
        if any(isinstance(x, torch.Tensor) and x.device.type == devices.name for x in held):
            from torch._dynamo.backends.debugging import aot_eager

            return aot_eager(model, inputs)
        return own(self, model, inputs, **kwargs)

    wrapper.__call__ = call


def trace_attention() -> None:
    """Let traced tensors choose the CPU's algorithm of attention, for which C++ has a table of its own for CUDA."""
    from torch._subclasses.fake_impls import register_op_impl
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    op = aten._fused_sdp_choice.default

    def choose(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].device.type != devices.name:
            return NotImplemented
        with unset_fake_temporarily():
            return op(*[_empty_twin(arg) if isinstance(arg, torch.Tensor) else arg for arg in args], **kwargs)

    register_op_impl(op)(choose)


def _empty_twin(traced: torch.Tensor) -> torch.Tensor:
    """A CPU tensor of the same shape, whose memory nothing touches."""
    size, stride = [[int(n) for n in numbers] for numbers in (traced.shape, traced.stride())]
    return torch.empty_strided(size, stride, dtype=traced.dtype, device="cpu", requires_grad=traced.requires_grad)
