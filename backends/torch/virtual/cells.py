"""Operations that torch implements differently on GPUs and on the CPU: recurrent cells, convolution, dropout.

For PrivateUse1 torch calls the fused kernels of GPUs, which the CPU lacks. These functions compute the same with
ordinary operations; shapes are (batch, features), with the gates concatenated along the features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.virtual import devices
from xdevice.backends.torch.virtual.internals import aten
from xdevice.backends.torch.virtual.kernels import on_host

if TYPE_CHECKING:
    from collections.abc import Callable

Tensor = torch.Tensor


def _lstm(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, *biases: Tensor | None) -> tuple[Tensor, ...]:
    gates = _biased(input_gates, biases[:1]) + _biased(hidden_gates, biases[1:])
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)  # the last is what backward needs


def _lstm_backward(  # noqa: PLR0913, PLR0917  (torch's signature)
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    i, f, g, o = workspace.chunk(4, 1)
    squashed = cy.tanh()
    grad_h = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad_c = grad_h * o * (1 - squashed * squashed)
    if grad_cy is not None:
        grad_c = grad_c + grad_cy
    gates = [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g)]
    grad = torch.cat([*gates, grad_h * squashed * o * (1 - o)], 1)
    return grad, grad_c * f, _bias_grad(grad, has_bias)


def _gru(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor]:
    input_r, input_z, input_n = _biased(input_gates, biases[:1]).chunk(3, 1)
    hidden_r, hidden_z, hidden_n = _biased(hidden_gates, biases[1:]).chunk(3, 1)
    r, z = (hidden_r + input_r).sigmoid(), (hidden_z + input_z).sigmoid()
    n = (input_n + hidden_n * r).tanh()
    return (hx - n) * z + n, torch.cat([r, z, n, hx, hidden_n], 1)  # the last is what backward needs


def _gru_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor, ...]:
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_r = grad_n * hidden_n * r * (1 - r)
    grad_input = torch.cat([grad_r, grad_z, grad_n], 1)
    grad_hidden = torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = _bias_grad(grad_input, has_bias), _bias_grad(grad_hidden, has_bias)
    return grad_input, grad_hidden, grad_hy * z, *biases


def _biased(gates: Tensor, bias: tuple[Tensor | None, ...]) -> Tensor:
    return gates + bias[0] if bias and bias[0] is not None else gates


def _bias_grad(grad: Tensor, has_bias: bool) -> Tensor:
    return grad.sum(0) if has_bias else grad.new_empty(0)


def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    transposed, groups, mask = rest[3], rest[5], rest[6]
    bias = [weight.shape[1] * groups if transposed else weight.shape[0]] if mask[2] else None
    found: tuple[Tensor, ...] = aten.convolution_backward.default(grad, x, weight, bias, *rest)
    return found


def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Equal to the CPU's bit for bit: the noise is drawn and scaled before the multiplication."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    noise = torch.empty_like(x).bernoulli_(1 - p)
    return x * noise.div_(1 - p), noise.bool()


def _dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    noise = mask.to(grad.dtype)
    return grad * (noise / (1 / scale) if scale else noise * 0)


def _attention(  # noqa: PLR0913, PLR0917  (torch's signature)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention by the algorithm that torch chooses on the CPU."""
    _check_attention(query, key, value, attn_mask, is_causal)
    args = query, key, value, attn_mask, dropout_p, is_causal
    options = {"scale": scale, "enable_gqa": enable_gqa}
    found: tuple[Tensor, ...]
    fused = _gpus_only(dropout_p) or aten._fused_sdp_choice.default(*args, **options) == _FLASH
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # both algorithms below would add it as numbers
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    if fused:
        return _flash(query, key, value, attn_mask, dropout_p, is_causal, scale)
    math = aten._scaled_dot_product_attention_math.default
    found = math(query, key, value, attn_mask, dropout_p, is_causal, None, **options)
    return found[0]


