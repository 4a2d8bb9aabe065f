"""The one place where copies are told: to reports and guards, and to what lets them take time."""

import atexit
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from types import FrameType
from typing import Any, NamedTuple

from xdevice.contract import Copy, Kind
from xdevice.device import Device
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import decided
from xdevice.framework.watched import Watched
from xdevice.kit.units import size
from xdevice.tensors.gradients import listeners
from xdevice.tensors.transfers.baseline import Baseline
from xdevice.tensors.transfers.callers import Caller, callers, calls_before, is_ahead, skip
from xdevice.tensors.transfers.syntax import Place, is_allowed, trains

WORDS: dict[Kind, str] = {
    "copy": "a copy",
    "number": "reads a number, so Python waits for the GPU",
    "size": "its result's size depends on values, so Python waits for the GPU",
    "index": "an index or a value from the host, sent each time",
    "operand": "an operand on another device, which the framework copies",
    "gradient": "a copy in the backward pass",
    "print": "shows a tensor, so Python waits for the GPU",
}
REMEDIES: dict[Kind, str] = {
    "copy": "copy outside the block, or end the line with `# xdevice: allow`",
    "number": "keep it on the device as a tensor, and read it after the block",
    "size": "use a mask with where, whose result has a known shape",
    "index": "make it on the device, once, before the block",
    "operand": "to_device(x, device) before the block",
    "gradient": "keep the forward pass on one device",
    "print": "show it after the block",
}  # what to write instead, for an error; a report knows more and says more


def named(device: Device) -> str:
    """``host``, or the device."""
    return "host" if device.kind == "cpu" else str(device)


class Event(NamedTuple):
    """A copy, with the line of the program that makes it."""

    copy: Copy
    owner: str  # the framework
    place: Place | None  # None where no line of the user's is on the stack
    callers: tuple[
        Caller, ...
    ]  # the innermost first; not to be kept, since frames keep what is in them
    context: Context | None  # of the thread for which it is made, where that is another one
    allowed: bool  # the line says so, or the baseline
    is_ahead: bool  # `prefetch` makes it
    replicates: bool = (
        False  # it spreads a model over GPUs, or brings together what its replicas made
    )

    def described(self) -> str:
        """Where, what and how much: ``main.py:3: 4 B, gpu:0 → host: reads a number (.item)``."""
        copy = self.copy
        where = f"{self.place}: " if self.place else ""
        route = f"{named(copy.source)} → {named(copy.target)}"
        return f"{where}{size(copy.nbytes)}, {route}: {WORDS[copy.kind]} ({copy.operation})"


class Listener:
    """What is told of copies and steps."""

    forbids = False  # whether it may raise: then it is told first

    def see(self, event: Event) -> None:
        """A copy is about to be made."""

    def stepped(self, optimizer: object) -> None:
        """An optimizer has made a step."""

    def stepped_by_hand(self, fn: Callable[..., Any]) -> None:
        """A function has been differentiated, by which a program may make a step without an optimizer."""


_guards: list[Listener] = []  # each as often as it is open
_recorders: list[Listener] = []
_followers: dict[Backend, Callable[[Copy], None]] = {}  # see `follow`

_baseline: Baseline | None = None

# functions of a library, and functions that the user's line calls
_SHOWING, _SHOWS = {"__repr__", "__str__", "__format__"}, {"print", "str", "repr", "format"}
_NUMBERS = ("array", "float", "int", "index", "bool", "complex")
_READING = {"item", "asscalar", "tolist", *(f"__{name}__" for name in _NUMBERS)}
_READS = {"item", "tolist", "float", "int", "bool", "complex", "asarray", "array"}
_INDEXING = {"__getitem__", "__setitem__"}
_REPLICATING = {"replicate", "broadcast_coalesced", "scatter", "gather", "reduce_add_coalesced"}


def accept(baseline: Baseline | None) -> None:
    """From now on, copies of the baseline's lines are allowed; of none, with ``None``."""
    global _baseline
    _baseline = baseline


def accepting() -> str:
    """What allows copies, in words."""
    return "`# xdevice: allow`" if _baseline is None else "`# xdevice: allow`, or by the baseline"


