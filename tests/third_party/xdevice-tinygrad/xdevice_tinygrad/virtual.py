"""Virtual GPUs are further CPU devices: tinygrad mixes none of them."""

from xdevice import NotSupportedError, VirtualDeviceError
from xdevice_tinygrad import hardware


def enable(n, force, stand_in):
    if stand_in:
        raise NotSupportedError("tinygrad's virtual GPUs do not stand in; leave stand_in out")
    if hardware.count("gpu") and not force:
        raise VirtualDeviceError(f"tinygrad has a GPU, {hardware.MAKER}; force=True hides it")
    hardware.virtual = n
