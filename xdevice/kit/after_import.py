"""Changing another library's module right after its import, where the library may be imported later or never."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Call ``change`` with the module of that full name, now if it is imported, else once it is."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        sys.meta_path.insert(0, _Finder(name, change))


class _Finder:
    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self.name, self.change = name, change

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                self._change_after(spec.loader)
                return spec
        return None

    def _change_after(self, loader: Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one module's loader
