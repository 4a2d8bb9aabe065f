import os, xdevice, xdevice_toy.hardware as hardware


def enable(request):
    if "TOO_LATE" in os.environ:
        raise xdevice.VirtualDeviceError("the toy has been played with")
    if "REAL" in os.environ and not request.force:
        raise xdevice.VirtualDeviceError("there is a real toy")
    print("enabled", request.number, request.force, *["stand-in"] * request.stand_in)
    hardware.gpus = request.number
