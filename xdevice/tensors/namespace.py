"""``namespace``: the framework's arrays under the array API standard's names.

A loss, or a small network, is written once. Where a framework's own function
does what the standard says, it is that function itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType, MethodType
from typing import Any, TypeAlias, cast

from xdevice import typing
from xdevice.contract import Extension, Maths, NativeDtype, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    MisplacedError,
    MissingNameError,
    NotATensorError,
    NotPortableWarning,
    NotSupportedError,
    did_you_mean,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend, using
from xdevice.hardware.questions import devices
from xdevice.tensors.making import make, place
from xdevice.tensors.namespace_factories import Factories
from xdevice.tensors.namespace_numbers import Numbers
from xdevice.tensors.placement import device_of, only_framework, owner_of
from xdevice.typing import DeviceLike, FourierTransforms, LinearAlgebra

__all__ = ["namespace"]

Function: TypeAlias = Callable[..., Any]
Number: TypeAlias = Any
"""A number of Python, NumPy or a framework."""

CONSTANTS = {
    "e": 2.718281828459045,
    "inf": float("inf"),
    "nan": float("nan"),
    "newaxis": None,
    "pi": 3.141592653589793,
    "__array_api_version__": "2025.12",
}

DTYPES: dict[str, tuple[str, ...]] = {  # the standard's, by their kind
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
DTYPE_NAMES: tuple[str, ...] = tuple(name for names in DTYPES.values() for name in names)

# The function of the capability `creation` that makes a factory's tensors.
# Factories that are not here use the framework's own function.
MADE_WITH = {
    **{name: name for name in ("arange", "empty", "full", "ones", "zeros")},
    **dict.fromkeys(("asarray", "eye", "linspace"), "tensor"),
}

TUPLES = ("broadcast_arrays", "meshgrid", "unstack")  # functions that return a tuple of tensors


def _declared(cls: type) -> tuple[str, ...]:
    names = (*cls.__annotations__, *vars(cls))
    return tuple(name for name in names if not name.startswith("_") or name.startswith("__array_"))


NAMES = _declared(typing.Namespace)  # every name that means the same under every framework
LINALG, FFT = _declared(LinearAlgebra), _declared(FourierTransforms)
EXTENSIONS = {"fft": FFT, "linalg": LINALG}
_NOT_NAMED = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
_PROTOCOLS = {"": typing.Namespace, "fft": FourierTransforms, "linalg": LinearAlgebra}

_DISPATCHING = frozenset({"array_api_compat", "array_api_extra", "scipy", "sklearn"})
"""Libraries that use a framework's own functions if they know the namespace's name."""

_namespaces: dict[Backend, Namespace] = {}


def namespace(*xs: Tensor | Number) -> typing.Namespace:
    """The array API standard's functions for the framework of the tensors, or for the chosen one.

    ``dir()`` of a namespace lists its names, and ``linalg`` has more of them.
    Results are on the operands' device, and gradients flow through. Functions
    that make new tensors follow the `scope`, and take ``device=`` and
    ``dtype=`` in any spelling. Any other name is the framework's own, and
    warns of that with a `NotPortableWarning`.

    Parameters
    ----------
    *xs
        Tensors of one framework; numbers and ``None`` among them do not count. Without a tensor the
        namespace is the chosen framework's.

    Returns
    -------
    Namespace
        An object with the functions as attributes, always the same one for a framework. Its
        ``__name__`` is that of the framework's module, by which other libraries tell namespaces
        apart.

    Raises
    ------
    NotATensorError
        An argument is not a tensor of any framework.
    ArgumentTypeError
        The tensors are of several frameworks.
    MissingNameError
        A name is used that the framework cannot have. It is a `NotSupportedError` and an
        ``AttributeError``.
    AttributeError
        A name is used that neither the list nor the framework has.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xp = xdevice.namespace(numpy.ones(3))
    >>> xp.concat([xp.zeros(1), xp.exp(xp.asarray([0.0]))])
    array([0., 1.])
    """
    if any(isinstance(x, str) for x in xs):
        raise NotATensorError(
            f"namespace() takes tensors, and not {', '.join(map(repr, xs))}; choose a framework "
            "with use('torch') or using('torch'), and write namespace()"
        )
    if len(xs) == 1 and xs[0] is not None:
        owner = owner_of(xs[0])
    else:
        owner = _common_owner(xs)
    if owner not in _namespaces:
        _make_namespace(owner)
    # its attributes are set at run time; checkers see the standard's names
    return cast("typing.Namespace", _namespaces[owner])


def _make_namespace(owner: Backend) -> None:
    # the factories need these: PaddlePaddle's compiler cannot trace that they are loaded
    for capability in ("placement", "hardware"):
        owner.load(capability)
    _namespaces.setdefault(owner, Namespace(owner))  # threads agree on one


def _common_owner(xs: tuple[Tensor | Number, ...]) -> Backend:
    owners: dict[Backend, str] = {}
    for i, x in enumerate(xs):
        if x is not None and not isinstance(x, (int, float, complex)):
            owners.setdefault(owner_of(x), f"argument {i}")
    return only_framework(owners) if owners else backend()


class Namespace:
    """The standard's names, or those of one of its extensions, as attributes.

    Other names are looked up in the framework.
    """

    def __init__(
        self, owner: Backend, extension: str = "", factories: Mapping[str, Any] | None = None
    ) -> None:
        self._owner = owner
        self._extension = extension
        self._native: Maths | Extension = owner.maths
        if extension:
            self._native = getattr(owner.maths, extension)
            self._names = EXTENSIONS[extension]
            values = {**self._native.namespace(), **(factories or {})}
        else:
            self._names = NAMES
            values = _functions(owner)
            self.__name__ = owner.maths.module().__name__
        for name in self._names:
            if name in values:
                value = self._with_standard_keywords(name, values[name])
                setattr(self, name, _as_attribute(owner, value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no {name!r}")
        if name in self._names:
            raise MissingNameError(f"{self._owner} has no {name}: {self._why_not(name)}")
        module = self._native.module()
        try:
            value = getattr(module, name)
        except AttributeError:
            hint = did_you_mean(name, self._names, "dir() of the namespace lists its names")
            raise AttributeError(
                f"{name!r} is neither in xdevice's list nor in {module.__name__}; {hint}"
            ) from None
        if _is_called_by_dispatching():
            return value
        from warnings import warn

        warn(
            f"{name} is {self._owner}'s own, and may mean something else under another framework; "
            f"dir() of the namespace lists the names that do not",
            NotPortableWarning,
            stacklevel=2,
        )
        setattr(self, name, value)  # so that it warns once
        return value

    def _with_standard_keywords(self, name: str, value: Any) -> Any:
        """The function, which warns of keywords that are the framework's own."""
        declared = _PROTOCOLS[self._extension].__dict__.get(name)
        is_ufunc = hasattr(value, "nin")  # NumPy's take little longer than the check
        if not isinstance(declared, FunctionType) or is_ufunc:
            return value
        try:
            own = signature(value).parameters.values()
        except ValueError:  # of a function that C or C++ defines
            return value
        keywords = frozenset(signature(declared).parameters)
        if all(each.kind in _NOT_NAMED or each.name in keywords for each in own):
            return value

        @wraps(value)
        def call(*args: Any, **options: Any) -> Any:
            for keyword in options:
                if keyword not in keywords and not _is_called_by_dispatching():
                    _warn_of_keyword(self._owner, name, keyword)
            return value(*args, **options)

        return call

    def _why_not(self, name: str) -> str:
        if name in DTYPE_NAMES and self._owner.has("creation", "dtype"):
            return "it has no such dtype; use another one"
        if name in DTYPE_NAMES or name in MADE_WITH:
            return self._owner.load("creation").why_not(MADE_WITH.get(name, "dtype"))
        return self._owner.load("maths").why_not(name)

    def __dir__(self) -> list[str]:
        return [name for name in self._names if name in vars(self)]

    def __repr__(self) -> str:
        prefix = f"{self._extension} of " if self._extension else ""
        names = f"{len(dir(self))} names of the array API standard"
        return f"<{prefix}xdevice.namespace of {self._owner}: {names}>"

    def __reduce__(self) -> tuple[Function, tuple[Any, ...]]:
        if self._extension:
            return getattr, (_namespace_of(self._owner), self._extension)
        return _namespace_of, (self._owner,)


