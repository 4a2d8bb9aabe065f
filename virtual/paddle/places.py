"""The places of virtual GPUs that stand in: ``CUDAPlace(i)`` and ``CUDAPinnedPlace()``."""

import ctypes
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeAlias

import paddle
from paddle.base import core as _core

from xdevice.backends.paddle.hardware import WORD
from xdevice.contract import NativeDtype, Tensor
from xdevice.virtual.paddle.answers import CORE, answer_by_caller, replace_in_core
from xdevice.virtual.paddle.private_names import Function, in_place_of, names, replace_name

NativeClass: TypeAlias = Any
NativeObject: TypeAlias = Any
NativePlace: TypeAlias = Any

core: Any = _core
framework: Any = import_module("paddle.base.framework")

_is_custom: Callable[[NativePlace], bool] = core.Place.is_custom_place
_custom_type: Callable[[NativePlace], str] = core.Place.custom_device_type
_custom_index: Callable[[NativePlace], int] = core.Place.custom_device_id
# dlpack.h: the offset of device.device_type, and kDLCUDAHost
_DEVICE_TYPE, _CUDA_HOST = 8, 3


def replace_places(number: int) -> None:
    _make_place_classes(number)
    _describe_places()
    _let_copies_use_page_locked_memory()
    # printing a tensor shows this
    replace_name("paddle:Tensor._place_str", property(lambda self: str(self.place)))


def current_gpu() -> int:
    """The index of the current GPU; 0 where the current device is the CPU."""
    place = framework._current_expected_place_()
    return _custom_index(place) if isinstance(place, core.CUDAPlace) else 0


def gpu_index(index: int) -> int:
    """The index, or the current GPU's for a negative one."""
    return current_gpu() if index < 0 else index


def base_class_of(
    native_class: NativeClass, is_instance: Callable[[NativeObject], bool]
) -> NativeClass:
    """A subclass of the native class. ``isinstance`` also accepts native objects by `is_instance`."""

    class Meta(type(native_class)):  # type: ignore[misc]  # known at run time
        def __instancecheck__(cls, value: object) -> bool:
            is_native = isinstance(value, native_class)
            return type(value) is cls or (is_native and is_instance(value))

    return Meta(native_class.__name__, (native_class,), {})


def _is_virtual(place: NativePlace) -> bool:
    return bool(_is_custom(place)) and _custom_type(place) == WORD


def _make_place_classes(number: int) -> None:
    class CUDAPlace(base_class_of(core.CustomPlace, _is_virtual)):  # type: ignore[misc]  # known at run time
        def __init__(self, index: int) -> None:
            if not 0 <= index < number:
                raise ValueError(  # PaddlePaddle's own message
                    f"(InvalidArgument) Invalid CUDAPlace({index}), must inside [0, {number}), "
                    f"because GPU number on your machine is {number}."
                )
            super().__init__(WORD, index)

    page_locked = _page_locked(paddle.zeros([1]).cpu()).place

    class CUDAPinnedPlace(core.Place):  # type: ignore[misc]  # likewise
        """The host's memory, page-locked."""

        def __init__(self) -> None:
            super().__init__()
            self.set_place(page_locked)

    names.replace_everywhere(f"{CORE}:CUDAPlace", CUDAPlace)
    names.replace_everywhere(f"{CORE}:CUDAPinnedPlace", CUDAPinnedPlace)


def _describe_places() -> None:
    place = core.Place
    native_repr = place.__repr__
    native_type = place.get_device_type
    native_is_gpu = place.is_gpu_place
    native_index = place.gpu_device_id

    def to_repr(self: NativePlace) -> str:
        if _is_virtual(self):
            return f"Place(gpu:{_custom_index(self)})"
        return str(native_repr(self))

    def get_device_type(self: NativePlace) -> str:
        return "gpu" if _is_virtual(self) else str(native_type(self))

    def is_gpu_place(self: NativePlace) -> bool:
        return _is_virtual(self) or bool(native_is_gpu(self))

    def is_custom_place(self: NativePlace) -> bool:
        return bool(_is_custom(self)) and not _is_virtual(self)

    def gpu_device_id(self: NativePlace) -> int:
        if _is_virtual(self):
            return int(_custom_index(self))
        return int(native_index(self))

    device_type = answer_by_caller(get_device_type, for_paddle=native_type)
    for name in ("Place", "CustomPlace"):
        replace_in_core({f"{name}.__repr__": to_repr, f"{name}.__str__": to_repr})
        replace_in_core({f"{name}.get_device_type": device_type})
    # CUDAPlace is a class of this module
    core.CUDAPlace.__repr__ = core.CUDAPlace.__str__ = to_repr
    core.CUDAPlace.get_device_type = device_type
    replace_in_core(
        {
            "Place.is_gpu_place": is_gpu_place,
            "Place.is_custom_place": answer_by_caller(is_custom_place, for_paddle=_is_custom),
            "Place.gpu_device_id": gpu_device_id,
        }
    )
    # `paddle.lerp` chooses by it the dtype that CUDA's kernel takes, and not the CPU's
    is_cuda = answer_by_caller(
        lambda tensor: tensor.place.is_gpu_place(), for_paddle=lambda _: False
    )
    replace_name("paddle:Tensor.is_cuda", property(is_cuda))


def _let_copies_use_page_locked_memory() -> None:
    """Make the copies from and to page-locked memory that a build without CUDA refuses."""

    native_to_tensor: Function = paddle.to_tensor

    @in_place_of("paddle:Tensor._copy_to")
    def copy_to(native: Function, self: Tensor, place: NativePlace, blocking: bool) -> Tensor:
        if isinstance(place, core.CUDAPinnedPlace):
            return _page_locked(native(self, core.CPUPlace(), True))
        if self.place.is_cuda_pinned_place():
            return native_to_tensor(self.numpy(), place=place)
        return native(self, place, blocking)

    @wraps(native_to_tensor)
    def to_tensor(
        data: object,
        dtype: NativeDtype = None,
        place: NativePlace = None,
        stop_gradient: bool = True,
    ) -> Tensor:
        if isinstance(place, core.CUDAPinnedPlace):
            return native_to_tensor(data, dtype, core.CPUPlace(), stop_gradient).pin_memory()
        return native_to_tensor(data, dtype, place, stop_gradient)

    names.replace_everywhere("paddle.tensor.creation:to_tensor", to_tensor)


def _page_locked(tensor: Tensor) -> Tensor:
    """The memory of a tensor on the CPU as a page-locked tensor.

    A build without CUDA makes such tensors for DLPack alone.
    """
    capsule = paddle.utils.dlpack.to_dlpack(tensor)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    device_type = address(capsule, b"dltensor") + _DEVICE_TYPE
    ctypes.c_int32.from_address(device_type).value = _CUDA_HOST
    return paddle.utils.dlpack.from_dlpack(capsule)
