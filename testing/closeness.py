"""`assert_close`: equal values, dtype, device and framework, in one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.exchange import NOT_NUMPYS, to_numpy
from xdevice.tensors.namespace import namespace
from xdevice.tensors.placement import device_of
from xdevice.testing.values import Tolerance, difference, is_number_or_list

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

__all__ = ["assert_close"]

Tree: TypeAlias = Any
"""A tensor, a number, or nested containers of them."""


class Recorded(NamedTuple):
    """The values of a result on the host, their dtypes, and the tolerance that its test gave."""

    values: Tree
    dtypes: list[str]
    rtol: float | None = None
    atol: float | None = None


_recorded: ContextVar[list[Recorded] | None] = ContextVar("xdevice.recorded", default=None)


class Expectation(NamedTuple):
    """What a tensor must be if it is compared with plain numbers, which have no framework."""

    backend: Backend | None = None
    device: Device | None = None
    dtype: str | None = None
    """Its dtype, if it is of the same kind: an index beside floats is an integer."""


_ANYWHERE = Expectation()
_numbers: ContextVar[Expectation] = ContextVar("xdevice.numbers", default=_ANYWHERE)


class _Checks(NamedTuple):
    rtol: float | None
    atol: float | None
    equal_nan: bool
    dtype: bool
    device: bool
    backend: bool
    shape: bool


def assert_close(  # noqa: PLR0913  (one call checks all that can differ)
    actual: Tree,
    expected: Tree,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    check_dtype: bool = True,
    check_device: bool = True,
    check_backend: bool = True,
    check_shape: bool = True,
    err_msg: str = "",
) -> None:
    """Raise an ``AssertionError`` unless two tensors are equal up to a tolerance.

    Framework, device, dtype and shape must be equal, and values close:
    ``abs(actual - expected) <= atol + rtol * abs(expected)``. The error names
    all that differs: for values the first wrong index, both values, and the
    tolerance.

    If ``expected`` is a number or a list of numbers, only shape and values are
    compared. Containers are compared part by part: dicts, lists, tuples and
    dataclasses. Reading the values is not a copy for `transfer_guard`.

    Parameters
    ----------
    actual, expected
        Tensors, numbers, or containers of them.
    rtol
        By default that of the less precise dtype: float64 1e-7, float32 1.3e-6, float16 1e-3,
        bfloat16 1.6e-2, complex numbers as their parts, others 0.
    atol
        By default 0 if ``rtol`` is given, else 1e-7 for float64, 1e-5 for shorter floats, and 0
        for others.
    equal_nan
        Whether NaN is equal to NaN.
    check_dtype, check_device, check_backend, check_shape
        ``False`` allows a difference. Without ``check_shape``, the expected values are broadcast.
        Without ``check_backend``, devices are not compared between two frameworks.
    err_msg
        Put before the error.

    Raises
    ------
    AssertionError
        They are not close.

    Examples
    --------
    >>> import numpy
    >>> from xdevice.testing import assert_close
    >>> assert_close(numpy.ones(2) / 3, [1 / 3, 1 / 3])
    >>> assert_close(numpy.ones(2), numpy.ones(2, dtype="float32"))
    Traceback (most recent call last):
        ...
    AssertionError: actual is not as expected
      dtype: float64, expected float32
    """
    __tracebackhide__ = True
    checks = _Checks(rtol, atol, equal_nan, check_dtype, check_device, check_backend, check_shape)
    results = _recorded.get()
    if results is not None:
        results.append(snapshot(actual)._replace(rtol=rtol, atol=atol))
    with _unseen():
        found = list(_differences(actual, expected, checks, ""))
    if not found:
        return
    lines = [f"{err_msg}: actual is not as expected" if err_msg else "actual is not as expected"]
    for path, differences in found:
        indent = "  "
        if path:
            lines.append(f"  at {path}:")
            indent = "    "
        lines += [indent + line for line in differences]
    raise AssertionError("\n".join(lines))


def expecting(numbers: Expectation) -> Callable[..., None]:
    """`assert_close`, where plain numbers stand for tensors of that framework, on that device."""

    @wraps(assert_close)
    def assert_close_there(*args: Any, **options: Any) -> None:
        __tracebackhide__ = True
        token = _numbers.set(numbers)
        try:
            assert_close(*args, **options)
        finally:
            _numbers.reset(token)

    return assert_close_there


@contextmanager
def recording(results: list[Recorded]) -> Iterator[None]:
    """A block in which each call of `assert_close` adds its actual values to the results."""
    token = _recorded.set(results)
    try:
        yield
    finally:
        _recorded.reset(token)


def snapshot(result: Tree) -> Recorded:
    """The values of a result now, on the host."""
    dtypes: list[str] = []
    with _unseen():
        return Recorded(_on_host(result, dtypes), dtypes)


def assert_recorded(result: Recorded, expected: Recorded) -> None:
    """`assert_close` for the results of two frameworks, of which one may be less precise.

    Numbers of Python are compared as float32.
    """
    dtypes = [*result.dtypes, *expected.dtypes] or ["float32"]
    tolerance = Tolerance.of(dtypes, expected.rtol, expected.atol, equal_nan=True)
    assert_close(
        result.values,
        expected.values,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        check_dtype=False,
    )


def _on_host(tree: Tree, dtypes: list[str]) -> Tree:
    """The tree with NumPy arrays; the names of the tensors' dtypes are added to the list."""
    dtype = _dtype_of(tree)
    if dtype is not None:
        dtypes.append(dtype)
        return _array(tree)
    parts = _parts(tree)
    if parts is None:
        return tree
    return _Parts({key: _on_host(part, dtypes) for key, part in parts.items()})


