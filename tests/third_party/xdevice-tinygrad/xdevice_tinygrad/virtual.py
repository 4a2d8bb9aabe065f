"""Virtual GPUs are further CPU devices: tinygrad mixes none of them."""

from xdevice import NotSupportedError, VirtualDeviceError
from xdevice_tinygrad import hardware


def enable(request):
    if request.stand_in:
        raise NotSupportedError("tinygrad's virtual GPUs do not stand in; leave stand_in out")
    if hardware.count("gpu") and not request.force:
        raise VirtualDeviceError(f"tinygrad has a GPU, {hardware.MAKER}; force=True hides it")
    hardware.virtual = request.number