def _is_called_by_dispatching() -> bool:
    """Whether a library of `_DISPATCHING` calls the function that asks."""
    caller = sys._getframe(2)
    return caller.f_globals.get("__name__", "").partition(".")[0] in _DISPATCHING


def _warn_of_keyword(owner: Backend, name: str, keyword: str) -> None:
    from warnings import warn

    warn(
        f"{keyword}= of {name} is {owner}'s own, and may be an error under another framework; "
        f"help(xdevice.typing.Namespace) has the standard's",
        NotPortableWarning,
        stacklevel=3,
    )


def _functions(owner: Backend) -> dict[str, Any]:
    """The framework's functions, and those that are the same under every framework, by name."""
    native = owner.maths.namespace()
    creation = owner.load("creation")
    numbers = Numbers(owner, native)
    factories = Factories(owner, native, numbers)
    values = {name: native[name] for name in NAMES if name in native and name not in DTYPE_NAMES}
    values |= numbers.functions()
    values |= {name: _as_tuple(native[name]) for name in TUPLES if name in native}
    values |= CONSTANTS
    if creation.has("dtype"):
        dtypes = {name: creation.dtype(name) for name in DTYPE_NAMES}
        values |= {name: dtype for name, dtype in dtypes.items() if dtype is not None}
    for name, factory in factories.functions().items():
        is_possible = creation.has(MADE_WITH[name]) if name in MADE_WITH else name in native
        if is_possible:
            values[name] = factory
    for name in EXTENSIONS:
        if owner.has("maths", name):
            values[name] = Namespace(owner, name, factories.extra(name))
    values["__array_namespace_info__"] = lambda: Info(owner, factories, native)
    return values


