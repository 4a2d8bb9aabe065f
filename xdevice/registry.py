"""Find, choose and load adapters; which adapter owns this object.

All state of the package that is not a cache of a pure function lives here and in `xdevice.scopes`:
the choice of this process (`use`), the choice of this context (`using`), and what has been loaded.
What `try_gpu` has warned of is in `xdevice.hardware`.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

from xdevice.adapters import Backend, not_installed
from xdevice.errors import (
    BackendNotInstalledError,
    BrokenBackendError,
    NotSupportedError,
    UnknownBackendError,
    VirtualDeviceError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from xdevice import contract

GROUP = "xdevice.backends"
"""The entry-point group; our own adapters are registered in it like anybody's."""

ORDER = ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy")
"""Which installed framework is taken when nobody has chosen; others come behind, by name."""

# Every framework brings this one along, so that it is imported says little about what is wanted.
_COMPANION = "numpy"


_backends: dict[str, Backend] = {}  # by name, in order of preference
_process_choice: Backend | None = None
_guess: Backend | None = None
_contextual: ContextVar[tuple[using, ...]] = ContextVar("xdevice.using", default=())
_roles: dict[type, tuple[Backend, contract.Role]] = {}


def use(name: str) -> None:
    """Choose the framework for the whole process; `using` does it for a block.

    Nothing is imported yet: that happens when the framework is first needed.

    >>> import xdevice
    >>> xdevice.use("numpy")
    >>> xdevice.backend()
    'numpy'

    Raises
    ------
    UnknownBackendError
        No adapter of that name.
    BackendNotInstalledError
        The adapter is there, the framework is not.
    """
    global _process_choice
    _process_choice = _installed(name)


class using:  # noqa: N801  (reads as a verb: `with using("numpy"):`)
    """Choose the framework within a ``with`` block, in this thread or task only.

    It beats `use` and may be nested.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros((2, 3)).shape
    (2, 3)

    Raises
    ------
    UnknownBackendError, BackendNotInstalledError
        As `use`.
    """

    __slots__ = ("backend",)

    def __init__(self, name: str) -> None:
        self.backend = _installed(name)

    def __enter__(self) -> Backend:
        _contextual.set((*_contextual.get(), self))
        return self.backend

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _contextual.set(without_last(_contextual.get(), self))


def backend(name: str | None = None) -> Backend:
    """The framework of that name, or the one chosen now.

    `using` beats `use` beats the environment variable ``XDEVICE_BACKEND`` beats the one framework
    that is already imported (NumPy counts only if it is alone) beats the first that is installed
    in the order of ``available()``. A guess, once made, stays.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.backend() == "numpy"
    True

    Raises
    ------
    UnknownBackendError
        No adapter of that name.
    BackendNotInstalledError
        That framework, or any framework at all, is not installed.
    """
    if name is not None:
        return _installed(name)
    return _chosen() or _guessed()


def decided() -> Backend | None:
    """The framework that somebody has chosen, or the one that is imported; ``None`` where none is yet."""
    return _chosen() or _guess or _alone()


def _chosen() -> Backend | None:
    scopes = _contextual.get()
    if scopes:
        return scopes[-1].backend
    if _process_choice is not None:
        return _process_choice
    wanted = os.environ.get("XDEVICE_BACKEND")
    if wanted:
        return _installed(wanted)
    return None


def available() -> list[str]:
    """The names of the frameworks that are installed here, most preferred first; imports none.

    >>> import xdevice
    >>> "numpy" in xdevice.available()
    True
    """
    return [str(b) for b in registered().values() if is_installed(b)]


def registered() -> dict[str, Backend]:
    """Every adapter that there is, by name, installed framework or not, in order of preference."""
    if not _backends:
        from importlib.metadata import entry_points  # 20 ms: not at import

        modules = {entry.name: entry.value for entry in entry_points(group=GROUP)}
        ranked = sorted(modules, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))
        found = {}
        for name in ranked:
            found[name] = Backend(name)
            found[name].module = modules[name]
        if not _backends:  # another thread may have been quicker
            _backends.update(found)
    return _backends


def find(name: str) -> Backend:
    """The adapter of that name, whether or not its framework is installed."""
    try:
        return registered()[name]
    except (KeyError, TypeError):
        raise UnknownBackendError(
            f"no backend {name!r}; there are {', '.join(registered()) or 'none'}; {_suggestion(name)}"
        ) from None


def is_installed(name: str) -> bool:
    """Whether the framework could be imported; does not import it."""
    if sys.modules.get(name) is not None:
        return True
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # ValueError: sys.modules[name] is None
        return False
    return spec is not None and spec.origin is not None  # a bare folder of that name is no framework


def imported() -> list[Backend]:
    """The frameworks that this process has imported already."""
    return [b for b in registered().values() if sys.modules.get(b) is not None]


def role_of(cls: type) -> tuple[Backend, contract.Role] | None:
    """Which framework owns objects of this type, and as what: a tensor, a model, a device.

    Only frameworks that are already imported are asked, since no other can have made one.
    """
    known = _roles.get(cls)
    if known is not None or cls in _PLAIN:
        return known
    for owner in imported():
        try:
            role = owner.placement.role(cls)
        except (BrokenBackendError, NotSupportedError, VirtualDeviceError):  # half imported, half written, too late
            if cls.__module__.startswith(str(owner)):
                raise
            continue  # no concern of another framework's tensors
        if role is not None:
            return _roles.setdefault(cls, (owner, role))
    return None


def without_last(stack: tuple[Any, ...], entry: object) -> tuple[Any, ...]:
    """The stack less its last occurrence of that entry: leaving out of order disturbs nobody."""
    if stack and stack[-1] is entry:  # nearly always
        return stack[:-1]
    for i in reversed(range(len(stack))):
        if stack[i] is entry:
            return stack[:i] + stack[i + 1 :]
    return stack


ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""What no framework owns, and nothing is inside of."""

_PLAIN = ATOMS | {list, tuple, dict, set, type}


def _installed(name: str) -> Backend:
    found = find(name)
    if not is_installed(found):
        raise not_installed(name)
    return found


def _guessed() -> Backend:
    global _guess
    if _guess is None:
        alone = _alone()
        here = [alone] if alone else [b for b in registered().values() if is_installed(b)]
        if not here:
            names = list(registered())
            raise BackendNotInstalledError(
                f"no framework is installed; xdevice knows {', '.join(names)}; "
                f"pip install 'xdevice[{names[-1] if names else _COMPANION}]'"
            )
        _guess = here[0]
    return _guess


def _alone() -> Backend | None:
    """The one framework that is imported already."""
    here = imported()
    if len(here) > 1:
        here = [b for b in here if b != _COMPANION]
    return here[0] if len(here) == 1 else None


def _suggestion(name: object) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name).lower().removeprefix("py"), list(registered()), 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else "xdevice info lists what is installed"
