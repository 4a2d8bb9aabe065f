"""PyTorch modules and packed sequences; Keras's objects, where Keras runs on PyTorch; and torch.utils._pytree.

A Keras layer is a module; variables of optimizers and metrics are in none. A copy that Keras makes is on Keras's own
device, and so is what a layer computes: call it inside ``keras.device``.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.torch.hardware import native
from xdevice.backends.torch.private_names import core, names, own
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.kit import keras


def tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, PackedSequence):
        yield "data", model.data  # its lengths always stay on the host
    elif _is_keras(model):
        yield from ((name, keras.value_of(variable)) for name, variable in keras.weights(model))
        if isinstance(model, torch.nn.Module):  # then what only PyTorch knows
            # also those of random numbers and of metrics
            known = {id(keras.value_of(variable)) for variable in keras.variables(model)}
            named = (*model.named_parameters(), *model.named_buffers())
            yield from ((name, tensor) for name, tensor in named if id(tensor) not in known)
    else:
        yield from model.named_parameters()
        yield from model.named_buffers()
        yield from _constants(model)


def _is_keras(model: Any) -> bool:
    return keras.role(type(model), "torch") is not None


def _constants(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What is neither a parameter nor a buffer and does not move: weights packed for int8, constants of TorchScript."""
    for name, module in model.named_modules():
        tensors: list[torch.Tensor] = []
        if isinstance(module, torch.jit.ScriptModule):
            graph: Any = getattr(module, "graph", None)
            nodes = graph.findAllNodes("prim::Constant") if graph is not None else ()
            values = [
                n.t("value") for n in nodes if n.hasAttribute("value") and n.kindOf("value") == "t"
            ]
            tensors = [value for value in values if value.ndim]  # a number may be anywhere
        elif "quantized" in type(module).__module__:
            tensors = [tensor for value in vars(module).values() for tensor in _packed(value)]
        yield from ((f"{name}.constant{i}".lstrip("."), tensor) for i, tensor in enumerate(tensors))


def _packed(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.ScriptObject):
        value = value.__getstate__()
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _packed(part)


def move_model(model: Any, device: Device) -> Any:
    """Move as torch does, and keep buffers shared that several modules share; torch copies each.

    With a Keras model its optimizer, metrics and random state move, whose variables no module knows.
    """
    there = native(device)
    if _is_keras(model):
        return _move_keras(model, there)
    if any(tensor.is_meta for _, tensor in tensors_of(model)) and device.kind != "meta":
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{there}') allocates memory for them"
        )
    shared: dict[
        int, list[tuple[torch.nn.Module, str]]
    ] = {}  # buffers, by the modules and names that refer to them
    for module in _modules(model):
        for name, buffer in module._buffers.items():
            if buffer is not None:
                shared.setdefault(id(buffer), []).append((module, name))
    moved = model.to(there)
    for (first, name), *others in shared.values():
        for module, other in others:
            setattr(module, other, getattr(first, name))  # a buffer's name stays a buffer's
    return moved


def _modules(model: Any) -> list[Any]:
    return [] if isinstance(model, PackedSequence) else list(model.modules())


def _move_keras(model: Any, there: torch.device) -> Any:
    if isinstance(model, torch.nn.Module):
        model.to(there)
    keras.forget_compiled(model)
    _bring(
        [
            variable
            for variable in keras.variables(model)
            if keras.value_of(variable).device != there
        ],
        there,
    )
    return model


def _bring(variables: list[Any], there: torch.device) -> None:
    moved = torch.nn.ParameterList(keras.value_of(variable) for variable in variables).to(there)
    for variable, value in zip(variables, moved, strict=True):
        variable._value = value


def keep(model: Any) -> Callable[[], None]:
    if _is_keras(model):
        places = [
            (variable, keras.value_of(variable).device) for variable in keras.variables(model)
        ]

        def put_back_keras() -> None:
            for variable, there in places:
                _bring([variable], there)

        return put_back_keras
    modules = _modules(model)
    parameters = [
        (m, name, p) for m in modules for name, p in m._parameters.items() if p is not None
    ]
    buffers = [(m, name, buffer) for m in modules for name, buffer in m._buffers.items()]
    kept = {
        id(p): (p, p.data, p.grad, None if p.grad is None else p.grad.data)
        for _, _, p in parameters
    }

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
    if parameter.device.type != data.device.type:
        names.require("models that move in place")
    if parameter.device.type == data.device.type or own._has_compatible_shallow_copy_type(
        parameter, data
    ):
        parameter.data = data
        return
    if data.is_inference() and (is_lazy(parameter) or not parameter.is_inference()):
        with torch.inference_mode(False):
            data = data.clone()  # or the parameter would take no gradient from now on
    _exchange(parameter, torch.nn.Parameter(data, parameter.requires_grad))


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Swap the C++ tensors of two parameters. Existing graphs keep the tensor that they refer to."""
    if parameter.requires_grad and not (
        is_lazy(parameter) or parameter.is_inference()
    ):  # no graph knows these
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


def copy_models(models: list[Any]) -> list[Any]:
    ours = [model for model in models if _is_keras(model)]
    found = dict(zip(map(id, ours), _copies_by_keras(ours), strict=True))
    for packed in (model for model in models if isinstance(model, PackedSequence)):
        make: Any = type(packed)  # torch makes deep copies of leaves of its graph only
        found[id(packed)] = make(*(None if part is None else part.clone() for part in packed))
    others = [model for model in models if id(model) not in found]
    try:
        copied = copy.deepcopy(others)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(
            f"torch cannot copy this model ({error}); build another and load_state_dict"
        ) from error
    for old, new in zip(others, copied, strict=True):
        if any(map(_is_keras, _modules(old))):  # Keras copies its layers to a device of its own
            _settle(old, new)
    found |= zip(map(id, others), copied, strict=True)
    return [found[id(model)] for model in models]


def _copies_by_keras(models: list[Any]) -> list[Any]:
    copied = keras.copies(models)
    before, after = (
        [[tensor for _, tensor in tensors_of(m)] for m in each] for each in (models, copied)
    )
    keras.check_sharing(before, after, models)
    for model, new, tensors in zip(models, copied, before, strict=True):
        if len({tensor.device for tensor in tensors}) == 1:
            _move_keras(new, tensors[0].device)
        _settle(model, new)
    return copied


def _settle(model: Any, copied: Any) -> None:
    with torch.no_grad():
        for (_, old), (_, new) in zip(tensors_of(model), list(tensors_of(copied)), strict=True):
            torch.nn.ParameterList([new]).to(old.device)
            new.copy_(old)


_knows_nodes = names.has("containers that are registered with PyTorch")
_nodes: Any = names.value("torch.utils._pytree:SUPPORTED_NODES") if _knows_nodes else {}
_named: Any = names.value("torch.utils._pytree:keystr")


def is_node(cls: type) -> bool:
    return cls in _nodes


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    definition = _nodes[type(node)]
    parts, context = definition.flatten_fn(node)
    named = definition.flatten_with_keys_fn
    keys = (
        [_named((k,)) for k, _ in named(node)[0]]
        if named
        else [f"[{i}]" for i in range(len(parts))]
    )
    return list(parts), keys, lambda new: definition.unflatten_fn(new, context), context
