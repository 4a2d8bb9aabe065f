"""Keras's objects where Keras runs on PyTorch. A layer is a module; variables of optimizers and metrics are in none.

A copy that Keras makes is on Keras's own device, and so is what a layer computes: call it inside ``keras.device``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from xdevice.contract import Role
from xdevice.kit import keras
from xdevice.kit.import_hook import after_import


def role(cls: type) -> Role | None:
    return keras.role(cls, "torch")


def name_virtual_gpus() -> None:
    """Let Keras pass PyTorch's name for virtual GPUs on: Keras 3.15 makes ``vcuda:1`` of ``vgpu:1``.

    Its own "gpu:1" and "cuda:1" mean them too, since there are no real GPUs.
    """

    def change(module: Any) -> None:
        parse = module._parse_device_input
        module._parse_device_input = lambda name: re.sub(r"^v?cuda\b", "vgpu", parse(name))

    after_import("keras.src.backend.torch.core", change)


def is_keras(model: Any) -> bool:
    return role(type(model)) is not None


def plain(tensor: Any) -> torch.Tensor:
    """PyTorch's own tensor, which a Keras variable has inside."""
    found: torch.Tensor = tensor if isinstance(tensor, torch.Tensor) else keras.value_of(tensor)
    return found


def is_inside(model: Any) -> bool:
    """Whether there are Keras layers in a module."""
    return keras.running_on("torch") is not None and any(map(is_keras, getattr(model, "modules", list)()))


def tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights by Keras's names, then what only PyTorch knows."""
    known = set()
    for name, variable in keras.weights(model):
        tensor = keras.value_of(variable)
        known.add(id(tensor))
        yield name, tensor
    if isinstance(model, torch.nn.Module):
        state = {id(keras.value_of(variable)) for variable in keras.variables(model)}  # of random numbers, of metrics
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if id(tensor) not in known | state:
                yield name, tensor


def move(model: Any, there: torch.device) -> Any:
    """The same model, and its optimizer, metrics and random state, whose variables no module knows."""
    if isinstance(model, torch.nn.Module):
        model.to(there)
    keras.forget_compiled(model)
    _bring([variable for variable in keras.variables(model) if keras.value_of(variable).device != there], there)
    return model


def keep(model: Any) -> Callable[[], None]:
    kept: dict[torch.device, list[Any]] = {}
    for variable in keras.variables(model):
        kept.setdefault(keras.value_of(variable).device, []).append(variable)

    def put_back() -> None:
        for there, variables in kept.items():
            _bring(variables, there)

    return put_back


def copies(models: list[Any]) -> list[Any]:
    copied = keras.copies(models)
    before, after = ([[tensor for _, tensor in tensors_of(m)] for m in each] for each in (models, copied))
    keras.check_sharing(before, after, models)
    for model, old, new in zip(copied, before, after, strict=True):
        if len({tensor.device for tensor in old}) == 1:
            move(model, old[0].device)
        settle(old, new)
    return copied


def settle(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> None:
    """Give copies the values of what they are copies of, where that is."""
    with torch.no_grad():
        for old, new in zip(before, after, strict=True):
            torch.nn.ParameterList([new]).to(old.device)
            new.copy_(old)


def _bring(variables: list[Any], there: torch.device) -> None:
    moved = torch.nn.ParameterList(keras.value_of(variable) for variable in variables).to(there)
    for variable, value in zip(variables, moved, strict=True):
        variable._value = value
