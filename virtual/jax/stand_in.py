"""JAX programs written for GPUs, unedited: the virtual GPUs answer to JAX's own names for GPUs.

Two things are replaced:

- The lists of devices. Where the program names no backend, or ``gpu`` or ``cuda``, `jax.devices`
  and similar functions return the virtual GPUs. Meshes, `jax.pmap` and the default device use
  these lists.
- The attributes of jaxlib's ``Device`` and ``Client``. A program reads ``gpu``; JAX and xdevice read
  the real platform (`_is_read_by_jax`).

The DLPack capsule of an array says that its memory is a GPU's, so NumPy refuses it as it refuses a
real GPU's. An array of another library that says CUDA is copied to its GPU.

Not supported: CUDA's lowerings (`jax.lax.platform_dependent` takes its cpu branch; Triton and
cuDNN's attention raise), ``compute_capability``, and the platform ``cpu`` for the CPU's client,
which is also the GPUs'. XLA's own output, in profiles and HLO dumps, says cpu.
"""

import re
import sys
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.kit.dlpack import CPU, CUDA, labelled
from xdevice.contract import NativeDevice, Request, Tensor
from xdevice.framework.import_hook import after_import
from xdevice.virtual import models
from xdevice.virtual.jax import (
    BRIDGE,
    DEFAULT,
    Platform,
    gpus_in,
    guard,
    lists_from,
    memory,
    replace,
)
from xdevice.virtual.jax.private_names import Function, in_place_of, names, optional, replace_name

WORDS = "gpu", "cuda"

# The modules of JAX that show devices to the user, as a program would.
_SHOWS_DEVICES = {"jax._src.debugging", "jax._src.environment_info"}
_PLATFORM_SETTINGS = "jax_platforms", "jax_platform_name"
_IDS = re.compile(r"(?<=devices )\{[\d, ]+\}|(?<=device IDs )\[[\d, ]+\]")
_UNCACHED_BACKEND = f"{BRIDGE}:_get_backend_uncached"
_WITH_BACKEND = "jax._src.pjit:_create_sharding_with_device_backend"
_MISMATCHES = (
    "jax._src.stages:DeviceAssignmentMismatch",
    "jax._src.interpreters.pxla:DeviceAssignmentMismatch",
)
_DEVICE = "jaxlib._jax:Device"
_ARRAY = "jaxlib._jax:ArrayImpl"
_CLIENT_PLATFORM = "jaxlib._jax:Client.platform"

# The platform of lists without a backend. A program may choose the CPU.
_default_platform = "gpu"


def start(request: Request) -> None:
    """Let the virtual GPUs stand in; the host devices exist already."""
    _replace_settings()
    _replace_lists()
    _accept_words_for_gpus()
    _describe_mismatches()
    _replace_attributes_of_devices(models.gpu_name(request))
    memory.replace(models.memory_of(request))
    _print_devices_as_cuda()
    _replace_attributes_of_arrays()
    _replace_dlpack()
    guard.start()
    _keep_keras_from_cudnn()
    if not request.lenient and names.has("the refusal of what only the CPU lowers"):
        _refuse_lowerings()


def _replace_settings() -> None:
    """Apply a program's settings of platforms, and of the number of CPUs.

    The virtual GPUs are host devices too, and are added to that number.
    """

    @in_place_of("jax._src.config:Config.update")
    def update(native: Function, self: object, name: str, value: Any) -> None:
        global _default_platform
        if name in _PLATFORM_SETTINGS and value:
            _default_platform = "gpu" if _names_gpus(value) else "cpu"
            return
        if name == "jax_num_cpu_devices":
            value = max(1, value) + hardware.replaced_gpus.number
        native(self, name, value)


def _names_gpus(platforms: object) -> bool:
    """Whether the setting, such as ``cuda,cpu``, has one of the words for GPUs."""
    if not isinstance(platforms, str):
        return False
    return any(word.strip() in WORDS for word in platforms.split(","))


def _replace_lists() -> None:
    def devices(backend: Platform = None) -> list[NativeDevice]:
        platform = _default_platform if backend is None else backend
        if platform in WORDS:
            return gpus_in(hardware.every_device())
        native_devices = list(hardware.every_device(backend))
        if platform == "cpu":
            return [device for device in native_devices if not hardware.ordinal(device)]
        return native_devices

    native_get_backend = names.value(f"{BRIDGE}:get_backend")

    def get_backend(platform: Platform = None) -> Any:
        return native_get_backend(_host_for_gpus(platform))

    if optional(_UNCACHED_BACKEND) is not None:
        in_place_of(_UNCACHED_BACKEND)(_name_cuda_in_errors)
    replace({**lists_from(devices), "get_backend": get_backend})

    # only the public function: JAX's own modules call xla_bridge.default_backend, which stays true
    @in_place_of("jax:default_backend")
    def default_backend(native: Function) -> str:
        return _default_platform

    @in_place_of("jax:live_arrays")
    def live_arrays(native: Function, platform: Platform = None) -> Any:
        return native(_host_for_gpus(platform))


