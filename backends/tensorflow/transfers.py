"""Copies that TensorFlow makes between devices, each before it is made.

These are observed: reading values, copies that a program asks for, tensors made
of NumPy arrays and lists, operands on another device than the operation, and
the arguments of a `tf.function`. TensorFlow keeps the copy of an operand as
long as the operand exists, so the copy is reported once.
"""

import gc
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial, wraps
from inspect import currentframe
from math import prod
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.kit import advice, buffers, dlpack
from xdevice.backends.kit.marks import mark_of
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.tensorflow import mixing
from xdevice.backends.tensorflow.cpu_only import is_lacking
from xdevice.backends.tensorflow.mixing import (
    HOST,
    Argument,
    Arguments,
    Operand,
    Runtime,
    current_device,
)
from xdevice.backends.tensorflow.placement import Eager, Tensor, placed, variable_of
from xdevice.backends.tensorflow.private_names import constants, iterators, names, ops
from xdevice.contract import Copy, Kind, NativeDtype, Watcher
from xdevice.device import Device

_SIZES = frozenset({"DynamicPartition", "SegmentSum", "Unique", "UniqueWithCounts", "Where"})
"""Operations whose results' sizes depend on values: on a GPU they read the size back."""
_DTYPE_OF = {int: tf.int32, float: tf.float32, bool: tf.bool, complex: tf.complex128}

_NEXT_BATCH = "IteratorGetNext"
_SHORT_LIST = 64  # elements; the values of a longer list are not compared


class _Call(NamedTuple):
    """A function of a library that is running."""

    module: str
    name: str


_Calls: TypeAlias = list[_Call]  # the innermost first
_Function: TypeAlias = Callable[..., Any]

_LIBRARIES = frozenset(
    ("contextlib", "functools", "keras", "numpy", "tensorflow", "tf_keras", "xdevice")
)
_HOOKS = (
    "xdevice.backends.tensorflow.compiling",
    "xdevice.backends.tensorflow.mixing",
    "xdevice.backends.tensorflow.transfers",
)
# The names of functions that decorators return
_DECORATED = frozenset(("error_handler", "new_func", "op_dispatch_handler", "wrapped", "wrapper"))
_MAKE_TENSORS = frozenset(
    {
        "cast",
        "constant",
        "convert_to_tensor_v2_with_dispatch",
        "identity",
        "identity_n",
        "read_value",
    }
)
"""Functions by which a program asks TensorFlow for a tensor, and so for its copy."""
_FEEDING = ("tensorflow.python.data.", "tensorflow.python.ops.variables")
_COMPUTING = ("keras.src.ops", "xdevice.backends.tensorflow.maths", "xdevice.backends.kit.standard")
_LOOPS = ("keras.src.backend.tensorflow.trainer", "tensorflow.python.data.", "tf_keras.src.engine.")

# by the name of a tf.function, the optimizers that it steps
_optimizers: dict[str, list[weakref.ref[Any]]] = {}


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")
    reporter = _Reporter(watcher)
    replacements = (
        (ops._EagerTensorBase, "_numpy", reporter.reading),
        (ops._EagerTensorBase, "_copy_nograd", reporter.copying),
        (ops._EagerTensorBase, "__dlpack__", reporter.sharing),
        (constants, "convert_to_eager_tensor", reporter.making),
        (iterators.OwnedIterator, "_next_internal", reporter.feeding),
    )
    with ExitStack() as stack:
        for owner, name, replacement in replacements:
            stack.enter_context(replaced(owner, name, partial(_around, replacement)))
        stack.enter_context(buffers.watched(Eager, reporter.exporting))
        stack.enter_context(mixing.observed(reporter.operation))
        yield


