"""One adapter: a framework's name that opens its rooms, each loaded when first needed."""

from __future__ import annotations

import sys

from xdevice.errors import BackendNotInstalledError, BrokenBackendError, NotSupportedError, XDeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from xdevice import contract


_WORDS = {
    "virtual": "virtual GPUs",
    "mixing": "devices to mix",
    "engine": "engine for several processes",
    "storage": "such numbers to store",
}  # rooms of which one says it so


class Room:
    """One capability of one adapter: its functions, and a reason for each that it lacks."""

    def __init__(self, backend: Backend, name: str, module: ModuleType | None) -> None:
        self._backend, self._name = backend, name
        for function in _functions(name):
            if hasattr(module, function):
                setattr(self, function, getattr(module, function))

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        whole = function not in self._reasons() and self._name in self._reasons()
        what = _WORDS.get(self._name, self._name) if whole else function
        raise NotSupportedError(f"{self._backend} has no {what}: {self.why_not(function)}")

    def why_not(self, function: str) -> str:
        """Why the adapter lacks the function, or the whole room, in its own words where it has any."""
        reasons, home = self._reasons(), f"{self._backend.module}.{self._name}"
        return reasons.get(function) or reasons.get(self._name) or f"its adapter has no {home}.{function}"

    def _reasons(self) -> dict[str, str]:
        found: dict[str, str] = getattr(self._backend.adapter, "CANNOT", {})
        return found


class Backend(str):
    """A framework as xdevice sees it: its import name, which also opens the adapter's rooms.

    It is a string, so it prints and compares as the name. ``framework`` is the native module,
    imported safely whatever else is in the process.

    >>> from xdevice import backend
    >>> backend("numpy")
    'numpy'
    >>> backend("numpy").framework.__name__
    'numpy'
    """

    module: str
    # each room is loaded, and kept as an attribute, when first asked for
    hardware: contract.Hardware
    placement: contract.Placement
    models: contract.Models
    creation: contract.Creation
    exchange: contract.Exchange
    memory: contract.Memory
    gradients: contract.Gradients
    virtual: contract.Virtual
    mixing: contract.Mixing
    collectives: contract.Collectives
    maths: contract.Maths
    storage: contract.Storage
    engine: contract.Engine

    @property
    def adapter(self) -> ModuleType:
        """The adapter's package; importing it imports the framework."""
        return _load(self, self.module)

    @property
    def framework(self) -> ModuleType:
        """The framework's own module, imported."""
        _load(self, self.module)
        return sys.modules[str(self)]

    def __getattr__(self, room: str) -> Any:
        if room.startswith("_") or room not in _rooms():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {room!r}")
        from importlib.util import find_spec

        if room != "virtual":
            from xdevice.virtual import settle  # virtual.py needs the registry, and that this file

            settle(self)
        name, package = f"{self.module}.{room}", self.adapter
        module = _load(self, name) if find_spec(f".{room}", package.__name__) else None
        opened = self.__dict__.setdefault(room, Room(self, room, module))  # threads agree on one
        if room not in ("virtual", "mixing"):
            from xdevice.mixing import watch

            watch(self)
        return opened

    def close_rooms(self) -> None:
        """Forget which rooms are open: each is prepared anew when it is next asked for."""
        for room in _rooms():
            self.__dict__.pop(room, None)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        from xdevice.registry import find

        return find, (str(self),)


def _load(owner: Backend, module: str) -> ModuleType:
    loaded = sys.modules.get(module)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == owner:
            raise not_installed(owner) from error
        raise _broken(owner, error) from error
    except XDeviceError:
        raise  # what the adapter itself has to say
    except Exception as error:
        raise _broken(owner, error) from error


def not_installed(name: str) -> BackendNotInstalledError:
    """The error for an adapter whose framework is missing."""
    from xdevice.registry import available

    return BackendNotInstalledError(
        f"backend {str(name)!r} needs the package {str(name)!r}, which is not installed; installed are "
        f"{', '.join(available()) or 'none'}; pip install 'xdevice[{name}]'",
        name=str(name),
    )


def _broken(owner: Backend, error: Exception) -> BrokenBackendError:
    return BrokenBackendError(
        f"{owner} is installed but fails to import ({type(error).__name__}: {error}); "
        f"python -c 'import {owner}' shows the whole error, xdevice doctor may know the cure",
        name=str(owner),
    )


def _rooms() -> dict[str, tuple[str, ...]]:
    from xdevice.contract import ROOMS

    return ROOMS


def _functions(room: str) -> tuple[str, ...]:
    return _rooms()[room]
