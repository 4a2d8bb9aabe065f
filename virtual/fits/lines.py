"""The line of the program that runs, for the reports of ``xdevice fits``."""

import sys
from types import FrameType

from xdevice.transfers.callers import is_users


def line_of_program() -> tuple[str, int]:
    """The file and the line of the innermost frame that is not a library's.

    ``"", 0`` if there is no such frame.
    """
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
