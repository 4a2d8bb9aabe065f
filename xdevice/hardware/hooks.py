"""The hooks of the layers below: the one place that says which functions they are."""

from xdevice.framework.watched import watch_loaded
from xdevice.hardware.devices import device_named
from xdevice.hardware.scopes import enter, leave
from xdevice.hardware.virtual import enable_requested
from xdevice.hooks import Hooks


def install_hooks() -> Hooks:
    """All that `device` and `framework` call of the layers above them."""
    return Hooks(
        enter_scope=enter,  # ``with device:``
        leave_scope=leave,
        device_named=device_named,  # ``device == obj``
        before_loading=enable_requested,  # before a framework is used, virtual GPUs that were asked for are made
        after_loading=watch_loaded,  # a framework that is first used inside a block that watches is watched
    )
