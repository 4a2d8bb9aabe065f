"""PyTorch modules and packed sequences; Keras's objects, where Keras runs on PyTorch; and torch.utils._pytree.

A Keras layer is a module; variables of optimizers and metrics are in none. A copy that Keras makes
is on Keras's own device, and so is what a layer computes: call it inside ``keras.device``.
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
        yield "data", model.data  # its lengths are always on the host
    elif _is_keras(model):
        yield from ((name, keras.value_of(variable)) for name, variable in keras.weights(model))
        if isinstance(model, torch.nn.Module):
            yield from _tensors_without_variable(model)
    else:
        yield from model.named_parameters()
        yield from model.named_buffers()
        yield from _constants(model)


def _tensors_without_variable(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a Keras model that PyTorch's module has and no variable of Keras."""
    # with the variables of random numbers and of metrics, which are no weights
    variables = {id(keras.value_of(variable)) for variable in keras.variables(model)}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if id(tensor) not in variables:
            yield name, tensor


def _is_keras(model: Any) -> bool:
    return keras.role(type(model), "torch") is not None


def _constants(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that are neither parameters nor buffers, and do not move.

    They are weights packed for int8 and constants of TorchScript.
    """
    for name, module in model.named_modules():
        tensors: list[torch.Tensor] = []
        if isinstance(module, torch.jit.ScriptModule):
            tensors = _script_constants(module)
        elif "quantized" in type(module).__module__:
            tensors = list(_packed_weights(list(vars(module).values())))
        for i, tensor in enumerate(tensors):
            yield f"{name}.constant{i}".lstrip("."), tensor


def _script_constants(module: Any) -> list[torch.Tensor]:
    """The tensors among the constants of a TorchScript graph, without those of a single number."""
    graph: Any = getattr(module, "graph", None)
    nodes = graph.findAllNodes("prim::Constant") if graph is not None else ()
    tensors = [
        node.t("value")
        for node in nodes
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    return [tensor for tensor in tensors if tensor.ndim]


def _packed_weights(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.ScriptObject):
        value = value.__getstate__()
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _packed_weights(part)


def move_model(model: Any, device: Device) -> Any:
    """Move as torch does. Buffers that several modules share stay shared; torch alone would copy each.

    A Keras model's optimizer, metrics and random state move, too, though they are in no module.
    """
    there = native(device)
    if _is_keras(model):
        return _move_keras(model, there)
    if any(tensor.is_meta for _, tensor in tensors_of(model)) and device.kind != "meta":
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{there}') allocates memory for them"
        )
    # for each buffer, the modules and the names that refer to it
    shared: dict[int, list[tuple[torch.nn.Module, str]]] = {}
    for module in _modules(model):
        for name, buffer in module._buffers.items():
            if buffer is not None:
                shared.setdefault(id(buffer), []).append((module, name))
    moved = model.to(there)
    for (first, name), *references in shared.values():
        for module, other_name in references:
            setattr(module, other_name, getattr(first, name))  # it remains a buffer
    return moved


def _modules(model: Any) -> list[Any]:
    return [] if isinstance(model, PackedSequence) else list(model.modules())


def _move_keras(model: Any, there: torch.device) -> Any:
    if isinstance(model, torch.nn.Module):
        model.to(there)
    keras.forget_compiled(model)
    elsewhere = [v for v in keras.variables(model) if keras.value_of(v).device != there]
    _move_variables(elsewhere, there)
    return model


def _move_variables(variables: list[Any], there: torch.device) -> None:
    moved = torch.nn.ParameterList(keras.value_of(variable) for variable in variables).to(there)
    for variable, value in zip(variables, moved, strict=True):
        variable._value = value


def keep(model: Any) -> Callable[[], None]:
    if _is_keras(model):
        return _keep_keras(model)
    parameters, buffers = [], []
    values_of = {}
    for module in _modules(model):
        buffers += [(module, name, buffer) for name, buffer in module._buffers.items()]
        for name, parameter in module._parameters.items():
            if parameter is not None:
                parameters.append((module, name, parameter))
                grad = parameter.grad
                values = None if grad is None else grad.data
                values_of[id(parameter)] = (parameter, parameter.data, grad, values)

    def put_back() -> None:
        for parameter, data, grad, values in values_of.values():
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


def _keep_keras(model: Any) -> Callable[[], None]:
    devices = [(variable, keras.value_of(variable).device) for variable in keras.variables(model)]

    def put_back() -> None:
        for variable, device in devices:
            _move_variables([variable], device)

    return put_back


def refill(parameter: torch.Tensor, data: torch.Tensor) -> None:
    """Give the parameter these data, on another device perhaps."""
    if parameter.device.type == data.device.type:
        parameter.data = data
        return
    names.require("models that move in place")
    if own._has_compatible_shallow_copy_type(parameter, data):
        parameter.data = data
        return
    if data.is_inference() and (is_lazy(parameter) or not parameter.is_inference()):
        with torch.inference_mode(False):
            data = data.clone()  # the parameter could have no gradient otherwise
    _exchange(parameter, torch.nn.Parameter(data, parameter.requires_grad))


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Swap the C++ tensors of two parameters. Existing graphs keep the tensor that they refer to."""
    may_be_in_graph = not (is_lazy(parameter) or parameter.is_inference())
    if parameter.requires_grad and may_be_in_graph:
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
    of_keras = [model for model in models if _is_keras(model)]
    copies = dict(zip(map(id, of_keras), _copies_by_keras(of_keras), strict=True))
    for model in models:
        if isinstance(model, PackedSequence):
            copies[id(model)] = _copy_packed(model)
    modules = [model for model in models if id(model) not in copies]
    try:
        copied = copy.deepcopy(modules)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(
            f"torch cannot copy this model ({error}); build another and load_state_dict"
        ) from error
    for source, target in zip(modules, copied, strict=True):
        if any(map(_is_keras, _modules(source))):  # Keras copies its layers to its own device
            _copy_values(source, target)
    copies |= zip(map(id, modules), copied, strict=True)
    return [copies[id(model)] for model in models]


def _copy_packed(packed: Any) -> Any:
    """A copy of a packed sequence; `copy.deepcopy` takes only leaves of torch's graph."""
    return type(packed)(*(None if part is None else part.clone() for part in packed))


def _copies_by_keras(models: list[Any]) -> list[Any]:
    copies = keras.copies(models)
    sources = [[tensor for _, tensor in tensors_of(model)] for model in models]
    targets = [[tensor for _, tensor in tensors_of(model)] for model in copies]
    keras.check_sharing(sources, targets, models)
    for model, copied, tensors in zip(models, copies, sources, strict=True):
        if len({tensor.device for tensor in tensors}) == 1:
            _move_keras(copied, tensors[0].device)
        _copy_values(model, copied)
    return copies


def _copy_values(model: Any, copied: Any) -> None:
    """Give each tensor of the copy the values and the device of the model's."""
    with torch.no_grad():
        for (_, old), (_, new) in zip(tensors_of(model), list(tensors_of(copied)), strict=True):
            torch.nn.ParameterList([new]).to(old.device)
            new.copy_(old)


_has_registry = names.has("containers that are registered with PyTorch")
_registry: Any = names.value("torch.utils._pytree:SUPPORTED_NODES") if _has_registry else {}
_keystr: Any = names.value("torch.utils._pytree:keystr")


def is_node(cls: type) -> bool:
    return cls in _registry


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    definition = _registry[type(node)]
    parts, context = definition.flatten_fn(node)
    if definition.flatten_with_keys_fn:
        pairs, _ = definition.flatten_with_keys_fn(node)
        keys = [_keystr((key,)) for key, _ in pairs]
    else:
        keys = [f"[{i}]" for i in range(len(parts))]
    return list(parts), keys, lambda new: definition.unflatten_fn(new, context), context
