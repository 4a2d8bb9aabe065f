"""Dropout, softmax, LSTM and GRU, for which torch calls other operations on GPUs than on the CPU.

For PrivateUse1 torch calls the fused cells of GPUs, which the CPU lacks. Here they are composed of
ordinary operations; shapes are (batch, features), with the gates concatenated along the features.
"""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.virtual.torch.in_python.kernels import on_host
from xdevice.virtual.torch.private_names import aten

Tensor = torch.Tensor
Maybe = torch.Tensor | None


def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Equal to the CPU's bit for bit: the noise is drawn and scaled before the multiplication."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    noise = torch.empty_like(x).bernoulli_(1 - p)
    return x * noise.div_(1 - p), noise.bool()


def _dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    noise = mask.to(grad.dtype)
    return grad * (noise / (1 / scale) if scale else noise * 0)


def _widened(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Softmax, which for GPUs alone may widen half precision."""
    return lambda x, dim, widen: call(x.float() if widen else x, dim, False)


def _narrowed(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Its gradient, which is narrowed again."""
    return lambda grad, output, dim, dtype: call(grad, output, dim, grad.dtype).to(dtype)


def _lstm(
    x: Tensor, h: Tensor, cx: Tensor, x_bias: Maybe = None, h_bias: Maybe = None
) -> tuple[Tensor, ...]:
    gates = _biased(x, x_bias) + _biased(h, h_bias)
    i, f, g, o = gates.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    unused_workspace = gates.new_empty(0)  # only a fused backward would read it
    return o.sigmoid() * cy.tanh(), cy, unused_workspace


def _gru(
    x: Tensor, h: Tensor, hx: Tensor, x_bias: Maybe = None, h_bias: Maybe = None
) -> tuple[Tensor, Tensor]:
    x_r, x_z, x_n = _biased(x, x_bias).chunk(3, 1)
    h_r, h_z, h_n = _biased(h, h_bias).chunk(3, 1)
    r = (h_r + x_r).sigmoid()
    z = (h_z + x_z).sigmoid()
    n = (x_n + h_n * r).tanh()
    return (hx - n) * z + n, hx.new_empty(0)


def _biased(gates: Tensor, bias: Maybe) -> Tensor:
    return gates if bias is None else gates + bias


def kernels() -> dict[tuple[str, str], Callable[..., Any]]:
    on_cpu = {
        "native_dropout_backward": _dropout_backward,
        "_softmax": _widened(aten._softmax.default),
        "_log_softmax": _widened(aten._log_softmax.default),
        "_softmax_backward_data": _narrowed(aten._softmax_backward_data.default),
        "_log_softmax_backward_data": _narrowed(aten._log_softmax_backward_data.default),
    }
    kernels = {name: on_host(f"aten::{name}", call) for name, call in on_cpu.items()}
    kernels["native_dropout"] = _dropout
    cells = {"_thnn_fused_lstm_cell": _lstm, "_thnn_fused_gru_cell": _gru}
    result = {(name, "PrivateUse1"): kernel for name, kernel in kernels.items()}
    for name, cell in cells.items():
        # autograd differentiates the operations that the cells are composed of
        for key in ("PrivateUse1", "AutogradPrivateUse1"):
            result[name, key] = cell
    return result
