"""Out to NumPy."""


def to_numpy(array):
    return array.read("to_numpy").copy()
