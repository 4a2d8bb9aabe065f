"""Conversion to NumPy."""

import numpy as np


def to_numpy(tensor):
    return np.array(tensor.numpy())
