"""The adapters: one `Backend` per registered framework, which loads each capability when first needed."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from xdevice import contract
from xdevice.device import Device
from xdevice.errors import (
    BackendNotInstalledError,
    BrokenBackendError,
    NotSupportedError,
    UnknownBackendError,
    XDeviceError,
    did_you_mean,
)
from xdevice.framework import packed
from xdevice.hooks import hooks
from xdevice.tracing import constant

__all__ = ["available"]

GROUP = "xdevice.backends"  # the entry-point group; our own adapters are registered in it like those of others

ORDER = ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy")
"""Which installed framework is taken when none is chosen; others come after these, by name. All of these have a CPU."""

_MEANT = {
    **dict.fromkeys(("pytorch", "pt", "lightning", "accelerate", "transformers"), "torch"),
    **dict.fromkeys(
        ("tf", "keras", "keras-core", "tensorflow-cpu", "tensorflow-gpu"), "tensorflow"
    ),
    **dict.fromkeys(("paddlepaddle", "paddlepaddle-gpu", "pd"), "paddle"),
    **dict.fromkeys(("mx", "gluon"), "mxnet"),
    **dict.fromkeys(("flax", "equinox", "haiku", "optax", "jaxlib", "jnp"), "jax"),
    **dict.fromkeys(("np", "scipy"), "numpy"),
    **dict.fromkeys(("cp", "cupyx", "cupy-cuda12x", "cupy-cuda13x"), "cupy"),
}  # other names of a framework, for the hint of an error

_WITHOUT_ADAPTER = frozenset(
    {"mlx", "tinygrad", "dask", "sparse", "ndonnx", "mindspore", "oneflow", "jittor", "dpnp"}
)
"""Frameworks, and no misspelt names of others, for which xdevice brings no adapter."""

_PACKAGES = {
    "paddle": "paddlepaddle",
    "cupy": "cupy-cuda12x",
}  # packages that are not named like the import
_COMMANDS = {
    "mxnet": "pip install --no-deps mxnet==1.9.1, and pip install requests graphviz"
}  # or NumPy gets old

_NOUNS = {
    "virtual": "virtual GPUs", "sharing": "memory to share", "mixing": "devices to mix",
    "engine": "engine for several processes", "storage": "such numbers to store", "transfers": "transfers to watch",
    "allocation": "memory of GPUs to share",
}  # fmt: skip  # capabilities with a name that does not say what is missing

_backends: dict[str, Backend] = {}  # by name, in order of preference


class Backend(str, contract.Capabilities):
    """A framework as xdevice sees it: its import name, with the capabilities of its adapter as attributes.

    It is a string, so it prints and compares as the name. ``framework`` is the native module, imported
    safely whatever else is in the process. A capability is loaded, and kept as an attribute, when it is first used.

    Examples
    --------
    >>> from xdevice import backend
    >>> backend("numpy")
    'numpy'
    >>> backend("numpy").framework.__name__
    'numpy'
    """

    module: str
    native_devices: dict[Device, Any]  # the native objects of devices that are known to exist

    def __new__(cls, name: str, module: str) -> Backend:
        new = super().__new__(cls, name)
        new.module, new.native_devices = module, {}
        return new

    @property
    def adapter(self) -> ModuleType:
        """The adapter's package; importing it imports the framework."""
        return _load(self, self.module)

    @property
    def framework(self) -> ModuleType:
        """The framework's own module, imported."""
        _load(self, self.module)
        _prepare(self, "")
        return sys.modules[str(self)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in contract.CAPABILITIES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        _open(str(self), name)
        return getattr(self, name)

    def open(self, name: str) -> Capability:
        """The capability, loaded and kept as an attribute; the hooks run before and after."""
        found: Capability | None = self.__dict__.get(name)
        if found is not None:
            return found
        _prepare(self, name)
        reasons = getattr(self.adapter, "CANNOT", {})
        loaded = (
            None if name in reasons else _module(self, name)
        )  # this version of the framework may lack it
        # threads agree on one
        opened: Capability = self.__dict__.setdefault(
            name, Capability(name, self, self.module, loaded, reasons)
        )
        for callback in hooks.after_loading:
            callback(self, name)
        return opened

    def close(self) -> None:
        """Forget the capabilities and native devices: each is prepared again when it is next used."""
        self.native_devices.clear()
        for name in contract.CAPABILITIES:
            self.__dict__.pop(name, None)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return find, (str(self),)


class Capability:
    """One capability of one adapter: its functions; ``reasons``, the adapter's ``CANNOT``, says why it lacks others."""

    def __init__(
        self, name: str, backend: str, adapter: str, module: Any, reasons: dict[str, str]
    ) -> None:
        self._name, self._backend, self._adapter, self._reasons = name, backend, adapter, reasons
        for function in contract.CAPABILITIES[name]:
            if hasattr(module, function):
                setattr(self, function, getattr(module, function))

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        whole = function not in self._reasons and (self._name in self._reasons or self._is_empty())
        what = _NOUNS.get(self._name, self._name) if whole else function
        raise NotSupportedError(f"{self._backend} has no {what}: {self.why_not(function)}")

    def has(self, function: str) -> bool:
        return function in self.__dict__

    def why_not(self, function: str) -> str:
        """Why the adapter lacks the function or the whole capability: its own reason if it gives one."""
        home = f"{self._adapter}.{contract.MODULES.get(self._name, self._name)}"
        missing = home if self._is_empty() else f"{home}.{function}"
        return (
            self._reasons.get(function)
            or self._reasons.get(self._name)
            or f"its adapter has no {missing}"
        )

    def _is_empty(self) -> bool:
        return not any(map(self.has, contract.CAPABILITIES[self._name]))


@constant
def _open(name: str, capability: str) -> None:
    find(name).open(capability)


def available() -> list[str]:
    """The names of the frameworks that are installed, most preferred first; imports none.

    Examples
    --------
    >>> import xdevice
    >>> "numpy" in xdevice.available()
    True
    """
    return [str(b) for b in registered().values() if is_installed(b)]


def registered() -> dict[str, Backend]:
    """Every registered adapter by name, in order of preference, whether or not its framework is installed."""
    if not _backends:
        modules = entry_points_of(GROUP)
        if not any(map(_is_own, modules.values())):
            raise BrokenBackendError(packed.without_metadata())
        ranked = sorted(modules, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))
        found = {name: Backend(name, modules[name]) for name in ranked}
        if not _backends:  # unless another thread was quicker
            _backends.update(found)
    return _backends


