"""Calls of PaddlePaddle that are looked at while a block is open.

These are operations, which are functions in ``paddle._C_ops`` that modules and tensor methods may also refer to,
operators of the tensor class, its methods that copy, and the backward pass. Every reference to one is replaced, for all
threads, by a function that first shows its arguments to the looks of the open blocks.
"""

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any, NamedTuple

import paddle
from paddle import _C_ops, _legacy_C_ops  # the modules with all operations
from paddle.base import core

Look = Callable[[str, tuple[Any, ...], dict[str, Any]], None]
"""Given the name of what is called, and its arguments."""

_Tensor: Any = paddle.Tensor
_eager: Any = core.eager
_operations: Any = _C_ops
_ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = frozenset(
    [f"__{name}__" for name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC))]
    + [f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    + ["_getitem_dygraph", "_setitem_dygraph"]
)
COPYING = {
    **{name: name.strip("_") for name in ("numpy", "_copy_to", "copy_", "set_value")},
    "_getitem_from_offset": "item",
    "tensor_copy": "copy_to",
    "__init__": "to_tensor",
}
"""Methods of a tensor that may copy it, with their names for the looks."""
BACKWARD = "run_backward", "run_partial_grad"
"""The names of the backward pass, whose outputs may be on several devices."""
LEGACY = "legacy."
"""Before the names of operations in ``paddle._legacy_C_ops``."""


class _Reference(NamedTuple):
    """Who refers to a function, by which attribute; the function, and what takes its place."""

    holder: Any
    name: str
    run: Any
    call: Any


class _Refused(threading.local):
    """The error for which the library was told to fail in this thread, and the calls that it fails in."""

    error: Exception | None = None
    calls: tuple[FrameType, ...] = ()


_lock = threading.Lock()
_looks: tuple[Look, ...] = ()
_calls: dict[int, tuple[Any, Any]] = {}  # by id of a function: the function, and what takes its place
_references: dict[tuple[int, str], _Reference] = {}
_modules = 0  # how many there were when they were searched
_refused = _Refused()


@contextmanager
def looking(look: Look) -> Generator[None]:
    """Within the block, the look sees every call before it is made. What it raises, the call raises."""
    global _looks
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
    if not _calls:
        for module, prefix, names in ((_C_ops, "", _operations.__all__), (_legacy_C_ops, LEGACY, vars(_legacy_C_ops))):
            for name in list(names):
                operation = getattr(module, name)
                if isinstance(operation, (BuiltinFunctionType, FunctionType)) and not name.startswith("__"):
                    _calls[id(operation)] = operation, _looked_at(operation, prefix + name)
        _references.update({(id(each.holder), each.name): each for each in (*_in_the_tensor(), *_in_the_engine())})
    if _modules != len(sys.modules):
        _modules = len(sys.modules)
        _references.update({(id(each.holder), each.name): each for each in _in_modules(_calls)})


def _restore() -> None:
    for holder, name, run, call in _references.values():
        if vars(holder).get(name) is call:  # else somebody has replaced it
            setattr(holder, name, run)
    if _modules != len(sys.modules):  # imported meanwhile, they may refer to what took the functions' places
        for holder, name, _, run in _in_modules({id(call): (call, run) for run, call in _calls.values()}):
            setattr(holder, name, run)


def _in_modules(wanted: dict[int, tuple[Any, Any]]) -> Iterator[_Reference]:
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            found = wanted.get(id(value))
            if found is not None and found[0] is value:
                yield _Reference(module, name, *found)


def _in_the_tensor() -> Iterator[_Reference]:
    for name, value in list(vars(_Tensor).items()):
        found = _calls.get(id(value))
        if found is not None:
            yield _Reference(_Tensor, name, *found)
        elif name in _OPERATORS:
            yield _Reference(_Tensor, name, value, _looked_at(value, name.strip("_").removesuffix("_dygraph")))
        elif name in COPYING:
            yield _Reference(_Tensor, name, value, _looked_at(value, COPYING[name]))


def _in_the_engine() -> Iterator[_Reference]:
    for name in (*BACKWARD, "tensor_copy"):  # the last copies parameters
        run = getattr(_eager, name)
        yield _Reference(_eager, name, run, _looked_at(run, COPYING.get(name, name)))


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
    _refused.error, _refused.calls = error, tuple(each for each in frames_of(frame) if each.f_code is _CODE)


def _refusal(frame: FrameType) -> Exception | None:
    found = _refused.error if frame in _refused.calls else None
    if frame in _refused.calls[-1:]:  # the outermost call
        _refused.error, _refused.calls = None, ()
    return found


def call_of(frame: FrameType) -> tuple[str, tuple[Any, ...]] | None:
    """The name and the arguments of a call that is looked at; None where the frame is another function's."""
    return (frame.f_locals["name"], frame.f_locals["args"]) if frame.f_code is _CODE else None


def frames_of(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame, and those around it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def pairs_of(name: str, args: tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """What the backward pass differentiates, each with the gradient that is given for it."""
    return zip(args[0], args[1 + BACKWARD.index(name)] or (), strict=False)
