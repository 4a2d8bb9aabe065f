"""Copies, each seen before JAX makes it.

JAX's Python code reads arrays in one function and sends values in two, which are replaced for a
block. Nothing is compiled anew. C++ calls compiled functions, and has a shortcut for each
signature. Settings are part of that, and one of them is ours: the shortcuts made while watching are
others than those before and after, which are kept. In ours, the layout of an argument from the host
is marked, for which C++ asks Python to send it, and a call that brings arrays together has none.
Functions compiled ahead of time, and all in older versions, go through Python where JAX's transfer
guard refuses.
"""

import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, wraps
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np
from jax.sharding import SingleDeviceSharding

from xdevice.backends.jax.hardware import as_device
from xdevice.backends.jax.private_names import names, optional
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device
from xdevice.kit import advice, keras
from xdevice.kit.marks import mark_of
from xdevice.kit.private_names import replaced

names.require("watch_transfers()")
_inside: Any = {name: import_module(f"jax._src.{name}") for name in ("pjit", "interpreters.pxla")}
_pjit, _pxla = _inside.values()
_jaxlib = _pxla.xc
_Array = _jaxlib.ArrayImpl
_guard = optional(
    "jax._src.config:guard_lib", "jax._src.config:transfer_guard_lib"
)  # what older versions call it
_Layout: Any = optional(
    "jax._src.layout:DeviceLocalLayout", "jax._src.layout:Layout"
)  # the former in older versions
_HAS_BUFFERS = sys.version_info >= (3, 12)  # Python code can replace a class's __buffer__
_READERS = "array", "asarray", "asanyarray", "ascontiguousarray"
_HOST = Device("cpu", 0)
_LIBRARIES = {"jax", "jaxlib", "numpy", "xdevice", "contextlib", "functools"}
_WRAPPERS = (
    "contextlib",
    "functools",
    "jax._src.profiler",
    "jax._src.traceback_util",
    "jax._src.util",
)
_MAKERS = {"jax._src.numpy.array_constructors", "jax._src.numpy.array_creation"}
_METHODS = "jax._src.numpy.array_methods"
_UPDATES = {
    "set",
    "add",
    "subtract",
    "multiply",
    "mul",
    "divide",
    "power",
    "min",
    "max",
    "apply",
    "get",
}  # of x.at[i]


def unseen() -> Iterable[str]:
    yield "what a compiled function copies while it runs: for callbacks, and between the devices of sharded arrays"
    yield "arrays that functions compiled ahead of time, by .lower().compile(), bring from another device"
    if not _HAS_BUFFERS:
        yield f"what reads arrays other than JAX and NumPy's {', '.join(_READERS)}, before Python 3.12"


def words() -> Mapping[str, str]:
    return advice.read(__file__)


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    with ExitStack() as stack:
        told = _Told(watcher, stack)
        stack.callback(
            setattr, told, "_watcher", None
        )  # no more is told where another library's wrapper keeps ours
        for owner, name, new in told.replacements():
            stack.enter_context(replaced(owner, name, new))
        stack.enter_context(_guarded())
        yield


