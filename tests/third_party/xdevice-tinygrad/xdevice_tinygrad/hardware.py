"""The devices: names."""

import os
from importlib.metadata import version

from tinygrad import Context, Device
from tinygrad.helpers import DEV, Target

import xdevice

virtual = 0
"""How many further CPU devices stand for GPUs: see virtual.py."""


def _maker():
    try:
        word = DEV.device or Device.DEFAULT
    except RuntimeError:  # no device can be used
        return ""
    word = Device.canonicalize(word).partition(":")[0]
    return "" if word in ("CPU", "PYTHON", "NULL") else word


MAKER = _maker()
"""tinygrad's word for its GPU: its default device, if that is not the CPU; asked once, since a scope changes it."""


def build():
    return {"version": version("tinygrad"), "compute": "cpu", "toolkit": None}


def kinds():
    return ("cpu", "gpu")


def count(kind):
    if kind == "cpu":
        return 1
    if kind != "gpu":
        return 0
    return virtual or (int(os.environ.get("TINYGRAD_GPUS", "1")) if MAKER else 0)


def native(device):
    if device.kind == "cpu":
        return "CPU"
    return f"CPU:{device.index + 1}" if virtual else Device.canonicalize(f"{MAKER}:{device.index}")


def device_named(name):
    word, _, index = Device.canonicalize(name).partition(":")
    if word == "CPU":
        return (
            xdevice.Device("gpu", int(index) - 1)
            if virtual and index
            else xdevice.Device("cpu", int(index or 0))
        )
    return xdevice.Device("gpu", int(index or 0)) if word == MAKER else xdevice.Device(name)


def scope(device):
    return Context(DEV=[Target(native(device))])


def synchronize(devices):
    for device in devices:
        Device[native(device)].synchronize()


def properties(device):
    unknown = {"total_memory": None, "compute_capability": None, "uuid": None}
    return {"name": native(device), "virtual": device.kind == "gpu" and virtual > 0, **unknown}
