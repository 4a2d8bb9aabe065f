"""GPUs without GPUs: requests for them, and enabling them. `xdevice.hardware.virtual` calls this.

A framework gets its virtual GPUs before it is first used: the chosen framework immediately, others
when xdevice first uses them.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from threading import RLock

from xdevice.backends.kit.places import prepare_imports
from xdevice.contract import Stream
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    NotSupportedError,
    VirtualDeviceError,
    XDeviceError,
    shortened,
)
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, before_loading, entry_points_of, imported
from xdevice.framework.choosing import decided
from xdevice.hardware.devices import after_synchronizing
from xdevice.hardware.virtual import GROUP, virtual_counts
from xdevice.virtual import bus, children, models, request
from xdevice.virtual.fits import process as fits_process
from xdevice.virtual.request import RACES, Request

_without: set[Backend] = set()  # frameworks that were used without virtual GPUs
_lock = RLock()


def virtual_gpus(n: int, *, force: bool, stand_in: bool, model: str | None) -> list[Device]:
    source = f"virtual_gpus({shortened(n)})"
    number = request.checked(n, source)
    if model is not None:
        models.check(model, source)
        if not stand_in:
            hint = f"write virtual_gpus({n}, stand_in=True, model={model!r})"
            raise ArgumentError(f"{source} has a model and does not stand in; {hint}")
    with _lock:
        earlier = request.current()
        _check_follows(earlier, number, stand_in, model)
        if stand_in and not earlier.stand_in:
            children.set_aside_visible_devices()
        replaced = request.make(
            number,
            force or earlier.force,
            stand_in or earlier.stand_in,
            model or earlier.model,
        )
        prepare_imports(_importing)  # the chosen framework may be imported by `_enable`
        try:
            chosen = decided()
            if chosen is not None and chosen not in virtual_counts:
                _enable(chosen)
        except Exception:
            request.put_back(replaced)
            raise
        _forget_capabilities()
        connect()
        at_import.by_adapters()
        if stand_in:
            children.propagate(request.current())
            at_import.watch(enable_requested)
    return [Device("gpu", i) for i in range(number)]


def _check_follows(earlier: Request, number: int, stand_in: bool, model: str | None) -> None:
    """Raise an error if the virtual GPUs cannot be asked for after an earlier request."""
    if earlier.number and earlier.number != number:
        reason = f"comes after {earlier.source}, and the number is fixed for the process"
        raise VirtualDeviceError(
            f"virtual_gpus({number}) {reason}; start again and ask for {number} first"
        )
    if stand_in and not earlier.stand_in and virtual_counts:
        reason = f"comes after {earlier.source}, which has made virtual GPUs that do not stand in"
        raise VirtualDeviceError(
            f"virtual_gpus({number}, stand_in=True) {reason}; start again with stand_in=True first"
        )
    if model not in (None, earlier.model) and virtual_counts:
        reason = f"comes after {earlier.source}, which has made virtual GPUs of another model"
        raise VirtualDeviceError(
            f"virtual_gpus({number}, model={model!r}) {reason}; start again with this model first"
        )


def _forget_capabilities() -> None:
    """Let frameworks that were used without virtual GPUs be prepared again when they are next used.

    They get virtual GPUs then, or it is too late for them.
    """
    _without.clear()
    for owner in imported():
        if owner not in virtual_counts:
            owner.unload()


def connect() -> None:
    """Let frameworks that are used from now on have the virtual GPUs that were asked for."""
    if enable_requested not in before_loading:
        # first: the callback that shares GPUs counts them
        before_loading.insert(0, enable_requested)
        after_synchronizing.append(bus.wait_for)
        at_import.on_error = _report
        prepare_imports(_importing)


def _importing(framework: str) -> AbstractContextManager[object]:
    """The context in which a framework is imported that gets its virtual GPUs only then."""
    module = entry_points_of(GROUP).get(framework)
    if module is None:
        return nullcontext()
    prepare = getattr(import_module(module), "importing", nullcontext)
    context: AbstractContextManager[object] = prepare()
    return context


def enable_requested(owner: Backend, capability: str = "") -> None:
    """Enable the virtual GPUs that were requested, before a framework is used."""
    if owner in virtual_counts or owner in _without:
        return
    with _lock:
        if owner in virtual_counts or owner in _without:
            return
        is_requested = request.current().number and not request.is_left_out(owner)
        if is_requested and owner.load("virtual").has("enable"):
            _enable(owner)
        else:
            _without.add(owner)


def _enable(owner: Backend) -> None:
    requested, copy_bus, number = request.current(), bus.requested(), request.visible()
    if not number:
        _without.add(owner)  # the program has hidden all of them
        return
    if requested.races and not owner.load("virtual").has("find_races"):
        raise NotSupportedError(
            f"{RACES!r} cannot be met under {owner}, whose programs order no streams; leave it out"
        )
    fits_process.check(owner)
    owner.virtual.enable(number, requested.force, requested.stand_in)
    if requested.races:
        owner.virtual.find_races()
    fits_process.begin(owner)
    if requested.stand_in and not children.has_warned("STAND_IN"):
        words = "virtual GPUs stand in for CUDA's; they compute"
        if number == 1:
            words = "virtual GPU stands in for CUDA's; it computes"
        print(f"{number} {words} on the CPU", file=sys.stderr)
    virtual_counts[owner] = number
    owner.forget_devices()
    if copy_bus is not None:
        bus.attach(owner, copy_bus)


def _report(owner: Backend, error: XDeviceError) -> None:
    """Print why a framework is refused virtual GPUs at its import; end the process if it needs them.

    If it is not known which framework the program needs, the import fails instead: a program that
    handles an ImportError can do without that framework.
    """
    is_refusal = isinstance(error, (NotSupportedError, VirtualDeviceError))
    if is_refusal and request.is_required(owner):
        print(f"xdevice: error: {error}", file=sys.stderr)
        if request.is_named(owner):
            raise at_import.RefusedExit(2) from None
        raise at_import.RefusedImportError(str(error), owner) from None
    print(f"xdevice: {error}; {owner} goes on without virtual GPUs", file=sys.stderr)


def apply_environment() -> None:
    connect()
    fits_process.join()
    try:
        children.propagate(request.current())
    except ArgumentError as error:
        print(f"xdevice: {error}", file=sys.stderr)  # using a framework raises it
    else:
        at_import.watch(enable_requested)


def why_none(owner: Backend) -> str:
    capability = owner.load("virtual")
    if not request.current().number or capability.has("enable"):
        return ""
    return f"{owner} has no virtual GPUs: {capability.why_not('enable')}"


def name_of(device: Device) -> str:
    copy_bus = bus.requested()
    if copy_bus is None:
        return f"virtual GPU {device.index}"
    return f"virtual GPU {device.index}, with a bus of {copy_bus}"


def stream(owner: Backend, device: Device) -> Stream | None:
    return bus.BusStream(device) if bus.requested() is not None else None
