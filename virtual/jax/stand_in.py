"""JAX programs written for GPUs, unedited: the virtual GPUs answer to JAX's own names for GPUs.

Two things are replaced:

- The lists of devices. Where the program names no backend, or ``gpu`` or ``cuda``, `jax.devices` and its like return
  the virtual GPUs. Meshes, `jax.pmap` and the default device use these lists.
- The attributes of jaxlib's ``Device`` and ``Client``. A program reads ``gpu``; JAX and xdevice read the true platform
  (`_is_read_by_jax`).

The DLPack capsule of an array says that its memory is a GPU's, so NumPy refuses it as it refuses a
real GPU's. An array of another library that says CUDA is copied to its GPU.

Not supported: CUDA's lowerings (`jax.lax.platform_dependent` takes its cpu branch; Triton and
cuDNN's attention raise), ``compute_capability``, and the platform ``cpu`` for the CPU's client,
which is also the GPUs'. What XLA prints itself, in profiles and HLO dumps, says cpu.
"""

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.memory import live_sizes
from xdevice.device import Device
from xdevice.kit.dlpack import CPU, CUDA, labelled
from xdevice.kit.import_hook import after_import
from xdevice.virtual import request
from xdevice.virtual.jax import BRIDGE, DEFAULT, gpus_in, lists_from, replace
from xdevice.virtual.jax.private_names import in_place_of, names, optional, replace_name

WORDS = "gpu", "cuda"
NAME = "xdevice virtual GPU"

# The modules of JAX that show devices to the user, as a program would.
_SHOWS_DEVICES = {"jax._src.debugging", "jax._src.environment_info"}
_PLATFORM_SETTINGS = "jax_platforms", "jax_platform_name"
_IDS = re.compile(r"(?<=devices )\{[\d, ]+\}|(?<=device IDs )\[[\d, ]+\]")
_WITH_BACKEND = "jax._src.pjit:_create_sharding_with_device_backend"
_MISMATCHES = tuple(
    f"jax._src.{home}:DeviceAssignmentMismatch" for home in ("stages", "interpreters.pxla")
)
_DEVICE, _ARRAY = "jaxlib._jax:Device", "jaxlib._jax:ArrayImpl"
_MEMORY_STATS, _CLIENT_PLATFORM = f"{_DEVICE}.memory_stats", "jaxlib._jax:Client.platform"
_default = "gpu"  # what lists give where no backend is named; a program may choose the CPU


def start() -> None:
    """Let the virtual GPUs stand in; the host devices are there."""
    _settings()
    _lists()
    _words()
    _attributes_of_devices()
    _arrays()
    _keep_keras_from_cudnn()
    if not request.current().lenient and names.has("the refusal of what only the CPU lowers"):
        _refuse_lowerings()


def _settings() -> None:
    """Apply a program's settings of platforms, and of the number of CPUs; its GPUs are host devices too."""

    @in_place_of("jax._src.config:Config.update")
    def set_(update: Any, self: Any, name: str, value: Any) -> None:
        global _default
        if name == "jax_num_cpu_devices":
            value = max(1, value) + hardware.replaced_gpus.number
        if name in _PLATFORM_SETTINGS and value:
            names_gpus = isinstance(value, str) and any(
                word.strip() in WORDS for word in value.split(",")
            )
            _default = "gpu" if names_gpus else "cpu"
            return
        update(self, name, value)


def _lists() -> None:
    def devices(backend: Any = None) -> list[Any]:
        word = _default if backend is None else backend
        if word in WORDS:
            return gpus_in(hardware.every_device())
        found = hardware.every_device(backend)
        return (
            [device for device in found if not hardware.ordinal(device)] if word == "cpu" else found
        )

    own_get_backend = names.value(f"{BRIDGE}:get_backend")

    def get_backend(platform: Any = None) -> Any:
        return own_get_backend("cpu" if platform in WORDS else platform)

    if optional(f"{BRIDGE}:_get_backend_uncached") is not None:
        in_place_of(f"{BRIDGE}:_get_backend_uncached")(_name_cuda_in_errors)
    replace({**lists_from(devices), "get_backend": get_backend})

    # the public function only: JAX's own modules call xla_bridge.default_backend, which stays true
    @in_place_of("jax:default_backend")
    def default_backend(own: Any) -> str:
        return _default

    @in_place_of("jax:live_arrays")
    def live_arrays(alive: Any, platform: Any = None) -> Any:
        return alive("cpu" if platform in WORDS else platform)


