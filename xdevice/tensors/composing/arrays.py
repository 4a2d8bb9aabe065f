"""`Array`: a tensor of any framework as the array API standard's array object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from math import prod
from typing import Any, Literal, TypeAlias

from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    MissingNameError,
    NotSupportedError,
)
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.composing.gathering import with_numbers_at
from xdevice.tensors.composing.indexing import item, with_item
from xdevice.tensors.composing.operators import OF_UFUNCS, REFLECTED, Operators
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.placement import device_of, to_device

Function: TypeAlias = Callable[..., Any]
Operand: TypeAlias = Any
"""An array, or a number of Python or NumPy."""

_CPU, _CUDA = (1, 0), 2
"""DLPack's device of the host, and its type of CUDA's devices."""

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

HostRule = Literal["never", "cpu", "always"]

host_rule: ContextVar[HostRule] = ContextVar("xdevice.host_rule", default="never")
"""Which tensors a library may compute with in NumPy: none, those of the CPU, or all.

A call of a composed object sets it, and makes tensors of the results.
"""


class _View:
    """That an array shows a part of another array, and not numbers of its own."""

    __slots__ = ("key", "parent", "read", "writes_seen")

    def __init__(self, parent: Array, read: Function, key: Any) -> None:
        self.parent = parent
        self.read = read  # from the parent's tensor to the array's
        self.key = key  # what is read is ``parent[key]``; or None
        self.writes_seen = parent.writes


class Array(Operators):
    """A tensor that obeys the array API standard, for libraries that do not know its framework.

    `compose` makes it. ``array.tensor`` is the framework's tensor. ``array[key] = value`` and
    ``array += 1`` change the array, and arrays that show a part of it, as NumPy's do. They do not
    change the tensor that it was made of: it has another tensor afterwards.

    It does not become a NumPy array by itself: that would be on the host. A call of a composed
    object may allow it.
    """

    __slots__ = ("__weakref__", "_tensor", "_view", "_writes", "xp")

    def __init__(self, tensor: Tensor, xp: Any, view: _View | None = None) -> None:
        self._tensor = tensor
        self.xp = xp
        self._view = view
        self._writes = 0

    @property
    def tensor(self) -> Tensor:
        view = self._view
        if view is not None and view.writes_seen != view.parent.writes:
            self._tensor = view.read(view.parent.tensor)
            view.writes_seen = view.parent.writes
        return self._tensor

    @property
    def writes(self) -> int:
        """How often its numbers were changed."""
        if self._view is None:
            return self._writes
        return self._writes + self._view.parent.writes

    def write(self, tensor: Tensor) -> None:
        """Change the numbers to those of a tensor of the same shape and dtype."""
        view = self._view
        if view is None:
            self._writes += 1
        elif view.key is not None:
            parent = view.parent
            parent.write(with_item(self.xp.native, parent.tensor, view.key, tensor))
            view.writes_seen = parent.writes
        else:
            parent = view.parent
            parent.write(with_numbers_at(self.xp.native, parent.tensor, view.read, tensor))
            view.writes_seen = parent.writes
        self._tensor = tensor

    def showing(self, read: Function, tensor: Tensor, key: Any = None) -> Array:
        """An array of a part of this one, which the function reads from its tensor."""
        if tensor is self.tensor:
            return self
        return Array(tensor, self.xp, _View(self, read, key))

    # Attributes

    @property
    def dtype(self) -> NativeDtype:
        return self.xp.dtype_of(self.tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(length) for length in self.tensor.shape)

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def device(self) -> Device | TracedDevice:
        return device_of(self.tensor)

    @property
    def T(self) -> Array:  # noqa: N802  (the standard's name)
        if self.ndim != 2:
            raise ArgumentError(
                f"the array has {self.ndim} axes, and .T is for two; use .mT or permute_dims"
            )
        return self.mT

    @property
    def mT(self) -> Array:  # noqa: N802  (the standard's name)
        read = self.xp.native.matrix_transpose
        return self.showing(read, read(self.tensor))

    def to_device(self, device: Any, /, *, stream: object = None) -> Array:
        """The array on another device."""
        if stream is not None:
            raise NotSupportedError("an array has no streams; leave stream out")
        return self.with_tensor(to_device(self.tensor, device))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version not in VERSIONS:
            raise ArgumentError(
                f"{api_version!r} is not a version of the standard that xdevice knows; "
                f"the newest is {VERSIONS[-1]}"
            )
        return self.xp

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise MissingNameError(
            f"an array of the standard has no {name!r}: the library computes with the attributes "
            f"of its own arrays, and not with the array API standard's functions; pass "
            f"xdevice.to_numpy(x)"
        )

    # Other libraries' arrays

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions, and its operators if a number or an array of NumPy is on the left."""
        name = OF_UFUNCS.get(ufunc.__name__)
        if name is not None and method == "__call__" and not options:
            left, right = inputs
            if isinstance(left, Array):
                result = getattr(left, f"__{name}__")(right)
            else:
                result = getattr(right, REFLECTED.get(name, f"__r{name}__"))(left)
            if result is not NotImplemented:
                return result
        numbers = [part.__array__() if isinstance(part, Array) else part for part in inputs]
        if any(isinstance(part, Array) for part in options.get("out", ())):
            raise NotSupportedError("an array cannot be out= of a function of NumPy; leave it out")
        return getattr(ufunc, method)(*numbers, **options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not self.may_go_to_host():
            raise NotSupportedError(
                f"a library asks for a NumPy array of the {self.xp.owner} tensor on "
                f"{self.device}: it does not compute this with the array API standard's functions "
                f"(SciPy and scikit-learn need SCIPY_ARRAY_API=1 before they are imported, and "
                f"scikit-learn set_config(array_api_dispatch=True)); pass xdevice.to_numpy(x), or "
                f"compose the library with allow_host=True"
            )
        if copy is False:
            raise ArgumentError("an array is copied to become a NumPy array; leave copy=False out")
        gradients = self.xp.owner.load("gradients")
        if gradients.has("is_recorded") and gradients.is_recorded(self.tensor):
            raise NotSupportedError(
                f"a library asks for a NumPy array of a {self.xp.owner} tensor that needs a "
                f"gradient, which would be lost; detach it, or compute without recording"
            )
        numbers = to_numpy(self.tensor)
        if dtype is None:
            return numbers
        return numbers.astype(dtype, copy=False)

    def may_go_to_host(self) -> bool:
        rule, device = host_rule.get(), self.device
        if rule == "never" or isinstance(device, TracedDevice):
            return False
        return rule == "always" or device.kind == "cpu"

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        own_device = self.__dlpack_device__()
        if dl_device not in (None, own_device):
            if dl_device != _CPU:
                raise BufferError(f"the array is on {self.device}; use its to_device first")
            if copy is False:
                raise BufferError("an array is copied to the host; leave copy=False out")
            return to_numpy(self.tensor).__dlpack__(max_version=max_version)
        if stream is not None:
            raise BufferError("an array has no streams; leave stream out")
        if not hasattr(self.tensor, "__dlpack__"):
            raise BufferError(f"{self.xp.owner}'s tensors have no __dlpack__; use xdevice.convert")
        if copy is False:
            return self.tensor.__dlpack__()
        # the other library may write to what it takes
        return to_device(self.tensor, self.device, copy=True).__dlpack__()

    def __dlpack_device__(self) -> tuple[Any, int]:
        device = self.device
        if device.kind == "cpu":
            return _CPU
        if hasattr(self.tensor, "__dlpack_device__"):
            # PaddlePaddle 3.3 raises for devices that it does not know
            with suppress(RuntimeError):
                native: tuple[Any, int] = self.tensor.__dlpack_device__()
                if native[0] != _CPU[0]:
                    return native
        return _CUDA, device.index  # a virtual GPU: its memory is not the host's either

    # Numbers

    def _number(self) -> Any:
        if self.size != 1:
            raise ArgumentTypeError(
                f"an array of shape {self.shape} is not one number; reduce or index it first"
            )
        return to_numpy(self.tensor).reshape(()).item()

    def __bool__(self) -> bool:
        return bool(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def __index__(self) -> int:
        number = self._number()
        if type(number) is not int or self.ndim:
            raise ArgumentTypeError(f"an array of {self.dtype} is not an index")
        return number

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentTypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise ArgumentTypeError("an array without axes cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self) -> str:
        return f"<xdevice array of {self.tensor!r}>"

    # Indexing

    def __getitem__(self, key: Any, /) -> Array:
        xp, native_key = self.xp.native, self._native_key(key)

        def read(tensor: Tensor) -> Tensor:
            return item(xp, tensor, native_key)

        result = read(self.tensor)
        is_copy = not len(result.shape) or _has_tensors(native_key)
        return self.with_tensor(result) if is_copy else self.showing(read, result, native_key)

    def __setitem__(self, key: Any, value: Operand, /) -> None:
        xp = self.xp
        if isinstance(value, Array):
            number = value.tensor
            if xp.kind(value.dtype) > xp.kind(self.dtype):
                raise ArgumentTypeError(
                    f"numbers of {value.dtype} cannot be written into an array of {self.dtype}; "
                    f"convert them with astype"
                )
        elif isinstance(value, (bool, int, float, complex)):
            # unlike asarray, this sends no number to the device
            number = xp.native.full((), value, dtype=self.dtype, device=self.device)
        else:
            number = xp.asarray(value, dtype=self.dtype, device=self.device).tensor
        self.write(with_item(xp.native, self.tensor, self._native_key(key), number))

    def _native_key(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(map(self._native_key, key))
        if isinstance(key, Array):
            return key.tensor
        if isinstance(key, list) or (type(key).__module__ == "numpy" and hasattr(key, "__len__")):
            return self.xp.asarray(key, device=self.device).tensor
        return key

    def with_tensor(self, tensor: Tensor) -> Array:
        if tensor is self.tensor:
            return self
        return Array(tensor, self.xp)


def _has_tensors(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(map(_has_tensors, key))
    return hasattr(key, "shape")
