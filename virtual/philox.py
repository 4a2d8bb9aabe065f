"""Philox4x32-10 (Salmon et al. 2011), by which GPUs draw random numbers, computed with NumPy."""

from typing import Any, TypeAlias

import numpy as np

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

WORDS = 4
"""How many words of 32 bits Philox computes at once."""

_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def words(seed: int, counters: Words, threads: Words) -> Words:
    """The four words for each counter and thread, in a new last dimension."""
    a, b, c, d = counters & _LOW, counters >> _HALF, threads & _LOW, threads >> _HALF
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(_ROUNDS):
        first, second = a * _FACTORS[0], c * _FACTORS[1]
        a, b = (second >> _HALF) ^ b ^ np.uint64(keys[0]), second & _LOW
        c, d = (first >> _HALF) ^ d ^ np.uint64(keys[1]), first & _LOW
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _KEY_STEPS, strict=True)]
    return np.stack([a, b, c, d], axis=-1)
