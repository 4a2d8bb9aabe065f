"""Gradients, by Paddle's autograd."""

from typing import Any

import paddle
from paddle.autograd.py_layer import once_differentiable

from xdevice.backends.paddle import placement
from xdevice.contract import Call
from xdevice.errors import NotSupportedError

_marked: Any = once_differentiable
_ONCE_DIFFERENTIABLE = _marked(
    lambda: None
).__code__  # the code of every ``backward`` that is marked so


def is_floating(tensor: Any) -> bool:
    return bool(paddle.is_floating_point(tensor))


def value_and_gradients(
    call: Call, parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    with paddle.enable_grad():
        variables = [_variable(p, nested) for p in parameters]
        value, aux = call(variables)
        if value.stop_gradient:  # it depends on no variable
            return value.detach(), aux, [paddle.zeros_like(p).detach() for p in variables]
        once = _only_once(value.grad_fn) if nested else ""
        if once:
            raise NotSupportedError(
                f"paddle has no gradients of gradients of {once}; differentiate another function"
            )
        found = paddle.grad(value, variables, create_graph=nested, allow_unused=True)
    return (
        value if nested else value.detach(),
        aux,
        [_beside(p, g) for p, g in zip(variables, found, strict=True)],
    )


def _only_once(node: Any) -> str:
    """What of the operations can be differentiated once only: the gradient of its gradient would be zero (3.3.1)."""
    seen, left = set[int](), [node]
    while left:
        node = left.pop()
        if node is None or node.node_ptr() in seen:
            continue
        if node.name() in ("Dy2StGradNode", "GradNodeBase"):  # the latter before 3.3
            return "what paddle.jit.to_static has compiled"
        layer = node.name().removeprefix("GradNodePyLayer_")
        if layer != node.name():  # a node says no more of its class than the name
            classes = [cls for cls in subclasses(paddle.autograd.PyLayer) if cls.__name__ == layer]
            if any(
                getattr(cls.backward, "__code__", None) is _ONCE_DIFFERENTIABLE for cls in classes
            ):
                return f"{layer}, which is marked once_differentiable"
        seen.add(node.node_ptr())
        left += node.next_functions
    return ""


def subclasses(cls: Any) -> list[Any]:
    """The class, and all that derive from it."""
    return [cls, *(each for subclass in cls.__subclasses__() for each in subclasses(subclass))]


def _variable(parameter: Any, nested: bool) -> Any:
    if nested and not parameter.stop_gradient:
        return parameter.clone()  # a separate object through which the outer gradient flows
    variable = parameter.detach()
    variable.stop_gradient = False
    return variable


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device, where some of Paddle's kernels do not put it."""
    if gradient is None:
        return paddle.zeros_like(parameter).detach()
    if (
        gradient.is_selected_rows()
    ):  # that of a sparse embedding, whose shape is of the rows that were looked up
        rows = paddle.to_tensor(gradient.rows(), dtype="int64").unsqueeze(1)
        gradient = paddle.scatter_nd_add(
            paddle.zeros_like(parameter), rows, gradient._get_tensor_from_selected_rows()
        )
    device = placement.device_of(parameter)
    return (
        gradient
        if placement.device_of(gradient) is device
        else placement.move(gradient, device, False)
    )
