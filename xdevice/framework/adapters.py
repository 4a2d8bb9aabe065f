"""The adapters: one `Backend` for each framework, which loads capabilities when they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Any

from xdevice import contract
from xdevice.contract import NativeDevice
from xdevice.device import Device
from xdevice.errors import (
    BrokenBackendError,
    NotSupportedError,
    UnknownBackendError,
    XDeviceError,
    shortened,
)
from xdevice.framework.installing import SHORT_NAMES, hint_for
from xdevice.framework.registry import (
    GROUP,
    ORDER,
    adapter_modules,
    entry_points_of,
    not_installed,
)

# What a framework lacks without a capability or function, if its name does not say that.
_NOUNS = {
    "virtual": "virtual GPUs",
    "mixing": "devices to mix",
    "engine": "engine for several processes",
    "storage": "such numbers to store",
    "compiling": "compiler of functions",
    "numerics": "settings of its numerics",
    "transfers": "transfers to watch",
    "share": "memory of GPUs to share",
}


_backends: dict[str, Backend] = {}  # by name, in order of preference
_registering = Lock()  # each framework has one Backend, whichever threads ask first

# Functions of upper layers, called with the framework before and after each capability is loaded.
# Those before change settings (`hardware.sharing`), give it virtual GPUs (`virtual`), or raise an
# error; one after enters the blocks that are open (`framework.watched`).
before_loading: list[Callable[[Backend], None]] = []
after_loading: list[Callable[[Backend], None]] = []


class Backend(str, contract.Capabilities):
    """A framework's import name, with the capabilities of its adapter as attributes.

    `xdevice.contract.Capabilities` declares them. A backend is a string, so it
    prints and compares as the name. ``framework`` is the native module, which
    the adapter imports. A capability is loaded, and kept as an attribute, when
    it is first used.

    Examples
    --------
    >>> from xdevice import backend
    >>> backend("numpy")
    'numpy'
    >>> backend("numpy").framework.__name__
    'numpy'
    """

    module: str
    native_devices: dict[Device, NativeDevice]  # of devices that are known to exist

    def __new__(cls, name: str, module: str) -> Backend:
        backend = super().__new__(cls, name)
        backend.module = module
        backend.native_devices = {}
        return backend

    @property
    def adapter(self) -> ModuleType:
        """The adapter's package; importing it imports the framework."""
        return import_for(self, self.module)

    @property
    def framework(self) -> ModuleType:
        """The framework's own module, imported and prepared by `before_loading`."""
        import_for(self, self.module)
        for callback in before_loading:
            callback(self)
        return sys.modules[str(self)]

    def __getattr__(self, name: str) -> Any:
        if name not in contract.CAPABILITIES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.load(name)

    def load(self, name: str) -> Capability:
        """The capability, loaded between `before_loading` and `after_loading`, and then kept.

        Every thread that gets it has waited for the callbacks.
        """
        capability: Capability | None = self.__dict__.get(name)
        if capability is None:
            for callback in before_loading:
                callback(self)
            capability = self.load_unprepared(name)
            for callback in after_loading:
                callback(self)
            # `setdefault`: threads that load it at once get one object
            capability = self.__dict__.setdefault(name, capability)
        return capability

    def has(self, capability: str, function: str) -> bool:
        """Whether the adapter has the function of the capability."""
        return self.load(capability).has(function)

    def load_unprepared(self, name: str) -> Capability:
        """A new one without the callbacks: they give a framework its virtual GPUs by ``virtual``."""
        reasons = getattr(self.adapter, "CANNOT", {})
        # with a reason, the module may need what this version of the framework
        # lacks
        module = None if name in reasons else _module(self, name)
        return Capability(name, self, module, reasons)

    def unload(self) -> None:
        """Forget the capabilities and native devices, which are prepared again when next used."""
        self.forget_devices()
        for name in contract.CAPABILITIES:
            self.__dict__.pop(name, None)

    def forget_devices(self) -> None:
        """Forget the native devices: others stand for the devices from now on."""
        self.native_devices.clear()

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return find, (str(self),)


