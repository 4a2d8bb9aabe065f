"""The hooks of the layers below: the one place that says which functions they are."""

from collections.abc import Callable
from typing import Any

from xdevice.framework.adapters import Backend
from xdevice.framework.watched import watch_loaded
from xdevice.hardware.devices import device_named
from xdevice.hardware.scopes import enter, leave
from xdevice.hardware.sharing import share_requested
from xdevice.hardware.virtual import enable_requested
from xdevice.hooks import Hooks


def _prepare(owner: Backend, capability: str) -> None:
    """Before a framework is used: make the virtual GPUs, and the settings for sharing GPUs, that were asked for."""
    enable_requested(owner, capability)
    share_requested(owner, capability)


def install_hooks(attach_bus: Callable[[Any, Any], None], is_users: Callable[[str], bool]) -> Hooks:
    """All that `device`, `framework` and `hardware` call of the layers above them."""
    return Hooks(
        enter_scope=enter,  # ``with device:``
        leave_scope=leave,
        device_named=device_named,  # ``device == obj``
        before_loading=_prepare,
        after_loading=watch_loaded,  # a framework that is first used inside a block that watches is watched
        attach_bus=attach_bus,  # the copies of a framework's virtual GPUs take the time of a bus
        is_users=is_users,  # whose file it is: an adapter has to tell of a line
    )