def _around(replacement: _Function, original: _Function) -> _Function:
    """A function that calls the replacement with the original function as its first argument."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return call


def unseen() -> list[str]:
    return [
        (
            "what a tf.function copies inside, Keras's compiled training included: "
            "it is placed when it is traced"
        ),
        "a few int32 that are read, as most of a GPU's kernels keep these in the host's memory",
    ]


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Reporter:
    """Reports copies to one watcher, and keeps a record of the operands that have been copied."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # copied operands, by their ids and the devices to which they were copied
        self._copied: dict[tuple[int, Device], weakref.ref[Any]] = {}

    def _report(  # noqa: PLR0913, PLR0917  (what a `Copy` has)
        self,
        kind: Kind,
        operation: str,
        nbytes: int,
        source: Device,
        target: Device,
        array: object = None,
    ) -> None:
        if source is target or not nbytes:
            return
        non_blocking = operation == _NEXT_BATCH  # a dataset copies batches ahead
        copy = Copy(kind, operation, nbytes, source, target, non_blocking, mark=_mark(array))
        self._watcher.see(copy)

    def reading(self, read: _Function, tensor: Tensor) -> Any:
        """Replaces ``EagerTensor._numpy``, by which TensorFlow reads values."""
        source = placed(tensor.backing_device)
        if source is not HOST and not _is_on_host(tensor):
            calls = _calls_of_libraries()
            if not _asks_for_next_batch(tensor, calls):
                kind: Kind = "copy" if _is_copy_by_xdevice(calls) else "number"
                name = calls[0].name.strip("_") if calls else "numpy"
                self._report(kind, name, _size(tensor), source, HOST)
        return read(tensor)

    def copying(
        self, copy: _Function, tensor: Tensor, ctx: Runtime = None, device_name: str | None = None
    ) -> Tensor:
        """Replaces ``EagerTensor._copy_nograd``.

        xdevice copies by it, and so does TensorFlow's gradient of a copy.
        """
        kind: Kind = "gradient" if _is_backward(_calls_of_libraries()) else "copy"
        source = placed(tensor.backing_device)
        target = placed(device_name) if device_name else current_device()
        self._report(kind, "copy", _size(tensor), source, target)
        return copy(tensor, ctx, device_name)

    def making(
        self, make: _Function, value: Argument, ctx: Runtime, dtype: NativeDtype = None
    ) -> Tensor:
        """Replaces ``convert_to_eager_tensor``.

        Python's numbers are not reported: TensorFlow copies each once, and keeps the copy.
        """
        target = current_device()
        if target is not HOST and isinstance(value, (np.ndarray, np.generic, list, tuple)):
            nbytes = _size_of_result(value, dtype)
            calls = _calls_of_libraries() if nbytes else []
            # an array that the slow path converts was reported on the fast path
            is_fallback = any("_eager_fallback" in call.name for call in calls)
            if not (is_fallback and type(value) is np.ndarray):
                kind = _kind_of_conversion(calls)
                self._report(kind, "convert_to_tensor", nbytes, HOST, target, value)
        return make(value, ctx, dtype)

    def feeding(self, next_batch: _Function, iterator: Any) -> Any:
        """Replaces ``OwnedIterator._next_internal``; batches are made on the host."""
        batch = next_batch(iterator)
        for tensor in tf.nest.flatten(batch, expand_composites=True):
            if type(tensor) is Eager:
                target = placed(tensor.backing_device)
                self._report("copy", _NEXT_BATCH, _size(tensor), HOST, target)
        return batch

    def exporting(self, tensor: Tensor) -> None:
        """Report a tensor whose memory is read directly, as NumPy's functions do.

        TensorFlow has no buffer for a dtype that is not NumPy's own, such as bfloat16.
        """
        has_buffer = np.dtype(tensor.dtype.as_numpy_dtype).kind in "biufc"
        if has_buffer and not _is_on_host(tensor):
            source = placed(tensor.backing_device)
            self._report("number", "buffer", _size(tensor), source, HOST)

    def sharing(self, export: _Function, tensor: Tensor, **options: Any) -> Any:
        """Replaces ``__dlpack__``: a virtual GPU that does not stand in shares the host's memory."""
        if tensor.__dlpack_device__()[0] == dlpack.CPU:
            self.exporting(tensor)
        return export(tensor, **options)

    def operation(self, operation: str, arguments: Arguments, device_names: set[str]) -> None:
        """Report an operation's copies before it runs; the names are its arguments' devices."""
        feature = _feature(operation)
        target = HOST if is_lacking(operation, arguments) else current_device()
        is_crossing = any(placed(name) is not target for name in device_names)
        if feature == "indices" or is_crossing:
            self._report_operands(operation, arguments, target)
        if feature == "size" and target is not HOST:
            self._report("size", operation, 8, target, HOST)
        elif feature == "count":
            self._report_step(arguments)
        elif feature == "function":
            for optimizer in _optimizers_of(operation, arguments):
                self._watcher.stepped(optimizer)

    def _report_operands(self, operation: str, arguments: Arguments, scope: Device) -> None:
        """Report the operands on another device than the operation."""
        is_function = _feature(operation) == "function"
        for operand, target in _targets(operation, arguments, scope):
            value = operand.value
            key = (id(value), target)
            if operand.device is target or operand.is_small or key in self._copied:
                continue
            kind = _kind_of_operand(operation, operand, target, _calls_of_libraries())
            nbytes = prod(operand.shape, start=int(operand.dtype.size))
            name = mixing.readable_name(operation)
            self._report(kind, name, nbytes, operand.device, target, value)
            # a function copies its arguments in each call; other copies are kept as long as the
            # tensor
            if type(value) is Eager and not is_function:
                self._copied[key] = weakref.ref(value, partial(self._copied.pop, key))

    def _report_step(self, arguments: Arguments) -> None:
        """Report the step of an optimizer, if the assignment is to its counter of steps."""
        handle, value = arguments[:2]
        if getattr(value, "dtype", None) != tf.int64 or value.shape.rank:
            return
        for frame in _frames():
            if frame.f_code.co_varnames[:1] != ("self",):
                continue
            owner = frame.f_locals.get("self")
            if _counter_of(owner) is handle:
                self._watcher.stepped(owner)
                return


