"""The arguments of factories: dtypes, shapes, arrays, and numbers, which the dtype has to hold."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    UnknownPlacementError,
    XDeviceError,
    did_you_mean,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import ATOMS, tensor_owner
from xdevice.integers import as_integer
from xdevice.tensors.placement import device_of, owner_of

Number: TypeAlias = Any
"""A number of Python, NumPy or a framework."""
Dtype: TypeAlias = Any
"""A NumPy name, a NumPy dtype, one of Python's types, or a native dtype."""
NumpyArray: TypeAlias = Any
"""A `numpy.ndarray`; NumPy is imported only when it is needed."""

_MAX_SIZE = 2**60  # numbers in a tensor: in bytes its size still fits into 64 bits

# Lists within lists: no framework has more dimensions, and a list may contain
# itself.
_MAX_DEPTH = 64
_REAL_TYPES = frozenset({bool, int, float})

# Names whose width differs from framework to framework.
_AMBIGUOUS_DTYPES = frozenset(
    {"float", "double", "half", "int", "uint", "long", "short", "complex", "cfloat", "cdouble"}
)
_NUMBER_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_WIDTHS = (*range(1, 9), 16, 32, 64)  # of integers, in bits
_LIMITS = {
    **{f"uint{bits}": (0, 2**bits - 1) for bits in _WIDTHS},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in _WIDTHS},
}

# The names of dtypes that were asked for. The functions of `functools` that
# keep results are not used here: `torch.compile` warns of them.
_dtype_names: dict[tuple[type, NativeDtype, Backend | None], str] = {}
_MOST_DTYPES = 256  # NumPy has any number of structured dtypes

_BUILTIN_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def native_dtype(owner: Backend, dtype: Dtype) -> NativeDtype | None:
    """The native dtype for a NumPy name, a NumPy dtype, one of Python's types or a native dtype."""
    if dtype is None:
        return None
    name = dtype
    if isinstance(dtype, type):
        name = _BUILTIN_DTYPES.get(dtype, dtype)
    if not isinstance(name, str):  # compilers cannot trace the tests of a class
        library = type(dtype).__module__.partition(".")[0]
        if library == "numpy" or getattr(dtype, "__module__", "") == "numpy":
            import numpy as np

            try:
                name = np.dtype(dtype).name
            except TypeError:
                pass  # not a dtype
        elif library.startswith(owner) and not hasattr(dtype, "shape"):  # a tensor has one
            return dtype
    if isinstance(name, str) and name in _AMBIGUOUS_DTYPES:
        raise ArgumentError(
            f"dtype {name!r} differs in width by framework; write for example 'float32' or 'int64'"
        )
    native = None
    if isinstance(name, str):
        native = owner.creation.dtype(name)
    if native is None:
        raise ArgumentError(
            f"dtype {shortened(dtype)} does not exist under {owner}; {_dtype_hint(dtype)}"
        )
    return native


def _dtype_hint(dtype: Dtype) -> str:
    """The hint for a dtype that is missing: a similar name with the same digits, or two names."""
    digits = sorted(filter(str.isdigit, str(dtype)))
    similar = [
        name for name in ("bool", *_NUMBER_DTYPES) if sorted(filter(str.isdigit, name)) == digits
    ]
    examples = "write for example 'float32' or 'int64'"
    if dtype in similar:  # it is a right name, but this framework does not have the dtype
        return examples
    return did_you_mean(dtype, similar, examples, least=0.75)


def fill_value_for(
    owner: Backend, value: Number | Tensor, dtype: NativeDtype | None
) -> Number | Tensor:
    """The fill value of `full`: a number, or a tensor of one number that may need a gradient."""
    if tensor_owner(value) == owner and _is_one_number(value):
        name = "" if dtype is None else dtype_name(dtype, owner)
        is_integer = name.startswith(("bool", "int", "uint"))
        has_gradients = owner.has("gradients", "is_floating")
        if not is_integer and has_gradients and owner.gradients.is_floating(value):
            return value
    one_number = number(value)
    return one_number if dtype is None else number_for(dtype, one_number, owner)


def number(value: Number) -> Number:
    """The value, if it is a number that a tensor can hold; else an error."""
    if isinstance(value, (int, float, complex)):
        return value
    if tensor_owner(value) is not None and _is_one_number(value):
        if hasattr(value, "item"):
            return value.item()
        return value
    raise ArgumentTypeError(f"{shortened(value)} is not a number; write for example 1.0")


def number_for(dtype: NativeDtype, value: Number, owner: Backend) -> Number:
    """The number in a type that every framework accepts for the dtype, which it fits.

    A float becomes an integer for a dtype of integers. An integer of more than
    64 bits becomes a float for other dtypes, or is an `OverflowError` if no
    float is as large. Other errors are those of `check_fit`.
    """
    check_fit("full", (value,), dtype, owner)
    if type(value) is float and limits_of(dtype_name(dtype, owner)) is not None:
        return int(value)
    if type(value) is int:
        fits_64_bits = -(2**63) <= value < 2**63
        if not fits_64_bits and limits_of(dtype_name(dtype, owner)) is None:
            return float(value)
    return value