class _Here(NamedTuple):
    callers: tuple[Caller, ...]
    place: Place | None  # then: the thread goes on, and its frames with it
    context: Context
    kind: Kind


class Told:
    def __init__(self, owner: Backend) -> None:
        self._owner = owner

    def see(self, copy: Copy, of: Any = None) -> None:
        """Tell the guards, then the recorders, then what follows the framework's copies."""
        if _guards or _recorders:
            self._tell(copy, of, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  # who copies
        if self._owner in _followers:
            _followers[self._owner](copy)

    def _tell(self, copy: Copy, of: Any, frame: FrameType) -> None:
        own = tuple(callers(frame))
        context, place = None if of is None else of.context, _line(own)
        kind = None
        if of is not None and not own:
            own, place = of.callers, of.place
            kind = of.kind if copy.kind == "copy" else None
        if kind is None and copy.kind in ("copy", "number", "size"):
            kind = _refined(copy, frame, own)
        copy = copy if kind in (None, copy.kind) else copy._replace(kind=kind)
        place = place or (None if own else _training())
        allowed = own[0].spot.allowed if own else place is not None and is_allowed(place)
        if _baseline is not None and place is not None:
            allowed = allowed or _baseline.accepts(place, copy.kind)
        is_across = "cpu" not in (copy.source.kind, copy.target.kind)
        replicates = is_across and not _REPLICATING.isdisjoint(calls_before(frame))
        event = Event(
            copy, str(self._owner), place, own, context, allowed, is_ahead(frame), replicates
        )
        for listener in dict.fromkeys((*_guards, *_recorders)):
            listener.see(event)

    def here(self, kind: Kind = "gradient") -> _Here:
        """This thread's callers, and its context's variables."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        own = tuple(callers(frame))
        return _Here(own, _line(own), copy_context(), kind)

    def stepped(self, optimizer: object) -> None:
        for listener in _recorders:
            listener.stepped(optimizer)


def stepped_by_hand(fn: Callable[..., Any]) -> None:
    for listener in _recorders:
        listener.stepped_by_hand(fn)


listeners.append(stepped_by_hand)


def _refined(copy: Copy, frame: FrameType, own: Sequence[Caller]) -> Kind:
    """What a library makes the copy for: to show a tensor, to read its values, or to index one."""
    within = calls_before(frame)
    name = own[0].spot.called if own else ""
    if copy.target.kind != "cpu":
        is_index = name == "[]" or not _INDEXING.isdisjoint(
            within[-1:]
        )  # a factory may assign, too
        return "index" if is_index else copy.kind
    if name in _SHOWS or not _SHOWING.isdisjoint(within):
        return "print"
    is_read = copy.kind == "copy" and (name in _READS or not _READING.isdisjoint(within))
    return "number" if is_read else copy.kind


def _line(own: Sequence[Caller]) -> Place | None:
    return own[0].spot.place if own else None


def _training() -> Place | None:
    """The main thread's line, while a library runs its loop there: the library's threads work for it."""
    place = _line(callers(sys._current_frames().get(threading.main_thread().ident or 0)))  # pyright: ignore[reportPrivateUsage]
    return place if place is not None and trains(place) else None


def _manager(owner: Backend) -> AbstractContextManager[Any]:
    skip(owner.framework, owner.adapter)
    return owner.transfers.watch(Told(owner))


_blocks = Watched(_manager)


def open_for(listener: Listener) -> None:
    """Tell the listener of every copy in the process, from now on; also of a framework that is imported later."""
    at_import.watch(_blocks.watch)
    _blocks.open(decided())
    (_guards if listener.forbids else _recorders).append(listener)


def close_for(listener: Listener) -> None:
    (_guards if listener.forbids else _recorders).remove(listener)
    _blocks.close()


def follow(owner: Backend, follower: Callable[[Copy], None]) -> None:
    """Call ``follower`` with each copy of the framework, for the rest of the process, after all that watch it."""
    _blocks.open(owner, owner)
    atexit.register(_blocks.close)
    _followers[owner] = follower


def watched() -> list[str]:
    return [str(owner) for owner in imported() if owner in _blocks]
