"""DTensor on virtual GPUs: random numbers, and the sharding of attention."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from xdevice.virtual.torch.private_names import Function, aten, replace_name, untyped_torch

_TorchsPhiloxState: Any = untyped_torch.distributed.tensor._random._PhiloxState


class _PhiloxState(_TorchsPhiloxState):  # type: ignore[misc]  # Any to checkers
    """A seed and an offset for DTensor, which are the last 16 bytes of a virtual GPU's state."""

    def __init__(self, state: torch.Tensor) -> None:
        super().__init__(state[-16:].clone())


def replace() -> None:
    """Add random states and the sharding of attention to DTensor, once."""
    if untyped_torch.distributed.tensor._random._PhiloxState is _PhiloxState:
        return
    replace_name("torch.distributed.tensor._random:_PhiloxState", _PhiloxState)
    handlers = untyped_torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers
    handlers[aten._fused_sdp_choice.default] = _choose_attention
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    register_sharding(flash)(partial(_by_batch_and_head, 2, 3))
    register_sharding(backward)(partial(_by_batch_and_head, 3, 6))


def _choose_attention(op: Function, args: Sequence[object], options: dict[str, object]) -> Any:
    local_args = [arg.to_local() if isinstance(arg, DTensor) else arg for arg in args]
    return op(*local_args, **options)


def _by_batch_and_head(
    outputs: int, tensors: int, *args: object, attn_mask: object = None, **options: object
) -> Any:
    """The placements of attention's outputs and inputs, as DTensor has them for CUDA's kernels.

    The first arguments are tensors, and the others numbers. A mask is replicated.
    """
    numbers = [None] * (len(args) - tensors)
    mask = [] if attn_mask is None else [Replicate()]
    placements = (Replicate(), Shard(0), Shard(1))
    return [
        ([placement] * outputs, [placement] * tensors + numbers + mask) for placement in placements
    ]
