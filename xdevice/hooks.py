"""Hooks: what the lower layers call of the layers above them.

`xdevice.hardware.hooks.install_hooks` installs all of them together, when the first one is needed: importing xdevice
loads none of the modules that they come from.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Hooks:
    """The functions that `device`, `framework`, `backends` and `hardware` call, and that are above them."""

    enter_scope: Callable[..., None]
    leave_scope: Callable[..., None]
    device_named: Callable[[object], Any]
    before_loading: Callable[[Any, str], None]
    after_loading: Callable[[Any, str], None]
    attach_bus: Callable[[Any, Any], None]
    is_users: Callable[[str], bool]

    def __init__(self, **functions: Callable[..., Any]) -> None:
        vars(self).update(functions)


_hooks: Hooks | None = None
_installer: Callable[[], Hooks] | None = None


def install_on_first_use(installer: Callable[[], Hooks]) -> None:
    """Set what returns the hooks; importing xdevice does, and calls it no earlier than the first hook is needed."""
    global _installer
    _installer = installer


def hooks() -> Hooks:
    """The hooks; the first call imports the modules that they come from."""
    global _hooks
    if _hooks is None:
        assert _installer is not None  # importing xdevice has set it
        _hooks = _installer()
    return _hooks
