"""Models of PyTorch, Keras's objects where Keras runs on PyTorch, and PyTorch's pytrees.

PyTorch's own are modules and packed sequences. A Keras layer is a module, too;
the variables of optimizers and metrics are in no module. A copy that Keras makes
is on Keras's own device. A layer computes there as well: call it inside
``keras.device``.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.kit import keras
from xdevice.backends.torch.hardware import native
from xdevice.backends.torch.private_names import core, names, untyped_torch
from xdevice.contract import Model, Node, NodeParts
from xdevice.device import Device
from xdevice.errors import NotSupportedError

Part: TypeAlias = Any
Variable: TypeAlias = Any  # of Keras


def tensors_of(model: Model) -> Iterable[tuple[str, torch.Tensor]]:
    if isinstance(model, PackedSequence):
        return [("data", model.data)]  # its lengths are always on the host
    if _is_keras(model):
        return _tensors_of_keras(model)
    modules = list(model.named_modules())
    return [*_parameters_and_buffers(modules), *_constants(modules)]


def _tensors_of_keras(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    yield from ((name, keras.value_of(variable)) for name, variable in keras.weights(model))
    if isinstance(model, torch.nn.Module):
        yield from _tensors_without_variable(model)


def _parameters_and_buffers(
    modules: list[tuple[str, torch.nn.Module]],
) -> list[tuple[str, torch.Tensor]]:
    """What ``named_parameters`` and ``named_buffers`` yield, in a third of their time."""
    parameters: dict[int, tuple[str, torch.Tensor]] = {}
    buffers: dict[int, tuple[str, torch.Tensor]] = {}
    for path, module in modules:
        prefix = f"{path}." if path else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                parameters.setdefault(id(parameter), (prefix + name, parameter))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                buffers.setdefault(id(buffer), (prefix + name, buffer))
    return [*parameters.values(), *buffers.values()]


def _tensors_without_variable(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of the module that a Keras model is, but of none of its variables."""
    # the variables include those of random numbers and of metrics, which are no weights
    values = {id(keras.value_of(variable)) for variable in keras.variables(model)}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if id(tensor) not in values:
            yield name, tensor


def _is_keras(model: Model) -> bool:
    return keras.category(type(model), "torch") is not None


# By class. Not functools.cache, about which PyTorch's compiler warns.
_readers: dict[type, Callable[[Any], Iterable[torch.Tensor]] | None] = {}


