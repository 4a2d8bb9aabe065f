"""Copies that TensorFlow makes between devices, as they are about to be made.

Seen are the reading of values, copies that are asked for, what is made of NumPy arrays and lists, operands that are
elsewhere than the operation runs, and what a `tf.function` is given. TensorFlow keeps the copy of an operand for as
long as the operand lives, so that it is told once.
"""

import gc
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial, wraps
from inspect import currentframe
from math import prod
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow import mixing
from xdevice.backends.tensorflow.cpu_only import is_lacking
from xdevice.backends.tensorflow.mixing import HOST, Operand, here
from xdevice.backends.tensorflow.placement import Eager, placed, variable_of
from xdevice.backends.tensorflow.private_names import constants, iterators, names, ops
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device
from xdevice.kit import advice
from xdevice.kit.marks import mark_of
from xdevice.kit.private_names import replaced

_SIZES = frozenset({"DynamicPartition", "SegmentSum", "Unique", "UniqueWithCounts", "Where"})
"""Operations whose results' sizes depend on values: on a GPU they read the size back."""
_DTYPES = {int: tf.int32, float: tf.float32, bool: tf.bool, complex: tf.complex128}

_FED = "IteratorGetNext"
_SHORT = 64  # elements of a list whose values are looked at

_Calls = list[tuple[str, str]]
"""The module and the name of each function of a library that is running, the innermost first."""

_LIBRARIES = frozenset(
    {"contextlib", "functools", "keras", "numpy", "tensorflow", "tf_keras", "xdevice"}
)
_HOOKS = tuple(
    f"xdevice.backends.tensorflow.{module}" for module in ("compiling", "mixing", "transfers")
)
_BETWEEN = frozenset(
    {"error_handler", "new_func", "op_dispatch_handler", "wrapped", "wrapper"}
)  # decorators'
_MAKES = frozenset(
    {
        "cast",
        "constant",
        "convert_to_tensor_v2_with_dispatch",
        "identity",
        "identity_n",
        "read_value",
    }
)
"""Functions of TensorFlow by which a program asks for a tensor, and so for its copy."""
_FEEDS = ("tensorflow.python.data.", "tensorflow.python.ops.variables")
_COMPUTES = ("keras.src.ops", "xdevice.backends.tensorflow.maths", "xdevice.kit.standard")
_LOOPS = ("keras.src.backend.tensorflow.trainer", "tensorflow.python.data.", "tf_keras.src.engine.")

_optimizers: dict[str, list[weakref.ref[Any]]] = {}  # by function, those whose steps it makes


@contextmanager
def watch(watcher: Watcher) -> Generator[None, None, None]:
    names.require("watch_transfers()")
    seen = _Seen(watcher)
    with ExitStack() as stack:
        for owner, name, instead in (
            (ops._EagerTensorBase, "_numpy", seen.reading),
            (ops._EagerTensorBase, "_copy_nograd", seen.copying),
            (constants, "convert_to_eager_tensor", seen.making),
            (iterators.OwnedIterator, "_next_internal", seen.feeding),
            (np, "asarray", seen.exporting),
            (np, "array", seen.exporting),
        ):
            stack.enter_context(replaced(owner, name, partial(_given_to, instead)))
        stack.enter_context(mixing.looked_at(seen.operation))
        yield


