"""What a factory may be given: dtypes, shapes, arrays, and numbers that the dtype can hold; or an error."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from xdevice.device import Device, as_integer
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    UnknownPlacementError,
    did_you_mean,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import ATOMS, tensor_owner
from xdevice.tensors.placement import device_of, owner_of

_MOST = 2**60  # numbers in a tensor: in bytes it still fits into 64 bits
_DEEPEST = (
    64  # lists in one another: no framework has more dimensions, and a list may contain itself
)
_REAL = frozenset({bool, int, float})
# words that stand for another width in each framework
_AMBIGUOUS = frozenset(
    {"float", "double", "half", "int", "uint", "long", "short", "complex", "cfloat", "cdouble"}
)
_NUMPYS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_BUILTIN_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def native_dtype(owner: Backend, dtype: Any) -> Any:
    """The native dtype behind a NumPy name or dtype, one of Python's types, or a native dtype itself."""
    if dtype is None:
        return None
    name = _BUILTIN_DTYPES.get(dtype, dtype) if isinstance(dtype, type) else dtype
    if not isinstance(name, str):  # compilers cannot trace the questions about a class
        root = type(dtype).__module__.partition(".")[0]
        if "numpy" in (root, getattr(dtype, "__module__", "")):
            import numpy as np

            try:
                name = np.dtype(dtype).name
            except TypeError:
                pass  # no dtype
        elif root.startswith(owner):
            return dtype
    if isinstance(name, str) and name in _AMBIGUOUS:
        raise ArgumentError(
            f"dtype {name!r} differs in width by framework; write for example 'float32' or 'int64'"
        )
    found = owner.creation.dtype(name) if isinstance(name, str) else None
    if found is None:
        raise ArgumentError(f"dtype {dtype!r} does not exist under {owner}; {_nearest(dtype)}")
    return found


def _nearest(dtype: Any) -> str:
    """What to write for a dtype that does not exist: the name with the same digits that it is nearly."""
    digits = sorted(filter(str.isdigit, str(dtype)))
    alike = [name for name in ("bool", *_NUMPYS) if sorted(filter(str.isdigit, name)) == digits]
    write = "write for example 'float32' or 'int64'"
    return write if dtype in alike else did_you_mean(dtype, alike, write, least=0.75)


def filling(owner: Backend, value: Any, dtype: Any) -> Any:
    """What `full` fills a tensor with: a number, or a tensor of one number whose gradient flows through."""
    if tensor_owner(value) == owner and _is_one_number(value):
        whole = dtype is not None and dtype_name(dtype, owner).startswith(("bool", "int", "uint"))
        gradients = owner.open("gradients")
        if not whole and gradients.has("is_floating") and owner.gradients.is_floating(value):
            return value
    return number(value)


def number(value: Any) -> Any:
    """The value, if it is a number that a tensor can hold; else an error."""
    if isinstance(value, (int, float, complex)):
        return value
    if tensor_owner(value) is not None and _is_one_number(value):
        return value.item() if hasattr(value, "item") else value
    raise ArgumentTypeError(f"{shortened(value)} is not a number; write for example 1.0")


def number_for(dtype: Any, value: Any, owner: Backend) -> Any:
    """The number as every framework takes it: whole for integers, and a float for floats if it is a long integer.

    `OverflowError`: an integer that no float holds.
    """
    if type(value) is float and limits_of(dtype_name(dtype, owner)) is not None:
        return int(value)
    if (
        type(value) is int
        and not -(2**63) <= value < 2**63
        and limits_of(dtype_name(dtype, owner)) is None
    ):
        return float(value)
    return value


def _is_one_number(tensor: Any) -> bool:
    return tuple(getattr(tensor, "shape", (0,))) in (
        (),
        (1,),
    )  # MXNet has no shape of () unless told


def plain_array(array: Any) -> Any:
    """The NumPy array in the one layout that every framework takes: C order, native bytes."""
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError(
            "the mask of a masked array would be lost; give x.filled(0), or x.compressed()"
        )
    dtype = (
        array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    )  # NumPy's StringDType has none
    return np.asarray(array).astype(dtype, order="C", copy=False)


def shape_of(given: Sequence[Any]) -> tuple[int, ...]:
    """The shape that a factory was given, as one argument or several."""
    sizes = given[0] if len(given) == 1 and as_integer(given[0]) is None else given
    try:
        shape = tuple(as_integer(size) for size in sizes)
    except TypeError:
        shape = (None,)
    whole = tuple(size for size in shape if size is not None)
    if len(whole) < len(shape):
        raise ArgumentTypeError(f"{_written(given)} is not a shape; write (2, 3)")
    if any(size < 0 for size in whole):
        raise ArgumentError(f"shape {_written(given)} has a negative size; write (2, 3)")
    if (
        max(whole, default=0) > _MOST or math.prod(whole) > _MOST
    ):  # beyond it some frameworks miscount or abort
        raise ArgumentError(
            f"shape {_written(given)} has over 2**60 numbers, more than machines hold; make it smaller"
        )
    return whole


def _written(given: Sequence[Any]) -> str:
    return shortened(given[0] if len(given) == 1 else tuple(given))