def _constants(
    modules: list[tuple[str, torch.nn.Module]],
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that are neither parameters nor buffers, and do not move.

    They are weights packed for int8 and constants of TorchScript.
    """
    for name, module in modules:
        cls: type = type(module)
        if cls not in _readers:
            _readers[cls] = _reader_of_constants(cls)
        constants_of = _readers[cls]
        if constants_of is not None:
            for i, tensor in enumerate(constants_of(module)):
                yield f"{name}.constant{i}".lstrip("."), tensor


def _reader_of_constants(cls: type) -> Callable[[Any], Iterable[torch.Tensor]] | None:
    """The function for the constants of modules of this class; ``None`` if they have none."""
    if issubclass(cls, torch.jit.ScriptModule):
        return _script_constants
    if "quantized" in cls.__module__:
        return lambda module: _packed_weights(list(vars(module).values()))
    return None


def _script_constants(module: torch.jit.ScriptModule) -> list[torch.Tensor]:
    """The tensors among the constants of a TorchScript graph, without those of a single number."""
    graph: Any = getattr(module, "graph", None)
    if graph is None:
        return []
    tensors = []
    for node in graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            tensors.append(node.t("value"))
    return [tensor for tensor in tensors if tensor.ndim]


def _packed_weights(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.ScriptObject):
        value = value.__getstate__()
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _packed_weights(part)


def move_model(model: Model, device: Device) -> Model:
    """Move as torch does, but keep shared buffers shared; torch would copy each of them.

    A Keras model's optimizer, metrics and random state move, too. They are in no
    module.
    """
    native_device = native(device)
    if _is_keras(model):
        return _move_keras(model, native_device)
    modules = _modules(model)
    if device.kind != "meta" and (_has_meta(modules) or _is_meta_sequence(model)):
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{native_device}') allocates memory for them"
        )
    shared_buffers = _shared_buffers(modules)
    moved = model.to(native_device)
    for first, *others in shared_buffers:
        buffer = getattr(first.module, first.name)
        for reference in others:
            setattr(reference.module, reference.name, buffer)  # it remains a buffer
    return moved


class _Reference(NamedTuple):
    """A module, and the name by which it refers to a tensor."""

    module: torch.nn.Module
    name: str


def _has_meta(modules: list[torch.nn.Module]) -> bool:
    """Whether a module has a parameter or buffer without values, on the device meta."""
    for module in modules:
        for tensors in (module._parameters, module._buffers):
            for tensor in tensors.values():
                if tensor is not None and tensor.is_meta:
                    return True
    return False


def _is_meta_sequence(model: Model) -> bool:
    return isinstance(model, PackedSequence) and model.data.is_meta


def _shared_buffers(modules: list[torch.nn.Module]) -> list[list[_Reference]]:
    """For each buffer to which several modules refer, the references."""
    references: dict[int, list[_Reference]] = {}
    for module in modules:
        for name, buffer in module._buffers.items():
            if buffer is not None:
                references.setdefault(id(buffer), []).append(_Reference(module, name))
    return [of_buffer for of_buffer in references.values() if len(of_buffer) > 1]


def _modules(model: Model) -> list[torch.nn.Module]:
    return [] if isinstance(model, PackedSequence) else list(model.modules())


def _move_keras(model: Model, device: torch.device) -> Model:
    if isinstance(model, torch.nn.Module):
        model.to(device)
    keras.forget_compiled(model)
    elsewhere = [v for v in keras.variables(model) if keras.value_of(v).device != device]
    _move_variables(elsewhere, device)
    return model


def _move_variables(variables: list[Variable], device: torch.device) -> None:
    values = torch.nn.ParameterList(keras.value_of(variable) for variable in variables)
    for variable, moved in zip(variables, values.to(device), strict=True):
        variable._value = moved


def keep(model: Model) -> Callable[[], None]:
    if _is_keras(model):
        return _keep_keras(model)
    modules = _modules(model)
    registered = [(module, dict(module._parameters), dict(module._buffers)) for module in modules]
    # each parameter once, however many modules refer to it
    parameters = {
        id(parameter): parameter
        for _, of_module, _ in registered
        for parameter in of_module.values()
        if parameter is not None
    }
    values = [
        (parameter, parameter.data, grad := parameter.grad, None if grad is None else grad.data)
        for parameter in parameters.values()
    ]

    def put_back() -> None:
        for parameter_values in values:
            _put_back(*parameter_values)
        for module, of_module, buffers in registered:
            module._parameters.update(of_module)
            module._buffers.update(buffers)

    return put_back


def _put_back(
    parameter: torch.Tensor,
    data: torch.Tensor,
    grad: torch.Tensor | None,
    grad_data: torch.Tensor | None,
) -> None:
    if parameter.device != data.device:
        parameter.grad = None
        refill(parameter, data)
    if grad is not None and grad_data is not None:
        grad.data = grad_data
        parameter.grad = grad


def _keep_keras(model: Model) -> Callable[[], None]:
    devices = [(variable, keras.value_of(variable).device) for variable in keras.variables(model)]

    def put_back() -> None:
        for variable, device in devices:
            _move_variables([variable], device)

    return put_back


def refill(parameter: torch.Tensor, data: torch.Tensor) -> None:
    """Give the parameter these data, which may be on another device.

    torch lets the data of a parameter be set if the C++ tensors of both have
    compatible types, as on devices of one type. Otherwise the parameter's C++
    tensor itself is exchanged; the Python object stays, with the program's
    references to it.
    """
    if parameter.device.type == data.device.type:
        parameter.data = data
        return
    names.require("models that move in place")
    if untyped_torch._has_compatible_shallow_copy_type(parameter, data):
        parameter.data = data
        return
    if data.is_inference() and (is_lazy(parameter) or not parameter.is_inference()):
        with torch.inference_mode(False):
            data = data.clone()  # the parameter could have no gradient otherwise
    _exchange(parameter, torch.nn.Parameter(data, parameter.requires_grad))


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Swap the C++ tensors of two parameters; the first one keeps its hooks.

    An existing graph keeps the C++ tensor that it refers to, which the parameter
    no longer has. A backward pass through such a graph would lose the gradient,
    so it raises an error.
    """
    may_be_in_graph = not (is_lazy(parameter) or parameter.is_inference())
    if parameter.requires_grad and may_be_in_graph:
        with torch.inference_mode(False):
            accumulation = torch.autograd.graph.get_gradient_edge(parameter).node
            accumulation.register_prehook(_raise_in_backward)
    backward_hooks = parameter._backward_hooks
    accumulation_hooks = parameter._post_accumulate_grad_hooks
    core._swap_tensor_impl(parameter, other)
    parameter._backward_hooks = backward_hooks
    parameter._post_accumulate_grad_hooks = accumulation_hooks


def _raise_in_backward(gradients: object) -> NoReturn:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward, "
        "so its gradient has nowhere to go; move the model before forward, or after backward"
    )


