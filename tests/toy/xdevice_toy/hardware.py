from xdevice import Device

gpus = 0


def kinds():
    return ("cpu", "gpu")


def count(kind):
    return gpus if kind == "gpu" else int(kind == "cpu")


def native(device):
    return "toy-cpu" if device.kind == "cpu" else f"toy-gpu{device.index} of {gpus}"


def properties(device):
    return {"virtual": False}


def scope(device):
    from contextlib import nullcontext

    return nullcontext()
