"""Waiting for real GPUs: torch's sync-debug mode warns of each, and a warning may become an error. Untried."""

import linecache
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

import torch

from xdevice.contract import Copy, Kind
from xdevice.device import Device

_MESSAGE = "called a synchronizing CUDA operation"
_COPIES = re.compile(r"\.(?:to|cuda|cpu|copy_|load_state_dict)\(")


@contextmanager
def watched(see: Callable[[Copy], None]) -> Generator[None]:
    """Tell of each copy for which Python waits, once torch warns of it: its size is not known."""
    mode, show = torch.cuda.get_sync_debug_mode(), warnings.showwarning

    def showwarning(  # noqa: PLR0913, PLR0917  (its signature in the standard library)
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if _MESSAGE not in str(message):
            show(message, category, filename, lineno, file, line)
            return
        kind: Kind = "copy" if _COPIES.search(linecache.getline(filename, lineno)) else "number"
        see(Copy(kind, "cudaStreamSynchronize", 0, Device("gpu", torch.cuda.current_device()), Device("cpu", 0)))

    with warnings.catch_warnings():
        warnings.filterwarnings("always", _MESSAGE)
        warnings.showwarning = showwarning
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)
