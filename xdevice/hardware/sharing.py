"""Several frameworks on one GPU: `share_gpus`."""

from _thread import RLock  # threading.RLock, without its 1 ms
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, shortened
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import decided

_asked: tuple[float | None] | None = None  # the fraction
_shared: dict[Backend, tuple[float | None, dict[str, str]]] = {}  # what each framework was told, and its settings
_lock = RLock()


def share_gpus(fraction: float | None = None) -> dict[str, dict[str, str]]:
    """Let each framework take memory of a GPU as it needs it, and return the settings made, by framework.

    By default TensorFlow takes nearly all memory of every GPU when it is first used, and JAX three quarters. What was
    taken is not given back before the process ends. Frameworks that are imported later are told then. Without a GPU
    there may be nothing to set.

    Parameters
    ----------
    fraction
        The most that each framework may take of each GPU's memory, above 0 and up to 1; ``None``: all of it.

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
    >>> xdevice.share_gpus(0.3)  # doctest: +SKIP
    {'jax': {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.3'}}
    """
    global _asked
    asked = (_checked(fraction),)
    with _lock:
        _asked, before = asked, _asked
        chosen = decided()
        try:
            for owner in imported() if chosen is None else [chosen, *imported()]:
                share_requested(owner)
        except Exception:
            _asked = before
            raise
    at_import.watch(share_requested)
    return {str(owner): dict(settings) for owner, (_, settings) in _shared.items() if settings}


def share_requested(owner: Backend, capability: str = "") -> None:
    """Tell a framework of the request before it is used: the hook ``before_loading``."""
    if _asked is None or capability == "virtual" or _shared.get(owner, ("",))[0] == _asked[0]:
        return
    with _lock:
        before = _shared.get(owner)
        _shared[owner] = _asked[0], {}  # from here on it is not told again: telling it loads capabilities
        try:
            _shared[owner] = _asked[0], owner.allocation.share(_asked[0])
        except NotSupportedError:
            pass  # it has no GPUs
        except BaseException:
            _shared.pop(owner) if before is None else _shared.update({owner: before})
            raise


def _checked(fraction: Any) -> float | None:
    if fraction is None:
        return None
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise ArgumentTypeError(f"fraction={shortened(fraction)} is not a number; give one above 0 and up to 1")
    if not 0 < fraction <= 1:
        raise ArgumentError(f"fraction={fraction!r} is not above 0 and up to 1; 0.3 is three tenths of a GPU's memory")
    return float(fraction)
