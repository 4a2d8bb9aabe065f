"""Calls of PaddlePaddle's operations, which an observer sees before they run.

While a block of `observing` is open, these entry points of PaddlePaddle are replaced in all
threads:

- the operations, which are functions of ``paddle._C_ops`` and ``paddle._legacy_C_ops``, also in
  the modules of PaddlePaddle that import them;
- the operators of the tensor class, and its methods that copy;
- the backward pass, and the copying of parameters, which are functions of
  ``paddle.base.core.eager``.

Only modules and classes of PaddlePaddle are changed. Most of its public functions, such as
``paddle.matmul``, are written in Python and look up their operation at each call. A few, such as
``paddle.linalg.matmul``, are the compiled operation itself. A module that imported such a function
by name before the block was opened calls it unobserved.
"""

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import paddle
from paddle import _C_ops, _legacy_C_ops  # the modules with all operations
from paddle.base import core

from xdevice.backends.paddle.private_names import names

Function: TypeAlias = Callable[..., Any]
Arguments: TypeAlias = tuple[Any, ...]  # the positional ones of a call
Keywords: TypeAlias = dict[str, Any]
Observer: TypeAlias = Callable[[str, Arguments, Keywords], None]
"""It receives the name of a called function, and the positional and the keyword arguments."""

_Tensor: Any = paddle.Tensor
_eager: Any = core.eager
_operations: Any = _C_ops

_ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OPERATORS = frozenset(
    [f"__{name}__" for name in (*_ARITHMETIC, *_COMPARISONS)]
    + [f"__r{name}__" for name in _ARITHMETIC]
    + ["_getitem_dygraph", "_setitem_dygraph"]
)
# Methods of a tensor that may copy it, with the names that observers receive
_COPYING = {
    "numpy": "numpy",
    "_copy_to": "copy_to",
    "copy_": "copy",
    "set_value": "set_value",
    "_getitem_from_offset": "item",
    "tensor_copy": "copy_to",
    "__init__": "to_tensor",
}
COPIES = frozenset(_COPYING.values())
BACKWARD = ("run_backward", "run_partial_grad")  # the backward pass; both take outputs first
LEGACY = "legacy."  # the prefix of the names of operations in ``paddle._legacy_C_ops``


class _EntryPoint(NamedTuple):
    """An attribute of PaddlePaddle through which an operation is called."""

    owner: ModuleType | type
    name: str
    original: Function
    observed: Function  # calls the observers first


_lock = threading.Lock()
_observers: tuple[Observer, ...] = ()
_observed_operations: dict[int, tuple[Function, Function]] = {}
"""Each operation and the function that replaces it, by the operation's id."""
_entry_points: dict[tuple[int, str], _EntryPoint] = {}
"""By the owner's id and the attribute's name."""
_searched_modules = 0  # the number of imported modules when they were last searched


@contextmanager
def observing(observer: Observer) -> Generator[None]:
    """A block in which the observer receives each call before it runs.

    A call raises the errors of its observers.
    """
    global _observers
    names.require("strict() and watch_transfers()")
    with _lock:
        _find_entry_points()
        for owner, name, original, observed in _entry_points.values():
            if getattr(owner, name, None) is original:
                setattr(owner, name, observed)
        _observers = (observer, *_observers)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(other for other in _observers if other is not observer)
            if not _observers:
                _restore()


def _find_entry_points() -> None:
    """Find all entry points; modules that were imported since the last search may have new ones."""
    global _searched_modules
    new_entry_points: list[_EntryPoint] = []
    if not _observed_operations:
        for operation, name in _all_operations():
            _observed_operations[id(operation)] = operation, _observed(operation, name)
        new_entry_points += _methods_and_engine_functions()
    if _searched_modules != len(sys.modules):
        _searched_modules = len(sys.modules)
        new_entry_points += _module_attributes(_observed_operations)
    for entry_point in new_entry_points:
        _entry_points[id(entry_point.owner), entry_point.name] = entry_point


