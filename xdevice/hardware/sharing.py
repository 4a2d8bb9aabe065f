"""Sharing the memory of GPUs: how much of it each framework takes."""

from __future__ import annotations

from threading import RLock
from typing import NamedTuple

from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, shortened
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, before_loading, imported
from xdevice.framework.choosing import decided

__all__ = ["share_gpus"]


class _Request(NamedTuple):
    fraction: float | None  # of each GPU's memory; None for all of it


class _Sharing(NamedTuple):
    """A request, and the settings that a framework made for it."""

    request: _Request
    settings: dict[str, str]


_request: _Request | None = None
_sharing: dict[Backend, _Sharing] = {}
_lock = RLock()


def share_gpus(fraction: float | None = None) -> dict[str, dict[str, str]]:
    """Let each framework allocate GPU memory on demand, and return the settings made, by framework.

    By default TensorFlow takes nearly all memory of every GPU when it is first
    used, and JAX takes three quarters. They return this memory only when the
    process ends. The settings also apply to frameworks that are imported
    later. Without a GPU there may be nothing to set.

    Parameters
    ----------
    fraction
        The largest part of each GPU's memory that each framework may take,
        above 0 and up to 1. ``None`` sets no limit.

    Raises
    ------
    ArgumentError
        The fraction is not above 0 and up to 1.
    ArgumentTypeError
        The fraction is not a number.
    TooLateError
        A framework has been used, and has taken its memory; the message names it.

    Examples
    --------
    >>> import xdevice
    >>> settings = xdevice.share_gpus(0.3)  # doctest: +SKIP
    """
    global _request
    request = _Request(_checked(fraction))
    with _lock:
        previous, _request = _request, request
        chosen = decided()
        owners = imported() if chosen is None else [chosen, *imported()]
        try:
            for owner in owners:
                share_requested(owner)
        except Exception:
            _request = previous
            raise
    if share_requested not in before_loading:
        before_loading.append(share_requested)
    at_import.watch(share_requested)
    return {
        str(owner): dict(sharing.settings)
        for owner, sharing in _sharing.items()
        if sharing.settings
    }


def _checked(fraction: object) -> float | None:
    if fraction is None:
        return None
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise ArgumentTypeError(
            f"fraction={shortened(fraction)} is not a number; give one above 0 and up to 1"
        )
    if not 0 < fraction <= 1:
        raise ArgumentError(
            f"fraction={fraction!r} is not above 0 and up to 1; "
            "0.3 is three tenths of a GPU's memory"
        )
    return float(fraction)


def share_requested(owner: Backend) -> None:
    """Pass the request on to a framework before it is used."""
    if _request is None:
        return
    with _lock:
        previous = _sharing.get(owner)
        if previous is not None and previous.request == _request:
            return
        # Stored first: `memory` loads a capability, which calls this function
        # again.
        _sharing[owner] = _Sharing(_request, {})
        try:
            settings = owner.memory.share(_request.fraction)
            _sharing[owner] = _Sharing(_request, settings)
        except NotSupportedError:
            pass  # it has no GPUs
        except BaseException:
            del _sharing[owner]
            if previous is not None:
                _sharing[owner] = previous
            raise
