"""Streams of frameworks that begin a copy, return, and let what uses its tensors wait."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from xdevice.contract import Event

Wait = Callable[[Sequence[Any]], None]


class OwnStream(nullcontext[None]):
    """The framework's own stream, which has every copy.

    ``wait`` waits for tensors.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__()
        self._wait = wait

    def pinned(self, tensor: Any) -> Any:
        return tensor

    def record(self, tensors: Sequence[Any]) -> Event:
        return _TensorsEvent(self._wait, tensors)


class _TensorsEvent(NamedTuple):
    """The event that these tensors are complete."""

    block: Wait
    tensors: Sequence[Any]

    def synchronize(self) -> None:
        self.block(self.tensors)

    def wait(self) -> None:
        pass  # the framework lets what uses the tensors wait
