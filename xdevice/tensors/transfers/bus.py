"""The bus, from where it is now: `xdevice.hardware.bus`."""

from xdevice.hardware.bus import DEFAULT as DEFAULT
from xdevice.hardware.bus import Bus as Bus
