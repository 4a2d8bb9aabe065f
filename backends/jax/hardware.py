"""The devices that JAX sees from this process."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import distributions
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from xdevice.backends.jax.private_names import names, optional
from xdevice.backends.kit.places import ReplacedGpus
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import NotSupportedError, UnknownPlacementError

Function: TypeAlias = Callable[..., Any]

_successor = jax.jit(lambda number: number + 1)
# JAX has no public function for it that is as quick
_nothing_traced: Function = optional("jax._src.core:trace_state_clean", otherwise=lambda: False)
_BatchTrace: type = names.value("jax._src.interpreters.batching:BatchTrace")
_has_started: Function = names.value("jax._src.xla_bridge:backends_are_initialized")
# JAX's own function: `jax.devices` may be replaced together with the GPUs
every_device: Function = jax.devices
_ordinal = names.value("jaxlib._jax:Device.local_hardware_id")
# The devices that replace the GPUs are host devices: the first host device is the
# CPU, the next ones are the GPUs, and the others are further CPUs.
replaced_gpus = ReplacedGpus()


def build() -> Build:
    # JAX's GPU support is a separate package: jax-cuda12-plugin, jax-rocm60-plugin
    for distribution in distributions():
        plugin = re.fullmatch(r"jax-(cuda|rocm)(\d+)-plugin", distribution.name or "")
        if plugin:
            return {"version": jax.__version__, "compute": plugin[1], "toolkit": plugin[2]}
    return {"version": jax.__version__, "compute": "cpu", "toolkit": None}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu", "tpu"


def count(kind: str) -> int:
    return len(local_devices(kind))


@replaced_gpus.cached
def native(device: Device) -> jax.Device:
    return local_devices(device.kind)[device.index]


def as_device(native: jax.Device | SingleDeviceSharding) -> Device:
    if isinstance(native, SingleDeviceSharding):
        memory = native.memory_kind
        (native,) = native.device_set
        if native.platform != "cpu" and memory is not None and memory.endswith("host"):
            # such as pinned_host: memory of the host that a GPU can read
            return Device(memory, _position(native))
    position = _position(native)
    gpus = replaced_gpus.number
    if not gpus or native.platform != "cpu" or position == 0:
        return Device(native.platform, position)
    if position <= gpus:
        return Device("gpu", position - 1)
    return Device("cpu", position - gpus)


def scope(device: Device) -> Any:
    if not _nothing_traced() and is_tracing():  # the first question alone is the quick one
        hint = "enter it around the call, or give device= to what makes the array"
        raise NotSupportedError(
            f"a scope of {device} would do nothing while jax.jit traces a function; {hint}"
        )
    return jax.default_device(native(device))  # fresh: one entered twice never leaves


def is_tracing() -> bool:
    """Whether JAX traces a function in this thread, as in jax.jit and jax.lax.scan.

    jax.grad and jax.vmap alone do not trace: they compute.
    """
    return not _nothing_traced() and isinstance(jnp.asarray(0), Tracer)


def is_mapping() -> bool:
    """Whether ``jax.vmap`` maps a function in this thread.

    An array that is created in the function is the same for each element.
    """
    if _nothing_traced():
        return False
    names.require("random numbers in a function that JAX transforms")
    context = optional("jax._src.core:trace_ctx")
    if context is None:  # before JAX 0.4.36
        traces = optional("jax._src.core:thread_local_state").trace_state.trace_stack.stack
        return any(issubclass(main.trace_type, _BatchTrace) for main in traces)
    trace = context.trace
    while trace is not None and not isinstance(trace, _BatchTrace):
        trace = getattr(trace, "parent_trace", None)
    return trace is not None


def synchronize(devices: Sequence[Device]) -> None:
    """Wait for live results, for callbacks, and for all work that GPUs have queued.

    A GPU works in the order of its queue, so one more computation is queued there
    and waited for. The CPU keeps no such order: work whose result is dropped is
    nearly always waited for, but not always.
    """
    for platform in {native(device).platform for device in devices}:
        for array in jax.live_arrays(platform):  # type: ignore[no-untyped-call]  # JAX has no types
            _wait_for(array)
    jax.effects_barrier()  # type: ignore[no-untyped-call]  # JAX has no types for it either
    # inside a traced function, the computations would be traced otherwise
    with jax.ensure_compile_time_eval():
        for number in [_successor(_token(native(device))) for device in devices]:
            number.block_until_ready()


def _wait_for(array: jax.Array) -> None:
    try:
        array.block_until_ready()
    except RuntimeError:
        # another thread may have deleted the array; other errors are the computation's
        if not array.is_deleted():
            raise


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    native_device = native(device)
    return {
        "name": str(native_device.device_kind),
        "compute_capability": getattr(native_device, "compute_capability", None),
    }


def has_started() -> bool:
    """Whether JAX has looked for devices, and taken their memory."""
    return bool(_has_started())


def ordinal(native: jax.Device) -> int:
    """The number that a host device stands for: ``i + 1`` is ``gpu:i``, and 0 a CPU."""
    number: int | None = _ordinal.__get__(native)
    if number is None:  # a device of another process
        peers = sorted(
            peer.id for peer in every_device("cpu") if peer.process_index == native.process_index
        )
        number = peers.index(native.id)
    return number if number <= replaced_gpus.number else 0


def every_local_device(platform: str | None = None) -> list[jax.Device]:
    """The devices that JAX itself lists for this process."""
    process = jax.process_index()
    return [device for device in every_device(platform) if device.process_index == process]


def local_devices(kind: str) -> list[jax.Device]:
    """The devices of this process that are of the kind."""
    gpus = replaced_gpus.number
    if not gpus or kind not in ("cpu", "gpu"):
        return _of_platform(kind)
    host_devices = _of_platform("cpu")
    if kind == "gpu":
        return host_devices[1 : gpus + 1]
    return host_devices[:1] + host_devices[gpus + 1 :]


def _of_platform(kind: str) -> list[jax.Device]:
    """JAX's devices of this kind; JAX raises if it has none, and for unknown kinds."""
    try:
        return every_local_device(kind)
    except RuntimeError:
        return []


def _position(native: jax.Device) -> int:
    """The device's index among the devices of its kind in this process.

    Its ``id`` counts over all processes.
    """
    try:
        return _of_platform(native.platform).index(native)
    except ValueError:
        owner = native.process_index
        raise UnknownPlacementError(
            f"{native} belongs to process {owner}; ask there, or use one of {jax.local_devices()}"
        ) from None


@cache
def _token(native: jax.Device) -> jax.Array:
    """A number on each device, for `synchronize` to compute with."""
    token: jax.Array = jax.device_put(0, native)
    return token
