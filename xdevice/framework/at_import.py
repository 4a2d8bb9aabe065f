"""Running code right after a program's own import of a framework, by an import hook.

The adapter imports the framework, since it knows how, whichever module asks for it first.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from xdevice.errors import XDeviceError
from xdevice.framework.adapters import ORDER, Backend, imported, registered
from xdevice.kit.import_hook import ImportHook, WrappedLoader

_hook: ImportHook | None = None
_then: list[Callable[[Backend], None]] = []


def by_adapters() -> None:
    """Let the adapters import their frameworks, whichever module asks for one first: some are prepared before."""
    global _hook
    if _hook is None:
        _hook = ImportHook(_is_framework, lambda name, own: _ByAdapter(own, registered()[name]))
        sys.meta_path.insert(0, _hook)


def watch(then: Callable[[Backend], None]) -> None:
    """Call ``then`` with each framework right after its import; at once for those that are imported already."""
    if then in _then:
        return
    _then.append(then)
    by_adapters()
    if not sys.modules.keys().isdisjoint(
        ORDER
    ):  # else the registry need not be read, which takes 20 ms
        for owner in imported():
            _succeeds(then, owner)


def _is_framework(name: str) -> bool:
    """Whether a framework has that name; not while its adapter imports it, since xdevice then prepares it."""
    if "." in name or name in sys.stdlib_module_names or name == "xdevice":
        return False
    owner = registered().get(name)
    return owner is not None and owner.module not in sys.modules


def _print(owner: Backend, error: XDeviceError) -> None:
    print(f"xdevice: {error}", file=sys.stderr)


on_error: Callable[[Backend, XDeviceError], None] = _print
"""Called with what a callback raises: the import succeeds all the same, and using xdevice raises the error again."""


def _succeeds(then: Callable[[Backend], object], owner: Backend) -> bool:
    try:
        then(owner)
    except XDeviceError as error:
        on_error(owner, error)
        return False
    return True


class RefusedExit(SystemExit):
    """The process ends, since a framework is refused what the process needs; the reason has been printed."""


class RefusedImportError(ImportError):
    """A framework that may be meant to have virtual GPUs is refused them, which has been said.

    Uncaught, it ends the program without a traceback.
    """

    def __init__(self, message: str, framework: str) -> None:
        super().__init__(message, name=framework)
        previous = sys.excepthook

        def show(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if error is not self:
                previous(kind, error, trace)

        sys.excepthook = show


class _ByAdapter(WrappedLoader):
    """Lets the adapter import the framework; where it cannot, the framework is imported as without xdevice."""

    def __init__(self, own: Any, owner: Backend) -> None:
        super().__init__(own)
        self._owner, self._is_imported = owner, False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        self._is_imported = _succeeds(lambda owner: import_module(owner.module), self._owner)
        return sys.modules[spec.name] if self._is_imported else super().create_module(spec)

    def execute(self, module: ModuleType) -> None:
        if self._is_imported:
            for then in _then:
                _succeeds(then, self._owner)
        else:
            super().execute(module)