def _targets(
    operation: str, arguments: Arguments, scope: Device
) -> Iterator[tuple[Operand, Device]]:
    """Each operand with a device on which the operation needs it."""
    operands = list(mixing.operands(operation, arguments))
    if _feature(operation) == "function":
        for number, operand in operands:
            if not operand.is_handle:
                for target in mixing.targets_of(operation, number, scope):
                    yield operand, target
        return
    # an operation on a variable runs beside the variable
    target = next((operand.device for _, operand in operands if operand.is_handle), scope)
    for _, operand in operands:
        yield operand, target


@lru_cache(maxsize=4096)
def _feature(operation: str) -> str:
    """The property of an operation that matters besides the devices of its operands."""
    if operation in ("AssignAddVariableOp", "AssignVariableOp"):
        return "count"
    if operation in _SIZES:
        return "size"
    if operation.startswith("__"):  # the call of a tf.function, or a part of its gradient
        return "function"
    has_indices = not mixing.INDICES.isdisjoint(mixing.names_in(operation))
    return "indices" if has_indices else ""


def _mark(value: Argument) -> int:
    """The mark of an array, of a tensor on the host, or of a short list of numbers; else 0."""
    if isinstance(value, (list, tuple)):
        return hash(repr(value)) if len(value) <= _SHORT_LIST else 0
    is_on_host = type(value) is Eager and placed(value.backing_device) is HOST
    if is_on_host and value.dtype.is_numpy_compatible:
        value = value._numpy_internal()
    return mark_of(value) if isinstance(value, np.ndarray) else 0


def _size(tensor: Tensor) -> int:
    if tensor.dtype in (tf.string, tf.resource, tf.variant):
        return 0
    return int(tensor.dtype.size * tensor.shape.num_elements())


def _size_of_result(value: Argument, dtype: NativeDtype) -> int:
    """The size of the tensor made of an array or a list.

    It is 0 for text and int32, which stay on the host.
    """
    element = value
    count = 1
    while type(element) in (list, tuple) and element:
        count *= len(element)
        # integers beside a float become floats
        floats = (number for number in element if type(number) is float)
        element = next(floats, element[0])
    if isinstance(element, (np.ndarray, np.generic)):
        count *= element.size
        dtype = dtype or element.dtype
    elif type(element) in _DTYPE_OF:
        dtype = dtype or _DTYPE_OF[type(element)]
    else:
        return 0
    if not count:
        return 0
    result_dtype = tf.as_dtype(dtype)
    if result_dtype in (tf.int32, tf.string):
        return 0
    return int(count * result_dtype.size)


