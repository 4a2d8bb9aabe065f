"""The devices: pages."""

import pages

from xdevice import Device


def build():
    return {"version": pages.__version__, "compute": "cpu", "toolkit": None}


def kinds():
    return ("cpu", "gpu")


def count(kind):
    return {"cpu": 1, "gpu": len(pages.PAGES) - 1}.get(kind, 0)


def native(device):
    return pages.PAGES[0 if device.kind == "cpu" else device.index + 1]


def as_device(page):
    return Device("gpu", page.index - 1) if page.index else Device("cpu", 0)


def scope(device):
    return pages.on(native(device))


def synchronize(devices):
    pass  # pages computes at once


def properties(device):
    unknown = {"total_memory": None, "compute_capability": None, "uuid": None}
    return {"name": f"virtual {native(device)!r}", "virtual": device.kind == "gpu", **unknown}
