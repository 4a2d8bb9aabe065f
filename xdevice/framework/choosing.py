"""Which framework is chosen: `use` for the process, `using` for a block, else a guess."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

from xdevice.errors import BackendNotInstalledError
from xdevice.framework.adapters import (
    Backend,
    find,
    import_for,
    imported,
    registered,
)
from xdevice.framework.installing import install_command, is_installed
from xdevice.framework.registry import ORDER, not_installed

__all__ = ["backend", "use", "using"]

# every framework imports NumPy, and tests compare with array-api-strict: neither import is a
# user's choice
_COMPANIONS = ("numpy", "array_api_strict")

_process_choice: Backend | None = None
_guess: Backend | None = None
_contextual: ContextVar[tuple[using, ...]] = ContextVar("xdevice.using", default=())
# Whether `using` was ever entered. A compiler that traces cannot read a
# ContextVar, and need not as long as this is false.
_in_context = False


def use(name: str) -> None:
    """Choose the framework for the whole process; `using` does it for a block.

    Nothing is imported yet: that happens when the framework is first needed.

    Raises
    ------
    UnknownBackendError
        No adapter has that name.
    BackendNotInstalledError
        The framework is not installed.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.use("numpy")
    >>> xdevice.backend()
    'numpy'
    """
    global _process_choice
    _process_choice = _installed(name)


class using:  # noqa: N801  (reads as a verb: `with using("numpy"):`)
    """Choose the framework within a ``with`` block, in this thread or task only.

    It beats `use` and may be nested.

    Raises
    ------
    UnknownBackendError
        No adapter has that name.
    BackendNotInstalledError
        The framework is not installed.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros((2, 3)).shape
    (2, 3)
    """

    __slots__ = ("backend",)

    def __init__(self, name: str) -> None:
        self.backend = _installed(name)

    def __enter__(self) -> Backend:
        global _in_context
        _in_context = True
        _contextual.set((*_contextual.get(), self))
        return self.backend

    def __exit__(self, *error: object) -> None:
        _contextual.set(without_last(_contextual.get(), self))


def backend(name: str | None = None) -> Backend:
    """The framework with the given name, or the chosen framework.

    `using` beats `use` beats the environment variable ``XDEVICE_BACKEND``
    beats the one framework that is already imported beats the first that is
    installed, in the order of ``available()``. The import of NumPy does not
    count, since every framework imports it. A framework without a device on
    this machine is not guessed. The first guess is kept for the process.
    Functions that use the chosen framework raise these errors, too.

    Raises
    ------
    UnknownBackendError
        No adapter has that name.
    BackendNotInstalledError
        The framework is not installed, or no framework is.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.backend() == "numpy"
    True
    """
    global _guess
    if name is not None:
        return _installed(name)
    chosen = _chosen() or _guess
    if chosen is None:
        chosen = _guess = _best_guess()
    return chosen


def decided() -> Backend | None:
    """The framework that was chosen or guessed, or the only one imported; else ``None``.

    Unlike `backend`, it makes no guess that is kept.
    """
    return _chosen() or _guess or _only_one_imported()


def _chosen() -> Backend | None:
    if _in_context:
        blocks = _contextual.get()
        if blocks:
            return blocks[-1].backend
    if _process_choice is not None:
        return _process_choice
    name = os.environ.get("XDEVICE_BACKEND")
    if not name:
        return None
    return _installed(name)


def has_device(owner: Backend) -> bool:
    """Whether the framework has a device on this machine.

    A framework that is not in `ORDER` is imported for that, without
    `before_loading`, so that it may still get virtual GPUs. A broken framework counts as
    having a device: using it raises the error.
    """
    if owner in ORDER:
        return True
    try:
        hardware = import_for(owner, f"{owner.module}.hardware")
        kinds = hardware.kinds()
        return "cpu" in kinds or any(map(hardware.count, kinds))
    except Exception:  # an adapter of another distribution may raise any
        return True


def without_last(stack: tuple[Any, ...], entry: object) -> tuple[Any, ...]:
    """The stack without the last occurrence of the entry: blocks may be left out of order."""
    for i in reversed(range(len(stack))):
        if stack[i] is entry:
            return stack[:i] + stack[i + 1 :]
    return stack


def _installed(name: str) -> Backend:
    owner = find(name)
    if not is_installed(owner):
        raise not_installed(name)
    return owner


def _best_guess() -> Backend:
    guess = _only_one_imported() or next(filter(is_installed, registered().values()), None)
    if guess is None:
        names = ", ".join(registered())
        raise BackendNotInstalledError(
            f"no framework is installed; xdevice knows {names}; {install_command('numpy')}"
        )
    return guess


def _only_one_imported() -> Backend | None:
    owners = [owner for owner in imported() if owner not in _COMPANIONS and has_device(owner)]
    if len(owners) != 1:
        return None
    return owners[0]