def _name_cuda_in_errors(get: Any, platform: Any = None) -> Any:
    """List CUDA among the backends in the error for one that JAX lacks."""
    try:
        return get(platform)
    except RuntimeError as error:
        raise RuntimeError(str(error).replace("['cpu']", "['cpu', 'cuda']")) from None


def _words() -> None:
    """Words for GPUs in `jax.default_device` and as a backend of `jax.jit`; devices in the errors about mixing."""

    @in_place_of(DEFAULT)
    def get_default_device(default: Any) -> Any:
        word = jax.config.jax_default_device  # type: ignore[attr-defined, unused-ignore]  # it has one
        return jax.local_devices(backend=word)[0] if word in WORDS else default()

    if optional(_WITH_BACKEND) is not None:  # later versions may have removed what they deprecate

        @in_place_of(_WITH_BACKEND)
        def sharding(single: Any, device: Any, backend: Any) -> Any:
            return (
                single(jax.local_devices(backend=backend)[0], None)
                if backend in WORDS
                else single(device, backend)
            )

    ids = property(lambda self: [_global_id(d) if hardware.ordinal(d) else d.id for d in self.da])
    kind = property(
        lambda self: "GPU" if hardware.ordinal(self.da[0]) else self.da[0].platform.upper()
    )
    for home in _MISMATCHES:
        if optional(f"{home}.device_ids") is not None:
            replace_name(f"{home}.device_ids", ids)
            replace_name(f"{home}.platform", kind)


def _is_read_by_jax() -> bool:
    """Whether JAX or xdevice reads the attribute of a device, and not a program.

    JAX's Python code reads ``platform`` and ``id`` of the same objects as a program does, and
    chooses lowerings and memory by them. Only the module that reads tells the two apart: the frame
    behind the attribute's getter.
    """
    module = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    library = module.partition(".")[0]
    return library in ("jax", "jaxlib", "xdevice") and module not in _SHOWS_DEVICES


def _attributes_of_devices() -> None:
    """Let a device, and the client of all devices, say to a program that it is a GPU's."""
    shown = {
        "platform": lambda device: "gpu",
        "device_kind": lambda device: NAME,
        "id": _global_id,
        "local_hardware_id": lambda device: hardware.ordinal(device) - 1,
    }
    for name, show in shown.items():
        path = f"{_DEVICE}.{name}"
        replace_name(path, _shown_to_programs(names.value(path), show))
    for name, word in (("__repr__", "CudaDevice(id={})"), ("__str__", "cuda:{}")):
        in_place_of(f"jax:Device.{name}")(
            lambda show, self, word=word: (
                word.format(_global_id(self)) if hardware.ordinal(self) else show(self)
            )
        )

    own_memory_stats, own_platform = names.value(_MEMORY_STATS), names.value(_CLIENT_PLATFORM)

    def memory_stats(self: Any) -> Any:
        return _memory(self) if hardware.ordinal(self) else own_memory_stats(self)

    def platform(self: Any) -> Any:
        return own_platform.__get__(self) if _is_read_by_jax() else "gpu"

    replace_name(_MEMORY_STATS, memory_stats)
    replace_name(_CLIENT_PLATFORM, property(platform))


def _shown_to_programs(attribute: Any, show: Callable[[Any], Any]) -> property:
    """The attribute of a device, which is what ``show`` returns where a program reads it of a GPU."""

    def value(device: Any) -> Any:
        if not hardware.ordinal(device) or _is_read_by_jax():
            return attribute.__get__(device)
        return show(device)

    return property(value)


def _arrays() -> None:
    """Let an array say that it is on a GPU, also to DLPack."""
    in_place_of(f"{_ARRAY}._check_and_rearrange")(_with_shown_ids)
    kind_of_memory: Any = optional("jax._src.dlpack:DLDeviceType", otherwise=int)

    own_platform = names.value(f"{_ARRAY}.platform")

    def platform(self: Any) -> str:
        return "gpu" if _ordinal(self) else str(own_platform(self))

    replace_name(f"{_ARRAY}.platform", platform)

    @in_place_of(f"{_ARRAY}.__dlpack_device__")
    def dlpack_device(own: Any, self: Any) -> tuple[Any, int]:
        index = _ordinal(self)
        if not index or len(self.sharding.device_set) > 1:  # of several, JAX raises its own error
            return own(self)  # type: ignore[no-any-return]  # JAX's
        return kind_of_memory(CUDA), index - 1

    @in_place_of(f"{_ARRAY}.__dlpack__")
    def dlpack(
        own: Any, self: Any, *, stream: Any = None, dl_device: Any = None, **options: Any
    ) -> Any:
        index = _ordinal(self)
        if not index:
            return own(self, stream=stream, dl_device=dl_device, **options)
        if dl_device is not None and int(dl_device[0]) != CUDA:
            return own(self, dl_device=dl_device, **options)  # to the host
        gpu = index - 1 if dl_device is None else dl_device[1]
        return labelled(own(jax.device_put(self, _gpu(gpu)), **options), CUDA, gpu)

    from_dlpack = _to_its_gpu(names.value("jax._src.dlpack:from_dlpack"))
    for path in ("jax._src.dlpack:from_dlpack", "jax.dlpack:from_dlpack"):
        replace_name(path, from_dlpack)


