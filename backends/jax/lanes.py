"""Copies to a GPU beside what it computes: JAX begins a copy and returns."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax

from xdevice.backends.jax.placement import is_sparse
from xdevice.contract import Lane, Mark
from xdevice.device import Device
from xdevice.kit import keras


def lane(device: Device) -> Lane | None:
    return _Lane()


_wait: Any = jax.block_until_ready  # untyped


def wait(tensors: Sequence[Any]) -> None:
    is_plain = [isinstance(tensor, jax.Array) or is_sparse(tensor) for tensor in tensors]
    pairs = zip(tensors, is_plain, strict=True)
    _wait([tensor if plain else keras.value_of(tensor) for tensor, plain in pairs])


class _Lane(nullcontext[None]):
    def pinned(self, tensor: Any) -> Any:
        return tensor

    def mark(self, tensors: Sequence[Any]) -> Mark:
        return _Mark(tensors)


class _Mark:
    """Arrays that are on their way; JAX lets what uses them wait."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._tensors = tensors

    def wait(self) -> None:
        wait(self._tensors)

    def join(self) -> None:
        pass
