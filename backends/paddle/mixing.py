"""Operations on tensors of several devices, between which PaddlePaddle copies without an error.

While a strict block is open, every operation, and the backward pass, first checks the devices of its tensors, in all
threads. Operations inside the backward pass are not checked; they use one device if the forward pass did.
Recurrent layers and optimizers create their state on the default device, which mixes devices unless they run within
``scope(device)``. Explicit copies (`_copy_to`, `copy_`) are allowed. Assignment (``x[0] = y``) is not, since
PaddlePaddle 3.3.1 moves ``x`` to the device of ``y``.

What is looked at are operations, which are functions in ``paddle._C_ops`` that modules and tensor methods may also
refer to, operators of the tensor class, its methods that copy, and the backward pass. Every reference to one is
replaced by a function that first shows its arguments to the looks of the open blocks.
"""

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any

import paddle
from paddle import _C_ops, _legacy_C_ops  # the modules with all operations
from paddle.base import core

from xdevice.backends.paddle.placement import device_of
from xdevice.backends.paddle.private_names import names
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError, mixed

Look = Callable[
    [str, tuple[Any, ...], dict[str, Any]], None
]  # given the name of what is called, and its arguments
_Reference = tuple[
    Any, str, Any, Any
]  # who refers to a function, by which attribute; it, and what takes its place

