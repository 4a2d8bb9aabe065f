"""Turns of the loops around copies, told apart by the order of the copies.

Two copies of one call, as by ``model.to(device)``, belong to one turn; two
calls by the same instruction belong to two. So a call has to be recognized at
its next copy. Its frame's id does not tell: Python uses ids again at once, two
for a hundred calls. Keeping the frame would keep the program's tensors. A mark
has to end with the call, and of a frame only ``f_trace`` does.

A frame's trace function belongs to debuggers. While one traces the thread, no
turn is counted. A trace function that a debugger left is not replaced, a mark
removes itself when a debugger that starts later meets it, and
`LoopTurns.reset` removes the marks of all running frames.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from types import FrameType

from xdevice.transfers.callers import Caller, Loop, Spot
from xdevice.transfers.syntax import Place


class LoopTurns:
    """The current turn of each loop in which something was copied."""

    def __init__(self) -> None:
        self._turns = defaultdict[Loop, int](int)
        self._lock = threading.RLock()  # a finalizer that runs within a copy may copy

    def at_copy(self, callers: Sequence[Caller]) -> dict[Loop, int]:
        """The turn of each loop around the callers' lines; empty while a debugger traces."""
        if sys.gettrace() is not None:
            return {}
        traceable = [caller for caller in callers if _is_traceable(caller)]
        turns: dict[Loop, int] = {}
        with self._lock:
            for caller in traceable:
                for loop in _loops_with_new_turn(caller):
                    self._turns[loop] += 1
                for loop in caller.spot.loops:
                    turns[loop] = self._turns[loop]
            for caller in traceable:
                _mark(caller)
        return turns

    def reset(self) -> None:
        """Forget all turns, and remove the marks of the frames that run now."""
        with self._lock:
            self._turns.clear()
        for innermost in sys._current_frames().values():
            _remove_marks(innermost)


# The mark of a frame is the spot of its last copy. This one marks the frame
# of a call that has made a copy, if the frame is not a caller in a loop.
_CALLED = Spot(-1, Place("", 0), "", False, ())


def _is_traceable(caller: Caller) -> bool:
    """Whether the frame can be in a new turn, and its ``f_trace`` is free."""
    if not caller.spot.loops:
        return False
    trace = caller.frame.f_trace
    return trace is None or isinstance(trace, Spot)


def _loops_with_new_turn(caller: Caller) -> tuple[Loop, ...]:
    """The loops around the caller's line that have begun a turn since the frame's last copy.

    A frame at an earlier instruction than before has begun a turn of the
    innermost loop that encloses both. So has a frame at the same instruction,
    within another call.
    """
    frame, spot, inner = caller
    loops = spot.loops
    last = frame.f_trace
    if not isinstance(last, Spot):
        return loops
    if spot.instruction == last.instruction:
        # a call of C has no frame, and is always another one
        is_new_call = inner is None or inner.f_trace is None
        return loops[:1] if is_new_call else ()
    shared = [loop for loop in loops if loop.first <= last.place.line <= loop.last]
    entered = [loop for loop in loops if loop not in shared]
    repeated = shared[:1] if spot.instruction < last.instruction else []
    return (*entered, *repeated)


def _mark(caller: Caller) -> None:
    frame, spot, inner = caller
    frame.f_trace = spot
    if inner is not None and inner.f_trace is None:
        inner.f_trace = _CALLED


def _remove_marks(frame: FrameType | None) -> None:
    while frame is not None:
        if isinstance(frame.f_trace, Spot):
            frame.f_trace = None
        frame = frame.f_back
