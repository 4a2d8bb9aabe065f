import toy
from xdevice import Device


def category(cls):
    return "tensor" if issubclass(cls, toy.Tensor) else None


def device_of(x):
    return Device("cpu")
