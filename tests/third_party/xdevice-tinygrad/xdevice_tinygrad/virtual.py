"""Virtual GPUs are further CPU devices: tinygrad mixes none of them."""

from xdevice import Device, VirtualDeviceError
from xdevice.device import spell
from xdevice_tinygrad import hardware


def enable(n, force):
    if hardware.count("gpu") and not force:
        raise VirtualDeviceError(f"tinygrad has a GPU, {hardware.MAKER}; force=True hides it")
    for i in range(n):
        spell(Device("gpu", i), [f"CPU:{i + 1}"])
    hardware.virtual = n
