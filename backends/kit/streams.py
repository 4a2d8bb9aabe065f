"""Streams for frameworks that order copies and computations by themselves."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from xdevice.contract import Event, Tensor

Wait = Callable[[Sequence[Tensor]], None]


class OwnStream(nullcontext[None]):
    """The framework's own stream, in which every copy is made.

    ``wait`` waits until tensors are complete.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__()
        self._wait = wait

    def pinned(self, tensor: Tensor) -> Tensor:
        return tensor

    def record(self, tensors: Sequence[Tensor]) -> Event:
        return _TensorsEvent(self._wait, tensors)


class _TensorsEvent(NamedTuple):
    """The event that these tensors are complete."""

    block: Wait
    tensors: Sequence[Tensor]

    def synchronize(self) -> None:
        self.block(self.tensors)

    def wait(self) -> None:
        pass  # a computation waits for its tensors by itself