def _keep_keras_from_cudnn() -> None:
    """Let Keras use its recurrent layers' own code: on a GPU, Keras 3.15 would call cuDNN."""

    def change(module: Any) -> None:
        module._is_gpu_available = lambda: False

    after_import("keras.src.backend.jax.rnn", change)


def _to_its_gpu(take: Any) -> Any:
    @wraps(take)
    def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        if isinstance(external_array, jax.Array) and (own := _ordinal(external_array)):
            made: Any = external_array.copy() if copy else external_array
            return jax.device_put(made, device or _gpu(own - 1))
        kind, index = getattr(external_array, "__dlpack_device__", lambda: (CPU, 0))()
        if int(kind) != CUDA:
            return take(external_array, device, copy)
        on_the_host = SimpleNamespace(
            __dlpack_device__=lambda: (CPU, 0),
            __dlpack__=lambda **_: labelled(external_array.__dlpack__(), CPU, 0),
        )
        return jax.device_put(take(on_the_host, None, copy), device or _gpu(index))

    return from_dlpack


def _ordinal(array: Any) -> int:
    return hardware.ordinal(next(iter(array.sharding.device_set)))


def _gpu(index: int) -> Any:
    return gpus_in(hardware.every_local_device())[index]


def _with_shown_ids(check: Any, *args: Any) -> Any:
    """An error about the devices of an array's parts has the ids that a program sees."""
    try:
        return check(*args)
    except ValueError as error:
        shown = {device.id: _global_id(device) for device in gpus_in(hardware.every_device())}
        said = _IDS.sub(
            lambda m: re.sub(r"\d+", lambda n: str(shown.get(int(n[0]), n[0])), m[0]), str(error)
        )
        raise ValueError(said) from None


def _global_id(device: Any) -> int:
    """The device's index among the GPUs of all processes."""
    return int(device.process_index * hardware.replaced_gpus.number + hardware.ordinal(device) - 1)


_UNKNOWN = (
    "peak_bytes_in_use",
    "peak_pool_bytes",
    "num_allocs",
    "largest_alloc_size",
)  # since the device was made


def _memory(device: Any) -> dict[str, float]:
    """What lives on the device, by the names of a GPU's allocator.

    What it took at most, while a program ran, XLA's allocator of the host does not count: not a
    number.
    """
    used = sum(live_sizes(Device("gpu", hardware.ordinal(device) - 1)))
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        **dict.fromkeys(("bytes_in_use", "pool_bytes"), used),
        **dict.fromkeys(_UNKNOWN, float("nan")),
        **dict.fromkeys(("bytes_reserved", "peak_bytes_reserved"), 0),  # nothing is set apart
        "bytes_limit": limit,
        "largest_free_block_bytes": limit - used,
    }


def _refuse_lowerings() -> None:
    """Refuse, in JAX's words, primitives that only the CPU lowers, such as those of Hessenberg's decomposition."""
    mlir, dispatch = (
        import_module(f"jax._src.{name}") for name in ("interpreters.mlir", "dispatch")
    )
    rules = mlir._platform_specific_lowerings
    for primitive in rules["cpu"].keys() - rules["cuda"].keys() - mlir._lowerings.keys():
        entry = rules["cpu"][primitive]  # a function in older versions
        refusing = _refusing(primitive.name, getattr(entry, "rule", entry))
        rules["cpu"][primitive] = (
            type(entry)(refusing, entry.inline) if hasattr(entry, "rule") else refusing
        )
        dispatch.prim_requires_devices_during_lowering.add(
            primitive
        )  # else one lowering serves all devices


def _refusing(name: str, rule: Any) -> Any:
    def lower(context: Any, *args: Any, **params: Any) -> Any:
        devices = getattr(context.module_context.axis_context, "device_assignment", None) or ()
        if any(map(hardware.ordinal, devices)):
            raise NotImplementedError(
                f"MLIR translation rule for primitive '{name}' not found for platform cuda"
            )
        return rule(context, *args, **params)  # on the CPU as before

    return lower
