"""Where JAX's arrays are, and moving them."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from xdevice.backends.jax.hardware import as_device, native
from xdevice.backends.kit import keras
from xdevice.contract import Category
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, TracedTensorError, UnknownPlacementError

_devices: dict[SingleDeviceSharding, Device] = {}  # those on which an array has been
_DATA = (jax.sharding.Sharding, jax.sharding.PartitionSpec, jax.sharding.Mesh, jax.ShapeDtypeStruct)


def category(cls: type) -> Category | None:
    # a tracer is an Array for isinstance, and not for issubclass
    if issubclass(cls, (jax.Array, Tracer, *_sparse())):
        return "tensor"
    if issubclass(cls, (jax.Device, SingleDeviceSharding)):
        return "device"
    return "data" if issubclass(cls, _DATA) else keras.category(cls, "jax")


def device_of(tensor: Any) -> Device:
    if isinstance(tensor, Tracer):
        return device_of(concrete(tensor))
    try:
        if tensor.is_deleted():
            raise _deleted(tensor)
    except AttributeError:
        return device_of(tensor.data if is_sparse(tensor) else keras.value_of(tensor))
    sharding = tensor.sharding
    try:
        return _devices[sharding]
    except KeyError:
        return _device_of_sharding(sharding)


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    if is_sparse(tensor):
        return jax.tree.map(lambda part: move(part, device, non_blocking), tensor)
    if not isinstance(tensor, jax.Array):
        return keras.with_value(tensor, move(keras.value_of(tensor), device, non_blocking))
    # JAX's arrays are futures: nothing waits until a value is needed
    return _in_own_memory(jax.device_put(tensor, native(device)), device)


def move_many(tensors: list[Any], device: Device, non_blocking: bool) -> list[Any]:
    if not all(isinstance(tensor, jax.Array) for tensor in tensors):
        return [move(tensor, device, non_blocking) for tensor in tensors]
    # JAX copies several arrays at once in two thirds of the time
    moved = jax.device_put(tensors, native(device))
    return [_in_own_memory(array, device) for array in moved]


def _in_own_memory(array: jax.Array, device: Device) -> jax.Array:
    """The array, moved from pinned host memory, where JAX leaves one unless a sharding names another.

    With a sharding every move would take twice as long.
    """
    if device_of(array) is device:
        return array
    native_device = native(device)
    memory = native_device.default_memory().kind
    new_array: jax.Array = jax.device_put(
        array, SingleDeviceSharding(native_device, memory_kind=memory)
    )
    return new_array


def copy(tensor: Any) -> Any:
    if is_sparse(tensor):
        return jax.tree.map(copy, tensor)
    if not isinstance(tensor, jax.Array):
        return keras.with_value(tensor, copy(keras.value_of(tensor)))
    # the copy of an array that is uncommitted would go to the default device, so make that its own;
    # device_put(…, may_alias=False) does not copy at all before JAX 0.5
    with jax.default_device(min(concrete(tensor).sharding.addressable_devices, key=lambda d: d.id)):
        return jnp.copy(tensor)


def is_only_traced(tensor: Any) -> bool:
    """Whether there is no array behind it while its function is traced."""
    try:
        concrete(tensor)
    except TracedTensorError:
        return True
    return False


def is_sparse(tensor: Any) -> bool:
    """Whether it is one of JAX's experimental sparse arrays: several arrays, as one."""
    return isinstance(tensor, _sparse())


def described(tensor: Any) -> str:
    """What a sparse array is, and what to type to make it a plain one."""
    return f"a {type(tensor).__name__}; take its todense() first"


def _sparse() -> tuple[type, ...]:
    module: Any = sys.modules.get("jax.experimental.sparse")  # where there are such, it is imported
    base = getattr(module, "JAXSparse", None)
    return () if base is None else (base,)


def concrete(tensor: Any) -> Any:
    """The array itself, or the one behind a Keras variable, or a tracer that has one: under ``jax.grad``."""
    if not isinstance(tensor, Tracer):
        return tensor if isinstance(tensor, jax.Array) else concrete(keras.value_of(tensor))
    ask = getattr(tensor, "to_concrete_value", None)
    value = ask() if ask else getattr(tensor.aval, "val", None)  # the latter before JAX 0.4.36
    if value is None:
        hint = "ask, move and read outside jax.jit and jax.vmap"
        raise TracedTensorError(f"a {type(tensor).__name__} is traced and has no device; {hint}")
    # jax.grad also takes NumPy's arrays, and numbers
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def check_alive(tensor: Any) -> Any:
    """The array behind the tensor, if its values are still there."""
    array = concrete(tensor)
    if array.is_deleted():
        raise _deleted(array)
    return array


def _device_of_sharding(sharding: Any) -> Device:
    if isinstance(sharding, SingleDeviceSharding):
        return _devices.setdefault(sharding, as_device(sharding))
    if not sharding.is_fully_addressable:
        raise UnknownPlacementError(
            f"an array of {sharding} is spread over several processes; ask about its "
            "addressable_shards"
        )
    devices = {
        as_device(SingleDeviceSharding(native, memory_kind=sharding.memory_kind))
        for native in sharding.device_set
    }
    if len(devices) == 1:
        return devices.pop()
    listed = ", ".join(map(str, sorted(devices)))
    raise MixedDeviceError(
        f"one array is spread over {listed}; ask devices_of, or bring it to one device", devices
    )


def _deleted(array: Any) -> UnknownPlacementError:
    return UnknownPlacementError(
        f"an array of shape {array.shape} was deleted or donated and has no device; keep what the "
        "call returned"
    )
