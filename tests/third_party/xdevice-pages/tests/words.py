"""The words of pages that the contract suite needs: see `xdevice.testing.Native`."""

import numpy as np
import pages


def ones():
    return pages.Array(np.ones((2, 3), "float32"))


def address(x):
    return x.numbers.ctypes.data


def write(x, value):
    x.numbers[...] = value


def owned():
    return [ones(), ones()[0]]


def native_devices():
    return [(pages.PAGES[0], "cpu:0")]
