"""Running code when a module of another library is imported.

Any import statement in the process counts.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

Loader: TypeAlias = Any
"""A module's loader, with any of the methods that loaders may have."""

Change: TypeAlias = Callable[[ModuleType], None]


def _no_change(module: ModuleType) -> None:
    pass


def after_import(name: str, change: Change) -> None:
    """Call ``change`` with the module of that full name once it is imported.

    If it is imported already, ``change`` is called now.
    """
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return

    def wrap(_: str, loader: Loader) -> WrappedLoader:
        return WrappedLoader(loader, change)

    sys.meta_path.insert(0, ImportHook(name.__eq__, wrap))


class WrappedLoader:
    """A loader that changes a module after the module's own loader.

    The module gets its own loader back before it is executed.
    """

    def __init__(self, original: Loader, change: Change = _no_change) -> None:
        self._original = original
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._original.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._original
        self.execute(module)

    def execute(self, module: ModuleType) -> None:
        self._original.exec_module(module)
        self._change(module)


class ImportHook:
    """A finder for ``sys.meta_path`` that wraps the loaders of some modules.

    ``wants`` chooses modules by name. ``wrap`` is called with the name and the
    loader of each.
    """

    def __init__(
        self,
        wants: Callable[[str], bool],
        wrap: Callable[[str, Loader], WrappedLoader],
    ) -> None:
        self._wants = wants
        self._wrap = wrap

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not self._wants(name):
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            if spec.loader is not None:
                wrapped = self._wrap(name, spec.loader)
                spec.loader = wrapped  # type: ignore[assignment]  # it delegates
            return spec
        return None
