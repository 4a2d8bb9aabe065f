"""Copies, each reported before JAX makes it.

JAX's Python code reads arrays in one function and sends values in two others.
They are replaced while a block is watched. Compiled functions are called by C++,
which copies on its own: `fast_path` lets those calls pass through Python.
"""

import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from xdevice.backends.jax import fast_path, purposes
from xdevice.backends.jax.hardware import as_device
from xdevice.backends.jax.private_names import guard
from xdevice.backends.kit import advice, buffers, dlpack, keras
from xdevice.backends.kit.marks import mark_of
from xdevice.backends.kit.private_names import replaced
from xdevice.contract import Copy, Watcher
from xdevice.device import Device

Function: TypeAlias = Callable[..., Any]
Array: TypeAlias = Any  # jax.Array, with the private attributes of its class
Value: TypeAlias = Any  # an array of JAX or NumPy, or a number

_HOST = Device("cpu", 0)


def unseen() -> Iterable[str]:
    yield (
        "what a compiled function copies while it runs: "
        "for callbacks, and between the devices of sharded arrays"
    )
    yield (
        "arrays that functions compiled ahead of time, by .lower().compile(), "
        "bring from another device"
    )


def words() -> Mapping[str, str]:
    return advice.read(__file__)


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    with ExitStack() as stack:
        reporter = _Reporter(watcher, stack)
        # another library may keep a replacement beyond the block, in a wrapper of its own
        stack.callback(reporter.stop)
        for owner, name, make in reporter.replacements():
            stack.enter_context(replaced(owner, name, make))
        stack.enter_context(buffers.watched(fast_path.JaxArray, reporter.report_reading))
        stack.enter_context(fast_path.avoided())
        yield


class _Replacement(NamedTuple):
    """An attribute to replace, and the function that makes the new value from the old one."""

    owner: object
    name: str
    make: Callable[[Any], object]


