"""Running code when a module of another library is imported, by any import statement in the process."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Call ``change`` with the module of that full name, now if it is imported, else once it is."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        sys.meta_path.insert(0, ImportHook(name.__eq__, lambda _, own: WrappedLoader(own, change)))


class WrappedLoader:
    """A stand-in for a module's own loader, which the module gets back before it is executed and changed."""

    def __init__(self, own: Any, change: Callable[[ModuleType], None] = lambda _: None) -> None:
        self._own, self._change = own, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self.execute(module)

    def execute(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        self._change(module)


class ImportHook:
    """A finder for ``sys.meta_path`` that calls ``wrap`` with the name and the loader of each module that it wants."""

    def __init__(
        self, wants: Callable[[str], bool], wrap: Callable[[str, Any], WrappedLoader]
    ) -> None:
        self._wants, self._wrap = wants, wrap

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._wants(name):
            return None
        others = (
            finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self
        )
        spec = next((found for found in others if found is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = self._wrap(name, spec.loader)  # type: ignore[assignment]  # it delegates
        return spec
