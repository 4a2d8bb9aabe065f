"""PyTorch modules, and packed sequences, which hold tensors and move like modules; and torch.utils._pytree."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree

from xdevice.backends.torch import in_keras
from xdevice.backends.torch.hardware import native
from xdevice.backends.torch.private_names import core, own
from xdevice.device import Device
from xdevice.errors import NotSupportedError


def tensors_of(model: torch.nn.Module | PackedSequence) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, PackedSequence):
        yield "data", model.data  # its lengths always stay on the host
        return
    if in_keras.is_keras(model):
        yield from in_keras.tensors_of(model)
        return
    yield from model.named_parameters()
    yield from model.named_buffers()
    yield from _constants(model)


def _constants(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What is neither a parameter nor a buffer and does not move: weights packed for int8, constants of TorchScript."""
    for name, module in model.named_modules():
        tensors: list[torch.Tensor] = []
        if isinstance(module, torch.jit.ScriptModule):
            graph: Any = getattr(module, "graph", None)
            nodes = graph.findAllNodes("prim::Constant") if graph is not None else ()
            values = [n.t("value") for n in nodes if n.hasAttribute("value") and n.kindOf("value") == "t"]
            tensors = [value for value in values if value.ndim]  # a number may be anywhere
        elif "quantized" in type(module).__module__:
            tensors = [tensor for value in vars(module).values() for tensor in _packed(value)]
        yield from ((f"{name}.constant{i}".lstrip("."), tensor) for i, tensor in enumerate(tensors))


def _packed(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.ScriptObject):
        yield from _packed(value.__getstate__())
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _packed(part)
    elif isinstance(value, torch.Tensor):
        yield value


def move_model(model: Any, device: Device) -> Any:
    """Move as torch does, and keep buffers shared that several modules share; torch copies each."""
    if in_keras.is_keras(model):
        return in_keras.move(model, native(device))
    if any(tensor.is_meta for _, tensor in tensors_of(model)) and device.kind != "meta":
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{native(device)}') allocates memory for them"
        )
    shared = _shared_buffers(model)
    moved = model.to(native(device))
    for (first, name), *others in shared:
        for module, other in others:
            setattr(module, other, getattr(first, name))  # a buffer's name stays a buffer's
    return moved


def keep(model: Any) -> Callable[[], None]:
    if in_keras.is_keras(model):
        return in_keras.keep(model)
    modules = [] if isinstance(model, PackedSequence) else list(model.modules())
    parameters = [(m, name, p) for m in modules for name, p in m._parameters.items() if p is not None]
    buffers = [(m, name, buffer) for m in modules for name, buffer in m._buffers.items()]
    kept = {id(p): (p, p.data, p.grad, None if p.grad is None else p.grad.data) for _, _, p in parameters}

    def put_back() -> None:
        for parameter, data, grad, values in kept.values():
            if parameter.device != data.device:
                parameter.grad = None
                refill(parameter, data)
            if grad is not None and values is not None:
                grad.data = values
                parameter.grad = grad
        for module, name, parameter in parameters:
            module._parameters[name] = parameter
        for module, name, buffer in buffers:
            module._buffers[name] = buffer

    return put_back


def refill(parameter: torch.Tensor, data: torch.Tensor) -> None:
    """Give the parameter other data, on any device."""
    if parameter.device.type == data.device.type or own._has_compatible_shallow_copy_type(parameter, data):
        parameter.data = data
        return
    if data.is_inference() and (is_lazy(parameter) or not parameter.is_inference()):
        with torch.inference_mode(False):
            data = data.clone()  # or the parameter would take no gradient from now on
    _exchange(parameter, torch.nn.Parameter(data, parameter.requires_grad))


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Swap the C++ tensors of two parameters. Existing graphs keep the tensor that they refer to."""
    if parameter.requires_grad and not (is_lazy(parameter) or parameter.is_inference()):  # no graph knows these
        with torch.inference_mode(False):
            torch.autograd.graph.get_gradient_edge(parameter).node.register_prehook(_refuse)
    inside: Any = parameter
    backward, accumulated = inside._backward_hooks, inside._post_accumulate_grad_hooks
    core._swap_tensor_impl(inside, other)
    inside._backward_hooks, inside._post_accumulate_grad_hooks = backward, accumulated


def _refuse(gradients: Any) -> Any:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward, so its gradient has nowhere to go; "
        "move the model before forward, or after backward"
    )


def _shared_buffers(model: Any) -> list[list[tuple[torch.nn.Module, str]]]:
    """The shared buffers, each as a list of the modules and names that refer to it."""
    if isinstance(model, PackedSequence):
        return []
    names: dict[int, list[tuple[torch.nn.Module, str]]] = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                names.setdefault(id(buffer), []).append((module, name))
    return [found for found in names.values() if len(found) > 1]


def copy_models(models: list[Any]) -> list[Any]:
    ours = [model for model in models if in_keras.is_keras(model)]
    others = [model for model in models if not in_keras.is_keras(model)]
    found = dict(zip(map(id, ours), in_keras.copies(ours), strict=True))
    sequences = [model for model in others if isinstance(model, PackedSequence)]
    for packed in sequences:  # torch makes deep copies of leaves of its graph only
        make: Any = type(packed)
        found[id(packed)] = make(*(None if part is None else part.clone() for part in packed))
    others = [model for model in others if not isinstance(model, PackedSequence)]
    try:
        copied = copy.deepcopy(others)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(f"torch cannot copy this model ({error}); build another and load_state_dict") from error
    for old, new in zip(others, copied, strict=True):
        if in_keras.is_inside(old):  # Keras copies its layers to a device of its own
            in_keras.settle(*([tensor for _, tensor in tensors_of(each)] for each in (old, new)))
    found |= zip(map(id, others), copied, strict=True)
    return [found[id(model)] for model in models]


def is_node(cls: type) -> bool:
    return cls in _pytree.SUPPORTED_NODES


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    definition = _pytree.SUPPORTED_NODES[type(node)]
    parts, context = definition.flatten_fn(node)
    if definition.flatten_with_keys_fn is None:
        keys = [f"[{i}]" for i in range(len(parts))]
    else:
        keys = [_pytree.keystr((key,)) for key, _ in definition.flatten_with_keys_fn(node)[0]]
    return list(parts), keys, lambda new: definition.unflatten_fn(new, context), context