def _host_for_gpus(platform: Platform) -> Platform:
    """The platform of XLA's client; the client of the virtual GPUs is the host's."""
    return "cpu" if platform in WORDS else platform


def _name_cuda_in_errors(native: Function, platform: Platform = None) -> Any:
    """List CUDA among the backends in the error for one that JAX lacks."""
    try:
        return native(platform)
    except RuntimeError as error:
        raise RuntimeError(str(error).replace("['cpu']", "['cpu', 'cuda']")) from None


def _accept_words_for_gpus() -> None:
    """Accept ``gpu`` and ``cuda`` in `jax.default_device` and as a backend of `jax.jit`."""

    @in_place_of(DEFAULT)
    def get_default_device(native: Function) -> NativeDevice:
        settings: Any = jax.config
        word = settings.jax_default_device
        if word in WORDS:
            return jax.local_devices(backend=word)[0]
        return native()

    # later versions may have removed what they deprecate
    if optional(_WITH_BACKEND) is not None:

        @in_place_of(_WITH_BACKEND)
        def sharding(native: Function, device: NativeDevice, backend: Platform) -> Any:
            if backend in WORDS:
                return native(jax.local_devices(backend=backend)[0], None)
            return native(device, backend)


def _describe_mismatches() -> None:
    """Show the program's devices in errors about arrays on different devices."""

    def device_ids(self: Any) -> list[int]:
        return [_global_id(device) if hardware.ordinal(device) else device.id for device in self.da]

    def platform(self: Any) -> str:
        first = self.da[0]
        if hardware.ordinal(first):
            return "GPU"
        return str(first.platform.upper())

    for error in _MISMATCHES:
        if optional(f"{error}.device_ids") is not None:
            replace_name(f"{error}.device_ids", property(device_ids))
            replace_name(f"{error}.platform", property(platform))


def _is_read_by_jax() -> bool:
    """Whether JAX or xdevice reads the attribute of a device, and not a program.

    JAX's Python code reads ``platform`` and ``id`` of the same objects as a program does, and
    chooses lowerings and memory by them. Only the module that reads tells the two apart: the frame
    behind the attribute's getter.
    """
    module = sys._getframe(2).f_globals.get("__name__", "")
    library = module.partition(".")[0]
    return library in ("jax", "jaxlib", "xdevice") and module not in _SHOWS_DEVICES


def _replace_attributes_of_devices(name: str) -> None:
    """Let a program see a GPU's attributes of a device, and of the client of all devices."""

    def platform(device: NativeDevice) -> str:
        return "gpu"

    def device_kind(device: NativeDevice) -> str:
        return name

    def local_hardware_id(device: NativeDevice) -> int:
        return hardware.ordinal(device) - 1

    for attribute in (platform, device_kind, local_hardware_id):
        _show_to_programs(attribute.__name__, attribute)
    _show_to_programs("id", _global_id)

    native_platform = names.value(_CLIENT_PLATFORM)

    def platform_of_client(self: object) -> Any:
        if _is_read_by_jax():
            return native_platform.__get__(self)
        return "gpu"

    replace_name(_CLIENT_PLATFORM, property(platform_of_client))


def _show_to_programs(name: str, gpu_value: Function) -> None:
    """Let a program read ``gpu_value(device)`` as that attribute of a virtual GPU."""
    path = f"{_DEVICE}.{name}"
    native = names.value(path)

    def value(device: NativeDevice) -> Any:
        if not hardware.ordinal(device) or _is_read_by_jax():
            return native.__get__(device)
        return gpu_value(device)

    replace_name(path, property(value))


def _print_devices_as_cuda() -> None:
    @in_place_of("jax:Device.__str__")
    def to_str(native: Function, self: NativeDevice) -> str:
        if hardware.ordinal(self):
            return f"cuda:{_global_id(self)}"
        return str(native(self))

    @in_place_of("jax:Device.__repr__")
    def to_repr(native: Function, self: NativeDevice) -> str:
        if hardware.ordinal(self):
            return f"CudaDevice(id={_global_id(self)})"
        return str(native(self))


def _replace_attributes_of_arrays() -> None:
    """Let an array say that it is on a GPU, in ``platform()`` and in errors."""
    in_place_of(f"{_ARRAY}._check_and_rearrange")(_with_global_ids)
    native_platform = names.value(f"{_ARRAY}.platform")

    def platform(self: Tensor) -> str:
        return "gpu" if _ordinal(self) else str(native_platform(self))

    replace_name(f"{_ARRAY}.platform", platform)


