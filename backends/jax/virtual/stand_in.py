"""JAX programs written for GPUs, unedited: the virtual GPUs answer to JAX's own names for GPUs.

Two layers are replaced. *Lists*: where no backend or ``gpu`` or ``cuda`` is named, `jax.devices` and its like give
the virtual GPUs, and so do meshes, `jax.pmap` and the default device, which is the first. *Faces*: the attributes of
jaxlib's ``Device`` and ``Client`` say ``gpu`` to a program and the truth to jax, jaxlib and xdevice, which choose
lowerings by it, and to those libraries' modules that would choose a kernel of cuDNN's.

Not supported: CUDA's lowerings (`jax.lax.platform_dependent` takes its cpu branch; Triton and cuDNN's attention
raise), ``compute_capability``, and a platform of the CPU's own for its client, which is also the GPUs'. What XLA prints
itself, in profiles and HLO dumps, says cpu.
"""

import os
import re
import sys
from importlib import import_module
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.memory import living_on
from xdevice.backends.jax.private_names import in_place_of
from xdevice.backends.jax.virtual import dlpack, lists, lowerings
from xdevice.device import Device
from xdevice.kit import virtual_request

WORDS = "gpu", "cuda"
NAME = "xdevice virtual GPU"
KERNELS = {"keras.src.backend.jax.rnn", "keras.src.backend.jax.nn"}
"""Modules that would take a kernel of cuDNN's on a GPU; Keras 3.15."""

_only_print = {"jax._src.debugging", "jax._src.environment_info"}  # JAX's modules that show devices to the user
_platforms = "jax_platforms", "jax_platform_name"
_IDS = re.compile(r"(?<=devices )\{[\d, ]+\}|(?<=device IDs )\[[\d, ]+\]")
_default = "gpu"  # what lists give where no backend is named; a program may choose the CPU


def start() -> None:
    """Let the virtual GPUs stand in; the host devices are there."""
    _settings()
    _lists()
    _words()
    _faces()
    if not virtual_request.current().lenient:
        lowerings.start()


def means_gpu(words: Any) -> bool:
    """Whether a list of platforms names GPUs."""
    return isinstance(words, str) and any(word.strip() in WORDS for word in words.split(","))


def _settings() -> None:
    """Apply a program's settings of platforms, and of the number of CPUs; its GPUs are host devices too."""

    @in_place_of("jax._src.config:Config.update")
    def set_(update: Any, self: Any, name: str, value: Any) -> None:
        global _default
        if name == "jax_num_cpu_devices":
            value = max(1, value) + hardware.virtual.number
        if name in _platforms and value:
            _default = "gpu" if means_gpu(value) else "cpu"
            return
        update(self, name, value)


def _lists() -> None:
    def devices(backend: Any = None) -> list[Any]:
        word = _default if backend is None else backend
        if word in WORDS:
            return lists.gpus_in(hardware.every_device())
        found = hardware.every_device(backend)
        return [device for device in found if not hardware.ordinal(device)] if word == "cpu" else found

    true_backend, true_get = lists.bridge.default_backend, lists.bridge.get_backend

    def default_backend() -> str:
        return str(true_backend()) if _is_inner() else _default

    def get_backend(platform: Any = None) -> Any:
        return true_get("cpu" if platform is not None and platform in WORDS else platform)

    if hasattr(lists.bridge, "_get_backend_uncached"):
        in_place_of("jax._src.xla_bridge:_get_backend_uncached")(_name_cuda_in_errors)
    lists.replace({**lists.lists_from(devices), "default_backend": default_backend, "get_backend": get_backend})

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
    homes: list[Any] = [import_module(f"jax._src.{name}") for name in ("interpreters.pxla", "pjit", "stages")]
    pxla, pjit, stages = homes
    default, single = pxla.get_default_device, getattr(pjit, "_create_sharding_with_device_backend", None)

    def get_default_device() -> Any:
        word = jax.config.jax_default_device  # type: ignore[attr-defined, unused-ignore]  # it has one
        return jax.local_devices(backend=word)[0] if word in WORDS else default()

    def sharding(device: Any, backend: Any) -> Any:
        assert single is not None
        return single(jax.local_devices(backend=backend)[0], None) if backend in WORDS else single(device, backend)

    pxla.get_default_device = get_default_device
    if single is not None:  # later versions may have removed what they deprecate
        pjit._create_sharding_with_device_backend = sharding
    mixed = getattr(stages, "DeviceAssignmentMismatch", None) or getattr(pxla, "DeviceAssignmentMismatch", None)
    if mixed is not None:  # it is elsewhere in other versions, whose errors then have JAX's own numbers
        mixed.device_ids = property(lambda self: [_global_id(d) if hardware.ordinal(d) else d.id for d in self.da])
        mixed.platform = property(lambda self: "GPU" if hardware.ordinal(self.da[0]) else self.da[0].platform.upper())