@cache
def entry_points_of(group: str) -> dict[str, str]:
    """The modules that installed distributions offer in an entry-point group, by their names in it."""
    return {entry.name: entry.value for entry in _entry_points().select(group=group)}


@cache
def _entry_points() -> Any:
    from importlib.metadata import entry_points  # 20 ms: not at import

    return entry_points()


def find(name: str) -> Backend:
    """The adapter of that name, whether or not its framework is installed."""
    try:
        return registered()[name]
    except (KeyError, TypeError):
        word = str(name).lower().replace("_", "-")
        meant = _MEANT.get(word) or _MEANT.get(word.partition(".")[0], word.partition(".")[0])
        hint = did_you_mean(meant, registered(), "xdevice info lists what is installed")
        if (
            meant == word
            and word not in registered()
            and (is_installed(word) or word in _WITHOUT_ADAPTER)
        ):
            hint = f"install an adapter for {name}: a package with an entry point in the group {GROUP!r}"
        raise UnknownBackendError(
            f"no backend {name!r}; there are {', '.join(registered())}; {hint}"
        ) from None


def is_installed(name: str) -> bool:
    """Whether the framework can be imported; does not import it."""
    if sys.modules.get(name) is not None:
        return True
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: sys.modules[name] is None
        return False
    return (
        spec is not None and spec.origin is not None
    )  # without an origin it is a bare folder of that name


def is_optional(name: str) -> bool:
    """Whether the adapter is xdevice's own and its framework is not in `ORDER`: "all" does not require it."""
    return name not in ORDER and _is_own(registered()[name].module)


def _is_own(module: str) -> bool:
    return module.startswith(f"{GROUP}.")  # where our adapters are, too


def has_device(owner: Backend) -> bool:
    """Whether the framework has a device on this machine; one that is not in `ORDER` is imported and asked.

    The hooks do not run, so that it may still get virtual GPUs. A broken framework counts as having a device:
    using it raises the error.
    """
    if owner in ORDER:
        return True
    try:
        hardware = _load(owner, f"{owner.module}.hardware")
        kinds = hardware.kinds()
        return "cpu" in kinds or any(map(hardware.count, kinds))
    except Exception:  # of an adapter from outside, any
        return True


def imported() -> list[Backend]:
    return [b for b in registered().values() if sys.modules.get(b) is not None]


def package_of(name: str) -> str:
    """The package that installs a framework: never one of our extras, which a package index may not have."""
    return _PACKAGES.get(name, str(name))


def install_command(name: str) -> str:
    return packed.adding(name) or _COMMANDS.get(name) or f"pip install {package_of(name)}"


def not_installed(name: str) -> BackendNotInstalledError:
    return BackendNotInstalledError(
        f"backend {str(name)!r} needs the package {package_of(name)!r}, which is not installed; installed are "
        f"{', '.join(available()) or 'none'}; {install_command(name)}",
        name=str(name),
    )


def _prepare(owner: Backend, capability: str) -> None:
    """Do what was asked for before the framework is used."""
    for callback in hooks.before_loading:
        callback(owner, capability)


def _module(owner: Backend, capability: str) -> Any:
    """The module in which the adapter has the capability's functions, or an object in its place; if it has one."""
    home = contract.MODULES.get(capability, capability)
    if home in contract.PROVIDED:
        provided = entry_points_of(contract.PROVIDED[home]).get(str(owner))
        if provided is not None:
            return _load(owner, provided)
    found = owner.adapter
    for part in home.split("."):  # one by one: `find_spec` raises where a parent is no package
        if not hasattr(found, "__path__") or find_spec(f"{found.__name__}.{part}") is None:
            return getattr(found, part, None)
        found = _load(owner, f"{found.__name__}.{part}")
    return found


def _load(owner: Backend, module: str) -> ModuleType:
    loaded = sys.modules.get(module)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    try:
        return import_module(module)
    except XDeviceError:
        raise  # the adapter's own error
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing == owner:
            raise not_installed(owner) from error
        if missing in _BESIDE and _found_beside():
            return _load(owner, module)
        shows = (
            f"python -c 'import {owner}' shows the whole error, xdevice doctor may know the cure"
        )
        raise BrokenBackendError(
            f"{owner} is installed but fails to import ({type(error).__name__}: {error}); "
            f"{packed.adding(missing) or shows}",
            name=str(owner),
        ) from error


def import_own(module: str) -> ModuleType:
    """The module of a package that xdevice itself brings, which may stand beside this one."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in _BESIDE and _found_beside():
            return import_module(module)
        raise


_BESIDE = ("xdevice.backends", "xdevice.virtual")


def _found_beside() -> bool:
    """In a checkout, which a Python started there imports, these packages are beside this one and not in it."""
    from os.path import dirname, isfile, join

    path = sys.modules["xdevice"].__path__
    beside = dirname(path[0])
    if beside in path or not all(
        isfile(join(beside, name)) for name in ("pyproject.toml", "backends/__init__.py")
    ):
        return False
    path.append(beside)
    return True
