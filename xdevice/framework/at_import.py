"""An import hook that runs callbacks right after a program's own import of a framework.

The adapter imports the framework, since it may have to prepare the import.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from xdevice.errors import XDeviceError
from xdevice.framework.adapters import Backend, imported, registered
from xdevice.framework.import_hook import ImportHook, WrappedLoader
from xdevice.framework.registry import ORDER

# No framework has such a name. For any other, the registry is read, which takes 20 ms.
_IMPORTED_AT_START = ("xdevice", "sitecustomize", "usercustomize")

_hook: ImportHook | None = None
_callbacks: list[Callable[[Backend], None]] = []


def by_adapters() -> None:
    """From now on, adapters import their frameworks, whichever module asks for one first."""
    global _hook
    if _hook is None:
        _hook = ImportHook(
            _is_framework, lambda name, loader: _AdapterLoader(loader, registered()[name])
        )
        sys.meta_path.insert(0, _hook)


def watch(callback: Callable[[Backend], None]) -> None:
    """Call the function with each framework right after its import, or now if it is imported."""
    if callback in _callbacks:
        return
    _callbacks.append(callback)
    by_adapters()
    # without a framework the registry is not read, which takes 20 ms
    if not sys.modules.keys().isdisjoint(ORDER):
        for owner in imported():
            _succeeds(callback, owner)


def _is_framework(name: str) -> bool:
    """Whether the name is a framework's. False while its adapter is imported, which imports it."""
    if "." in name or name in sys.stdlib_module_names or name in _IMPORTED_AT_START:
        return False
    owner = registered().get(name)
    return owner is not None and owner.module not in sys.modules


def _print(owner: Backend, error: XDeviceError) -> None:
    print(f"xdevice: {error}", file=sys.stderr)


on_error: Callable[[Backend, XDeviceError], None] = _print
"""Called with a callback's error. The import goes on; using xdevice raises the error again."""


def _succeeds(callback: Callable[[Backend], object], owner: Backend) -> bool:
    """Call the function; whether it raised no error."""
    try:
        callback(owner)
    except XDeviceError as error:
        on_error(owner, error)
        return False
    return True


class _AdapterLoader(WrappedLoader):
    """Lets the adapter import the framework.

    If the adapter fails, the framework is imported as it is without xdevice.
    """

    def __init__(self, loader: Any, owner: Backend) -> None:
        super().__init__(loader)
        self._owner = owner
        self._is_imported = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        self._is_imported = _succeeds(lambda owner: import_module(owner.module), self._owner)
        return sys.modules[spec.name] if self._is_imported else super().create_module(spec)

    def execute(self, module: ModuleType) -> None:
        if self._is_imported:
            for callback in _callbacks:
                _succeeds(callback, self._owner)
        else:
            super().execute(module)