class _Told:
    """What a watcher is told, by functions that take the place of JAX's and NumPy's."""

    def __init__(self, watcher: Watcher, block: ExitStack) -> None:
        self._watcher: Watcher | None = watcher
        self._block, self._knows_keras = block, False
        self._level = (
            _guard.global_state().host_to_device or _guard.TransferGuardLevel.ALLOW
        )  # the program's
        self._read: dict[int, weakref.ref[Any]] = {}

    def replacements(self) -> Iterable[tuple[Any, str, Callable[[Any], Any]]]:
        """What is replaced: its owner, its name, and what makes the new one of the old."""
        yield _Array, "_value", lambda value: property(self.reading(value.__get__))
        yield _Array, "copy_to_host_async", self.reading
        if _HAS_BUFFERS:
            yield _Array, "__buffer__", self.reading
        else:
            yield from ((np, name, self.reading) for name in _READERS)
        yield _jaxlib, "batched_device_put", self.putting
        if hasattr(_jaxlib, "batched_copy_array_to_devices_with_sharding"):
            yield _jaxlib, "batched_copy_array_to_devices_with_sharding", self.copying
        yield _pjit, "_get_fastpath_data", _through_python
        yield _pxla, "shard_args", _unmarked

    def _tell(self, watcher: Watcher, copy: Copy) -> None:
        if (
            not self._knows_keras and (module := keras.running_on("jax")) is not None
        ):  # it may be imported late
            self._knows_keras = True
            self._block.enter_context(
                replaced(module.callbacks.CallbackList, "on_train_batch_end", self.stepping)
            )
        watcher.see(copy)

    def stepping(self, end: Callable[..., Any]) -> Callable[..., Any]:
        """In place of what Keras calls after each step: its optimizer's is compiled."""

        @wraps(end)
        def on_train_batch_end(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            if self._watcher is not None:
                self._watcher.stepped(
                    getattr(getattr(callbacks, "_model", None), "optimizer", callbacks)
                )
            return end(callbacks, *args, **kwargs)

        return on_train_batch_end

    def reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """In place of a function that reads its first argument."""

        @wraps(read)
        def reading(*args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is _Array:
                self._reads(args[0])
            return read(*args, **kwargs)

        return reading

    def putting(self, put: Callable[..., Any]) -> Callable[..., Any]:
        """In place of jaxlib's function that puts values, and arrays of one device, on devices."""

        def batched_device_put(
            aval: Any, sharding: Any, xs: Any, devices: Any, *rest: Any, **options: Any
        ) -> Any:
            for x, native in zip(xs, devices, strict=False):
                source = _places(x.sharding)[0] if type(x) is _Array else _HOST
                self._sends(x, x.nbytes, source, _place(native, sharding.memory_kind))
            here = _guard.thread_local_state()
            own = here.host_to_device
            here.host_to_device = self._level if own is None else own
            try:
                return put(aval, sharding, xs, devices, *rest, **options)
            finally:
                here.host_to_device = own

        return batched_device_put

    def copying(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        """In place of jaxlib's function that brings arrays to other devices, part by part."""

        def batched_copy(arrays: Any, devices: Any, shardings: Any, *rest: Any) -> Any:
            for array, sharding in zip(arrays, shardings, strict=False):
                sources, targets = _places(array.sharding), _places(sharding)
                for source, target in zip(sources, targets, strict=False):
                    self._sends(array, _part(array, sources), source, target)
            return copy(arrays, devices, shardings, *rest)

        return batched_copy

    def _reads(self, array: Any) -> None:
        """The values come to the host; once, since JAX keeps what a GPU has sent."""
        key, places = id(array), _places(array.sharding)
        known = self._read.get(key)
        if places == (_HOST,) or (known is not None and known() is array) or self._watcher is None:
            return
        if array.is_deleted() or array._npy_value is not None:
            return
        kind, name = _read_for(*_asked())
        for source in places[:1] if array.is_fully_replicated else places:
            if source != _HOST:
                self._tell(self._watcher, Copy(kind, name, _part(array, places), source, _HOST))
        self._read[key] = weakref.ref(array, lambda _: self._read.pop(key, None))

    def _sends(self, x: Any, nbytes: int, source: Device, target: Device) -> None:
        if source == target or self._watcher is None:
            return
        kind, name = _sent_for(*_asked())
        sent = mark_of(x) if isinstance(x, np.ndarray) else 0
        self._tell(self._watcher, Copy(kind, name, nbytes, source, target, mark=sent))


@lru_cache(maxsize=4096)
def _places(sharding: Any) -> tuple[Device, ...]:
    """Where this process's parts of an array are, in their order."""
    return tuple(
        _place(native, sharding.memory_kind) for native in sharding._addressable_device_assignment
    )


@lru_cache(maxsize=4096)
def _place(native: Any, memory: str | None) -> Device:
    device = as_device(SingleDeviceSharding(native, memory_kind=memory))
    return _HOST if device.kind == "cpu" or device.kind.endswith("host") else device


def _part(array: Any, places: tuple[Device, ...]) -> int:
    """The bytes of what one device has of an array."""
    return int(array.nbytes if array.is_fully_replicated else array.nbytes // len(places))


def _asked() -> tuple[str, str]:
    """The module and the name of the function of JAX, or ours, that the program has called; none of one in C."""
    found = "", ""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # who asks
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _LIBRARIES:
            break
        if not module.startswith((*_WRAPPERS, __name__)):
            found = module, frame.f_code.co_name
        frame = frame.f_back
    return found


def _read_for(module: str, name: str) -> tuple[Kind, str]:
    """What values are read for, by the function that was called."""
    shown = name.strip("_") or "asarray"
    asks = module.startswith("xdevice.") or name == "copy_to_host_async"
    if asks or _guard.thread_local_state().explicit_device_get:
        return "copy", shown
    if module == "jax._src.pjit":
        return "operand", "jit"  # an array that the function closes over is a constant of its code
    is_method = module == _METHODS and name == "_item"
    if name == "__getitem__" or (module.startswith("jax._src.numpy.") and not is_method):
        return "size", shown
    return "number", shown


def _sent_for(module: str, name: str) -> tuple[Kind, str]:
    """What values are sent for, by the function that was called."""
    is_call = module in ("jax._src.pjit", "jax._src.interpreters.pxla")
    shown = "jit" if is_call else name.removeprefix("_operator_").strip("_") or "device_put"
    makes = module in _MAKERS or module.startswith("xdevice.")
    if makes or _guard.thread_local_state().explicit_device_put:
        return "copy", shown
    if name == "__getitem__" or (module == _METHODS and name in _UPDATES):
        return "index", shown
    return "gradient" if module == "jax._src.api" else "operand", shown


@contextmanager
def _guarded() -> Generator[None]:
    """Let calls of compiled functions that send something pass through Python, in every thread."""
    levels, forbidden = _guard.global_state(), _guard.TransferGuardLevel.DISALLOW
    before, levels.host_to_device = levels.host_to_device, forbidden
    _set_watched(True)
    try:
        yield
    finally:
        _set_watched(False)
        if levels.host_to_device == forbidden:  # else the program has chosen another meanwhile
            levels.host_to_device = before


_new_setting = optional(
    "jax._src.config:config_ext.Config", otherwise=lambda *_, **__: None
)  # since JAX 0.4.36
try:  # a setting of our own, which is part of the signature of every call
    _watched = _new_setting("xdevice_watched", False, include_in_jit_key=True)
except TypeError:  # older versions give it no name
    _watched = _new_setting(False, include_in_jit_key=True)


def _set_watched(on: bool) -> None:
    if _watched is not None:
        _watched.set_global(on)
        return
    for name, cache in vars(_pjit).items():
        if name.startswith("_cpp_pjit_cache"):
            cache.clear()  # what is compiled stays


class _Marked(_Layout):  # type: ignore[misc]  # JAX's, an Any
    """The layout of an argument from the host; the one that it has anyhow, in case it is not taken off."""


def _through_python(shortcut: Callable[..., Any]) -> Callable[..., Any]:
    """In place of the function that lets C++ make the calls to come: it is to leave to Python what sends something."""

    def get_fastpath_data(
        executable: Any, tree: Any, arguments: Any, results: Any, *rest: Any
    ) -> Any:
        shardings = {x.sharding for x in (*arguments, *results) if type(x) is _Array}
        if (
            len(shardings) > 1
            and len({frozenset(sharding.device_set) for sharding in shardings}) > 1
        ):
            return None  # arrays are brought together
        data = shortcut(executable, tree, arguments, results, *rest)
        if not hasattr(data, "in_device_local_layouts"):  # None, or an older version's
            return data
        inputs = zip(
            (*getattr(data, "const_args", ()), *arguments), data.kept_var_bitvec, strict=True
        )
        sent = zip(
            (x for x, is_used in inputs if is_used), data.in_device_local_layouts, strict=False
        )
        marked = [
            _Marked(tuple(range(np.ndim(x)))) if y is None and type(x) is not _Array else y
            for x, y in sent
        ]
        return data._replace(in_device_local_layouts=marked)

    return get_fastpath_data


def _unmarked(shard: Callable[..., Any]) -> Callable[..., Any]:
    """In place of the function that sends arguments."""

    def shard_args(shardings: Any, layouts: Any, *rest: Any, **options: Any) -> Any:
        return shard(
            shardings, [None if type(x) is _Marked else x for x in layouts], *rest, **options
        )

    return shard_args
