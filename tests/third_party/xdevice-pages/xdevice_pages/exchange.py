"""Out to NumPy."""


def to_numpy(array):
    return array.numbers.copy()