class _Reporter:
    """Reports copies to a watcher, by functions that replace those of JAX."""

    def __init__(self, watcher: Watcher, block: ExitStack) -> None:
        self._watcher: Watcher | None = watcher
        self._block = block
        self._has_found_keras = False
        # the program's level of JAX's transfer guard
        self._level = guard.global_state().host_to_device or guard.TransferGuardLevel.ALLOW
        self._arrays_read: dict[int, weakref.ref[Array]] = {}  # by id

    def stop(self) -> None:
        self._watcher = None

    def replacements(self) -> Iterable[_Replacement]:
        array_class, jaxlib = fast_path.JaxArray, fast_path.jaxlib
        yield _Replacement(
            array_class, "_value", lambda value: property(self.reading(value.__get__))
        )
        yield _Replacement(array_class, "copy_to_host_async", self.reading)
        yield _Replacement(array_class, "__dlpack__", self.sharing)
        yield _Replacement(jaxlib, "batched_device_put", self.putting)
        batched_copy = "batched_copy_array_to_devices_with_sharding"
        if hasattr(jaxlib, batched_copy):
            yield _Replacement(jaxlib, batched_copy, self.copying)
        yield from (_Replacement(*parts) for parts in fast_path.REPLACEMENTS)

    def _report(self, watcher: Watcher, copy: Copy) -> None:
        if not self._has_found_keras:
            self._find_keras()  # it may be imported within the block
        watcher.see(copy)

    def _find_keras(self) -> None:
        module = keras.running_on("jax")
        if module is not None:
            self._has_found_keras = True
            callbacks = module.callbacks.CallbackList
            self._block.enter_context(replaced(callbacks, "on_train_batch_end", self.stepping))

    def stepping(self, end: Function) -> Function:
        """In place of the function that Keras calls after each step of training.

        The step of the optimizer itself is part of a compiled function.
        """

        @wraps(end)
        def on_train_batch_end(callbacks: Any, *args: Any, **kwargs: Any) -> object:
            if self._watcher is not None:
                model = getattr(callbacks, "_model", None)
                self._watcher.stepped(getattr(model, "optimizer", callbacks))
            return end(callbacks, *args, **kwargs)

        return on_train_batch_end

    def reading(self, read: Function) -> Function:
        """In place of a function that reads its first argument."""

        @wraps(read)
        def reading(*args: Any, **kwargs: Any) -> object:
            if args and type(args[0]) is fast_path.JaxArray:
                self.report_reading(args[0])
            return read(*args, **kwargs)

        return reading

    def sharing(self, export: Function) -> Function:
        """In place of ``__dlpack__``: a virtual GPU that does not stand in shares the host's memory."""

        @wraps(export)
        def sharing(array: Array, **options: Any) -> object:
            is_to_host = options.get("dl_device") is not None  # JAX copies the array there
            if not is_to_host and array.__dlpack_device__()[0] == dlpack.CPU:
                self.report_reading(array)
            return export(array, **options)

        return sharing

    def putting(self, put: Function) -> Function:
        """In place of jaxlib's function that copies values, and arrays of one device, to devices."""

        def batched_device_put(
            aval: object,
            sharding: Sharding,
            values: Sequence[Value],
            devices: Sequence[jax.Device],
            *more: Any,
            **options: Any,
        ) -> object:
            for value, native in zip(values, devices, strict=False):
                target = _memory_of(native, sharding.memory_kind)
                self._report_sending(value, value.nbytes, _source_of(value), target)
            # the guard of the watched block would forbid the copy
            levels = guard.thread_local_state()
            threads_level = levels.host_to_device
            if threads_level is None:
                levels.host_to_device = self._level
            try:
                return put(aval, sharding, values, devices, *more, **options)
            finally:
                levels.host_to_device = threads_level

        return batched_device_put

    def copying(self, copy: Function) -> Function:
        """In place of jaxlib's function that copies arrays to other devices, part by part."""

        def batched_copy(
            arrays: Sequence[Array],
            devices: Sequence[object],
            shardings: Sequence[Sharding],
            *more: object,
        ) -> object:
            for array, sharding in zip(arrays, shardings, strict=False):
                sources = _memories_of(array.sharding)
                targets = _memories_of(sharding)
                for source, target in zip(sources, targets, strict=False):
                    self._report_sending(array, _size_of_part(array, sources), source, target)
            return copy(arrays, devices, shardings, *more)

        return batched_copy

    def report_reading(self, array: Array) -> None:
        """Report the copy of an array to the host, once: JAX keeps the values there."""
        sources = _memories_of(array.sharding)
        if self._watcher is None or sources == (_HOST,) or self._was_read(array):
            return
        if array.is_deleted() or array._npy_value is not None:
            return
        kind, operation = purposes.of_reading()
        nbytes = _size_of_part(array, sources)
        if array.is_fully_replicated:
            sources = sources[:1]
        for source in sources:
            if source != _HOST:
                self._report(self._watcher, Copy(kind, operation, nbytes, source, _HOST))
        key = id(array)
        forget = self._arrays_read.pop
        self._arrays_read[key] = weakref.ref(array, lambda _: forget(key, None))

    def _was_read(self, array: Array) -> bool:
        reference = self._arrays_read.get(id(array))
        return reference is not None and reference() is array

    def _report_sending(self, value: Value, nbytes: int, source: Device, target: Device) -> None:
        if source == target or self._watcher is None:
            return
        kind, operation = purposes.of_sending()
        mark = mark_of(value) if isinstance(value, np.ndarray) else 0
        self._report(self._watcher, Copy(kind, operation, nbytes, source, target, mark=mark))


def _source_of(value: Value) -> Device:
    if type(value) is fast_path.JaxArray:
        return _memories_of(value.sharding)[0]
    return _HOST


@lru_cache(maxsize=4096)
def _memories_of(sharding: Any) -> tuple[Device, ...]:
    """For each part of an array that this process has, in order, the device with its memory."""
    natives = sharding._addressable_device_assignment
    return tuple(_memory_of(native, sharding.memory_kind) for native in natives)


@lru_cache(maxsize=4096)
def _memory_of(native: jax.Device, memory: str | None) -> Device:
    """The device, or the host if the device's kind of memory is the host's."""
    device = as_device(SingleDeviceSharding(native, memory_kind=memory))
    is_host = device.kind == "cpu" or device.kind.endswith("host")
    return _HOST if is_host else device


def _size_of_part(array: Array, devices: tuple[Device, ...]) -> int:
    """The bytes of an array that each of the devices has."""
    if array.is_fully_replicated:
        return int(array.nbytes)
    return int(array.nbytes // len(devices))