def _is_one_number(tensor: Tensor) -> bool:
    shape = tuple(getattr(tensor, "shape", (0,)))
    return shape in ((), (1,))  # MXNet has the shape () only after `npx.set_np()`


def plain_array(array: NumpyArray) -> NumpyArray:
    """The NumPy array in C order and native byte order, the layout that every framework accepts."""
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError(
            "the mask of a masked array would be lost; give x.filled(0), or x.compressed()"
        )
    dtype = array.dtype
    if not dtype.isnative:  # NumPy's StringDType, which is native, has no `newbyteorder`
        dtype = dtype.newbyteorder("=")
    return np.asarray(array).astype(dtype, order="C", copy=False)


def shape_of(arguments: Sequence[Any]) -> tuple[int, ...]:
    """The shape that the arguments of a factory say, as one argument or as several."""
    shape = arguments[0] if len(arguments) == 1 else arguments
    if type(shape) is tuple and _is_plain_shape(shape):  # nearly always
        return shape
    is_sequence = len(arguments) == 1 and as_integer(arguments[0]) is None
    sizes = arguments
    if is_sequence:
        sizes = arguments[0]
    try:
        integers = tuple(as_integer(size) for size in sizes)
    except TypeError:
        integers = (None,)
    shape = tuple(size for size in integers if size is not None)
    if len(shape) < len(integers):
        raise ArgumentTypeError(f"{_shape_text(arguments)} is not a shape; write (2, 3)")
    if any(size < 0 for size in shape):
        raise ArgumentError(f"shape {_shape_text(arguments)} has a negative size; write (2, 3)")
    # some frameworks miscount or abort beyond this size
    if max(shape, default=0) > _MAX_SIZE or math.prod(shape) > _MAX_SIZE:
        raise ArgumentError(
            f"shape {_shape_text(arguments)} has over 2**60 numbers, more than machines hold; make "
            "it smaller"
        )
    return shape


def _is_plain_shape(shape: tuple[Any, ...]) -> bool:
    numbers = 1
    for size in shape:
        if type(size) is not int or not 0 <= size <= _MAX_SIZE:
            return False
        numbers *= size
    return numbers <= _MAX_SIZE


def _shape_text(arguments: Sequence[Any]) -> str:
    if len(arguments) == 1:
        return shortened(arguments[0])
    return shortened(tuple(arguments))


def dtype_name(dtype: NativeDtype, owner: Backend | None = None) -> str:
    """The NumPy name of a framework's dtype: ``float32``, ``bfloat16``.

    With an ``owner``, dtypes whose own name has no width (``float``,
    ``uchar``) are compared with the framework's dtypes.
    """
    key = type(dtype), dtype, owner  # dtypes of two libraries may be equal
    try:
        return _dtype_names[key]
    except KeyError:
        name = _name_of_dtype(dtype, owner)
    if len(_dtype_names) >= _MOST_DTYPES:
        _dtype_names.clear()
    _dtype_names[key] = name
    return name


def _name_of_dtype(dtype: NativeDtype, owner: Backend | None) -> str:
    name = str(dtype)  # under PaddlePaddle 2.6 only this is NumPy's name; `dtype.name` is FP32
    if not all(map(str.isidentifier, name.split("."))):
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or name
    word = str(name).rpartition(".")[2].lower()
    if owner is None or word[-1:].isdigit() or word.startswith(("bool", "float8")):
        return word
    for numpy_name in _NUMBER_DTYPES:
        if owner.creation.dtype(numpy_name) == dtype:
            return numpy_name
    return word


def check_fit(factory: str, args: tuple[Any, ...], dtype: NativeDtype, owner: Backend) -> None:
    """Check that the dtype can hold the numbers of `tensor`, `full` or `arange`.

    Some frameworks would change them. `OverflowError`: a number is too large
    or not finite, for integers. `TypeError`: a number is complex, for real
    numbers. Fractions are cut and floats are rounded without an error. Tensors
    in the data, which may be on a device, are not checked.
    """
    name = dtype_name(dtype, owner)
    if factory not in ("tensor", "full", "arange") or name.startswith(("complex", "bool")):
        return
    numbers = args[-1]
    if factory == "arange":
        start, stop, step = args
        count = math.ceil((stop - start) / step)
        numbers = [start, start + (count - 1) * step] if count > 0 else []
    elif not isinstance(numbers, (list, tuple)):
        numbers = (numbers,)
    _check_numbers(numbers, name, limits_of(name))


