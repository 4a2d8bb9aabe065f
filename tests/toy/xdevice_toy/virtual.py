import os, xdevice, xdevice_toy.hardware as hardware


def enable(n, force, stand_in):
    if "TOO_LATE" in os.environ:
        raise xdevice.VirtualDeviceError("the toy has been played with")
    if "REAL" in os.environ and not force:
        raise xdevice.VirtualDeviceError("there is a real toy")
    print("enabled", n, force, *["stand-in"] * stand_in)
    hardware.gpus = n
