"""Gradients, by Paddle's autograd."""

from typing import Any, TypeAlias

import paddle
from paddle.autograd.py_layer import once_differentiable

from xdevice.backends.paddle import placement
from xdevice.contract import Call, Tensor
from xdevice.errors import NotSupportedError

Node: TypeAlias = Any  # of the graph of operations that PaddlePaddle records

_decorator: Any = once_differentiable
# All methods ``backward`` with this decorator have the same code
_ONCE_DIFFERENTIABLE = _decorator(lambda: None).__code__


def is_floating(tensor: Tensor) -> bool:
    return bool(paddle.is_floating_point(tensor))


def value_and_gradients(
    call: Call, parameters: list[Tensor], nested: bool
) -> tuple[Tensor, Any, list[Tensor]]:
    with paddle.enable_grad():
        variables = [_variable(p, nested) for p in parameters]
        value, aux = call(variables)
        if value.stop_gradient:  # it depends on no variable
            return value.detach(), aux, [paddle.zeros_like(p).detach() for p in variables]
        if nested:
            _check_twice_differentiable(value.grad_fn)
        native_gradients = paddle.grad(value, variables, create_graph=nested, allow_unused=True)
    gradients = [
        _gradient_beside(variable, gradient)
        for variable, gradient in zip(variables, native_gradients, strict=True)
    ]
    return value if nested else value.detach(), aux, gradients


def _check_twice_differentiable(last_node: Node) -> None:
    """Raise an error if an operation has no second gradient.

    PaddlePaddle 3.3.1 would return zeros.
    """
    visited = set[int]()
    nodes = [last_node]
    while nodes:
        node = nodes.pop()
        if node is None or node.node_ptr() in visited:
            continue
        operation = _once_differentiable(node.name())
        if operation is not None:
            raise NotSupportedError(
                f"paddle has no gradients of gradients of {operation}; "
                f"differentiate another function"
            )
        visited.add(node.node_ptr())
        nodes += node.next_functions


def _once_differentiable(node_name: str) -> str | None:
    """A description of the node's operation, if it can be differentiated only once."""
    # the second name is that of versions before 3.3
    if node_name in ("Dy2StGradNode", "GradNodeBase"):
        return "what paddle.jit.to_static has compiled"
    layer = node_name.removeprefix("GradNodePyLayer_")
    if layer == node_name:
        return None
    # a node gives only the name of its class
    for cls in subclasses(paddle.autograd.PyLayer):
        code = getattr(cls.backward, "__code__", None)
        if cls.__name__ == layer and code is _ONCE_DIFFERENTIABLE:
            return f"{layer}, which is marked once_differentiable"
    return None


def subclasses(cls: type[Any]) -> list[type[Any]]:
    """The class, and all classes that derive from it."""
    classes = [cls]
    for subclass in cls.__subclasses__():
        classes += subclasses(subclass)
    return classes


def _variable(parameter: Tensor, nested: bool) -> Tensor:
    if nested and not parameter.stop_gradient:
        return parameter.clone()  # a separate object through which the outer gradient flows
    variable = parameter.detach()
    variable.stop_gradient = False
    return variable


def _gradient_beside(parameter: Tensor, gradient: Tensor | None) -> Tensor:
    """The gradient, dense and on its parameter's device.

    Some of Paddle's kernels leave it on another device.
    """
    if gradient is None:
        return paddle.zeros_like(parameter).detach()
    # the gradient of a sparse embedding has only the rows that were looked up
    if gradient.is_selected_rows():
        rows = paddle.to_tensor(gradient.rows(), dtype="int64").unsqueeze(1)
        values = gradient._get_tensor_from_selected_rows()
        gradient = paddle.scatter_nd_add(paddle.zeros_like(parameter), rows, values)
    device = placement.device_of(parameter)
    if placement.device_of(gradient) is device:
        return gradient
    return placement.move(gradient, device, False)
