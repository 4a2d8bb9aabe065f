"""Notifying reports and guards of copies, and virtual GPUs that let copies take time."""

import atexit
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from types import FrameType
from typing import Any, NamedTuple

from xdevice.contract import Copy, Kind
from xdevice.device import Device
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import decided
from xdevice.framework.watched import Watched
from xdevice.tensors.gradients import listeners
from xdevice.transfers.baseline import Baseline
from xdevice.transfers.callers import (
    Caller,
    Loop,
    callers,
    is_prefetching,
    library_calls,
    library_place,
    skip,
)
from xdevice.transfers.syntax import Place, is_allowed, trains
from xdevice.transfers.turns import LoopTurns
from xdevice.units import size

WORDS: dict[Kind, str] = {
    "copy": "a copy",
    "number": "reads a number, so Python waits for the GPU",
    "size": "its result's size depends on values, so Python waits for the GPU",
    "index": "an index or a value from the host, sent each time",
    "operand": "an operand on another device, which the framework copies",
    "gradient": "a copy in the backward pass",
    "print": "shows a tensor, so Python waits for the GPU",
}
# for an error; a report knows more of the program, and has other advice
REMEDIES: dict[Kind, str] = {
    "copy": "copy outside the block, or end the line with `# xdevice: allow`",
    "number": "keep it on the device as a tensor, and read it after the block",
    "size": "use a mask with where, whose result has a known shape",
    "index": "make it on the device, once, before the block",
    "operand": "to_device(x, device) before the block",
    "gradient": "keep the forward pass on one device",
    "print": "show it after the block",
}


def device_label(device: Device) -> str:
    """``host``, or the device."""
    return "host" if device.kind == "cpu" else str(device)


class CopyEvent(NamedTuple):
    """A copy, with the line of the program that makes it."""

    copy: Copy
    owner: str
    """The framework."""
    place: Place | None
    """None where no line of the user's is on the stack."""
    turns: Mapping[Loop, int]
    """The turn of each loop around the line, for recorders."""
    context: Context | None
    """Of the thread for which the copy is made, where that is another one."""
    allowed: bool
    """By a comment in the line, or by the baseline."""
    is_ahead: bool
    """Whether `prefetch` makes it."""
    replicates: bool = False
    """Whether it spreads a model over GPUs, or brings together what its replicas made."""
    library: Place | None = None
    """The line of a library that the program's line called, and that copies."""

    def described(self) -> str:
        """Where, what and how much: ``main.py:3: 4 B, gpu:0 → host: reads a number (.item)``."""
        copy = self.copy
        line = f"{self.place}: " if self.place else ""
        route = f"{device_label(copy.source)} → {device_label(copy.target)}"
        return f"{line}{size(copy.nbytes)}, {route}: {WORDS[copy.kind]} ({copy.operation})"


class Listener:
    """A guard or a recorder, which hears of copies and steps."""

    forbids = False  # whether it may raise: then it hears first

    def see(self, event: CopyEvent) -> None:
        """A copy is about to be made."""

    def stepped(self, optimizer: object) -> None:
        """An optimizer has made a step."""

    def stepped_by_hand(self, fn: Callable[..., Any]) -> None:
        """A program that makes steps without an optimizer has differentiated a function."""


# each as often as it is open
_guards: list[Listener] = []
_recorders: list[Listener] = []
_followers: dict[Backend, Callable[[Copy], None]] = {}  # see `follow`

_baseline: Baseline | None = None
_turns = LoopTurns()

# library functions on the stack during a copy
_SHOWING_FUNCTIONS = {"__repr__", "__str__", "__format__"}
_NUMBER_CONVERSIONS = ("array", "float", "int", "index", "bool", "complex")
_READING_FUNCTIONS = {
    "item",
    "asscalar",
    "tolist",
    *(f"__{conversion}__" for conversion in _NUMBER_CONVERSIONS),
}
_INDEXING_FUNCTIONS = {"__getitem__", "__setitem__"}
_REPLICATING_FUNCTIONS = {
    "replicate",
    "broadcast_coalesced",
    "scatter",
    "gather",
    "reduce_add_coalesced",
}
# functions that the user's line calls
_SHOWING_CALLS = {"print", "str", "repr", "format"}
_READING_CALLS = {"item", "tolist", "float", "int", "bool", "complex", "asarray", "array"}


_is_unseen = ContextVar("xdevice.unseen_copies", default=False)


@contextmanager
def unseen() -> Iterator[None]:
    """A block whose copies no guard and no recorder sees: those of a comparison in a test."""
    token = _is_unseen.set(True)
    try:
        yield
    finally:
        _is_unseen.reset(token)


def accept(baseline: Baseline | None) -> None:
    """From now on, copies of the baseline's lines are allowed; of none, with ``None``."""
    global _baseline
    _baseline = baseline


def accepting() -> str:
    """What allows copies, in words."""
    comment = "`# xdevice: allow`"
    if _baseline is None:
        return comment
    return f"{comment}, or by the baseline"


class _ProgramPosition(NamedTuple):
    """Where a thread of the program is, for a framework's thread that works for it."""

    callers: tuple[Caller, ...]
    place: Place | None  # as it was then: the thread's frames go on
    context: Context
    kind: Kind