class Capability:
    """The functions of one capability of one adapter.

    ``reasons`` is the adapter's ``CANNOT``: the reasons for what it lacks.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        module: ModuleType | None,
        reasons: dict[str, str],
    ) -> None:
        self._name = name
        self._backend = backend
        self._reasons = reasons
        for function in contract.CAPABILITIES[name]:
            if hasattr(module, function):
                setattr(self, function, getattr(module, function))

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        lacking, reason = self._lacking(function)
        noun = _NOUNS.get(lacking, lacking)
        raise NotSupportedError(f"{self._backend} has no {noun}: {reason}")

    def has(self, function: str) -> bool:
        return function in self.__dict__

    def why_not(self, function: str) -> str:
        """Why the adapter lacks the function, or the capability; its own reason if it gives one."""
        _, reason = self._lacking(function)
        return reason

    def _lacking(self, function: str) -> tuple[str, str]:
        """What the adapter lacks, the function or the whole capability, and why."""
        if function in self._reasons:
            return function, self._reasons[function]
        if self._name in self._reasons:
            return self._name, self._reasons[self._name]
        module = f"{self._backend.module}.{self._name}"
        if any(map(self.has, contract.CAPABILITIES[self._name])):
            return function, f"its adapter has no {module}.{function}"
        return self._name, f"its adapter has no {module}"


def registered() -> dict[str, Backend]:
    """Every registered adapter by name, in order of preference; some frameworks may be missing."""
    if not _backends:
        modules = adapter_modules()
        with _registering:
            if not _backends:  # unless another thread was quicker
                _backends.update({name: Backend(name, modules[name]) for name in modules})
    return _backends


def find(name: str) -> Backend:
    """The adapter of that name, whether or not its framework is installed."""
    # not a lookup of any object: MXNet's arrays raise NotImplementedError when
    # they are hashed
    owner = None
    if isinstance(name, str):
        owner = registered().get(name) or registered().get(SHORT_NAMES.get(name, ""))
    if owner is None:
        names = ", ".join(registered())
        raise UnknownBackendError(
            f"no backend {shortened(name)}; there are {names}; {hint_for(name, registered(), GROUP)}"
        )
    return owner


def imported() -> list[Backend]:
    """The frameworks that this process has imported."""
    return [owner for owner in registered().values() if sys.modules.get(owner) is not None]


def _import_adapters() -> None:
    """Import the adapters of the frameworks that this process has imported.

    A compiled function may be the first that uses xdevice. Its compiler calls
    xdevice's functions as soon as they are imported, and so is this module. An
    adapter whose compiler must not trace them says so when it is imported.
    """
    if sys.modules.keys().isdisjoint(ORDER):
        return  # a process without a framework does not read the registry, which takes 20 ms
    for owner in imported():
        if not is_being_imported(sys.modules[owner]):
            with suppress(XDeviceError):  # using the framework raises it again
                _ = owner.adapter


def is_being_imported(module: ModuleType | None) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _module(owner: Backend, capability: str) -> ModuleType | None:
    """The module with the capability's functions; ``None`` if there is none."""
    provided = entry_points_of(contract.PROVIDED.get(capability, "")).get(str(owner))
    if provided is not None:
        return import_for(owner, provided)
    path = f"{owner.adapter.__name__}.{capability}"
    if not hasattr(owner.adapter, "__path__") or find_spec(path) is None:
        return None
    return import_for(owner, path)


def import_for(owner: Backend, module: str) -> ModuleType:
    loaded = sys.modules.get(module)
    if loaded is not None and not is_being_imported(loaded):
        return loaded
    try:
        return import_module(module)
    except XDeviceError:
        raise  # the adapter's own error
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == owner:
            raise not_installed(owner) from error
        raise BrokenBackendError(
            f"{owner} is installed but fails to import ({type(error).__name__}: {error}); "
            f"python -c 'import {owner}' shows the whole error, xdevice doctor may know the cure",
            name=str(owner),
        ) from error


_import_adapters()