def _is_inner() -> bool:
    """Whether the caller's caller needs the truth."""
    name = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]  # who asks
    return (name.partition(".")[0] in ("jax", "jaxlib", "xdevice") and name not in _only_print) or name in KERNELS


def _faces() -> None:
    library: Any = import_module("jaxlib._jax")
    device_class, client = library.Device, library.Client
    shown = {
        "platform": lambda device: "gpu",
        "device_kind": lambda device: NAME,
        "id": _global_id,
        "local_hardware_id": lambda device: hardware.ordinal(device) - 1,
    }
    for word, show in shown.items():
        setattr(device_class, word, _face(device_class.__dict__[word], show))
    look, say, stats = device_class.__repr__, device_class.__str__, device_class.memory_stats
    virtual = hardware.ordinal
    device_class.__repr__ = lambda self: f"CudaDevice(id={_global_id(self)})" if virtual(self) else look(self)
    device_class.__str__ = lambda self: f"cuda:{_global_id(self)}" if virtual(self) else say(self)
    device_class.memory_stats = lambda self: stats(self) if not virtual(self) or _is_inner() else _memory(self)
    platform = client.__dict__["platform"]
    client.platform = property(lambda self: platform.__get__(self) if _is_inner() else "gpu")
    _faces_of_arrays(library.ArrayImpl)


def _faces_of_arrays(array: Any) -> None:
    platform = array.platform
    in_place_of("jaxlib._jax:ArrayImpl._check_and_rearrange")(_with_shown_ids)

    def shown(self: Any) -> str:
        virtual = hardware.ordinal(next(iter(self.sharding.device_set)))
        return "gpu" if virtual and not _is_inner() else str(platform(self))

    array.platform = shown
    dlpack.start(array, _is_inner)


def _with_shown_ids(check: Any, *args: Any) -> Any:
    """An error about the devices of an array's parts has the ids that a program sees."""
    try:
        return check(*args)
    except ValueError as error:
        shown = {device.id: _global_id(device) for device in lists.gpus_in(hardware.every_device())}
        said = _IDS.sub(lambda m: re.sub(r"\d+", lambda n: str(shown.get(int(n[0]), n[0])), m[0]), str(error))
        raise ValueError(said) from None


def _face(attribute: Any, show: Any) -> property:
    def get(self: Any) -> Any:
        return attribute.__get__(self) if not hardware.ordinal(self) or _is_inner() else show(self)

    return property(get)


def _global_id(device: Any) -> int:
    """Where it is among the GPUs of all processes."""
    return int(device.process_index * hardware.virtual.number + hardware.ordinal(device) - 1)


_peaks: dict[int, tuple[int, int, int]] = {}


def _memory(device: Any) -> dict[str, int]:
    """What lives on the device, by the names of a GPU's allocator; what is the most is the most seen when asked."""
    index = hardware.ordinal(device) - 1
    sizes = living_on(Device("gpu", index))
    now = sum(sizes), max(sizes, default=0), len(sizes)
    used, (peak, largest, count) = now[0], map(max, now, _peaks.get(index, now))
    _peaks[index] = peak, largest, count
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "num_allocs": count,
        "bytes_in_use": used,
        "peak_bytes_in_use": peak,
        "largest_alloc_size": largest,
        "bytes_limit": limit,
        "bytes_reserved": 0,  # nothing is set apart
        "peak_bytes_reserved": 0,
        "largest_free_block_bytes": limit - used,
        "pool_bytes": used,
        "peak_pool_bytes": peak,
    }