_Tensor: Any = paddle.Tensor
_eager: Any = core.eager
_ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = frozenset(
    [f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r")]
    + [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    + ["_getitem_dygraph", "_setitem_dygraph"]
)
# Methods of a tensor that may copy it, with their names for the looks
_COPYING = {
    **{name: name.strip("_") for name in ("numpy", "_copy_to", "copy_", "set_value")},
    "_getitem_from_offset": "item",
    "tensor_copy": "copy_to",
    "__init__": "to_tensor",
}
COPIES = frozenset(_COPYING.values())
BACKWARD = (
    "run_backward",
    "run_partial_grad",
)  # the names of the backward pass, whose outputs may be on several devices
LEGACY = "legacy."  # before the names of operations in ``paddle._legacy_C_ops``
# Operations whose scalars, such as a learning rate or a power of Adam's beta, may be on any device. In others only
# scalars on the CPU are ignored, since PaddlePaddle creates its constants there.
_OPTIMIZERS = frozenset(
    {
        "adadelta_",
        "adagrad_",
        "adam_",
        "adamax_",
        "adamw_",
        "asgd_",
        "fused_adam_",
        "lamb_",
        "merged_adam_",
    }
    | {"merged_momentum_", "momentum_", "nadam_", "radam_", "rmsprop_", "rprop_", "sgd_"}
)


def forbid() -> AbstractContextManager[None]:
    return looking(_check)


def _check(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for arguments in together(name, args, kwargs):
        if found := mixture(name, arguments):
            raise mixed("backward" if name in BACKWARD else name, {place for _, place in found})


def together(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Iterable[Any]]:
    """The arguments that are computed with together: of the backward pass, an output and the gradient given for it."""
    if name in BACKWARD:
        return zip(args[0], args[1 + BACKWARD.index(name)] or (), strict=False)
    return [(*args, *kwargs.values()) if kwargs else args]


def mixture(name: str, arguments: Iterable[Any]) -> list[tuple[Any, Device]]:
    """An operation's tensors with their devices, if these are several; without numbers that may be elsewhere."""
    if name in COPIES or name.startswith(LEGACY) or not _are_apart(_tensors(arguments)):
        return []
    found = list(_places(name, arguments))
    return found if len({place for _, place in found}) > 1 else []


def _are_apart(tensors: Iterator[Any]) -> bool:
    """Whether they are in several places, numbers too: asking for the size takes 10 µs, and for the device 5."""
    first = None
    for tensor in tensors:
        try:
            place = tensor.place
        except RuntimeError:  # it has no value
            continue
        if first is None:
            first = place
        elif not first._equals(place):
            return True
    return False


def _tensors(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, _Tensor):
            yield argument
        elif type(argument) in (list, tuple):
            yield from _tensors(argument)


def _places(name: str, arguments: Iterable[Any]) -> Iterator[tuple[Any, Device]]:
    for tensor in _tensors(arguments):
        try:
            place = device_of(tensor)
        except UnknownPlacementError:
            continue
        if tensor.size != 1 or (place.kind != "cpu" and name not in _OPTIMIZERS):
            yield tensor, place


class _Refused(threading.local):
    """The error for which the library was told to fail in this thread, and the calls that it fails in."""

    error: Exception | None = None
    calls: tuple[FrameType, ...] = ()


_lock = threading.Lock()
_looks: tuple[Look, ...] = ()
_calls: dict[
    int, tuple[Any, Any]
] = {}  # by id of a function: the function, and what takes its place
_references: dict[tuple[int, str], _Reference] = {}  # by id of the holder, and the attribute
_modules = 0  # how many there were when they were searched
_refused = _Refused()


@contextmanager
def looking(look: Look) -> Generator[None]:
    """Within the block, the look sees every call before it is made. What it raises, the call raises."""
    global _looks
    names.require("strict() and watch_transfers()")
    with _lock:
        _search()
        for holder, name, run, call in _references.values():
            if getattr(holder, name, None) is run:
                setattr(holder, name, call)
        _looks = (look, *_looks)
    try:
        yield
    finally:
        with _lock:
            _looks = tuple(each for each in _looks if each is not look)
            if not _looks:
                _restore()


def _search() -> None:
    """Find all references; again when other modules have been imported."""
    global _modules
    found: list[_Reference] = []
    if not _calls:
        operations: Any = _C_ops
        for module, prefix, names in (
            (_C_ops, "", operations.__all__),
            (_legacy_C_ops, LEGACY, vars(_legacy_C_ops)),
        ):
            for name in list(names):
                operation = getattr(module, name)
                if isinstance(
                    operation, (BuiltinFunctionType, FunctionType)
                ) and not name.startswith("__"):
                    _calls[id(operation)] = operation, _looked_at(operation, prefix + name)
        found += _in_the_library()
    if _modules != len(sys.modules):
        _modules = len(sys.modules)
        found += _in_modules(_calls)
    _references.update({(id(each[0]), each[1]): each for each in found})


def _restore() -> None:
    for holder, name, run, call in _references.values():
        if vars(holder).get(name) is call:  # else somebody has replaced it
            setattr(holder, name, run)
    if _modules != len(
        sys.modules
    ):  # imported meanwhile, they may refer to what took the functions' places
        for holder, name, _, run in _in_modules(
            {id(call): (call, run) for run, call in _calls.values()}
        ):
            setattr(holder, name, run)


def _in_modules(wanted: dict[int, tuple[Any, Any]]) -> Iterator[_Reference]:
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            found = wanted.get(id(value))
            if found is not None and found[0] is value:
                yield module, name, *found


def _in_the_library() -> Iterator[_Reference]:
    """Those of the tensor class, and of the engine's module, whose ``tensor_copy`` copies parameters."""
    methods = [(_Tensor, name, value) for name, value in vars(_Tensor).items()]
    methods += [(_eager, name, getattr(_eager, name)) for name in (*BACKWARD, "tensor_copy")]
    for holder, name, run in methods:
        if id(run) in _calls:
            yield holder, name, *_calls[id(run)]
        elif name in _OPERATORS or name in _COPYING or holder is _eager:
            shown = _COPYING.get(name) or name.strip("_").removesuffix("_dygraph")
            yield holder, name, run, _looked_at(run, shown)


def _looked_at(run: Callable[..., Any], name: str) -> Any:
    @wraps(run)
    def call(*args: Any, **kwargs: Any) -> Any:
        for look in _looks:
            look(name, args, kwargs)
        try:
            return run(*args, **kwargs)
        except Exception as error:
            refused = _refusal(sys._getframe())  # pyright: ignore[reportPrivateUsage]  # this call
            if refused is None or refused is error:
                raise
            raise refused from None

    return call


_CODE = _looked_at(len, "").__code__


def refuse(error: Exception, frame: FrameType | None) -> None:
    """Raise this error in place of the library's, which is about to fail in the calls around the frame."""
    _refused.error, _refused.calls = (
        error,
        tuple(each for each in frames_of(frame) if each.f_code is _CODE),
    )


def _refusal(frame: FrameType) -> Exception | None:
    found = _refused.error if frame in _refused.calls else None
    if frame in _refused.calls[-1:]:  # the outermost call
        _refused.error, _refused.calls = None, ()
    return found


def call_of(frame: FrameType) -> tuple[str, tuple[Any, ...]] | None:
    """The name and the arguments of a call that is looked at; None where the frame is another function's."""
    return (frame.f_locals["name"], frame.f_locals["args"]) if frame.f_code is _CODE else None


def frames_of(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
