"""Copies of virtual GPUs take the time of a bus, where the environment asks for one."""

import sys

from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.hardware import virtual_bus
from xdevice.hardware.bus import Bus
from xdevice.hardware.virtual import is_virtual
from xdevice.kit import virtual_request
from xdevice.tensors.transfers.watching import Listener, carry_for

_attached: set[Backend] = set()


class _Carrier(Listener):
    """Lets each copy between the host and one framework's virtual GPU, or between two, take its time."""

    def __init__(self, owner: Backend, bus: Bus) -> None:
        self._owner, self._bus = owner, bus

    def carry(self, owner: str, copy: Copy) -> None:
        """Wait for the bus, if the copy blocks."""
        if owner == self._owner:
            ends = [end for end in {copy.source, copy.target} if is_virtual(self._owner, end)]
            if ends:
                virtual_bus.carry(self._bus, copy.nbytes, ends, non_blocking=copy.non_blocking)

    def until(self, owner: str, device: Device) -> float:
        """When the device's bus will have carried what it has been given."""
        return virtual_bus.until([device]) if owner == self._owner else 0.0


def attach(owner: Backend, bus: Bus) -> None:
    """From now on, for the rest of the process, the copies of this framework's virtual GPUs take their time."""
    if owner in _attached:
        return
    carry_for(_Carrier(owner, bus), owner)
    if not _attached and not virtual_request.warned("BUS"):
        print(f"xdevice: virtual GPUs have a bus of {bus}, which their copies wait for", file=sys.stderr)
    _attached.add(owner)