def _is_on_host(tensor: Tensor) -> bool:
    """Whether the values are few int32, which most kernels of a GPU keep in the host's memory."""
    if tensor.dtype != tf.int32:
        return False
    shape = tensor.shape
    return not shape.rank or bool(shape.rank == 1 and shape[0] <= mixing.DIMENSIONS)


def _frames() -> Iterator[FrameType]:
    """The frames of libraries up to the program's frames, the innermost first.

    Frames of the functions that observe operations are left out.
    """
    frame = currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _LIBRARIES or module.startswith("xdevice.testing"):
            return
        if not module.startswith(_HOOKS):
            yield frame
        frame = frame.f_back


def _calls_of_libraries() -> _Calls:
    return [_Call(frame.f_globals["__name__"], frame.f_code.co_name) for frame in _frames()]


def _outermost(calls: _Calls) -> _Call:
    """The function that the program called; functions of decorators are left out."""
    named = (call for call in reversed(calls) if call.name not in _DECORATED)
    return next(named, _Call("", ""))


def _asks_for_next_batch(tensor: Tensor, calls: _Calls) -> bool:
    """Whether the tensor is the boolean "there is another batch", which the host knows already."""
    return tensor.dtype == tf.bool and any(call.module.startswith(_LOOPS) for call in calls)


def _is_backward(calls: _Calls) -> bool:
    return any(call.name == "imperative_grad" for call in calls)


def _is_copy_by_xdevice(calls: _Calls) -> bool:
    """Whether the program asks xdevice for a copy, and not for a computation."""
    calls_xdevice = _outermost(calls).module.startswith("xdevice.")
    return calls_xdevice and not any(call.module.startswith(_COMPUTING) for call in calls)


def _kind_of_conversion(calls: _Calls) -> Kind:
    if _is_backward(calls):
        return "gradient"
    module, name = _outermost(calls)
    is_keras = module.startswith(("keras.", "tf_keras.")) and not module.startswith(_COMPUTING)
    is_feeding = is_keras or module.startswith(_FEEDING)
    if name in _MAKE_TENSORS or is_feeding or _is_copy_by_xdevice(calls):
        return "copy"
    return "index"


def _kind_of_operand(operation: str, operand: Operand, target: Device, calls: _Calls) -> Kind:
    is_identity = operation == "Identity"
    if _is_backward(calls):
        return "gradient"
    if is_identity and _outermost(calls).name in _MAKE_TENSORS:
        return "copy"
    if operation == "AssignVariableOp" or _is_copy_by_xdevice(calls):
        return "copy"
    if is_identity and target is HOST:
        return "number"
    if operation == "StringFormat":
        return "print"
    return "index" if operand.is_on_host else "operand"


def _optimizers_of(function: str, arguments: Arguments) -> Iterator[object]:
    """The optimizers that the function steps: it assigns to their counters of steps."""
    if function not in _optimizers:
        handles = {id(arguments[i]) for i in mixing.assigned_by(function) if i < len(arguments)}
        _optimizers[function] = [weakref.ref(optimizer) for optimizer in _counting_in(handles)]
    for reference in _optimizers[function]:
        optimizer = reference()
        if optimizer is not None:
            yield optimizer


def _counting_in(handles: set[int]) -> list[Any]:
    """The optimizers that count their steps in a variable whose handle has one of these ids."""
    if not handles:
        return []
    objects = gc.get_objects()
    classes = {cls for cls in set(map(type, objects)) if _is_optimizer(cls)}
    optimizers = [candidate for candidate in objects if type(candidate) in classes]
    return [optimizer for optimizer in optimizers if id(_counter_of(optimizer)) in handles]


def _counter_of(optimizer: object) -> Tensor | None:
    """The handle of the variable in which an optimizer of Keras counts its steps.

    ``None`` for any other object.
    """
    if not _is_optimizer(type(optimizer)):
        return None
    return getattr(variable_of(getattr(optimizer, "_iterations", None)), "_handle", None)


def _is_optimizer(cls: type) -> bool:
    return all(
        any(name in vars(base) for base in cls.__mro__)
        for name in ("iterations", "apply_gradients")
    )
