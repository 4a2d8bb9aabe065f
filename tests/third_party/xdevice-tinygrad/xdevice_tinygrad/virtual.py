"""Virtual GPUs are further CPU devices: tinygrad mixes none of them."""

from xdevice import Device, NotSupportedError, VirtualDeviceError
from xdevice.device import spell
from xdevice_tinygrad import hardware


def enable(request):
    if request.stand_in:
        raise NotSupportedError("tinygrad's virtual GPUs do not stand in; leave stand_in out")
    if hardware.count("gpu") and not request.force:
        raise VirtualDeviceError(f"tinygrad has a GPU, {hardware.MAKER}; force=True hides it")
    for i in range(request.number):
        spell(Device("gpu", i), [f"CPU:{i + 1}"])
    hardware.virtual = request.number