def _as_attribute(owner: Backend, value: Any) -> Any:
    """The value, in the form that the framework's compiler needs."""
    is_function = isinstance(value, (FunctionType, MethodType))
    if is_function and owner.has("maths", "as_attribute"):
        return owner.maths.as_attribute(value)
    return value


def _as_tuple(function: Function) -> Function:
    """The function, with a tuple for a list: frameworks return one or the other."""

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        return tuple(function(*args, **kwargs))

    return call


def _namespace_of(owner: Backend) -> typing.Namespace:
    with using(owner):
        return namespace()


class Info:
    """``__array_namespace_info__``: the standard's inspection functions, with xdevice's devices."""

    def __init__(self, owner: Backend, factories: Factories, native: Mapping[str, Any]) -> None:
        self._owner, self._factories, self._native = owner, factories, native

    def capabilities(self) -> dict[str, Any]:
        """What the framework can do; ``None``: the number of axes has no known limit."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Where new tensors go without ``device=``: to the innermost `scope`'s, or the default."""
        return device_of(self._factories.asarray([0.0]))

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, Any]:
        """The dtypes of new tensors without ``dtype=``."""
        examples = {"real floating": [1.0], "complex floating": [1j], "integral": [1]}
        if self._owner.creation.dtype("complex64") is None:
            del examples["complex floating"]
        asarray = self._factories.asarray
        dtypes = {kind: asarray(data, device=device).dtype for kind, data in examples.items()}
        if "argmax" in self._native:
            # array-api-strict 2.6.1 computes no index on its device no_x64
            with suppress(ValueError):
                dtypes["indexing"] = self._native["argmax"](asarray([1], device=device)).dtype
        return dtypes

    def dtypes(self, *, device: DeviceLike | None = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes, by their names, of a kind or of every kind, in which numbers are added there now.

        PyTorch can only store ``uint16``, ``uint32`` and ``uint64``. JAX has those of 64 bits only
        where they are enabled, and Apple's GPUs have no ``float64``.

        Raises
        ------
        DeviceNotFoundError, DeviceSpellingError
            The framework does not have the device, or the string does not name one.
        ArgumentError
            There is no such kind.
        """
        dtypes = {name: self._owner.creation.dtype(name) for name in _names(kind)}
        target = place(self._owner, device)
        return {
            name: dtype
            for name, dtype in dtypes.items()
            if dtype is not None and self._computes_with(name, dtype, target)
        }

    def _computes_with(self, name: str, dtype: NativeDtype, target: Device | None) -> bool:
        try:
            # one number: some frameworks make an empty tensor, or a zero, of
            # any dtype
            one = make(self._owner, "ones", dtype, target, (1,))
            if name != "bool":
                self._native["add"](one, one)  # some dtypes can only be stored
        except (ArgumentError, MisplacedError, NotImplementedError, NotSupportedError):
            return False
        return True

    def devices(self) -> tuple[Device, ...]:
        """The devices that the framework can use."""
        with using(self._owner):
            return tuple(devices())


def _names(kind: Any) -> tuple[str, ...]:
    if kind is None:
        return DTYPE_NAMES
    if isinstance(kind, tuple):
        names_of_kinds = {name for dtype_kind in kind for name in _names(dtype_kind)}
        return tuple(name for name in DTYPE_NAMES if name in names_of_kinds)
    integral = DTYPES["signed integer"] + DTYPES["unsigned integer"]
    numeric = integral + DTYPES["real floating"] + DTYPES["complex floating"]
    kinds = DTYPES | {"integral": integral, "numeric": numeric}
    if kind not in kinds:
        names = ", ".join(map(repr, kinds))
        raise ArgumentError(f"{kind!r} is not a kind of dtypes; give one of {names}")
    return kinds[kind]
