"""What `init` is given: which engine, and how many seconds to wait."""

from __future__ import annotations

import os
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError

TIMEOUT = 120.0
"""Seconds to wait for the others by default."""

ENGINES = ("native", "mpi")


def engine_name(engine: str | None) -> str:
    """The engine that is asked for; ``XDEVICE_ENGINE``, else the framework's own."""
    name = engine or os.environ.get("XDEVICE_ENGINE") or "native"
    if name not in ENGINES:
        raise ArgumentError(f"{name!r} is not an engine; use 'native', the framework's own, or 'mpi'")
    return name


def seconds_of(timeout: float | None) -> float:
    """The timeout in seconds; ``XDEVICE_TIMEOUT``, else `TIMEOUT`."""
    given: Any = os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT if timeout is None else timeout
    try:
        seconds = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"timeout={given!r} is not a number of seconds") from None
    if not 0 < seconds < 1e7:
        raise ArgumentError(f"timeout={given!r} is not a number of seconds above 0")
    return seconds
