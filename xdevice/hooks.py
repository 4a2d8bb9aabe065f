"""Callbacks by which the lower layers call the upper ones, without importing them.

An upper layer stores its function here when it is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Device: TypeAlias = Any
    """A `Device`, of `xdevice.device`, which imports this module."""

    Backend: TypeAlias = Any
    """An adapter, of `xdevice.framework.adapters`, which is an upper layer."""


def _run(name: str, action: Callable[[], None]) -> None:
    action()


class Hooks:
    """The upper layers' functions for `device`, `framework`, `hardware`.

    There is always one function for each of the first three. `scopes` gives
    ``enter_scope`` and ``leave_scope``, which are called with the object in the
    ``with`` statement. `devices` gives ``device_named``. The others are lists,
    which are empty until a module adds its callback.
    """

    enter_scope: Callable[[object, Device], object]  # ``with device:``
    leave_scope: Callable[..., object]  # with the exception's type, value and traceback
    device_named: Callable[[object], Device | None]  # ``device == obj``

    def __init__(self) -> None:
        # Called with a framework before it is used, and with the name of the
        # capability, which is empty for the framework's own module. A callback
        # may change settings of the framework, give it virtual GPUs, or raise
        # an error: `hardware.sharing`, `xdevice.virtual`.
        self.before_loading: list[Callable[[Backend, str], None]] = []
        # Called with the same after the capability was loaded. `strict` then
        # watches a framework that is first used within its block.
        self.after_loading: list[Callable[[Backend, str], None]] = []
        # Called with the devices for which the program has waited: the
        # simulated bus of virtual GPUs waits, too.
        self.after_synchronizing: list[Callable[[Sequence[Device]], None]] = []
        # Runs an action in one process of a job while the others wait, if this
        # process is in one: `distributed` sets it.
        self.in_one_process: Callable[[str, Callable[[], None]], None] = _run
        # Imports the modules that give the first three functions;
        # `xdevice/__init__.py` sets it.
        self.connect: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        """One of the first three functions, when it is first needed.

        Python calls this method only for an attribute that is not set yet.
        """
        if name not in Hooks.__annotations__:
            raise AttributeError(name)
        self.connect()
        return self.__dict__[name]


hooks = Hooks()
