"""`try_gpu` and `try_all_gpus`, the only functions that fall back to the CPU.

They warn if the machine has a GPU that the framework does not see.
"""

import warnings

from xdevice.device import Device, check_index
from xdevice.errors import DeviceFallbackWarning
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import cpu, has_cpu, require
from xdevice.hardware.questions import devices

__all__ = ["try_all_gpus", "try_gpu"]

_warned: set[str] = set()  # frameworks with a warning already


def try_gpu(i: int = 0) -> Device:
    """GPU number ``i`` if the chosen framework has it, else the CPU.

    This function and `try_all_gpus` are the only ones that fall back to the
    CPU. If the machine has a GPU that the framework cannot see, a
    `DeviceFallbackWarning` gives the reason, once.

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
    gpu = Device("gpu", check_index(i))
    owner = backend()
    number = owner.hardware.count("gpu")
    if gpu.index < number:
        return gpu
    return _fallback(owner, gpu, number)


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
    return devices("gpu") or [_fallback(backend(), Device("gpu", 0), 0)]


def _fallback(owner: Backend, gpu: Device, number: int) -> Device:
    """The CPU in place of a GPU of a framework that sees this number of GPUs.

    Warns if the framework sees none although the machine has one, and raises
    an error if it does not support the CPU.
    """
    if not has_cpu(owner):
        require(owner, gpu)
    if not number and owner not in _warned:
        # reads the machine: only without a GPU
        from xdevice.hardware.diagnosis import diagnose, facts_of

        _warned.add(owner)
        facts = facts_of(owner)
        problem = diagnose(facts)
        if problem is not None:
            # a driver that fails may list no GPU
            although = " although this machine has one" if facts.gpus else ""
            text = f"{owner} sees no GPU{although}: {problem.reason}; {problem.cure}"
            warnings.warn(text, DeviceFallbackWarning, stacklevel=3)
    return cpu()