def _flash(  # noqa: PLR0913, PLR0917  (torch's signature)
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None
) -> Tensor:
    """Attention by the kernel for a batch, which torch 2.15 chooses without a batch too."""
    if query.dim() == 3:
        mask = mask.unsqueeze(0) if mask is not None and mask.dim() == 3 else mask
        one = _flash(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), mask, dropout, causal, scale)
        return one.squeeze(0)
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    found: tuple[Tensor, ...] = flash(query, key, value, dropout, causal, attn_mask=mask, scale=scale)
    return found[0]


def _gpus_only(dropout_p: float) -> bool:
    """Whether `sdpa_kernel` leaves algorithms of GPUs only; the CPU's fused one stands for them."""
    allowed: Any = torch.backends.cuda
    if allowed.flash_sdp_enabled() or allowed.math_sdp_enabled():
        return False
    return dropout_p == 0 and bool(allowed.mem_efficient_sdp_enabled() or allowed.cudnn_sdp_enabled())


def _check_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    """Raise torch's errors, which it raises in the operation that is replaced here."""
    dtypes, dims = [x.dtype for x in (query, key, value)], [x.dim() for x in (query, key, value)]
    if len(set(dtypes)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and "
            "value.dtype: {} instead.".format(*dtypes)
        )
    if min(dims) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: {} key.dim: {} and "
            "value.dim: {} instead.".format(*dims)
        )
    if attn_mask is None:
        return
    if attn_mask.dtype not in (torch.bool, torch.float, query.dtype):
        raise RuntimeError(
            f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{attn_mask.dtype} and query.dtype: {query.dtype} instead."
        )
    if is_causal:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")


_FLASH = 1  # torch.nn.attention.SDPBackend.FLASH_ATTENTION


def _no_nested(*args: Any) -> bool:
    """Tell TransformerEncoder not to build a nested tensor, which virtual GPUs lack; the result is the same."""
    return False


def _widened(call: Any) -> Callable[..., Tensor]:
    """Softmax, which for GPUs alone may widen half precision."""
    return lambda x, dim, widen: call(x.float() if widen else x, dim, False)


def _narrowed(call: Any) -> Callable[..., Tensor]:
    """Its gradient, which is narrowed again."""
    return lambda grad, output, dim, dtype: call(grad, output, dim, grad.dtype).to(dtype)


def register(library: Any) -> None:
    """Register these operations for virtual GPUs that run in Python."""
    key = devices.key()
    for name, call in (
        ("_thnn_fused_lstm_cell", _lstm),
        ("_thnn_fused_lstm_cell_backward_impl", _lstm_backward),
        ("_thnn_fused_gru_cell", _gru),
        ("_thnn_fused_gru_cell_backward", _gru_backward),
        ("native_dropout_backward", _dropout_backward),
        ("_softmax", _widened(aten._softmax.default)),
        ("_log_softmax", _widened(aten._log_softmax.default)),
        ("_softmax_backward_data", _narrowed(aten._softmax_backward_data.default)),
        ("_log_softmax_backward_data", _narrowed(aten._log_softmax_backward_data.default)),
    ):
        library.impl(name, on_host(f"aten::{name}", call), key)
    if key == "CUDA":  # above those for which C++ has a table of its own
        library.impl("_convolution", on_host("aten::_convolution", aten._convolution.default), key)
        backward = on_host("aten::convolution_backward", aten.convolution_backward.default)
        library.impl("convolution_backward", backward, key)
    else:
        library.impl("convolution_overrideable", on_host("aten::convolution", aten.convolution.default), key)
        backward = on_host("aten::convolution_backward", _convolution_backward)
        library.impl("convolution_backward_overrideable", backward, key)
    library.impl("native_dropout", _dropout, key)
    register_attention(library, key)


def register_attention(library: Any, key: str) -> None:
    """Register attention, which the compiled virtual GPUs take from here."""
    for each in (key, f"Autograd{key}"):
        library.impl("scaled_dot_product_attention", _attention, each)
    library.impl("_nested_tensor_from_mask_left_aligned", _no_nested, key)
