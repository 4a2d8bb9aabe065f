"""The numbers that a new tensor is given: whether its dtype can hold them, and whether they are on one device."""

import math
from collections.abc import Iterator
from typing import Any

from xdevice.device import Device
from xdevice.errors import UnknownPlacementError
from xdevice.framework.ownership import ATOMS, tensor_owner
from xdevice.tensors.owning import owner_of
from xdevice.tensors.placement import device_of

_REAL = frozenset({bool, int, float})
_DEEPEST = 64  # lists in one another: no framework has more dimensions, and a list may contain itself


def check_fit(data: Any, dtype: str) -> None:
    """An error for numbers of Python or NumPy that the dtype cannot hold, which some frameworks change instead.

    `OverflowError`: too large or not finite, for integers. `TypeError`: complex, for real numbers. Fractions are cut,
    and floats rounded. Tensors inside, whose numbers may be on a device, are left to the framework.
    """
    if not dtype.startswith(("complex", "bool")):
        _check(data if isinstance(data, (list, tuple)) else (data,), dtype, _limits(dtype))


def numbers_given(factory: str, args: tuple[Any, ...]) -> Any:
    """What `tensor`, `full` and `arange` were given of what will be in the tensor; of a range, its ends."""
    if factory == "arange":
        start, stop, step = args
        count = math.ceil((stop - start) / step)
        return [start, start + (count - 1) * step] if count > 0 else []
    return args[-1] if factory in ("tensor", "full") else []


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
            _check_ends(_ends(node, float in kinds), dtype, limits)
        return
    if complex in kinds:
        raise _complex(dtype)
    for value in node:
        if isinstance(value, (list, tuple)):
            if depth < _DEEPEST:
                _check(value, dtype, limits, depth + 1)
        elif isinstance(value, (int, float)):
            if limits is not None:
                _check_ends((value,), dtype, limits)
        elif tensor_owner(value) == "numpy":
            _check_array(value, dtype, limits)


def _check_array(array: Any, dtype: str, limits: tuple[int, int] | None) -> None:
    if array.dtype.kind == "c":
        raise _complex(dtype)
    if limits is not None and array.dtype.kind in "iuf" and array.dtype.name != dtype and array.size:
        _check_ends((array.min().item(), array.max().item()), dtype, limits)


def _check_ends(ends: tuple[Any, ...], dtype: str, limits: tuple[int, int]) -> None:
    for end in ends:
        if not limits[0] - 1 < end < limits[1] + 1:  # also where it is not a number
            raise OverflowError(f"{end} does not fit into {dtype}, from {limits[0]} to {limits[1]}")


def _ends(numbers: Any, floats: bool) -> tuple[Any, ...]:
    """The least and the largest number; or one that is not finite, for which neither is sure to be found."""
    if floats:
        total = sum(numbers)
        lost = [] if total - total == 0 else [value for value in numbers if value - value != 0]
        if lost:
            return (lost[0],)
    return min(numbers), max(numbers)


def _complex(dtype: str) -> TypeError:
    return TypeError(f"{dtype} does not hold complex numbers; give a complex dtype, or the real part")


def _limits(dtype: str) -> tuple[int, int] | None:
    """The least and the largest number of a dtype of integers."""
    kind = dtype.rstrip("0123456789")
    bits = dtype[len(kind) :]
    if kind not in ("int", "uint") or not bits:
        return None
    return (0, 2 ** int(bits) - 1) if kind == "uint" else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def _tensors_in(node: Any, depth: int = 0) -> Iterator[Any]:
    for value in node:
        if isinstance(value, (list, tuple)):
            if depth < _DEEPEST and not ATOMS.issuperset(map(type, value)):
                yield from _tensors_in(value, depth + 1)
        elif tensor_owner(value) is not None:
            yield value