def _given_to(instead: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        return instead(own, *args, **kwargs)

    return call


def unseen() -> list[str]:
    return [
        "what a tf.function copies inside, Keras's compiled training included: it is placed when it is traced",
        "arrays that NumPy makes of a tensor otherwise than by np.asarray and np.array: np.sum(x), memoryview(x)",
        "a few int32 that are read, as most of a GPU's kernels keep these in the host's memory",
    ]


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Seen:
    """What is told to one watcher, and which operands have been copied."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._copies: dict[tuple[int, Device], Any] = {}

    def _see(  # noqa: PLR0913, PLR0917  (what a `Copy` has)
        self,
        kind: Kind,
        operation: str,
        nbytes: int,
        source: Device,
        target: Device,
        array: object = None,
    ) -> None:
        if source is not target and nbytes:
            is_ahead = operation == _FED  # a dataset has sent it, which was told to
            self._watcher.see(
                Copy(kind, operation, nbytes, source, target, is_ahead, mark=_mark(array))
            )

    def reading(self, read: Callable[..., Any], tensor: Any) -> Any:
        """``EagerTensor._numpy``, by which TensorFlow reads values."""
        source = placed(tensor.backing_device)
        if source is not HOST and not _is_kept(tensor):
            calls = _calls_of_libraries()
            # a boolean may say that there is another batch, which is known on the host
            if not (
                tensor.dtype == tf.bool and any(module.startswith(_LOOPS) for module, _ in calls)
            ):
                kind: Kind = "copy" if _is_asked(calls) else "number"
                self._see(
                    kind, calls[0][1].strip("_") if calls else "numpy", _size(tensor), source, HOST
                )
        return read(tensor)

    def copying(
        self, copy: Callable[..., Any], tensor: Any, ctx: Any = None, device_name: Any = None
    ) -> Any:
        """``EagerTensor._copy_nograd``, by which we copy, and TensorFlow's gradient of a copy."""
        kind: Kind = "gradient" if _is_backward(_calls_of_libraries()) else "copy"
        target = placed(device_name) if device_name else here()
        self._see(kind, "copy", _size(tensor), placed(tensor.backing_device), target)
        return copy(tensor, ctx, device_name)

    def making(self, make: Callable[..., Any], value: Any, ctx: Any, dtype: Any = None) -> Any:
        """``convert_to_eager_tensor``, for what is no tensor yet. Python's numbers are copied once, and kept."""
        target = here()
        if target is not HOST and isinstance(value, (np.ndarray, np.generic, list, tuple)):
            nbytes = _size_made(value, dtype)
            calls = _calls_of_libraries() if nbytes else []
            # told when its operation took the short way, if the long one makes tensors of its arguments
            if not (
                type(value) is np.ndarray and any("_eager_fallback" in name for _, name in calls)
            ):
                self._see(_kind_of_made(calls), "convert_to_tensor", nbytes, HOST, target, value)
        return make(value, ctx, dtype)

    def feeding(self, give: Callable[..., Any], iterator: Any) -> Any:
        """``OwnedIterator._next_internal``: batches are made on the host."""
        batch = give(iterator)
        for tensor in tf.nest.flatten(batch, expand_composites=True):
            if type(tensor) is Eager:
                self._see("copy", _FED, _size(tensor), HOST, placed(tensor.backing_device))
        return batch

    def exporting(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``np.asarray`` and ``np.array``, which ask a tensor for its memory and no function of it."""
        given: Any = args[0] if args else None
        for tensor in given if isinstance(given, (list, tuple)) else (given,):
            if type(tensor) is not Eager or _is_kept(tensor):
                continue
            if np.dtype(tensor.dtype.as_numpy_dtype).kind in "biufc":
                self._see(
                    "number", make.__name__, _size(tensor), placed(tensor.backing_device), HOST
                )
        return make(*args, **kwargs)

    def operation(self, operation: str, arguments: Any, places: set[str]) -> None:
        """An operation, with TensorFlow's names of the devices where its arguments are."""
        special = _special(operation)
        target = HOST if is_lacking(operation, arguments) else here()
        if special == "indices" or any(placed(place) is not target for place in places):
            self._operands(operation, arguments, target)
        if special == "size" and target is not HOST:
            self._see("size", operation, 8, target, HOST)
        elif special == "count":
            self._counted(arguments)
        elif special == "function":
            for optimizer in _steps_of(operation, arguments):
                self._watcher.stepped(optimizer)

    def _operands(self, operation: str, arguments: Any, scope: Device) -> None:
        """Tell of the operands that are elsewhere than the operation runs."""
        given, calls_function = (
            list(mixing.operands(operation, arguments)),
            _special(operation) == "function",
        )
        if calls_function:
            crossing = [
                (o, t)
                for i, o in given
                if not o.is_handle
                for t in mixing.targets_of(operation, i, scope)
            ]
        else:  # it runs beside a variable that it is given
            target = next((o.place for _, o in given if o.is_handle), scope)
            crossing = [(o, target) for _, o in given]
        for operand, target in crossing:
            value, key = operand.value, (id(operand.value), target)
            if operand.place is target or operand.is_small or key in self._copies:
                continue
            kind = _kind_of_operand(operation, operand, target, _calls_of_libraries())
            nbytes = prod(operand.shape, start=int(operand.dtype.size))
            self._see(kind, mixing.spoken(operation), nbytes, operand.place, target, value)
            if (
                type(value) is Eager and not calls_function
            ):  # which copies it in each call; else until the tensor goes
                self._copies[key] = weakref.ref(value, partial(self._copies.pop, key))

    def _counted(self, arguments: Any) -> None:
        """Tell of the optimizer that now sets the number of its steps."""
        handle, value = arguments[:2]
        if getattr(value, "dtype", None) != tf.int64 or value.shape.rank:
            return
        for frame in _frames():
            owner = (
                frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
            )
            if _counter_of(owner) is handle:
                self._watcher.stepped(owner)
                return


@lru_cache(maxsize=4096)
def _special(operation: str) -> str:
    """What is to be looked at in an operation beside the places of its operands."""
    if operation in ("AssignAddVariableOp", "AssignVariableOp"):
        return "count"
    if operation in _SIZES:
        return "size"
    if operation.startswith("__"):  # the call of a tf.function, or a part of its gradient
        return "function"
    return "" if mixing.INDICES.isdisjoint(mixing.names_in(operation)) else "indices"


def _mark(sent: Any) -> int:
    """That of an array, a tensor on the host, or a list of numbers that is short."""
    if isinstance(sent, (list, tuple)):
        return hash(repr(sent)) if len(sent) <= _SHORT else 0
    if (
        type(sent) is Eager
        and placed(sent.backing_device) is HOST
        and sent.dtype.is_numpy_compatible
    ):
        sent = sent._numpy_internal()
    return mark_of(sent) if isinstance(sent, np.ndarray) else 0


def _size(tensor: Any) -> int:
    if tensor.dtype in (tf.string, tf.resource, tf.variant):
        return 0
    return int(tensor.dtype.size * tensor.shape.num_elements())


def _size_made(value: Any, dtype: Any) -> int:
    """The size of what is made of an array or a list; zero of text and int32, which stay on the host."""
    leaf, count = value, 1
    while type(leaf) in (list, tuple) and leaf:
        count *= len(leaf)
        leaf = next(
            (each for each in leaf if type(each) is float), leaf[0]
        )  # integers beside it become floats
    if isinstance(leaf, (np.ndarray, np.generic)):
        count, likely = count * leaf.size, leaf.dtype
    else:
        likely = _DTYPES.get(type(leaf))
    if likely is None or (dtype or likely) == tf.int32 or not count:
        return 0
    made = tf.as_dtype(dtype or likely)
    return 0 if made == tf.string else count * int(made.size)


def _is_kept(tensor: Any) -> bool:
    """Whether values read are few int32, which most of a GPU's kernels keep in the host's memory."""
    shape = tensor.shape
    return bool(
        tensor.dtype == tf.int32
        and (not shape.rank or (shape.rank == 1 and shape[0] <= mixing.DIMENSIONS))
    )


def _frames() -> Iterator[FrameType]:
    """The frames of libraries, the innermost first and our hooks' left out, to the program's own."""
    frame = currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _LIBRARIES or module.startswith("xdevice.testing"):
            return
        if not module.startswith(_HOOKS):
            yield frame
        frame = frame.f_back


def _calls_of_libraries() -> _Calls:
    return [(frame.f_globals["__name__"], frame.f_code.co_name) for frame in _frames()]


def _outermost(calls: _Calls) -> tuple[str, str]:
    """The function that the program called, without its decorators."""
    return next((call for call in reversed(calls) if call[1] not in _BETWEEN), ("", ""))


def _is_backward(calls: _Calls) -> bool:
    return any(name == "imperative_grad" for _, name in calls)


def _is_asked(calls: _Calls) -> bool:
    """Whether the program asks xdevice for a copy, and not for computing."""
    return _outermost(calls)[0].startswith("xdevice.") and not any(
        m.startswith(_COMPUTES) for m, _ in calls
    )


def _kind_of_made(calls: _Calls) -> Kind:
    if _is_backward(calls):
        return "gradient"
    module, name = _outermost(calls)
    is_keras = module.startswith(("keras.", "tf_keras.")) and not module.startswith(_COMPUTES)
    return (
        "copy"
        if name in _MAKES or is_keras or module.startswith(_FEEDS) or _is_asked(calls)
        else "index"
    )


def _kind_of_operand(operation: str, operand: Operand, target: Device, calls: _Calls) -> Kind:
    if _is_backward(calls):
        return "gradient"
    is_made = operation == "Identity" and _outermost(calls)[1] in _MAKES
    if operation == "AssignVariableOp" or is_made or _is_asked(calls):
        return "copy"
    if operation == "Identity" and target is HOST:
        return "number"
    return "print" if operation == "StringFormat" else "index" if operand.is_kept else "operand"


def _steps_of(function: str, arguments: Any) -> Iterator[object]:
    """The optimizers that make a step in the function: they count it in a variable to which it assigns."""
    if function not in _optimizers:
        handles = {id(arguments[i]) for i in mixing.assigned_by(function) if i < len(arguments)}
        found = gc.get_objects() if handles else []
        kinds = {kind for kind in {type(each) for each in found} if _is_optimizer(kind)}
        ours = [each for each in found if type(each) in kinds and id(_counter_of(each)) in handles]
        _optimizers[function] = [weakref.ref(each) for each in ours]
    yield from (optimizer for known in _optimizers[function] if (optimizer := known()) is not None)


def _counter_of(optimizer: object) -> Any:
    """The handle of the variable in which an optimizer of Keras counts its steps; None for any other object."""
    counter = getattr(optimizer, "_iterations", None) if _is_optimizer(type(optimizer)) else None
    return getattr(variable_of(counter), "_handle", None)


def _is_optimizer(cls: type) -> bool:
    return all(
        any(name in vars(each) for each in cls.__mro__)
        for name in ("iterations", "apply_gradients")
    )