def check_same_device_in_list(data: Any) -> None:
    """Raise an error for a list of tensors on several devices.

    A framework would copy them to the host. A tensor that is not a plain array
    is an error, too: a mask would be lost, and some frameworks crash with a
    list of sparse tensors.
    """
    if not isinstance(data, (list, tuple)) or ATOMS.issuperset(map(type, data)):
        return
    devices: set[Device] = set()
    for tensor in _tensors_in(data):
        owner = owner_of(tensor)
        if owner.has("collectives", "kind"):
            owner.collectives.kind(tensor)  # raises the error
        try:
            if owner != "numpy":
                devices.add(device_of(tensor))
        except UnknownPlacementError:
            continue  # traced: its framework decides
    if len(devices) > 1:
        # a long module, needed only for this error
        from xdevice.tensors.trees.questions import not_on_one_device

        raise not_on_one_device((("", data),))


def _check_numbers(
    numbers: Sequence[Any], dtype: str, limits: tuple[int, int] | None, depth: int = 0
) -> None:
    types = set(map(type, numbers))
    if types <= _REAL_TYPES:
        if limits is not None and numbers:
            _check_limits(_extremes(numbers, types), dtype, limits)
        return
    if complex in types:
        raise TypeError(complex_among_reals(dtype))
    for value in numbers:
        if isinstance(value, (list, tuple)):
            if depth < _MAX_DEPTH:
                _check_numbers(value, dtype, limits, depth + 1)
        elif isinstance(value, (int, float)):
            if limits is not None:
                _check_limits((value,), dtype, limits)
        elif tensor_owner(value) == "numpy":
            _check_array(value, dtype, limits)


def _extremes(numbers: Sequence[float], types: set[type]) -> tuple[float, ...]:
    """The least and the greatest of the numbers, or one that is not finite.

    Beside a NaN, ``min`` and ``max`` depend on the order of the numbers.
    """
    if float in types and not math.isfinite(sum(numbers)):
        for value in numbers:
            if not math.isfinite(value):
                return (value,)
    return min(numbers), max(numbers)


def _check_array(array: NumpyArray, dtype: str, limits: tuple[int, int] | None) -> None:
    """Check a NumPy array or scalar among the numbers."""
    if array.dtype.kind == "c":
        raise TypeError(complex_among_reals(dtype))
    if limits is None or array.dtype.kind not in "iuf" or array.dtype.name == dtype:
        return
    if array.size:
        _check_limits((array.min().item(), array.max().item()), dtype, limits)


def _check_limits(values: tuple[float, ...], dtype: str, limits: tuple[int, int]) -> None:
    low, high = limits
    for value in values:
        if not low - 1 < value < high + 1:  # true for NaN, too
            raise OverflowError(f"{misfit(value, dtype)}; give dtype={wider(value, dtype)!r}")


def misfit(value: Number, dtype: str) -> str:
    """The message for a number that the dtype cannot hold."""
    limits = limits_of(dtype)
    message = f"{shortened(value)} does not fit into {dtype}"
    if limits is not None:
        message += f", from {limits[0]} to {limits[1]}"
    return message


def wider(value: Number, dtype: str) -> str:
    """A dtype that holds the numbers of ``dtype`` and a value that ``dtype`` does not hold."""
    limits = limits_of(dtype)
    if limits is not None:
        for name in ("int32", "int64"):
            low, high = limits_of(name) or (0, 0)
            if all(low <= number <= high for number in (value, *limits)):
                return name
    return "float64"


def complex_among_reals(dtype: str) -> str:
    """The message for a complex number and a dtype of real numbers."""
    return f"{dtype} does not hold complex numbers; give a complex dtype, or the real part"


def limits_of(dtype: str) -> tuple[int, int] | None:
    """The least and the greatest number of a dtype of integers; ``None`` for other dtypes."""
    return _LIMITS.get(dtype)


def _tensors_in(data: Sequence[Any], depth: int = 0) -> Iterator[Tensor]:
    for value in data:
        if isinstance(value, (list, tuple)):
            if depth < _MAX_DEPTH and not ATOMS.issuperset(map(type, value)):
                yield from _tensors_in(value, depth + 1)
        elif tensor_owner(value) is not None:
            yield value


def check_dtypes_exist(
    tensors: list[Tensor], device: Device, owner: Backend, error: Exception
) -> None:
    """Raise an error if a move failed because the device lacks a dtype, as Apple's GPUs lack float64."""
    if isinstance(error, XDeviceError) or not owner.has("creation", "ones"):
        return
    memory = owner.load("memory")
    if memory.has("is_out_of_memory") and memory.is_out_of_memory(error):
        return
    try:
        owner.creation.ones((1,), owner.creation.dtype("float32"), device)
    except Exception:  # the device itself has failed, and has no dtype at all
        return
    for tensor in tensors:
        try:
            owner.creation.ones((1,), tensor.dtype, device)
        except Exception:  # each framework raises its own
            raise ArgumentError(
                f"{device} has no {tensor.dtype} under {owner}, so a tensor of that dtype cannot "
                "be moved to it; convert it first"
            ) from error
