"""The device of a tensor that a compiler traces: an answer that says that it is not known yet."""

from __future__ import annotations

from typing import Any, NoReturn

from xdevice.device import Device
from xdevice.errors import UnknownPlacementError


class TracedDevice(Device):
    """The device of a traced tensor, which is known when the compiled function runs.

    A factory takes it as ``device=`` and leaves the placement to the compiler. Whatever would need to know the
    device raises `UnknownPlacementError`: its kind, a comparison, a scope.
    """

    __slots__ = ()

    def __new__(cls) -> TracedDevice:
        return object.__new__(cls)

    def __repr__(self) -> str:
        return "<device of a traced tensor, known when the compiled function runs>"

    def __str__(self) -> str:
        return repr(self)

    def unknown(self, *_: object, **__: object) -> NoReturn:
        raise UnknownPlacementError(
            "the device of a traced tensor is known when the compiled function runs; pass it on as device=, or ask "
            "outside jax.jit, jax.vmap and tf.function"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = unknown  # all raise
    __enter__ = __reduce__ = unknown
    kind: Any = property(unknown)
    index: Any = property(unknown)


TRACED = TracedDevice()
"""The one object of its class: nothing is known of any of them."""