def copy_models(models: list[Model]) -> list[Model]:
    keras_models = [model for model in models if _is_keras(model)]
    copies = dict(zip(map(id, keras_models), _copies_by_keras(keras_models), strict=True))
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


def _copy_packed(packed: Any) -> PackedSequence:
    """A copy of a packed sequence; `copy.deepcopy` takes only leaves of torch's graph."""
    parts = [None if part is None else part.clone() for part in packed]
    copied: PackedSequence = type(packed)(*parts)
    return copied


def _copies_by_keras(models: list[Model]) -> list[Model]:
    copies = keras.copies(models)
    sources = [[tensor for _, tensor in tensors_of(model)] for model in models]
    targets = [[tensor for _, tensor in tensors_of(model)] for model in copies]
    keras.check_sharing(sources, targets, models)
    for model, copied, tensors in zip(models, copies, sources, strict=True):
        if len({tensor.device for tensor in tensors}) == 1:
            _move_keras(copied, tensors[0].device)
        _copy_values(model, copied)
    return copies


def _copy_values(model: Model, copied: Model) -> None:
    """Give each tensor of the copy the values and the device of the model's tensor."""
    with torch.no_grad():
        pairs = zip(tensors_of(model), list(tensors_of(copied)), strict=True)
        for (_, source), (_, target) in pairs:
            torch.nn.ParameterList([target]).to(source.device)
            target.copy_(source)


_has_registry = names.has("containers that are registered with PyTorch")
_registry: dict[type, Any] = {}
if _has_registry:
    _registry = names.value("torch.utils._pytree:SUPPORTED_NODES")
_keystr: Callable[..., str] = names.value("torch.utils._pytree:keystr")


def is_node(cls: type) -> bool:
    return cls in _registry


def flatten_one_level(node: Node) -> NodeParts:
    definition = _registry[type(node)]
    parts, context = definition.flatten_fn(node)

    def paths(node: Node) -> list[str]:
        if not definition.flatten_with_keys_fn:
            return [f"[{i}]" for i in range(len(parts))]
        pairs, _ = definition.flatten_with_keys_fn(node)
        return [_keystr((key,)) for key, _ in pairs]

    def rebuild(_: Node, new_parts: list[Part]) -> Node:
        return definition.unflatten_fn(new_parts, context)

    return list(parts), paths, rebuild, [context]
