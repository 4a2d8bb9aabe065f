"""The namespace of `Array`: the standard's functions, of arrays and not of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from xdevice.contract import NativeDtype, Tensor
from xdevice.errors import ArgumentTypeError, MissingNameError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.arguments import dtype_name
from xdevice.tensors.composing.arrays import Array
from xdevice.tensors.namespace import DTYPES, EXTENSIONS, NAMES, namespace

Function: TypeAlias = Callable[..., Any]
Arguments: TypeAlias = Any

_FROM_OTHERS = frozenset({"asarray", "from_dlpack"})
"""Functions that take NumPy arrays."""

_SHOW_A_PART = frozenset(
    ["expand_dims", "flip", "matrix_transpose", "moveaxis", "permute_dims", "reshape", "squeeze"]
)
"""Functions whose results NumPy keeps in the memory of the first argument."""

_namespaces: dict[Backend, ArrayNamespace] = {}


def namespace_of_arrays(owner: Backend) -> ArrayNamespace:
    """The namespace of the arrays of a framework's tensors, always the same one."""
    if owner not in _namespaces:
        with using(owner):
            native = namespace()
        _namespaces.setdefault(owner, ArrayNamespace(owner, native, f"xdevice.arrays.{owner}"))
    return _namespaces[owner]


class ArrayNamespace:
    """The functions of a `namespace`, or of one of its extensions, for arrays."""

    def __init__(self, owner: Backend, native: Any, name: str) -> None:
        self.owner = owner
        self.native = native
        self.__name__ = name
        self._dtypes: dict[NativeDtype, NativeDtype] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES and name not in dir(self.native):
            raise MissingNameError(
                f"{name!r} is not a name of the array API standard; dir() of the namespace lists "
                f"those"
            )
        value = getattr(self.native, name)
        if name in EXTENSIONS and value.__class__ is self.native.__class__:
            value = _extension(self, value, name)
        elif callable(value) and name not in dir_of_dtypes() and name[:2] != "__":
            value = self._of_arrays(name, value)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(self.native)

    def __repr__(self) -> str:
        return f"<the arrays of {self.native!r}>"

    def __reduce__(self) -> tuple[Function, tuple[Any, ...]]:
        return namespace_of_arrays, (self.owner,)

    def dtype_of(self, tensor: Tensor) -> NativeDtype:
        """The dtype as the namespace has it, since a framework may have several equal ones."""
        dtype = tensor.dtype
        try:
            return self._dtypes[dtype]
        except KeyError:
            known = self.owner.creation.dtype(dtype_name(dtype, self.owner).removesuffix("_"))
        self._dtypes[dtype] = dtype if known is None else known
        return self._dtypes[dtype]

    def kind(self, dtype: NativeDtype) -> int:
        """The kind of a dtype: one of booleans, integers, real and complex numbers, in order."""
        name = dtype_name(dtype, self.owner).removesuffix("_")
        kinds = ("bool", "signed integer", "real floating", "complex floating")
        if name in DTYPES["unsigned integer"]:
            return 1
        return next((i for i, kind in enumerate(kinds) if name in DTYPES[kind]), 2)

    def array(self, x: Any) -> Any:
        """A result with arrays for tensors."""
        if isinstance(x, (list, tuple)):
            parts = [self.array(part) for part in x]
            make = getattr(type(x), "_make", type(x))
            return make(parts)
        if tensor_owner(x) == self.owner:
            return Array(x, self)
        return x

    def _of_arrays(self, name: str, function: Function) -> Function:
        if name == "asarray":
            function = self._asarray

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            unwrapped = [tensors_of(arg, name) for arg in args]
            options = {key: tensors_of(kwargs[key], name) for key in kwargs}
            result = function(*unwrapped, **options)
            array = args[0] if args else None
            if not isinstance(array, Array):
                return self.array(result)
            if result is array.tensor:
                return array
            if name in _SHOW_A_PART and not options.get("copy"):
                return array.showing(lambda x: function(x, *unwrapped[1:], **options), result)
            return self.array(result)

        return call

    def _asarray(
        self,
        obj: Any,
        /,
        *,
        dtype: NativeDtype | None = None,
        device: Any = None,
        copy: bool | None = None,
    ) -> Tensor:
        """`asarray`, which takes lists that contain tensors, too."""
        if isinstance(obj, (list, tuple)) and _contains_tensors(obj):
            parts = [self._asarray(part) for part in obj]
            common = self.native.result_type(*parts)
            obj = self.native.stack([self.native.astype(part, common) for part in parts])
        elif type(obj).__module__ == "numpy" and hasattr(obj, "dtype") and dtype is None:
            dtype = str(obj.dtype)  # the framework's default may be narrower
        return self.native.asarray(obj, dtype=dtype, device=device, copy=copy)


def _contains_tensors(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_contains_tensors, x))
    return tensor_owner(x) is not None and hasattr(x, "shape")


def tensors_of(x: Arguments, function: str) -> Any:
    """Arguments with tensors for arrays."""
    if isinstance(x, Array):
        return x.tensor
    if type(x) in (list, tuple):
        return type(x)(tensors_of(part, function) for part in x)
    if tensor_owner(x) is not None and function not in _FROM_OTHERS:
        if not getattr(x, "shape", None) and type(x).__module__ == "numpy":
            return x.item()  # a number
        raise ArgumentTypeError(
            f"{function} of an array and a {type(x).__module__}.{type(x).__name__}; convert it "
            f"with asarray, or compose it, too"
        )
    return x


def dir_of_dtypes() -> frozenset[str]:
    return frozenset(name for names in DTYPES.values() for name in names)


def _extension(owner: ArrayNamespace, native: Any, name: str) -> ArrayNamespace:
    extension = ArrayNamespace(owner.owner, native, f"{owner.__name__}.{name}")
    extension.array = owner.array  # type: ignore[method-assign]  # arrays have the whole namespace
    return extension
