"""Copies between devices: watching them, and overlapping them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from xdevice.contract.native import Block, Tensor
from xdevice.device import Device

__all__ = ["Copy", "Event", "Kind", "Stream", "Streams", "Transfers", "Watcher"]


Kind = Literal["copy", "number", "size", "index", "operand", "gradient", "print"]
"""What makes a copy.

``copy``
    The program asks for it: ``.to``, feeding, loading. All other kinds are
    implicit.
``number``
    Python reads values: ``float(x)``, ``if x``, ``.item()``, ``tolist``,
    ``np.asarray``.
``size``
    The CPU waits for values that decide on a shape or a branch: a mask as an
    index, ``nonzero``.
``index``
    An index, or a value to write, is on the host and is sent each time.
``operand``
    The framework copies an operand, since another operand is on another
    device.
``gradient``
    The backward pass makes it.
``print``
    A tensor is printed.
"""


class Copy(NamedTuple):
    """One copy between the host and a device, or between devices.

    The host is ``Device('cpu:0')``.
    """

    kind: Kind
    operation: str  # the framework's name for the operation: "aten::copy_", "item"
    nbytes: int
    source: Device
    target: Device
    non_blocking: bool = False  # the program does not wait for it
    pinned: bool = False  # the host's memory is page-locked
    mark: int = 0  # of the values that the host sends, by `kit.marks`: equal ones share a mark


ProgramPlace: TypeAlias = Any
"""A place in the program, as `Watcher.here` returns it."""


class Watcher(Protocol):
    """The object that an adapter notifies of copies."""

    def see(self, copy: Copy, of: ProgramPlace = None) -> None:
        """Called before this thread makes a copy.

        ``of`` is the place that the thread works for, as `here` returned it;
        by default its own. Raises `TransferError` if the copy is forbidden:
        the adapter must not make it then.
        """

    def here(self, kind: Kind = "gradient") -> ProgramPlace:
        """This thread's place in the program, for a thread that works for it.

        The place has the levels that hold there.

        A ``copy`` that the other thread makes outside of the program's own
        lines has this kind.
        """

    def stepped(self, optimizer: object) -> None:
        """Called after an optimizer's step."""


class Transfers(Protocol):
    """Watching copies."""

    def watch(self, watcher: Watcher) -> Block:
        """A context that notifies the watcher of copies and optimizers' steps.

        It sees those of the whole process.

        Leaving it undoes all changes: watching costs nothing while it is off.
        """

    def unseen(self) -> Iterable[str]:
        """The copies that cannot be watched, in sentences for the report."""

    def words(self) -> Mapping[str, str]:
        """The framework's advice, by rule of `xdevice.transfers.rules`."""


class Event(Protocol):
    """A point in a stream, after copies that are queued before it."""

    def synchronize(self) -> None:
        """Wait until the copies are complete and their sources were read."""

    def wait(self) -> None:
        """Let this thread's later work on the device begin after the event.

        The memory of the copies' tensors is not reused before that work is
        complete.
        """


class Stream(AbstractContextManager[object], Protocol):
    """A queue of copies from the host to a device that computes meanwhile.

    As a context, it queues this thread's copies. It may be entered again.
    """

    def pinned(self, tensor: Tensor) -> Tensor:
        """The tensor in page-locked memory of the host.

        The tensor itself if there is none.
        """

    def record(self, tensors: Sequence[Tensor]) -> Event:
        """An event after the copies queued so far, which make these tensors."""


class Streams(Protocol):
    """Copying while a device computes, and tensors that are not complete when a call returns."""

    def stream(self, device: Device) -> Stream | None:
        """A new stream of copies to a GPU.

        ``None`` if copies cannot have a stream of their own.
        """

    def wait(self, tensors: Sequence[Tensor]) -> None:
        """Wait until the tensors are complete and their sources were read."""
