"""What names a device, for type checkers."""

from typing import Protocol, TypeAlias

from xdevice.device import Device


class _Typed(Protocol):
    """A native device with a type and an index, as PyTorch's."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


class _OfPlatform(Protocol):
    """A native device with a platform and an id, as JAX's."""

    @property
    def platform(self) -> str: ...
    @property
    def id(self) -> int: ...


class _Context(Protocol):
    """A native device with a type of device, as MXNet's and TensorFlow's."""

    @property
    def device_type(self) -> str: ...


class _Place(Protocol):
    """A native device that is asked what it is, as PaddlePaddle's."""

    def is_cpu_place(self) -> bool: ...
    def gpu_device_id(self) -> int: ...


DeviceLike: TypeAlias = Device | str | _Typed | _OfPlatform | _Context | _Place
"""What names a device: a `Device`, any framework's spelling, or a native device, by its shape; never a tensor.

Examples
--------
>>> from xdevice.typing import DeviceLike
>>> def load_batch(path: str, device: DeviceLike = "cpu") -> object: ...
"""
