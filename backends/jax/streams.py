"""Copies to a GPU beside what it computes: JAX begins a copy and returns."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from xdevice.backends.jax.placement import is_sparse
from xdevice.backends.kit import keras
from xdevice.backends.kit.streams import OwnStream
from xdevice.contract import Stream, Tensor
from xdevice.device import Device

_wait_for: Callable[..., Any] = jax.block_until_ready  # JAX has no types for it


def stream(device: Device) -> Stream | None:
    return OwnStream(wait)


def wait(tensors: Sequence[Tensor]) -> None:
    _wait_for([_without_keras(tensor) for tensor in tensors])


def _without_keras(tensor: Tensor) -> Tensor:
    """The tensor, or the array of a Keras variable."""
    if isinstance(tensor, jax.Array) or is_sparse(tensor):
        return tensor
    return keras.value_of(tensor)
