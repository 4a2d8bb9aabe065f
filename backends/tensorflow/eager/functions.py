"""What a `tf.function` does with its arguments, by its definition: where it needs them, and whose steps it counts."""

import gc
import weakref
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from xdevice.backends.tensorflow.placement import placed, variable_of
from xdevice.backends.tensorflow.private_names import context
from xdevice.device import Device

_ASSIGNS = frozenset({"AssignAddVariableOp", "AssignVariableOp"})
_optimizers: dict[str, list[weakref.ref[Any]]] = {}  # by function, those whose steps it makes


def targets_of(function: str, argument: int, scope: Device) -> set[Device]:
    """The devices on which the function needs the argument: the scope's, where its author has named none."""
    return {placed(name) if name else scope for name in _needed(function)[argument]}


def steps_of(function: str, arguments: Any) -> Iterator[object]:
    """The optimizers that make a step in the function."""
    if function not in _optimizers:
        handles = {id(arguments[i]) for i in _assigned(function) if i < len(arguments)}
        _optimizers[function] = [weakref.ref(each) for each in _counting(handles)] if handles else []
    for known in _optimizers[function]:
        optimizer = known()
        if optimizer is not None:
            yield optimizer


def counter_of(optimizer: object) -> Any:
    """The handle of the variable in which an optimizer of Keras counts its steps; None for any other object."""
    counter = getattr(optimizer, "_iterations", None) if _is_optimizer(type(optimizer)) else None
    return getattr(variable_of(counter), "_handle", None)


def _is_optimizer(cls: type) -> bool:
    return all(any(name in vars(each) for each in cls.__mro__) for name in ("iterations", "apply_gradients"))


def _counting(handles: set[int]) -> list[Any]:
    """The optimizers that count their steps in one of these variables."""
    found = gc.get_objects()
    kinds = {kind for kind in {type(each) for each in found} if _is_optimizer(kind)}
    return [each for each in found if type(each) in kinds and id(counter_of(each)) in handles]


@lru_cache(maxsize=1024)
def _needed(function: str) -> list[set[str]]:
    """TensorFlow's names of the devices of the operations that take each argument; empty where none is named."""
    definition = _definition(function)
    numbers = {argument.name: i for i, argument in enumerate(definition.signature.input_arg)}
    needed: list[set[str]] = [set() for _ in numbers]
    for node in definition.node_def:
        for given in node.input:
            number = numbers.get(given.partition(":")[0])
            if number is not None:
                needed[number].add(node.device)
    return needed


@lru_cache(maxsize=1024)
def _assigned(function: str) -> frozenset[int]:
    """The numbers of the arguments that are variables to which it assigns, in the functions that it calls too."""
    definition = _definition(function)
    numbers = {argument.name: i for i, argument in enumerate(definition.signature.input_arg)}
    found: set[int | None] = set()
    for node in definition.node_def:
        given = [numbers.get(name.partition(":")[0]) for name in node.input if not name.startswith("^")]
        if node.op in _ASSIGNS:
            found.add(given[0])
        for attribute in node.attr.values():
            for called in (attribute.func, *attribute.list.func):
                if called.name:
                    first = len(given) - len(_definition(called.name).signature.input_arg)  # 1 behind a condition
                    found |= {given[first + i] for i in _assigned(called.name)}
    return frozenset(i for i in found if i is not None)


def _definition(function: str) -> Any:
    return context.context().get_function_def(function)
