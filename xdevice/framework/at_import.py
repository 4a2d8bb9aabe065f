"""What is done right after a program's own import of a framework: by a finder on ``sys.meta_path``.

The framework is imported by its adapter, which knows how, whichever module asks for it first.
"""

from __future__ import annotations

import sys

from xdevice.errors import XDeviceError
from xdevice.framework.adapters import ORDER, imported, registered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from xdevice.framework.adapters import Backend


def watch(then: Callable[[Backend], None]) -> None:
    """Call ``then`` with each framework right after its import; those that are imported already come at once."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder(then))
    if not sys.modules.keys().isdisjoint(ORDER):  # else the registry need not be read, which takes 20 ms
        for owner in imported():
            _call(then, owner)


def _call(then: Callable[[Backend], None], owner: Backend) -> None:
    try:
        then(owner)
    except XDeviceError as error:  # an import does not fail because of it; using xdevice raises it again
        _say(error, owner)


def _say(error: XDeviceError, owner: Backend) -> None:
    print(f"xdevice: {error}; {owner} goes on without virtual GPUs", file=sys.stderr)


class _Finder:
    def __init__(self, then: Callable[[Backend], None]) -> None:
        self.then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in sys.stdlib_module_names or name == "xdevice":
            return None
        owner = registered().get(name)
        if owner is None or owner.module in sys.modules:
            return None  # an adapter that imports its framework is used by xdevice, which prepares it
        spec = self._found(name, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, owner, self.then)  # type: ignore[assignment]  # it delegates
        return spec

    def _found(self, name: str, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None, target) if finder is not self else None
            if spec is not None:
                return spec
        return None


class _Loader:
    """Lets the adapter import the framework; in all else it is the framework's own loader."""

    def __init__(self, own: Any, owner: Backend, then: Callable[[Backend], None]) -> None:
        self.own, self.owner, self.then = own, owner, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        from importlib import import_module

        try:
            import_module(self.owner.module)
        except XDeviceError as error:
            _say(error, self.owner)
            self.exec_module = self._exec_plainly  # type: ignore[method-assign]  # the import goes on without the adapter
            module: ModuleType | None = self.own.create_module(spec)
            return module
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        self._restore(module)
        _call(self.then, self.owner)

    def _exec_plainly(self, module: ModuleType) -> None:
        self._restore(module)
        self.own.exec_module(module)

    def _restore(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.own
