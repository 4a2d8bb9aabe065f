"""Operations on tensors of several devices, between which PaddlePaddle copies without an error.

An operation is a function in ``paddle._C_ops``, which modules and tensor methods may also refer to, an operator of
the tensor class, or the backward pass. While a strict block is open, every reference to one is replaced by a
function that first checks the devices of its tensors, in all threads. Operations inside the backward pass are not
checked; they use one device if the forward pass did.
Recurrent layers and optimizers create their state on the default device, which mixes devices unless they run within
``scope(device)``. Explicit copies (`_copy_to`, `copy_`) are allowed. Assignment (``x[0] = y``) is not, since
PaddlePaddle 3.3.1 moves ``x`` to the device of ``y``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import BuiltinFunctionType, FunctionType
from typing import Any

import paddle
from paddle import _C_ops  # the module with all operations
from paddle.base import core

from xdevice.backends.paddle.placement import device_of
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError, mixed

_Tensor: type = paddle.Tensor
_eager: Any = core.eager
_operations: Any = _C_ops
_ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = frozenset(
    [f"__{name}__" for name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC))]
    + [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    + ["_getitem_dygraph", "_setitem_dygraph"]
)
_OPTIMIZERS = frozenset(
    {"adadelta_", "adagrad_", "adam_", "adamax_", "adamw_", "asgd_", "fused_adam_", "lamb_", "merged_adam_"}
    | {"merged_momentum_", "momentum_", "nadam_", "radam_", "rmsprop_", "rprop_", "sgd_"}
)
"""Operations whose scalars, such as a learning rate or a power of Adam's beta, may be on any device.

In other operations only scalars on the CPU are ignored, since PaddlePaddle creates its constants there.
"""

_Change = tuple[Any, str, Any, Any]  # the object that refers to it, the attribute, the old value and the new one

_watching: dict[int, tuple[Any, Any]] = {}  # by id of an operation: the operation and its replacement
_held: tuple[int, list[_Change]] = (0, [])


@contextmanager
def forbid() -> Generator[None]:
    changes = _changes()
    for holder, name, _, watched in changes:
        setattr(holder, name, watched)
    try:
        yield
    finally:
        for holder, name, before, _ in changes:
            setattr(holder, name, before)


def _changes() -> list[_Change]:
    """All references to operations; searched again when other modules have been imported."""
    global _held
    if not _watching:
        for name in _operations.__all__:
            operation = getattr(_operations, name)
            if isinstance(operation, (BuiltinFunctionType, FunctionType)) and not name.startswith("__"):
                _watching[id(operation)] = operation, _looking(operation, name)
    if _held[0] != len(sys.modules):
        _held = len(sys.modules), [*_in_modules(), *_in_the_tensor(), *_in_backward()]
    return _held[1]


def _in_modules() -> Iterator[_Change]:
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            found = _watching.get(id(value))
            if found is not None and found[0] is value:
                yield module, name, *found


def _in_the_tensor() -> Iterator[_Change]:
    for name, value in list(vars(_Tensor).items()):
        found = _watching.get(id(value))
        if found is not None:
            yield _Tensor, name, *found
        elif name in _OPERATORS:
            yield _Tensor, name, value, _looking(value, name.strip("_").removesuffix("_dygraph"))


def _in_backward() -> Iterator[_Change]:
    for name, position in (("run_backward", 0), ("run_partial_grad", 1)):
        run = getattr(_eager, name)
        yield _eager, name, run, _looking_at_pairs(run, position)


def _looking(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(run)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check(name, (*args, *kwargs.values()) if kwargs else args)
        return run(*args, **kwargs)

    return call


def _looking_at_pairs(run: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Check each output against its gradient; outputs may be on several devices."""

    def call(outputs: Any, *args: Any) -> Any:
        for output, gradient in zip(outputs, args[position] or (), strict=False):
            _check("backward", (output, gradient))
        return run(outputs, *args)

    return call


def _check(name: str, arguments: Iterable[Any]) -> None:
    first = None
    for tensor in _tensors(arguments):
        place = _place(tensor)
        if first is None:
            first = place
        elif place is not None and place is not first:  # numbers may be elsewhere; asking for the size takes 10 µs
            break
    else:
        return
    if len(places := set(_places(name, arguments))) > 1:
        raise mixed(name, places)


def _tensors(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, _Tensor):
            yield argument
        elif type(argument) in (list, tuple):
            yield from _tensors(argument)


def _place(tensor: Any) -> Device | None:
    """The device of the tensor; None if it has no value."""
    try:
        return device_of(tensor)
    except UnknownPlacementError:
        return None


def _places(name: str, arguments: Iterable[Any]) -> Iterator[Device]:
    """The devices of the tensors, without tensors that have no value and an optimizer's scalars."""
    for tensor in _tensors(arguments):
        place = _place(tensor)
        if place is None:
            continue
        is_number = tensor.size == 1 and (place.kind == "cpu" or name in _OPTIMIZERS)
        if not is_number:
            yield place
