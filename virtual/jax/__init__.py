"""Virtual GPUs under JAX: host devices, of which the first stays the CPU.

``gpu:i`` is JAX's ``CpuDevice(id=i+1)``. Each has memory of its own, and JAX refuses to mix them.
JAX's lists leave out the CPU, as with real GPUs, and its own names for GPUs mean them where they
stand in (`stand_in`): the functions of ``jax._src.xla_bridge`` and every reference of JAX's modules
to them are replaced. xdevice itself calls the originals; `hardware` keeps references to them.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.private_names import names as names_of_the_adapter
from xdevice.contract import NativeDevice, Request
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.machine import gpus
from xdevice.virtual.jax.private_names import Function, in_place_of, names
from xdevice.virtual.refusals import refuse_memory_limit, refuse_to_hide

BRIDGE = "jax._src.xla_bridge"
DEFAULT = "jax._src.interpreters.pxla:get_default_device"

Platform: TypeAlias = Any
"""What JAX accepts as ``backend=``: the name of a platform, a client of XLA, or ``None``."""


def recipe() -> None:
    return None  # nothing is compiled


def hides_gpus() -> str:
    """What tells JAX to use the CPU alone."""
    settings: Any = jax.config  # JAX has left it without types
    return "JAX_PLATFORMS=cpu" if settings.jax_platforms == "cpu" else ""


def enable(request: Request) -> None:
    n = request.number
    refuse_memory_limit(request, "jax")
    settings: Any = jax.config  # JAX has left it without types
    compute = hardware.build()["compute"]
    # without a setting, JAX uses every platform that it finds
    platforms = settings.jax_platforms.split(",") if settings.jax_platforms else []
    real_gpus = 0
    if compute != "cpu" and platforms != ["cpu"]:
        real_gpus = len(gpus()["gpus"])
    excludes_host = bool(platforms) and "cpu" not in platforms
    refuse_to_hide(request, real_gpus, f"jax, by its {compute} plug-in,")
    if excludes_host and not request.force and not request.stand_in:
        reason = f"jax_platforms={settings.jax_platforms} leaves out the host, which provides them"
        hint = f"start with JAX_PLATFORMS=cpu, or ask for virtual_gpus({n}, force=True)"
        raise VirtualDeviceError(f"{n} virtual GPUs were asked for, but {reason}; {hint}")
    if not hasattr(settings, "jax_num_cpu_devices"):
        raise NotSupportedError(
            f"jax {jax.__version__} has no setting for several host devices; install jax>=0.5.1"
        )
    names.check("STAND_IN" if request.stand_in else "VIRTUAL", "OTHERS")
    names_of_the_adapter.check("OTHERS")
    _set_number_of_host_devices(n)
    if real_gpus or excludes_host:
        settings.update("jax_platforms", "cpu")
    hardware.replaced_gpus.replace(n, under_own_names=request.stand_in)
    if request.stand_in:
        # imported on request only, since it replaces parts of JAX
        from xdevice.virtual.jax import stand_in as gpus_of_jax

        gpus_of_jax.start(request)
    else:
        _leave_out_the_cpu()
        _print_as_virtual_gpus()


def _set_number_of_host_devices(n: int) -> None:
    """Let JAX start with the CPU and n further host devices."""
    settings: Any = jax.config
    try:
        settings.update("jax_num_cpu_devices", n + 1)
    except RuntimeError as error:
        hint = f"ask for them before jax is first used, or start with XDEVICE_VIRTUAL_GPUS={n}"
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for jax, which has started; {hint}"
        ) from error


def _print_as_virtual_gpus() -> None:
    """Let JAX print virtual GPUs as such. Its own text for them would be parsed as a CPU."""

    def text(device: NativeDevice, pattern: str, native_text: Function) -> str:
        if device.platform == "cpu" and device.process_index == jax.process_index():
            xdevice_device = hardware.as_device(device)
            if xdevice_device.kind == "gpu":
                return pattern.format(xdevice_device.index)
        return str(native_text(device))

    @in_place_of("jax:Device.__str__")
    def to_str(native: Function, self: NativeDevice) -> str:
        return text(self, "vgpu:{}", native)

    @in_place_of("jax:Device.__repr__")
    def to_repr(native: Function, self: NativeDevice) -> str:
        return text(self, "VgpuDevice(id={})", native)


def _leave_out_the_cpu() -> None:
    """Let lists without a backend have only the virtual GPUs.

    The default device stays the CPU.
    """

    def devices(backend: Platform = None) -> list[NativeDevice]:
        if backend is None:
            return gpus_in(hardware.every_device())
        return list(hardware.every_device(backend))

    @in_place_of(DEFAULT)
    def get_default_device(native: Function) -> NativeDevice:
        settings: Any = jax.config
        default = settings.jax_default_device
        if isinstance(default, str):
            return native()
        return default or hardware.every_local_device()[0]

    replace(lists_from(devices))


def lists_from(devices: Callable[..., list[NativeDevice]]) -> dict[str, Function]:
    """The four functions that list or count devices, made from the first."""

    def local_devices(
        process_index: int | None = None, backend: Platform = None, host_id: int | None = None
    ) -> list[NativeDevice]:
        process = process_index if host_id is None else host_id
        if process is None:
            process = jax.process_index()
        if not 0 <= process < jax.process_count():
            raise ValueError(f"Unknown process_index {process}")
        return [device for device in devices(backend) if device.process_index == process]

    return {
        "devices": devices,
        "local_devices": local_devices,
        "device_count": lambda backend=None: len(devices(backend)),
        "local_device_count": lambda backend=None: len(local_devices(backend=backend)),
    }


def replace(functions: Mapping[str, Function]) -> None:
    """Replace the functions of these names, wherever a module of JAX refers to them."""
    for name, function in functions.items():
        path = f"{BRIDGE}:{name}"
        native_clear = getattr(names.value(path), "cache_clear", lambda: None)
        vars(function).update(cache_clear=native_clear)  # JAX calls it
        names.replace_everywhere(path, function)


def gpus_in(devices: list[NativeDevice]) -> list[NativeDevice]:
    """The devices that stand for GPUs, of all processes."""
    return [device for device in devices if hardware.ordinal(device)]
