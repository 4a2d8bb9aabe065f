"""GPUs that are not there: ``virtual_gpus(n)`` and the environment variable ``XDEVICE_VIRTUAL_GPUS``.

A virtual GPU has memory of its own, taken from the host's; copies to it copy. Each framework needs them
before it is first used: the chosen one gets them at once, any other when xdevice first opens it.
"""

from __future__ import annotations

import os
from _thread import RLock  # threading.RLock, without its 1 ms

from xdevice.device import Device, as_integer, name_virtual
from xdevice.errors import ArgumentError, ArgumentTypeError, VirtualDeviceError
from xdevice.registry import decided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xdevice.adapters import Backend

ENV = "XDEVICE_VIRTUAL_GPUS"
MOST = 64
"""As many as anybody has tried."""

_asked: tuple[int, bool] | None = None  # how many, and whether real ones are to be hidden
_given: dict[Backend, int] = {}  # the frameworks in use, with how many each has got
_lock = RLock()


def virtual_gpus(n: int, *, force: bool = False) -> list[Device]:
    """Let ``gpu:0`` … ``gpu:n-1`` be virtual GPUs in this process, and return them.

    They behave as GPUs of their own and are backed by host memory: for multi-device code on a machine
    without GPUs. The chosen framework gets them now, any other when xdevice first uses it. Ask before
    the framework has made its first tensor. The environment variable ``XDEVICE_VIRTUAL_GPUS=n`` asks
    the same of every framework that can.

    Parameters
    ----------
    n
        How many, 1 to 64. Asking again for as many does nothing.
    force
        Hide real GPUs, if there are any.

    >>> import xdevice
    >>> xdevice.virtual_gpus(2)  # doctest: +SKIP
    [<virtual Device('gpu:0')>, <virtual Device('gpu:1')>]

    Raises
    ------
    VirtualDeviceError
        Too late for this framework, real GPUs are there and ``force`` is not given, or this process
        has virtual GPUs already, in another number.
    NotSupportedError
        The chosen framework, or this system, cannot have them.
    ArgumentError
        ``n`` is no integer from 1 to 64.
    """
    global _asked
    number = _checked(n, f"virtual_gpus({n!r})")
    with _lock:
        have, how = wanted(), f"{ENV}={os.environ.get(ENV)}" if _asked is None else f"virtual_gpus({_asked[0]})"
        if have[0] and have[0] != number:
            raise VirtualDeviceError(
                f"virtual_gpus({number}) comes after {how}, and the number is fixed for the process; "
                f"start again and ask for {number} first"
            )
        before, _asked = _asked, (number, force or have[1])
        try:
            _give_to_chosen()
        except Exception:
            _asked = before
            raise
        name_virtual()
        for owner in [b for b, got in _given.items() if not got]:
            del _given[owner]  # used already, without any: they are due, or too late, when it is next used
            owner.close_rooms()
    return [Device("gpu", i) for i in range(number)]


def settle(owner: Backend) -> None:
    """Give a framework that is about to be used its virtual GPUs, if they have been asked for."""
    if owner in _given:
        return
    with _lock:
        number, _ = wanted()
        if owner not in _given:
            if number and "enable" in vars(owner.virtual):
                _give(owner)
            else:
                _given[owner] = 0


def is_virtual(owner: Backend, device: Device) -> bool:
    """Whether the framework's device of that name is a virtual GPU."""
    return device.kind == "gpu" and bool(_given.get(owner))


def wanted() -> tuple[int, bool]:
    """How many are asked for in this process, 0 for none, and whether real ones are to be hidden."""
    if _asked is not None:
        return _asked
    text = os.environ.get(ENV, "").strip()
    return (_checked(text, f"{ENV}={text}") if text not in ("", "0") else 0), False


def _give_to_chosen() -> None:
    chosen = decided()
    if chosen is not None and not _given.get(chosen):
        _give(chosen)


def _give(owner: Backend) -> None:
    from xdevice.hardware import forget_native  # hardware.py asks here what is virtual

    number, force = wanted()
    owner.virtual.enable(number, force)
    _given[owner] = number
    forget_native(owner)
    name_virtual()  # they may have been asked for by the environment


def _checked(n: Any, given: str) -> int:
    number = as_integer(int(n) if isinstance(n, str) and n.isascii() and n.isdigit() and given.startswith(ENV) else n)
    hint = f"give an integer from 1 to {MOST}"
    if number is None:
        error = ArgumentError if given.startswith(ENV) else ArgumentTypeError
        raise error(f"{given} is no number of GPUs; {hint}")
    if not 1 <= number <= MOST:
        raise ArgumentError(f"{given} is out of range; {hint}")
    return number
