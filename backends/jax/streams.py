"""Copies to a GPU beside what it computes: JAX begins a copy and returns."""

from collections.abc import Sequence
from typing import Any

import jax

from xdevice.backends.jax.placement import is_sparse
from xdevice.contract import Stream
from xdevice.device import Device
from xdevice.kit import keras
from xdevice.kit.streams import OwnStream

_wait: Any = jax.block_until_ready  # untyped


def stream(device: Device) -> Stream | None:
    return OwnStream(wait)


def wait(tensors: Sequence[Any]) -> None:
    is_plain = [isinstance(tensor, jax.Array) or is_sparse(tensor) for tensor in tensors]
    pairs = zip(tensors, is_plain, strict=True)
    _wait([tensor if plain else keras.value_of(tensor) for tensor, plain in pairs])
