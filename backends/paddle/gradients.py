"""Gradients, by Paddle's autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from xdevice.backends.paddle import placement
from xdevice.errors import NotSupportedError


def is_floating(tensor: Any) -> bool:
    return bool(paddle.is_floating_point(tensor))


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    with paddle.enable_grad():
        variables = [_variable(p, nested) for p in parameters]
        value, aux = call(variables)
        if value.stop_gradient:  # it depends on no variable
            return value.detach(), aux, [_zeros(p) for p in variables]
        if nested and _through_compiled(value.grad_fn):
            raise NotSupportedError(
                "paddle has no gradients of gradients of what paddle.jit.to_static has compiled; differentiate the "
                "function itself"
            )
        found = paddle.grad(value, variables, create_graph=nested, allow_unused=True)
    return value if nested else value.detach(), aux, [_beside(p, g) for p, g in zip(variables, found, strict=True)]


def _through_compiled(node: Any) -> bool:
    """Whether a compiled program is among the operations; the gradient of its gradient would be zero (3.3.1)."""
    seen, left = set[int](), [node]
    while left:
        node = left.pop()
        if node is None or node.node_ptr() in seen:
            continue
        if node.name() in ("Dy2StGradNode", "GradNodeBase"):  # the latter before 3.3
            return True
        seen.add(node.node_ptr())
        left += node.next_functions
    return False


def _variable(parameter: Any, nested: bool) -> Any:
    if nested and not parameter.stop_gradient:
        return parameter.clone()  # a separate object through which the outer gradient flows
    variable = parameter.detach()
    variable.stop_gradient = False
    return variable


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device, where some of Paddle's kernels do not put it."""
    if gradient is None:
        return _zeros(parameter)
    device = placement.device_of(parameter)
    return gradient if placement.device_of(gradient) is device else placement.move(gradient, device, False)


def _zeros(parameter: Any) -> Any:
    zeros = paddle.zeros_like(parameter)
    zeros.stop_gradient = True
    return zeros
