"""Places where another package may take over from an adapter: its GPUs, the copies it watches, its import."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

from xdevice.contract import Watcher


class ReplacedGpus:
    """The devices that take the place of a framework's GPUs in this process; none until `replace` is called."""

    number = 0
    under_own_names = False  # whether they answer to the framework's own names for its GPUs
    first = 1  # the index of the first of them, where they are among the framework's CPU devices

    def replace(self, number: int, *, under_own_names: bool) -> None:
        self.number = number
        self.under_own_names = under_own_names


class CopySource(Protocol):
    """What makes copies in a framework's place, and tells of each before it is made."""

    package: str  # frames of its modules are not the program's

    def watching(self, see: Callable[..., Any], watcher: Watcher) -> AbstractContextManager[object]:
        """A block in which ``see`` is called with each copy; its arguments are those of the adapter."""


class CopySources:
    """The sources of copies of one framework, and the block that watches them while one is open."""

    def __init__(self) -> None:
        self._sources: list[CopySource] = []
        self._open: Callable[[CopySource], object] | None = None

    def __bool__(self) -> bool:
        return bool(self._sources)

    def add(self, source: CopySource) -> None:
        """From now on the source's copies are watched, too, in a block that is open already as well."""
        self._sources.append(source)
        if self._open is not None:
            self._open(source)

    def made_in(self, module: str) -> bool:
        """Whether the module of that name belongs to a source."""
        return any(module.startswith(source.package) for source in self._sources)

    @contextmanager
    def watching(self, see: Callable[..., Any], watcher: Watcher) -> Generator[None]:
        with ExitStack() as stack:
            self._open = lambda source: stack.enter_context(source.watching(see, watcher))
            try:
                for source in self._sources:
                    self._open(source)
                yield
            finally:
                self._open = None


Preparation = Callable[[str], AbstractContextManager[object]]

_preparation: Preparation = nullcontext


def prepare_imports(preparation: Preparation) -> None:
    """Let adapters import their frameworks within the context that ``preparation`` makes for the name."""
    global _preparation
    _preparation = preparation


def prepared_import(framework: str) -> AbstractContextManager[object]:
    """The context in which an adapter imports its framework, if that has to be prepared."""
    return _preparation(framework)
