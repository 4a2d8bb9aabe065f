"""DLPack while virtual GPUs stand in: their arrays say CUDA, and what says CUDA arrives on its GPU.

An exported array is in the host's memory and its capsule says that it is on a GPU, so NumPy refuses it, as it refuses a
GPU's. What arrives is copied to its GPU: to JAX, the memory that it had is the host's.
"""

from functools import wraps
from importlib import import_module
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.virtual import lists
from xdevice.kit.dlpack import CPU, CUDA, labelled


def start(array: Any, is_inner: Any) -> None:
    """Let arrays say where they are; ``is_inner`` is whether the caller's caller needs the truth."""
    where, export = array.__dlpack_device__, array.__dlpack__

    def device(self: Any) -> tuple[Any, int]:
        found: tuple[Any, int] = where(self)
        index = _ordinal(self)
        return (type(found[0])(CUDA), index - 1) if index and not is_inner() else found

    def exported(self: Any, *, stream: Any = None, dl_device: Any = None, **options: Any) -> Any:
        index = _ordinal(self)
        if not index or is_inner():
            return export(self, stream=stream, dl_device=dl_device, **options)
        if dl_device is None or int(dl_device[0]) == CUDA:
            index = index if dl_device is None else dl_device[1] + 1
            there = jax.device_put(self, _gpu(index - 1))
            return labelled(export(there, **options), CUDA, index - 1)
        return export(self, dl_device=dl_device, **options)  # to the host

    array.__dlpack_device__, array.__dlpack__ = device, exported
    home, public = import_module("jax._src.dlpack"), import_module("jax.dlpack")
    home.from_dlpack = public.from_dlpack = _to_its_gpu(home.from_dlpack)  # type: ignore[attr-defined]  # it has it


def _ordinal(array: Any) -> int:
    return hardware.ordinal(next(iter(array.sharding.device_set)))


def _gpu(index: int) -> Any:
    return lists.gpus_in(hardware.every_local_device())[index]


class _OnTheHost:
    """An array of a virtual GPU, of whatever framework, as one of the host."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__dlpack_device__ = lambda: (CPU, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return labelled(self._array.__dlpack__(), CPU, 0)


def _to_its_gpu(take: Any) -> Any:
    @wraps(take)
    def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        if isinstance(external_array, jax.Array) and (own := _ordinal(external_array)):
            made: Any = external_array.copy() if copy else external_array
            return jax.device_put(made, device or _gpu(own - 1))
        kind, index = getattr(external_array, "__dlpack_device__", lambda: (CPU, 0))()
        if int(kind) != CUDA:
            return take(external_array, device, copy)
        return jax.device_put(take(_OnTheHost(external_array), None, copy), device or _gpu(index))

    return from_dlpack
