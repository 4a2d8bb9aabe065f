"""Places where another package may take over from an adapter.

An adapter keeps what is here in its modules: `ReplacedGpus` in ``hardware``,
`CopySources` in ``transfers``. A package that gives the framework other GPUs
changes these objects. The adapter does not import that package: it is
`xdevice.virtual`, or one of another distribution.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar

from xdevice.contract import Watcher
from xdevice.device import Device

T = TypeVar("T")


class ReplacedGpus:
    """The devices that take the place of a framework's GPUs in this process.

    There are none until `replace` is called.
    """

    number = 0
    # whether the framework's own names for its GPUs name them, too
    under_own_names = False
    # the index of the first of them, under frameworks where they are CPU devices
    first = 1

    def __init__(self) -> None:
        self._caches: list[Callable[[], None]] = []

    def cached(self, native: Callable[[Device], T]) -> Callable[[Device], T]:
        """The adapter's function `native`, which then makes one object for each device.

        Objects that were made before the GPUs are replaced are not used afterwards.
        """
        cached = cache(native)
        self._caches.append(cached.cache_clear)
        return cached

    def replace(self, number: int, *, under_own_names: bool) -> None:
        self.number = number
        self.under_own_names = under_own_names
        for clear in self._caches:
            clear()


class CopySource(Protocol):
    """Makes copies in a framework's place, and reports each before it is made."""

    package: str  # the name of its package, whose frames are not the program's

    def watching(self, see: Callable[..., Any], watcher: Watcher) -> AbstractContextManager[object]:
        """A block in which ``see`` is called with each copy.

        The adapter that calls this method decides which arguments ``see`` takes.
        """


class CopySources:
    """The sources of copies of one framework."""

    def __init__(self) -> None:
        self._sources: list[CopySource] = []
        # while a block of `watching` is open: begins to watch one more source
        self._open: Callable[[CopySource], object] | None = None

    def __bool__(self) -> bool:
        return bool(self._sources)

    def add(self, source: CopySource) -> None:
        """From now on, watch the source's copies, too, also in a block that is open already."""
        self._sources.append(source)
        if self._open is not None:
            self._open(source)

    def made_in(self, module: str) -> bool:
        """Whether the module of that name belongs to a source."""
        return any(module.startswith(source.package) for source in self._sources)

    @contextmanager
    def watching(self, see: Callable[..., Any], watcher: Watcher) -> Generator[None]:
        """A block in which ``see`` is called with the copies of all sources."""
        with ExitStack() as stack:
            self._open = lambda source: stack.enter_context(source.watching(see, watcher))
            try:
                for source in self._sources:
                    self._open(source)
                yield
            finally:
                self._open = None


ImportContext: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""A function that makes the context in which the framework of that name is imported."""

_import_context: ImportContext = nullcontext


def prepare_imports(context: ImportContext) -> None:
    """From now on, let adapters import their frameworks within such a context."""
    global _import_context
    _import_context = context


def prepared_import(framework: str) -> AbstractContextManager[object]:
    """The context in which an adapter imports its framework, if that has to be prepared."""
    return _import_context(framework)