def _replace_dlpack() -> None:
    """Let an array say to DLPack that it is on a GPU, and accept arrays that say so."""
    device_type: Any = optional("jax._src.dlpack:DLDeviceType", otherwise=int)

    @in_place_of(f"{_ARRAY}.__dlpack_device__")
    def dlpack_device(native: Function, self: Tensor) -> tuple[Any, int]:
        index = _ordinal(self)
        # JAX raises its own error for an array on several devices
        if not index or len(self.sharding.device_set) > 1:
            return native(self)  # type: ignore[no-any-return]  # JAX's
        return device_type(CUDA), index - 1

    @in_place_of(f"{_ARRAY}.__dlpack__")
    def dlpack(
        native: Function,
        self: Tensor,
        *,
        stream: object = None,
        dl_device: Any = None,
        **options: object,
    ) -> Any:
        index = _ordinal(self)
        if not index:
            return native(self, stream=stream, dl_device=dl_device, **options)
        if dl_device is not None and int(dl_device[0]) != CUDA:
            return native(self, dl_device=dl_device, **options)  # to the host
        gpu = index - 1 if dl_device is None else dl_device[1]
        return labelled(native(jax.device_put(self, _gpu(gpu)), **options), CUDA, gpu)

    from_dlpack = _from_dlpack_to_gpu(names.value("jax._src.dlpack:from_dlpack"))
    for path in ("jax._src.dlpack:from_dlpack", "jax.dlpack:from_dlpack"):
        replace_name(path, from_dlpack)


def _keep_keras_from_cudnn() -> None:
    """Let Keras use its recurrent layers' own code: on a GPU, Keras 3.15 would call cuDNN."""

    def change(module: Any) -> None:
        module._is_gpu_available = lambda: False

    after_import("keras.src.backend.jax.rnn", change)


def _from_dlpack_to_gpu(native: Function) -> Function:
    """``from_dlpack`` for arrays on GPUs too: JAX reads them as the host's, and they are copied."""

    @wraps(native)
    def from_dlpack(
        external_array: Any, device: NativeDevice = None, copy: bool | None = None
    ) -> Tensor:
        ordinal = _ordinal(external_array) if isinstance(external_array, jax.Array) else 0
        if ordinal:
            array: Tensor = external_array.copy() if copy else external_array
            return jax.device_put(array, device or _gpu(ordinal - 1))
        device_type, index = getattr(external_array, "__dlpack_device__", lambda: (CPU, 0))()
        if int(device_type) != CUDA:
            return native(external_array, device, copy)
        host_array = SimpleNamespace(
            __dlpack_device__=lambda: (CPU, 0),
            __dlpack__=lambda **_: labelled(external_array.__dlpack__(), CPU, 0),
        )
        return jax.device_put(native(host_array, None, copy), device or _gpu(index))

    return from_dlpack


def _ordinal(array: Tensor) -> int:
    """The ordinal of the array's device, or of one of its devices; see `hardware.ordinal`."""
    return hardware.ordinal(next(iter(array.sharding.device_set)))


def _gpu(index: int) -> NativeDevice:
    return gpus_in(hardware.every_local_device())[index]


def _with_global_ids(native: Function, *args: object) -> Any:
    """Show the ids that a program sees in an error about the devices of an array's parts."""
    try:
        return native(*args)
    except ValueError as error:
        gpus = gpus_in(hardware.every_device())
        global_ids = {str(device.id): str(_global_id(device)) for device in gpus}

        def with_global_ids(ids: re.Match[str]) -> str:
            return re.sub(r"\d+", lambda number: global_ids.get(number[0], number[0]), ids[0])

        raise ValueError(_IDS.sub(with_global_ids, str(error))) from None


def _global_id(device: NativeDevice) -> int:
    """The device's index among the GPUs of all processes."""
    return int(device.process_index * hardware.replaced_gpus.number + hardware.ordinal(device) - 1)


def _refuse_lowerings() -> None:
    """Refuse primitives that only the CPU lowers, such as Hessenberg's decomposition.

    The error is JAX's own.
    """
    mlir = import_module("jax._src.interpreters.mlir")
    dispatch = import_module("jax._src.dispatch")
    rules = mlir._platform_specific_lowerings
    cpu_rules = rules["cpu"]
    for primitive in cpu_rules.keys() - rules["cuda"].keys() - mlir._lowerings.keys():
        entry = cpu_rules[primitive]
        if hasattr(entry, "rule"):
            rule = _refuse_on_gpus(primitive.name, entry.rule)
            cpu_rules[primitive] = type(entry)(rule, entry.inline)
        else:  # older versions store the function itself
            cpu_rules[primitive] = _refuse_on_gpus(primitive.name, entry)
        # otherwise one lowering serves all devices
        dispatch.prim_requires_devices_during_lowering.add(primitive)


def _refuse_on_gpus(name: str, rule: Function) -> Function:
    def lower(context: Any, *args: object, **params: object) -> Any:
        devices = getattr(context.module_context.axis_context, "device_assignment", None) or ()
        if any(map(hardware.ordinal, devices)):
            raise NotImplementedError(
                f"MLIR translation rule for primitive '{name}' not found for platform cuda"
            )
        return rule(context, *args, **params)

    return lower
