"""New arrays."""

import numpy as np
import pages

from xdevice_pages import hardware


def dtype(name):
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    return found if found.kind in "biufc" and found.name == name else None


def tensor(data, dtype, device):
    numbers = np.array(data.numbers if isinstance(data, pages.Array) else data, dtype)
    if numbers.dtype.kind not in "biufc":
        raise TypeError(f"{numbers.dtype} is no type of number")
    return pages.Array(numbers, page(device))


def empty(shape, dtype, device):
    return pages.Array(np.empty(shape, dtype or "float32"), page(device))


def zeros(shape, dtype, device):
    return pages.Array(np.zeros(shape, dtype or "float32"), page(device))


def ones(shape, dtype, device):
    return pages.Array(np.ones(shape, dtype or "float32"), page(device))


def full(shape, value, dtype, device):
    return pages.Array(np.full(shape, value, dtype), page(device))


def arange(start, stop, step, dtype, device):
    return pages.Array(np.arange(start, stop, step, dtype=dtype), page(device))


def rand(shape, dtype, device):
    where = page(device)
    numbers = floats(where.random.random(shape), dtype)
    return pages.Array(
        np.minimum(numbers, np.nextafter(numbers.dtype.type(1), numbers.dtype.type(0))), where
    )


def randn(shape, dtype, device):
    where = page(device)
    return pages.Array(floats(where.random.standard_normal(shape), dtype), where)


def seed(n):
    pages.seed(n)


def page(device):
    return pages.current.get() if device is None else hardware.native(device)


def floats(numbers, dtype):
    made = np.asarray(numbers, dtype or "float32")
    if made.dtype.kind != "f":
        raise TypeError(f"random numbers are floats, not {made.dtype}")
    return made