def _unseen() -> AbstractContextManager[None]:
    """A block whose copies no guard and no report sees; without them, nothing is imported."""
    watching = sys.modules.get("xdevice.transfers.watching")
    if watching is None:
        return nullcontext()
    block: AbstractContextManager[None] = watching.unseen()
    return block


def _differences(
    actual: Tree, expected: Tree, checks: _Checks, path: str
) -> Iterator[tuple[str, list[str]]]:
    """Each place that differs, with what differs there."""
    if tensor_owner(actual) is not None or tensor_owner(expected) is not None:
        lines = list(_of_tensors(actual, expected, checks))
    elif is_number_or_list(actual) and is_number_or_list(expected):
        lines = difference(_array(actual), _array(expected), _tolerance(checks, []), checks.shape)
    else:
        actual_parts, expected_parts = _parts(actual), _parts(expected)
        if actual_parts is None or expected_parts is None:
            lines = _of_objects(actual, expected)
        else:
            yield from _of_containers(actual_parts, expected_parts, checks, path)
            lines = []
    if lines:
        yield path, lines


def _of_containers(
    actual: Mapping[str, Tree], expected: Mapping[str, Tree], checks: _Checks, path: str
) -> Iterator[tuple[str, list[str]]]:
    missing = [key for key in expected if key not in actual]
    surplus = [key for key in actual if key not in expected]
    if missing or surplus:
        words = [("missing", missing), ("not expected", surplus)]
        yield path, [f"parts {word}: {', '.join(keys)}" for word, keys in words if keys]
    for key, part in actual.items():
        if key in expected:
            yield from _differences(part, expected[key], checks, path + key)


class _Parts(dict[str, Tree]):
    """The parts of a container, by their keys in brackets."""


def _parts(container: Tree) -> dict[str, Tree] | None:
    """The parts of a container by their keys in brackets; ``None`` for another object."""
    if isinstance(container, _Parts):
        return container
    if isinstance(container, Mapping):
        return {f"[{key!r}]": part for key, part in container.items()}
    if isinstance(container, Sequence) and not isinstance(container, (str, bytes)):
        return {f"[{i}]": part for i, part in enumerate(container)}
    if is_dataclass(container) and not isinstance(container, type):
        return {f".{field.name}": getattr(container, field.name) for field in fields(container)}
    return None


def _of_objects(actual: Tree, expected: Tree) -> list[str]:
    if type(actual) is type(expected) and actual == expected:
        return []
    return [f"object: {actual!r}, expected {expected!r}"]


def _of_tensors(actual: Tree, expected: Tree, checks: _Checks) -> Iterator[str]:
    """What differs between two tensors, or a tensor and numbers."""
    owners = tensor_owner(actual), tensor_owner(expected)
    is_number = is_number_or_list(expected)
    for side, owner, obj in zip(("actual", "expected"), owners, (actual, expected), strict=True):
        if owner is None and not is_number_or_list(obj):
            yield f"object: {side} is {obj!r}, of {type(obj).__name__}, and not a tensor"
            return
    wanted = _numbers.get().backend if is_number else owners[1]
    if checks.backend and wanted is not None and owners[0] != wanted:
        yield f"framework: {owners[0] or type(actual).__name__}, expected {wanted}"
    yield from _of_devices(actual, expected, checks)
    names = [_dtype_of(x) for x in (actual, expected)]
    test_dtype = _numbers.get().dtype
    if is_number and test_dtype is not None and _kind(names[0]) == _kind(test_dtype):
        names[1] = test_dtype
    if checks.dtype and None not in names and names[0] != names[1]:
        yield f"dtype: {names[0]}, expected {names[1]}"
    dtypes = [name for name in {names[0], _dtype_of(expected)} if name]
    yield from difference(
        _array(actual), _array(expected), _tolerance(checks, dtypes), checks.shape
    )


def _of_devices(actual: Tree, expected: Tree, checks: _Checks) -> Iterator[str]:
    owner = tensor_owner(actual)
    if not checks.device or owner is None:
        return
    wanted = _numbers.get().device
    if tensor_owner(expected) is not None:
        if tensor_owner(expected) != owner and not checks.backend:
            return
        wanted = device_of(expected)
    if wanted is not None and device_of(actual) != wanted:
        yield f"device: {device_of(actual)}, expected {wanted}"


def _dtype_of(x: Tree) -> str | None:
    owner = tensor_owner(x)
    return None if owner is None else dtype_name(x.dtype, owner)


def _kind(name: str | None) -> str:
    """The dtype's name without its width: ``float`` for every float."""
    return str(name).removeprefix("b").rstrip("0123456789")


def _tolerance(checks: _Checks, dtypes: list[str]) -> Tolerance:
    return Tolerance.of(dtypes, checks.rtol, checks.atol, checks.equal_nan)


def _array(x: Tree) -> Array:
    """The values as a NumPy array; floats that NumPy lacks become float32."""
    owner = tensor_owner(x)
    if owner is None:
        import numpy as np

        return np.asarray(x)
    if str(_dtype_of(x)).startswith(NOT_NUMPYS):
        xp = namespace(x)
        x = xp.astype(x, xp.float32)
    return to_numpy(x)
