"""The devices that JAX sees from this process."""

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distributions
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xdevice.backends.jax.private_names import names, optional
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import NotSupportedError, UnknownPlacementError
from xdevice.kit.places import ReplacedGpus

_successor = jax.jit(lambda number: number + 1)
# JAX has no public function for it that is as quick
_nothing_traced: Any = optional("jax._src.core:trace_state_clean", otherwise=lambda: False)
_batch: Any = names.value("jax._src.interpreters.batching:BatchTrace")
_has_started: Any = names.value("jax._src.xla_bridge:backends_are_initialized")
# JAX's own, also while other devices replace the GPUs
every_device: Any = jax.devices
_ordinal: Any = names.value("jaxlib._jax:Device.local_hardware_id")
# The devices that replace the GPUs are host devices: the first is the CPU, those after them are
# further CPUs.
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


def native(device: Device) -> Any:
    return local_devices(device.kind)[device.index]


def as_device(native: Any) -> Device:
    if isinstance(native, jax.sharding.SingleDeviceSharding):
        kind = native.memory_kind
        (native,) = native.device_set
        if native.platform != "cpu" and kind is not None and kind.endswith("host"):
            # such as pinned_host: memory of the host that a GPU can read
            return Device(kind, _position(native))
    position = _position(native)
    if replaced_gpus.number and native.platform == "cpu" and position:
        gpus = replaced_gpus.number
        return Device("gpu", position - 1) if position <= gpus else Device("cpu", position - gpus)
    return Device(native.platform, position)


def scope(device: Device) -> Any:
    if is_tracing():
        hint = "enter it around the call, or give device= to what makes the array"
        raise NotSupportedError(
            f"a scope of {device} would do nothing while jax.jit traces a function; {hint}"
        )
    return jax.default_device(native(device))  # fresh: one entered twice never leaves


def is_tracing() -> bool:
    """Whether JAX traces a function in this thread, as in jax.jit and jax.lax.scan; jax.grad and jax.vmap compute."""
    return not _nothing_traced() and isinstance(jnp.asarray(0), Tracer)


def is_mapping() -> bool:
    """Whether ``jax.vmap`` maps a function in this thread: an array made in it is the same for each element."""
    if _nothing_traced():
        return False
    names.require("random numbers in a function that JAX transforms")
    context = optional("jax._src.core:trace_ctx")
    if context is None:  # before JAX 0.4.36
        traces = optional("jax._src.core:thread_local_state").trace_state.trace_stack.stack
        return any(issubclass(main.trace_type, _batch) for main in traces)
    trace = context.trace
    while trace is not None and not isinstance(trace, _batch):
        trace = getattr(trace, "parent_trace", None)
    return trace is not None


def synchronize(devices: Sequence[Device]) -> None:
    """Wait for every result that is alive, for callbacks, and for all that was queued on a GPU, which keeps the order.

    The CPU does not promise that: work whose result is dropped is nearly always waited for, but not
    always.
    """
    for word in {native(device).platform for device in devices}:
        for array in jax.live_arrays(word):  # type: ignore[no-untyped-call]  # JAX has left it without types
            try:
                array.block_until_ready()
            except RuntimeError:
                # another thread may delete the array meanwhile; other errors are those of the
                # computation
                if not array.is_deleted():
                    raise
    jax.effects_barrier()  # type: ignore[no-untyped-call]  # likewise
    with jax.ensure_compile_time_eval():  # or a call inside a traced function would be traced
        for last in [_successor(_token(native(device))) for device in devices]:
            last.block_until_ready()


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    own = native(device)
    return {
        "name": str(own.device_kind),
        "compute_capability": getattr(own, "compute_capability", None),
    }


def has_started() -> bool:
    """Whether JAX has looked for devices, and taken their memory."""
    return bool(_has_started())


def ordinal(native: Any) -> int:
    """The number of a host device in its process: ``i + 1`` stands for ``gpu:i``, and 0 for a CPU."""
    number: int | None = _ordinal.__get__(native)
    if number is None:  # a device of another process, which counts in the order of the ids
        peers = sorted(
            peer.id for peer in every_device("cpu") if peer.process_index == native.process_index
        )
        number = peers.index(native.id)
    return number if number <= replaced_gpus.number else 0


def every_local_device(kind: str | None = None) -> list[Any]:
    """What JAX itself lists for this process."""
    here = jax.process_index()
    return [device for device in every_device(kind) if device.process_index == here]


def local_devices(kind: str) -> list[Any]:
    """Those of this process that are of the kind."""
    if not replaced_gpus.number or kind not in ("cpu", "gpu"):
        return _of_platform(kind)
    host = _of_platform("cpu")
    return (
        [*host[:1], *host[replaced_gpus.number + 1 :]]
        if kind == "cpu"
        else host[1 : replaced_gpus.number + 1]
    )


def _of_platform(kind: str) -> list[Any]:
    """JAX raises where it has none of the kind, and for unknown kinds."""
    try:
        return every_local_device(kind)
    except RuntimeError:
        return []


def _position(native: Any) -> int:
    """Which of this process's devices of its kind it is; ``id`` counts over all processes."""
    try:
        return _of_platform(native.platform).index(native)
    except ValueError:
        raise UnknownPlacementError(
            f"{native} belongs to process {native.process_index}; ask there, or use one of {jax.local_devices()}"
        ) from None


@cache
def _token(native: Any) -> Any:
    """A number on each device, for `synchronize` to compute with."""
    return jax.device_put(0, native)
