"""Hooks: what the lower layers call of the layers above them, named here in one place.

They are looked up together when the first one is needed: no import of xdevice's own looks them up.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Hooks:
    """The functions that `device`, `framework`, `backends` and `hardware` call, and that are above them."""

    def __init__(self) -> None:
        self.enter_scope = _function("hardware.scopes.enter")  # ``with device:``
        self.leave_scope = _function("hardware.scopes.leave")
        self.device_named = _function("hardware.devices.device_named")  # ``device == obj``
        self.enable_requested = _function("hardware.virtual.enable_requested")
        self.share_requested = _function("hardware.memory.share_requested")
        # a framework that is first used inside a block that watches is watched
        self.after_loading = _function("framework.watched.watch_loaded")

    def before_loading(self, owner: Any, capability: str) -> None:
        """Before a framework is used: make the virtual GPUs, and the settings for sharing GPUs, that were asked for."""
        self.enable_requested(owner, capability)
        self.share_requested(owner, capability)

    def attach_bus(self, owner: Any, bus: Any) -> None:
        """The copies of a framework's virtual GPUs take the time of a bus."""
        _function("tensors.transfers.watching.attach")(owner, bus)

    def is_users(self, file: str) -> bool:
        """Whose file it is: an adapter has to tell of a line."""
        return bool(_function("tensors.transfers.callers.is_users")(file))


def _function(path: str) -> Any:
    from importlib import import_module

    module, _, name = path.rpartition(".")
    return getattr(import_module(f"xdevice.{module}"), name)


_hooks: Hooks | None = None


def hooks() -> Hooks:
    """The hooks; the first call imports the modules that they come from."""
    global _hooks
    if _hooks is None:
        _hooks = Hooks()
    return _hooks
