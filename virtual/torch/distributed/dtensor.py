"""DTensor on virtual GPUs: its random numbers, and how attention is sharded."""

from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from xdevice.virtual.torch.private_names import aten, own, replace_name

_plain: Any = own.distributed.tensor._random._PhiloxState


class _Place(_plain):  # type: ignore[misc]  # Any to checkers
    """The seed and the offset that DTensor looks for in a random state: the last 16 bytes of a virtual GPU's."""

    def __init__(self, state: torch.Tensor) -> None:
        super().__init__(state[-16:].clone())


def replace() -> None:
    """Teach DTensor; more than once does no harm."""
    if own.distributed.tensor._random._PhiloxState is _Place:
        return
    replace_name("torch.distributed.tensor._random:_PhiloxState", _Place)
    handlers = own.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers
    handlers[aten._fused_sdp_choice.default] = _choose_attention
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    register_sharding(flash)(partial(_by_batch_and_head, 2, 3))
    register_sharding(backward)(partial(_by_batch_and_head, 3, 6))


def _choose_attention(op: Any, args: Any, options: Any) -> Any:
    local = [x.to_local() if isinstance(x, DTensor) else x for x in args]
    return op(*local, **options)


def _by_batch_and_head(
    made: int, taken: int, *args: Any, attn_mask: Any = None, **options: Any
) -> Any:
    """How attention may be sharded, as DTensor shards it by CUDA's kernels: a mask is whole everywhere."""
    numbers, mask = [None] * (len(args) - taken), [] if attn_mask is None else [Replicate()]
    return [
        ([place] * made, [place] * taken + numbers + mask)
        for place in (Replicate(), Shard(0), Shard(1))
    ]
