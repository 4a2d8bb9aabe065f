"""Virtual GPUs: ``virtual_gpus(n)`` and the environment variable ``XDEVICE_VIRTUAL_GPUS``.

A framework gets its virtual GPUs before it is first used: the chosen one at once, others when xdevice first uses them.
"""

import sys
from _thread import RLock  # threading.RLock, without its 1 ms

from xdevice.contract import MODULES
from xdevice.device import Device, name_virtual
from xdevice.errors import ArgumentError, NotSupportedError, VirtualDeviceError, shortened
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import decided
from xdevice.hardware import bus as buses
from xdevice.hooks import hooks
from xdevice.kit import virtual_request as request
from xdevice.kit.virtual_request import RACES

__all__ = ["virtual_gpus"]

_enabled: dict[Backend, int] = {}  # the frameworks in use, and how many virtual GPUs each has
_lock = RLock()


def virtual_gpus(n: int, *, force: bool = False, stand_in: bool = False) -> list[Device]:
    """Let ``gpu:0`` … ``gpu:n-1`` be virtual GPUs in this process, and return them.

    They behave as GPUs of their own and are backed by host memory: for multi-device code on a machine without GPUs. The
    chosen framework gets them now, any other when xdevice first uses it. Ask before the framework has made its first
    tensor. The environment variable ``XDEVICE_VIRTUAL_GPUS=n`` asks the same of every framework that can.

    Parameters
    ----------
    n
        How many, 1 to 64. Asking again for as many does nothing.
    force
        Hide real GPUs, if there are any.
    stand_in
        Let them answer to the framework's own names for its GPUs too, so that a program written for real
        ones runs unedited; stderr says so once. ``XDEVICE_VIRTUAL_GPUS=n:stand-in`` asks the same.

    Raises
    ------
    VirtualDeviceError
        Too late for this framework, real GPUs are there and ``force`` is not given, or this process
        has virtual GPUs already, in a different number or not standing in.
    NotSupportedError
        The chosen framework, or this system, cannot have them.
    ArgumentError
        ``n`` is not an integer from 1 to 64.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.virtual_gpus(2)  # doctest: +SKIP
    [<virtual Device('gpu:0')>, <virtual Device('gpu:1')>]
    """
    number = request.checked(n, f"virtual_gpus({shortened(n)})")
    with _lock:
        before = request.current()
        if before.number and before.number != number:
            why = f"virtual_gpus({number}) comes after {before.source}, and the number is fixed for the process"
            raise VirtualDeviceError(f"{why}; start again and ask for {number} first")
        if stand_in and not before.stand_in:
            if any(_enabled.values()):
                why = f"{before.source}, which has made virtual GPUs that do not stand in"
                cure = "start again with stand_in=True first"
                raise VirtualDeviceError(
                    f"virtual_gpus({number}, stand_in=True) comes after {why}; {cure}"
                )
            request.set_aside()
        replaced = request.make(number, force or before.force, stand_in or before.stand_in)
        try:
            chosen = decided()
            if chosen is not None and not _enabled.get(chosen):
                _enable(chosen)
        except Exception:
            request.put_back(replaced)
            raise
        name_virtual()
        for owner in [b for b, got in _enabled.items() if not got]:
            del _enabled[
                owner
            ]  # it was used without any: they are enabled, or it is too late, when it is next used
            owner.close()
        at_import.by_adapters()
        if stand_in:
            request.propagate(request.current())
            at_import.watch(enable_requested)
    return [Device("gpu", i) for i in range(number)]


def enable_requested(owner: Backend, capability: str = "") -> None:
    """Enable the virtual GPUs that were requested, before a framework is used: the hook ``before_loading``."""
    if owner in _enabled or MODULES.get(capability, capability) == "virtual":
        return
    with _lock:
        if owner not in _enabled:
            is_asked = request.current().number and not request.is_left_out(owner)
            if is_asked and owner.open("virtual").has("enable"):
                _enable(owner)
            else:
                _enabled[owner] = 0


def is_virtual(owner: Backend, device: Device) -> bool:
    return device.kind == "gpu" and bool(_enabled.get(owner))


def why_none(owner: Backend) -> str:
    """Why the framework has no virtual GPUs although they were asked for; empty if it can, or none were asked for."""
    virtual = owner.open("virtual")
    if not request.current().number or virtual.has("enable"):
        return ""
    return f"{owner} has no virtual GPUs: {virtual.why_not('enable')}"


def _enable(owner: Backend) -> None:
    wanted, bus, number = request.current(), buses.requested(), request.visible()
    if not number:
        _enabled[owner] = 0  # the program has hidden all of them
        return
    if wanted.races and not owner.open("races").has("find_races"):
        raise NotSupportedError(
            f"{RACES!r} cannot be met under {owner}, whose programs order no streams; leave it out"
        )
    owner.virtual.enable(number, wanted.force, wanted.stand_in)
    if wanted.races:
        owner.races.find_races()
    if wanted.stand_in and not request.warned():
        print(
            f"{number} virtual GPUs stand in for CUDA's; they compute on the CPU", file=sys.stderr
        )
    _enabled[owner] = number
    owner.native_devices.clear()  # other objects stand for the devices from now on
    name_virtual()  # the request may have come from the environment
    if bus is not None:
        hooks().attach_bus(owner, bus)


def apply_environment() -> None:
    """Do what ``XDEVICE_VIRTUAL_GPUS`` asks for, right after the import of a framework, here and in child processes."""
    name_virtual()  # a script may write vgpu:1 before it uses a framework
    try:
        request.propagate(request.current())
    except ArgumentError as error:
        print(f"xdevice: {error}", file=sys.stderr)  # using a framework raises it
    else:
        at_import.watch(enable_requested)
