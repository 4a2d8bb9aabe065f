"""Attention by the algorithms that torch has for the CPU, where it would choose among those for GPUs."""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import aten, in_place_of, kernels_of, own

Tensor = torch.Tensor
Maybe = torch.Tensor | None

_FLASH = 1  # torch.nn.attention.SDPBackend.FLASH_ATTENTION


def register() -> None:
    ours = kernels_of("aten")
    for key in (runtime.key(), f"Autograd{runtime.key()}"):
        ours.impl("scaled_dot_product_attention", _attention, key)
    in_place_of("torch.nested._internal.ops:jagged_scaled_dot_product_attention")(_jagged)


def _attention(  # noqa: PLR0913, PLR0917  (torch's signature)
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Maybe = None,
    dropout: float = 0.0,
    causal: bool = False,
    **options: Any,
) -> Tensor:
    """Attention by the algorithm that torch chooses on the CPU, and by the plain one where CUDA has no other."""
    _check_attention(q, k, v, mask, causal)
    choose, math = aten._fused_sdp_choice.default, aten._scaled_dot_product_attention_math.default
    if own.backends.cuda.math_sdp_enabled():
        fused = choose(q, k, v, mask, dropout, causal, **options) == _FLASH
    else:
        _check_algorithms(q, mask)
        fused = (
            dropout == 0
            and q.size(-1) == v.size(-1)
            and not (mask is not None and mask.requires_grad)
        )
    if q.dtype == torch.float64 and runtime.in_use().name == "cuda":
        fused = False  # as on CUDA, so that there is a second derivative
    if (
        mask is not None and mask.dtype == torch.bool
    ):  # both algorithms below would add it as numbers
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    found: tuple[Tensor, ...]
    if not fused:
        found = math(q, k, v, mask, dropout, causal, None, **options)
        return found[0]
    flash, kept = aten._scaled_dot_product_flash_attention_for_cpu.default, q.dim()
    if kept == 3:  # the kernel is for a batch, and torch 2.15 chooses it without one too
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        mask = mask.unsqueeze(0) if mask is not None and mask.dim() == 3 else mask
    found = flash(q, k, v, dropout, causal, attn_mask=mask, scale=options.get("scale"))
    return found[0].squeeze(0) if kept == 3 else found[0]


def _jagged(  # noqa: PLR0913, PLR0917  (torch's signature)
    attend: Callable[..., Tensor],
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Maybe = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Attention of jagged tensors: where each word sees those before it, torch has an algorithm for GPUs alone."""
    whole, here = query.transpose(1, 2), query.device.type == runtime.in_use().name
    if not is_causal or attn_mask is not None or not here or whole._ragged_idx != 1:
        return attend(query, key, value, attn_mask, dropout_p, is_causal, **options)
    parts = zip(*(x.transpose(1, 2).unbind() for x in (query, key, value)), strict=True)
    attend_densely = own.nn.functional.scaled_dot_product_attention
    made = [
        attend_densely(*(x.transpose(0, 1) for x in part), None, dropout_p, True, **options)
        for part in parts
    ]
    values = torch.cat([x.transpose(0, 1) for x in made])
    return torch.nested.nested_tensor_from_jagged(values, whole.offsets()).transpose(1, 2)


def _check_algorithms(q: Tensor, mask: Maybe) -> None:
    """Raise torch's error where `sdpa_kernel` leaves no algorithm, or none that CUDA has for the tensors."""
    allowed, faithful = own.backends.cuda, runtime.is_faithful()
    short, batch = (
        q.dtype in {torch.float16, torch.bfloat16} or not faithful,
        q.dim() == 4 or not faithful,
    )
    cudnn = allowed.cudnn_sdp_enabled() and short
    flash = allowed.flash_sdp_enabled() and short and (mask is None or not faithful)
    efficient = allowed.mem_efficient_sdp_enabled() and (q.dtype != torch.float64 or not faithful)
    if not (batch and (cudnn or flash or efficient)):
        raise RuntimeError("No available kernel. Aborting execution.")


def _check_attention(q: Tensor, k: Tensor, v: Tensor, mask: Maybe, causal: bool) -> None:
    """Raise torch's errors, which it raises in the operation that is replaced here."""
    alike = q.dtype == k.dtype == v.dtype and min(q.dim(), k.dim(), v.dim()) >= 2
    if not alike or (
        mask is not None and (causal or mask.dtype not in (torch.bool, torch.float, q.dtype))
    ):
        on_meta = [None if x is None else x.to("meta") for x in (q, k, v, mask)]
        aten.scaled_dot_product_attention.default(*on_meta, is_causal=causal)
