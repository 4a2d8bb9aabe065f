"""JAX programs written for GPUs, unedited: the virtual GPUs answer to JAX's own names for GPUs.

Two layers are replaced. *Lists*: where no backend or ``gpu`` or ``cuda`` is named, `jax.devices` and its like give
the virtual GPUs, and so do meshes, `jax.pmap` and the default device, which is the first. *Faces*: the attributes of
jaxlib's ``Device`` and ``Client`` say ``gpu`` to a program and the truth to jax, jaxlib and xdevice, which choose
lowerings by it, and to those libraries' modules that would choose a kernel of cuDNN's. An array that is exported by
DLPack is in the host's memory and its capsule says that it is on a GPU, so NumPy refuses it as it refuses a GPU's. What
arrives and says CUDA is copied to its GPU: to JAX, the memory that it had is the host's.

Not supported: CUDA's lowerings (`jax.lax.platform_dependent` takes its cpu branch; Triton and cuDNN's attention
raise), ``compute_capability``, and a platform of the CPU's own for its client, which is also the GPUs'. What XLA prints
itself, in profiles and HLO dumps, says cpu.
"""

import os
import re
import sys
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.memory import living_on
from xdevice.backends.jax.private_names import in_place_of, names, optional, replace_name
from xdevice.device import Device
from xdevice.kit.dlpack import CPU, CUDA, labelled
from xdevice.virtual import request
from xdevice.virtual.jax import BRIDGE, DEFAULT, gpus_in, lists_from, replace

WORDS = "gpu", "cuda"
NAME = "xdevice virtual GPU"
KERNELS = {
    "keras.src.backend.jax.rnn",
    "keras.src.backend.jax.nn",
}  # of Keras 3.15: they take cuDNN's on a GPU

_only_print = {
    "jax._src.debugging",
    "jax._src.environment_info",
}  # JAX's modules that show devices to the user
_platforms = "jax_platforms", "jax_platform_name"
_IDS = re.compile(r"(?<=devices )\{[\d, ]+\}|(?<=device IDs )\[[\d, ]+\]")
_WITH_BACKEND = "jax._src.pjit:_create_sharding_with_device_backend"
_MISMATCHES = tuple(
    f"jax._src.{home}:DeviceAssignmentMismatch" for home in ("stages", "interpreters.pxla")
)
_DEVICE, _ARRAY = "jaxlib._jax:Device", "jaxlib._jax:ArrayImpl"
_default = "gpu"  # what lists give where no backend is named; a program may choose the CPU


def start() -> None:
    """Let the virtual GPUs stand in; the host devices are there."""
    _settings()
    _lists()
    _words()
    _faces()
    if not request.current().lenient and names.has("the refusal of what only the CPU lowers"):
        _refuse_lowerings()


def _settings() -> None:
    """Apply a program's settings of platforms, and of the number of CPUs; its GPUs are host devices too."""

    @in_place_of("jax._src.config:Config.update")
    def set_(update: Any, self: Any, name: str, value: Any) -> None:
        global _default
        if name == "jax_num_cpu_devices":
            value = max(1, value) + hardware.replaced_gpus.number
        if name in _platforms and value:
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

    true_backend, true_get = (
        names.value(f"{BRIDGE}:default_backend"),
        names.value(f"{BRIDGE}:get_backend"),
    )

    def default_backend() -> str:
        return str(true_backend()) if _is_inner() else _default

    def get_backend(platform: Any = None) -> Any:
        return true_get("cpu" if platform in WORDS else platform)

    if optional(f"{BRIDGE}:_get_backend_uncached") is not None:
        in_place_of(f"{BRIDGE}:_get_backend_uncached")(_name_cuda_in_errors)
    replace({**lists_from(devices), "default_backend": default_backend, "get_backend": get_backend})

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


def _is_inner() -> bool:
    """Whether the caller's caller needs the truth."""
    name = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]  # who asks
    return (
        name.partition(".")[0] in ("jax", "jaxlib", "xdevice") and name not in _only_print
    ) or name in KERNELS


def _faces() -> None:
    shown = {
        "platform": lambda device: "gpu",
        "device_kind": lambda device: NAME,
        "id": _global_id,
        "local_hardware_id": lambda device: hardware.ordinal(device) - 1,
    }
    for word, show in shown.items():
        replace_name(f"{_DEVICE}.{word}", _face(names.value(f"{_DEVICE}.{word}"), show))
    for attribute, word in (("__repr__", "CudaDevice(id={})"), ("__str__", "cuda:{}")):
        in_place_of(f"jax:Device.{attribute}")(
            lambda show, self, word=word: (
                word.format(_global_id(self)) if hardware.ordinal(self) else show(self)
            )
        )
    stats, platform = (
        names.value(f"{_DEVICE}.memory_stats"),
        names.value("jaxlib._jax:Client.platform"),
    )

    def memory_stats(self: Any) -> Any:
        return stats(self) if not hardware.ordinal(self) or _is_inner() else _memory(self)

    replace_name(f"{_DEVICE}.memory_stats", memory_stats)
    replace_name(
        "jaxlib._jax:Client.platform",
        property(lambda self: platform.__get__(self) if _is_inner() else "gpu"),
    )
    _faces_of_arrays()


def _faces_of_arrays() -> None:
    in_place_of(f"{_ARRAY}._check_and_rearrange")(_with_shown_ids)
    exchange = "__dlpack_device__", "__dlpack__"
    name, where, export = (
        names.value(f"{_ARRAY}.{attribute}") for attribute in ("platform", *exchange)
    )

    def platform(self: Any) -> str:
        return "gpu" if _ordinal(self) and not _is_inner() else str(name(self))

    def device(self: Any) -> tuple[Any, int]:
        found: tuple[Any, int] = where(self)
        index = _ordinal(self)
        return (type(found[0])(CUDA), index - 1) if index and not _is_inner() else found

    def exported(self: Any, *, stream: Any = None, dl_device: Any = None, **options: Any) -> Any:
        index = _ordinal(self)
        if not index or _is_inner():
            return export(self, stream=stream, dl_device=dl_device, **options)
        if dl_device is not None and int(dl_device[0]) != CUDA:
            return export(self, dl_device=dl_device, **options)  # to the host
        gpu = index - 1 if dl_device is None else dl_device[1]
        return labelled(export(jax.device_put(self, _gpu(gpu)), **options), CUDA, gpu)

    replace_name(f"{_ARRAY}.platform", platform)
    for attribute, function in zip(exchange, (device, exported), strict=True):
        replace_name(f"{_ARRAY}.{attribute}", function)
    taken = _to_its_gpu(names.value("jax._src.dlpack:from_dlpack"))
    for path in ("jax._src.dlpack:from_dlpack", "jax.dlpack:from_dlpack"):
        replace_name(path, taken)


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


def _face(attribute: Any, show: Any) -> property:
    return property(
        lambda self: (
            attribute.__get__(self) if not hardware.ordinal(self) or _is_inner() else show(self)
        )
    )


def _global_id(device: Any) -> int:
    """Where it is among the GPUs of all processes."""
    return int(device.process_index * hardware.replaced_gpus.number + hardware.ordinal(device) - 1)


_UNKNOWN = (
    "peak_bytes_in_use",
    "peak_pool_bytes",
    "num_allocs",
    "largest_alloc_size",
)  # since the device was made


def _memory(device: Any) -> dict[str, float]:
    """What lives on the device, by the names of a GPU's allocator.

    What it took at most, while a program ran, XLA's allocator of the host does not count: not a number.
    """
    used = sum(living_on(Device("gpu", hardware.ordinal(device) - 1)))
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
