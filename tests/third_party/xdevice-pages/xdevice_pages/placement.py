"""Where arrays are, and moving them."""

import pages

from xdevice_pages import hardware


def category(cls):
    return {pages.Array: "tensor", pages.Page: "device"}.get(cls)


def device_of(array):
    return hardware.as_device(array.page)


def move(array, device, non_blocking):
    return array.to(hardware.native(device))


def copy(array):
    return array.to(array.page)
