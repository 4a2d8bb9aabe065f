"""Cells of LSTM and GRU: for PrivateUse1 torch calls the fused kernels of GPUs, which the CPU lacks.

These functions compute the same with ordinary operations; shapes are (batch, features), with the gates concatenated
along the features.
"""

from typing import Any

import torch

from xdevice.backends.torch.virtual.in_python.kernels import on_host

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


def register(ours: Any) -> None:
    for name, call in (
        ("_thnn_fused_lstm_cell", _lstm),
        ("_thnn_fused_lstm_cell_backward_impl", _lstm_backward),
        ("_thnn_fused_gru_cell", _gru),
        ("_thnn_fused_gru_cell_backward", _gru_backward),
    ):
        ours.impl(name, on_host(f"aten::{name}", call), "PrivateUse1")
