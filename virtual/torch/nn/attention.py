"""Attention by torch's algorithms for the CPU, in place of those for GPUs."""

from collections.abc import Callable
from typing import Any, cast

import torch

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import aten, core, in_place_of, kernels_of, untyped_torch

Tensor = torch.Tensor
Maybe = torch.Tensor | None

_FLASH = 1  # torch.nn.attention.SDPBackend.FLASH_ATTENTION


def register() -> None:
    kernels = kernels_of("aten")
    key = runtime.dispatch_key()
    for each_key in (key, f"Autograd{key}"):
        kernels.impl("scaled_dot_product_attention", _attention, each_key)
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
    """Attention by the algorithm that torch chooses on the CPU, or by the one without fusion."""
    _check_attention(q, k, v, mask, causal)
    fused = _is_fused(q, k, v, mask, dropout, causal, **options)
    if mask is not None and mask.dtype == torch.bool:
        # both algorithms below would add a Boolean mask as numbers
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    if _is_fused_on_cuda(q, k, v, mask, dropout):
        scale = options.get("scale")
        attended: Tensor = _Attention.apply(q, k, v, mask, dropout, causal, scale)  # type: ignore[no-untyped-call]
        return attended
    results: tuple[Tensor, ...]
    if not fused:
        math = aten._scaled_dot_product_attention_math.default
        results = math(q, k, v, mask, dropout, causal, None, **options)
        return results[0]
    # the fused kernel needs a batch dimension, and torch 2.15 chooses the kernel without one too
    has_batch = q.dim() != 3
    if not has_batch:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(0)
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    results = flash(q, k, v, dropout, causal, attn_mask=mask, scale=options.get("scale"))
    return results[0] if has_batch else results[0].squeeze(0)


class _Attention(torch.autograd.Function):
    """Attention with dropout, which keeps no weights for its backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Maybe, *options: Any) -> Tensor:
        drawn = _operations.start_attention(q, k)
        attended, sums = _operations.attend(q, k, v, mask, *options, *drawn)
        ctx.save_for_backward(q, k, v, mask, attended, sums)
        ctx.options = *options, *drawn
        return cast("Tensor", attended)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, mask, *_ = ctx.saved_tensors
        results = _operations.attend_backward(*gradients, q, k, v, mask, *ctx.options)
        return *results, None, None, None, None


_operations: Any = torch.ops.xdevice_virtual


def _is_fused_on_cuda(q: Tensor, k: Tensor, v: Tensor, mask: Maybe, dropout: float) -> bool:
    """Whether CUDA computes attention with dropout by one of its fused kernels.

    The numbers are those of the memory-efficient kernel, which 32-bit floats
    get. Tensors that torch traces or transforms are left to the math.
    """
    backends = untyped_torch.backends.cuda
    is_half = q.dtype in {torch.float16, torch.bfloat16}
    return (
        0 < dropout < 1
        and runtime.in_use().name == "cuda"
        and type(q) is Tensor
        and not core._are_functorch_transforms_active()
        and (is_half or q.dtype == torch.float32)
        and q.dim() == k.dim() == v.dim() == 4
        and q.numel() > 0
        and q.size(1) == k.size(1)
        and q.size(-1) % 4 == v.size(-1) % 4 == 0
        and (mask is None or not mask.requires_grad)
        and (backends.mem_efficient_sdp_enabled() or (is_half and backends.flash_sdp_enabled()))
    )


def _is_fused(  # noqa: PLR0913, PLR0917  (torch's signature)
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Maybe,
    dropout: float,
    causal: bool,
    **options: Any,
) -> bool:
    """Whether the fused algorithm for the CPU computes this attention."""
    if any(map(_is_batched, (q, k, v))):
        return False  # vmap has no rule for the choice below, nor for the CPU's algorithm
    if untyped_torch.backends.cuda.math_sdp_enabled():
        choose = aten._fused_sdp_choice.default
        fused = bool(choose(q, k, v, mask, dropout, causal, **options) == _FLASH)
    else:
        _check_algorithms(q, mask)
        mask_needs_grad = mask is not None and mask.requires_grad
        fused = dropout == 0 and q.size(-1) == v.size(-1) and not mask_needs_grad
    # as on CUDA, float64 is not fused, so that a second derivative exists
    is_double_on_cuda = q.dtype == torch.float64 and runtime.in_use().name == "cuda"
    return fused and not is_double_on_cuda


def _is_batched(x: Tensor) -> bool:
    """Whether vmap batches this tensor, within gradients of torch.func or not."""
    functorch = core._functorch
    while functorch.is_gradtrackingtensor(x):
        x = functorch.get_unwrapped(x)
    return bool(functorch.is_batchedtensor(x))


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
    """Attention of jagged tensors: torch has an algorithm for causal attention on GPUs only."""
    sequences = query.transpose(1, 2)
    is_virtual = query.device.type == runtime.in_use().name
    if not is_causal or attn_mask is not None or not is_virtual or sequences._ragged_idx != 1:
        return attend(query, key, value, attn_mask, dropout_p, is_causal, **options)
    attend_densely = untyped_torch.nn.functional.scaled_dot_product_attention
    queries, keys, values = (x.transpose(1, 2).unbind() for x in (query, key, value))
    results = []
    for sequence in zip(queries, keys, values, strict=True):
        q, k, v = (x.transpose(0, 1) for x in sequence)
        result = attend_densely(q, k, v, None, dropout_p, True, **options)
        results.append(result.transpose(0, 1))
    nested = torch.nested.nested_tensor_from_jagged(torch.cat(results), sequences.offsets())
    return nested.transpose(1, 2)


def _check_algorithms(q: Tensor, mask: Maybe) -> None:
    """Raise torch's error if `sdpa_kernel` allows no algorithm that CUDA has for the tensors."""
    if _has_algorithm(q, mask):
        return
    raise RuntimeError("No available kernel. Aborting execution.")


def _has_algorithm(q: Tensor, mask: Maybe) -> bool:
    settings = untyped_torch.backends.cuda
    cudnn = settings.cudnn_sdp_enabled()
    flash = settings.flash_sdp_enabled()
    efficient = settings.mem_efficient_sdp_enabled()
    if runtime.is_faithful():
        is_half = q.dtype in {torch.float16, torch.bfloat16}
        cudnn = cudnn and is_half
        flash = flash and is_half and mask is None
        efficient = efficient and q.dtype != torch.float64
        if q.dim() != 4:
            return False
    return bool(cudnn or flash or efficient)


def _check_attention(q: Tensor, k: Tensor, v: Tensor, mask: Maybe, causal: bool) -> None:
    """Raise the errors of torch's own operation, which this module replaces."""
    valid = q.dtype == k.dtype == v.dtype and min(q.dim(), k.dim(), v.dim()) >= 2
    if mask is not None:
        valid = valid and not causal and mask.dtype in (torch.bool, torch.float, q.dtype)
    if not valid:  # torch's operation raises its error, on tensors without memory
        on_meta = [None if x is None else x.to("meta") for x in (q, k, v, mask)]
        aten.scaled_dot_product_attention.default(*on_meta, is_causal=causal)