@lru_cache(maxsize=256, typed=True)  # dtypes of two libraries may have one hash
def dtype_name(dtype: Any, owner: Backend | None = None) -> str:
    """The NumPy name of a framework's dtype: ``float32``, ``bfloat16``.

    A framework that is given is asked where its own name says no width: ``float``, ``uchar``.
    """
    name = str(dtype)  # of PaddlePaddle 2.6 only this is NumPy's: there `name` is FP32
    if not all(map(str.isidentifier, name.split("."))):
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or name
    word = str(name).rpartition(".")[2].lower()
    if owner is None or word[-1:].isdigit() or word.startswith(("bool", "float8")):
        return word
    return next((known for known in _NUMPYS if owner.creation.dtype(known) == dtype), word)


def check_fit(factory: str, args: tuple[Any, ...], dtype: Any, owner: Backend) -> None:
    """An error for numbers of `tensor`, `full` or `arange` that the dtype cannot hold, which some frameworks change.

    `OverflowError`: too large or not finite, for integers. `TypeError`: complex, for real numbers. Fractions are cut,
    and floats rounded. Tensors inside, whose numbers may be on a device, are left to the framework.
    """
    name = dtype_name(dtype, owner)
    if factory not in ("tensor", "full", "arange") or name.startswith(("complex", "bool")):
        return
    data = args[-1]
    if factory == "arange":  # its ends
        start, stop, step = args
        count = math.ceil((stop - start) / step)
        data = [start, start + (count - 1) * step] if count > 0 else []
    _check(data if isinstance(data, (list, tuple)) else (data,), name, limits_of(name))


def check_together(data: Any) -> None:
    """An error for a list of tensors on several devices, all of which a framework would fetch to the host.

    Also for one that is not a plain array: a mask would be lost, and a list of sparse ones crashes some frameworks.
    """
    if not isinstance(data, (list, tuple)) or ATOMS.issuperset(map(type, data)):
        return
    found: set[Device] = set()
    for tensor in _tensors_in(data):
        owner = owner_of(tensor)
        if owner.open("collectives").has("kind"):
            owner.collectives.kind(tensor)
        try:
            if owner != "numpy":
                found.add(device_of(tensor))
        except UnknownPlacementError:
            continue  # traced: its framework decides
    if len(found) > 1:
        from xdevice.tensors.trees.tree import mixed  # long: only when something is wrong

        raise mixed((("", data),))


def _check(node: Any, dtype: str, limits: tuple[int, int] | None, depth: int = 0) -> None:
    kinds = set(map(type, node))
    if kinds <= _REAL:
        if limits is not None and node:
            # one that is not finite: beside it neither the least nor the largest is sure to be found
            lost = (
                [v for v in node if not math.isfinite(v)]
                if float in kinds and not math.isfinite(sum(node))
                else []
            )
            _check_ends(tuple(lost[:1]) or (min(node), max(node)), dtype, limits)
        return
    if complex in kinds:
        raise TypeError(complex_among_reals(dtype))
    for value in node:
        if isinstance(value, (list, tuple)):
            if depth < _DEEPEST:
                _check(value, dtype, limits, depth + 1)
        elif isinstance(value, (int, float)):
            if limits is not None:
                _check_ends((value,), dtype, limits)
        elif tensor_owner(value) == "numpy":
            if value.dtype.kind == "c":
                raise TypeError(complex_among_reals(dtype))
            if (
                limits is not None
                and value.dtype.kind in "iuf"
                and value.dtype.name != dtype
                and value.size
            ):
                _check_ends((value.min().item(), value.max().item()), dtype, limits)


def _check_ends(ends: tuple[Any, ...], dtype: str, limits: tuple[int, int]) -> None:
    low, high = limits
    for end in ends:
        if not low - 1 < end < high + 1:  # also where it is not a number
            raise OverflowError(f"{misfit(end, dtype)}; give dtype={wider(end, dtype)!r}")


def misfit(value: Any, dtype: str) -> str:
    """What is wrong with a number that the dtype cannot hold."""
    limits = limits_of(dtype)
    return f"{shortened(value)} does not fit into {dtype}" + (
        ", from {} to {}".format(*limits) if limits else ""
    )


def wider(value: Any, dtype: str) -> str:
    """A dtype that every framework has, for the numbers of a dtype and one that does not fit into it."""
    for name in ("int32", "int64"):
        low, high = limits_of(name) or (0, 0)
        if all(low <= number <= high for number in (value, *(limits_of(dtype) or (high + 1,)))):
            return name
    return "float64"


def complex_among_reals(dtype: str) -> str:
    """What is wrong with a complex number for a dtype that has none."""
    return f"{dtype} does not hold complex numbers; give a complex dtype, or the real part"


@lru_cache(maxsize=256)
def limits_of(dtype: str) -> tuple[int, int] | None:
    """The least and the largest number of a dtype of integers."""
    kind, _, bits = dtype.rpartition("int")
    if kind not in ("", "u") or not bits.isdigit():
        return None
    return (0, 2 ** int(bits) - 1) if kind else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def _tensors_in(node: Any, depth: int = 0) -> Iterator[Any]:
    for value in node:
        if isinstance(value, (list, tuple)):
            if depth < _DEEPEST and not ATOMS.issuperset(map(type, value)):
                yield from _tensors_in(value, depth + 1)
        elif tensor_owner(value) is not None:
            yield value