class CopyNotifier:
    """The contract's `Watcher`: notifies guards, recorders and the follower of a framework."""

    def __init__(self, owner: Backend) -> None:
        self._owner = owner

    def see(self, copy: Copy, of: Any = None) -> None:
        if (_guards or _recorders) and not _is_unseen.get():
            caller = sys._getframe(1)
            self._notify(copy, of, caller)
        if self._owner in _followers:
            _followers[self._owner](copy)

    def _notify(self, copy: Copy, origin: _ProgramPosition | None, frame: FrameType) -> None:
        event = self._event(copy, origin, frame)
        for listener in dict.fromkeys((*_guards, *_recorders)):
            listener.see(event)

    def _event(self, copy: Copy, origin: _ProgramPosition | None, frame: FrameType) -> CopyEvent:
        user_callers = tuple(callers(frame))
        place = _innermost_place(user_callers)
        kind_of_origin: Kind | None = None
        if origin is not None and not user_callers:
            user_callers, place = origin.callers, origin.place
            kind_of_origin = origin.kind
        if kind_of_origin is not None and copy.kind == "copy":
            copy = copy._replace(kind=kind_of_origin)
        elif copy.kind in ("copy", "number", "size"):
            copy = _with_kind_by_functions(copy, frame, user_callers)
        if place is None and not user_callers:
            place = _training_place()
        crosses_gpus = "cpu" not in (copy.source.kind, copy.target.kind)
        return CopyEvent(
            copy,
            owner=str(self._owner),
            place=place,
            turns=_turns.at_copy(user_callers) if _recorders else {},
            context=None if origin is None else origin.context,
            allowed=_is_accepted(copy, place, user_callers),
            is_ahead=is_prefetching(frame),
            library=library_place(frame) if _recorders else None,
            replicates=crosses_gpus and not _REPLICATING_FUNCTIONS.isdisjoint(library_calls(frame)),
        )

    def here(self, kind: Kind = "gradient") -> _ProgramPosition:
        """This thread's callers, and its context's variables."""
        user_callers = tuple(callers(sys._getframe(1)))
        return _ProgramPosition(user_callers, _innermost_place(user_callers), copy_context(), kind)

    def stepped(self, optimizer: object) -> None:
        for listener in _recorders:
            listener.stepped(optimizer)


def stepped_by_hand(fn: Callable[..., Any]) -> None:
    for listener in _recorders:
        listener.stepped_by_hand(fn)


listeners.append(stepped_by_hand)


def _with_kind_by_functions(copy: Copy, frame: FrameType, user_callers: Sequence[Caller]) -> Copy:
    """The copy, of the kind that the functions on the stack say.

    A library may copy to show a tensor, to read its values, or to index one.
    """
    functions = library_calls(frame)
    called = user_callers[0].spot.called if user_callers else ""
    if copy.target.kind != "cpu":
        # only the outermost function counts: a factory may assign, too
        is_index = called == "[]" or not _INDEXING_FUNCTIONS.isdisjoint(functions[-1:])
        if is_index:
            return copy._replace(kind="index")
        return copy
    if called in _SHOWING_CALLS or not _SHOWING_FUNCTIONS.isdisjoint(functions):
        return copy._replace(kind="print")
    is_read = called in _READING_CALLS or not _READING_FUNCTIONS.isdisjoint(functions)
    if copy.kind == "copy" and is_read:
        return copy._replace(kind="number")
    return copy


def _is_accepted(copy: Copy, place: Place | None, user_callers: Sequence[Caller]) -> bool:
    """Whether a comment in the line, or the baseline, allows the copy."""
    if place is None:
        return False
    if user_callers and user_callers[0].spot.allowed:
        return True
    if not user_callers and is_allowed(place):
        return True
    return _baseline is not None and _baseline.accepts(place, copy.kind)


def _innermost_place(user_callers: Sequence[Caller]) -> Place | None:
    return user_callers[0].spot.place if user_callers else None


def _training_place() -> Place | None:
    """The main thread's line, while a library runs its loop there.

    The library's threads work for that line.
    """
    frames = sys._current_frames()
    main_thread = threading.main_thread().ident or 0
    place = _innermost_place(callers(frames.get(main_thread)))
    if place is None or not trains(place):
        return None
    return place


def _watching(owner: Backend) -> AbstractContextManager[Any]:
    """The context in which the framework's copies are watched."""
    skip(owner.framework, owner.adapter)
    return owner.transfers.watch(CopyNotifier(owner))


_blocks = Watched(_watching)


def _listeners(forbids: bool) -> list[Listener]:
    return _guards if forbids else _recorders


def open_for(listener: Listener) -> None:
    """Notify the listener of all copies, also of frameworks that are imported later."""
    at_import.watch(_blocks.watch)
    _blocks.open(decided())
    _listeners(listener.forbids).append(listener)


def close_for(listener: Listener) -> None:
    _listeners(listener.forbids).remove(listener)
    _blocks.close()
    if not listener.forbids and not _recorders:
        _turns.reset()


def follow(owner: Backend, follower: Callable[[Copy], None]) -> None:
    """Call ``follower`` with each copy of the framework, for the rest of the process.

    Guards and recorders hear of a copy first.
    """
    _blocks.open(owner, owner)
    atexit.register(_blocks.close)
    _followers[owner] = follower


def watched() -> list[str]:
    return [str(owner) for owner in imported() if owner in _blocks]
