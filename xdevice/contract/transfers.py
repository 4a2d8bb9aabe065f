"""Copies between devices: watching them, and making them beside computing."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from xdevice.contract.devices import Preparation
from xdevice.device import Device

__all__ = ["Arrivals", "Copy", "Event", "Kind", "Stream", "Streams", "Transfers", "Watcher"]


Kind = Literal["copy", "number", "size", "index", "operand", "gradient", "print"]
"""What makes the copy. Only ``copy`` is explicit: the program asks for it, by ``.to``, feeding or loading.

``number``: Python reads values (``float(x)``, ``if x``, ``.item()``, ``tolist``, ``np.asarray``). ``size``: the
result's shape, or a yes or no, depends on values, so the CPU waits (a mask as an index, ``nonzero``). ``index``: an
index, or a value to write, from the host, sent each time. ``operand``: copied by the framework because another operand
is elsewhere. ``gradient``: in the backward pass. ``print``: a tensor is shown.
"""


class Copy(NamedTuple):
    """One copy between the host and a device, or between two devices. The host is ``Device('cpu:0')``."""

    kind: Kind
    operation: str  # the framework's name of what makes it: "aten::copy_", "item"
    nbytes: int
    source: Device
    target: Device
    non_blocking: bool = False  # the program was told not to wait
    pinned: bool = False  # the host's memory is page-locked
    mark: int = 0  # of what the host sends, by `kit.marks`, where known: the same values sent twice are seen by it


class Watcher(Protocol):
    """What an adapter tells of copies."""

    def see(self, copy: Copy, of: Any = None) -> None:
        """A copy is about to be made by this thread, or by one that works for the place ``of``, which `here` gave.

        Raises `TransferError` where the copy is forbidden: then it must not be made.
        """

    def here(self, kind: Kind = "gradient") -> Any:
        """This thread's place in the program and its levels, for a thread of the framework that will work for it.

        A ``copy`` by that thread, outside of all lines of the program, is of this kind.
        """

    def stepped(self, optimizer: object) -> None:
        """An optimizer has made a step."""


class Transfers(Preparation, Protocol):
    """Seeing copies, and hiding them behind computing."""

    def watch(self, watcher: Watcher) -> AbstractContextManager[Any]:
        """A context, for the whole process, in which the watcher is told of each copy and each optimizer's step.

        Leaving it leaves no trace: watching costs nothing while it is off.
        """

    def unseen(self) -> Iterable[str]:
        """What it cannot see, a sentence each, for the report."""

    def words(self) -> Mapping[str, str]:
        """What to write instead, for rules of ``xdevice.tensors.transfers.rules``, in the framework's own words."""


class Event(Protocol):
    """A place in a stream: what was queued before it, with the tensors that it brings."""

    def synchronize(self) -> None:
        """Wait until all of that is done, and its sources are read."""

    def wait(self) -> None:
        """Let what this thread queues on the device from now on begin after it.

        The memory of the tensors is used again only after what uses them then.
        """


class Stream(AbstractContextManager[Any], Protocol):
    """A queue of copies from the host to one device, beside the work that is queued there.

    As a context: this thread's copies are queued on it. It may be entered again.
    """

    def pinned(self, tensor: Any) -> Any:
        """The tensor in page-locked memory of the host, if the framework has such; else itself."""

    def record(self, tensors: Sequence[Any]) -> Event:
        """The end of what is queued now, which brings these tensors."""


class Streams(Protocol):
    """Copying beside computing."""

    def stream(self, device: Device) -> Stream | None:
        """A new stream of copies to a GPU; ``None`` where copies cannot have one of their own."""


class Arrivals(Protocol):
    """Waiting for tensors, under a framework whose calls return before they are made."""

    def wait(self, tensors: Sequence[Any]) -> None:
        """Wait until these are made, and what they are made from is read."""
