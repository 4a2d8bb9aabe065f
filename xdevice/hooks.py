"""Callbacks that the upper layers register here for the lower ones."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Device: TypeAlias = Any
    """A `Device`, of `xdevice.device`, which imports this module."""

    Backend: TypeAlias = Any
    """An adapter, of `xdevice.framework.adapters`, which is an upper layer."""


class Hooks:
    """The upper layers' functions for `device`, `framework`, `hardware`."""

    enter_scope: Callable[[Device, Device], object]  # ``with device:``
    leave_scope: Callable[..., object]
    device_named: Callable[[object], Device | None]  # ``device == obj``

    def __init__(self) -> None:
        # each is called with a framework, and with the capability for which it
        # is used
        self.before_loading: list[Callable[[Backend, str], None]] = []
        self.after_loading: list[Callable[[Backend, str], None]] = []
        # each is called with the devices that the program has waited for
        self.after_synchronizing: list[Callable[[Sequence[Device]], None]] = []
        # imports the modules that register the functions above;
        # `xdevice.__init__` gives it
        self.connect: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        """A function that is not registered yet.

        The layers that register the functions are imported first.
        """
        if name not in Hooks.__annotations__:
            raise AttributeError(name)
        self.connect()
        return self.__dict__[name]


hooks = Hooks()
