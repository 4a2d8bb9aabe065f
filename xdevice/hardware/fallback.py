"""The only functions that fall back to the CPU, `try_gpu` and `try_all_gpus`; they warn of a GPU that is not seen."""

import warnings

from xdevice.device import Device, check_index
from xdevice.errors import DeviceFallbackWarning
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import cpu, devices, has_cpu, require

__all__ = ["try_all_gpus", "try_gpu"]

_warned: set[str] = set()  # frameworks that a warning was given for


def try_gpu(i: int = 0) -> Device:
    """GPU number ``i`` if the chosen framework has it, else the CPU.

    With `try_all_gpus` the only function that falls back to the CPU. If the machine has a GPU that the framework
    cannot see, it says why, once, as a `DeviceFallbackWarning`.

    Raises
    ------
    DeviceTypeError
        ``i`` is not an integer.
    DeviceSpellingError
        ``i`` is negative or over ``2**31 - 1``.
    DeviceNotFoundError
        The framework has neither that GPU nor a CPU.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.try_gpu(3)
    Device('cpu:0')
    """
    wanted, chosen = Device("gpu", check_index(i)), backend()
    seen = chosen.hardware.count("gpu")
    return wanted if wanted.index < seen else _instead(chosen, wanted, seen)


def try_all_gpus() -> list[Device]:
    """All GPUs of the chosen framework, or a list with only the CPU: never empty.

    Raises
    ------
    DeviceNotFoundError
        The framework has neither a GPU nor a CPU.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.try_all_gpus()
    [Device('cpu:0')]
    """
    return devices("gpu") or [_instead(backend(), Device("gpu", 0))]


def _instead(chosen: Backend, wanted: Device, seen: int = 0) -> Device:
    """The CPU, if the framework has one; a warning if it sees no GPU although there is one."""
    if not has_cpu(chosen):
        require(chosen, wanted)
    if not seen and chosen not in _warned:
        from xdevice.hardware.diagnosis import (
            diagnose,
            facts_of,
        )  # reads the machine: only when no GPU is seen

        _warned.add(chosen)
        facts = facts_of(chosen)
        problem = diagnose(facts)
        if problem is not None:
            there = (
                " although this machine has one" if facts.gpus else ""
            )  # a driver that fails may list none
            text = f"{chosen} sees no GPU{there}: {problem.reason}; {problem.cure}"
            warnings.warn(text, DeviceFallbackWarning, stacklevel=3)
    return cpu()