def _restore() -> None:
    for owner, name, original, observed in _entry_points.values():
        # other code may have replaced the attribute within the block; its function stays
        if vars(owner).get(name) is observed:
            setattr(owner, name, original)
    if _searched_modules != len(sys.modules):
        # modules of PaddlePaddle that were imported within the block have the replacements
        originals = {
            id(observed): (observed, original)
            for original, observed in _observed_operations.values()
        }
        for owner, name, _, original in list(_module_attributes(originals)):
            setattr(owner, name, original)


def _all_operations() -> Iterator[tuple[Function, str]]:
    """Each operation, and the name that observers receive."""
    for module, prefix, attributes in (
        (_operations, "", _operations.__all__),
        (_legacy_C_ops, LEGACY, list(vars(_legacy_C_ops))),
    ):
        for name in attributes:
            value = getattr(module, name)
            is_function = isinstance(value, (BuiltinFunctionType, FunctionType))
            if is_function and not name.startswith("__"):
                yield value, prefix + name


def _module_attributes(replacements: dict[int, tuple[Function, Function]]) -> Iterator[_EntryPoint]:
    """The attributes of PaddlePaddle's modules whose values have these ids."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != "paddle":
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in replacements:
                original, replacement = replacements[id(value)]
                yield _EntryPoint(module, name, original, replacement)


def _methods_and_engine_functions() -> Iterator[_EntryPoint]:
    """Entry points of the tensor class, and of the engine's module.

    The engine's ``tensor_copy`` copies parameters.
    """
    engine_functions = (*BACKWARD, "tensor_copy")
    attributes = [(_Tensor, name, value) for name, value in vars(_Tensor).items()]
    attributes += [(_eager, name, getattr(_eager, name)) for name in engine_functions]
    for owner, name, function in attributes:
        if id(function) in _observed_operations:
            yield _EntryPoint(owner, name, *_observed_operations[id(function)])
        elif name in _OPERATORS or name in _COPYING or owner is _eager:
            shown_name = _COPYING.get(name) or name.strip("_").removesuffix("_dygraph")
            yield _EntryPoint(owner, name, function, _observed(function, shown_name))


def _observed(function: Function, name: str) -> Function:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for observer in _observers:
            observer(name, args, kwargs)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            frame = sys._getframe()  # of this call
            replacement = _replacement_error(frame)
            if replacement is None or replacement is error:
                raise
            raise replacement from None

    return call


# All functions that `_observed` returns have the same code
_OBSERVED_CALL = _observed(len, "").__code__


def call_in(frame: FrameType) -> tuple[str, Arguments] | None:
    """The name and the positional arguments of an observed call, if one runs in this frame."""
    if frame.f_code is not _OBSERVED_CALL:
        return None
    return frame.f_locals["name"], frame.f_locals["args"]


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class _ReplacementError(threading.local):
    """The error to raise in this thread in place of the library's.

    ``calls`` has the frames of the observed calls that fail.
    """

    error: Exception | None = None
    calls: tuple[FrameType, ...] = ()


_pending = _ReplacementError()


def raise_instead(error: Exception, frame: FrameType | None) -> None:
    """Raise this error in place of the library's.

    The library is about to fail in the observed calls around the frame.
    """
    frames = frames_from(frame)
    _pending.error = error
    _pending.calls = tuple(caller for caller in frames if caller.f_code is _OBSERVED_CALL)


def _replacement_error(frame: FrameType) -> Exception | None:
    if frame not in _pending.calls:
        return None
    error = _pending.error
    is_outermost = frame is _pending.calls[-1]
    if is_outermost:
        _pending.error = None
        _pending.calls = ()
    return error


def computed_together(name: str, args: Arguments, kwargs: Keywords) -> Iterable[Iterable[Any]]:
    """The arguments of a call, in groups that are computed with together.

    The backward pass has a group for each output: the output and its initial gradient.
    """
    if name in BACKWARD:
        outputs, gradients = args[0], args[1 + BACKWARD.index(name)] or ()
        return zip(outputs, gradients, strict=False)
    return [(*args, *kwargs.values())]
