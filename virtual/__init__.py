"""GPUs without GPUs: the process's request for them, and enabling them.

`xdevice.hardware.virtual` calls this. A framework gets its virtual GPUs before it is first used:
the chosen framework immediately, others when xdevice first uses them.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from threading import RLock

from xdevice.backends.kit.places import prepare_imports
from xdevice.contract import Request, Stream
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    NotSupportedError,
    VirtualDeviceError,
    XDeviceError,
    shortened,
)
from xdevice.framework import at_import
from xdevice.framework.adapters import Backend, before_loading, imported
from xdevice.framework.choosing import backend, decided
from xdevice.framework.registry import (
    adapter_modules,
    available,
    entry_points_of,
    is_built_in,
)
from xdevice.hardware.questions import after_synchronizing
from xdevice.hardware.virtual import GROUP, is_virtual, virtual_counts
from xdevice.virtual import bus, children, models, visible_devices
from xdevice.virtual.fits import process as fits_process
from xdevice.virtual.refusals import RefusedExit, RefusedImportError
from xdevice.virtual.request import RACES, checked, of_environment

_request: Request | None = None  # read it by `asked`
_without: set[str] = set()  # frameworks that were used without virtual GPUs
_lock = RLock()


def asked() -> Request:
    """The request of this process: that of its environment, until `virtual_gpus` makes another.

    `ArgumentError` is raised if the environment's cannot be read.
    """
    global _request
    if _request is None:
        _request = of_environment()
    return _request


def virtual_gpus(n: int, *, force: bool, stand_in: bool, model: str | None) -> list[Device]:
    global _request
    source = f"virtual_gpus({shortened(n)})"
    number = checked(n, source)
    if model is not None:
        models.check(model, source)
        if not stand_in:
            hint = f"write virtual_gpus({n}, stand_in=True, model={model!r})"
            raise ArgumentError(f"{source} has a model and does not stand in; {hint}")
    with _lock:
        earlier = asked()
        stand_in = stand_in or earlier.stand_in
        request = Request(
            number,
            force=force or earlier.force,
            stand_in=stand_in,
            lenient=earlier.lenient,
            races=earlier.races,
            model=model or earlier.model,
            memory=earlier.memory,
            required=earlier.required,
            source=f"virtual_gpus({number}{', stand_in=True' * stand_in})",
        )
        _check_follows(earlier, request)
        if request.stand_in and not earlier.stand_in:
            visible_devices.set_aside()
        connect()
        _request = request  # the chosen framework may be imported by `_enable`
        try:
            chosen = decided() if _some_can() else backend()
            if chosen is not None and chosen not in virtual_counts:
                _enable(chosen, request)
        except Exception:
            _request = earlier
            raise
        _forget_capabilities()
        at_import.by_adapters()
        if request.stand_in:
            children.propagate(request)
            at_import.watch(enable_requested)
    return [Device("gpu", i) for i in range(number)]


def _some_can() -> bool:
    """Whether any installed framework may have virtual GPUs: NumPy cannot."""
    modules, able = adapter_modules(), entry_points_of(GROUP)
    return any(name in able or not is_built_in(modules[name]) for name in available())


def _check_follows(earlier: Request, request: Request) -> None:
    """Raise an error if the virtual GPUs cannot be asked for after an earlier request."""
    n = request.number
    if earlier.number and earlier.number != n:
        reason = f"comes after {earlier.source}, and the number is fixed for the process"
        raise VirtualDeviceError(f"virtual_gpus({n}) {reason}; start again and ask for {n} first")
    if request.stand_in and not earlier.stand_in and virtual_counts:
        reason = f"comes after {earlier.source}, which has made virtual GPUs that do not stand in"
        raise VirtualDeviceError(
            f"virtual_gpus({n}, stand_in=True) {reason}; start again with stand_in=True first"
        )
    if request.model != earlier.model and virtual_counts:
        reason = f"comes after {earlier.source}, which has made virtual GPUs of another model"
        raise VirtualDeviceError(
            f"virtual_gpus({n}, model={request.model!r}) {reason}; "
            "start again with this model first"
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
    request = visible_devices.seen(asked())
    module = entry_points_of(GROUP).get(framework)
    if module is None or not request.number or framework in _without:
        return nullcontext()
    prepare = getattr(import_module(module), "importing", nullcontext)
    context: AbstractContextManager[object] = prepare(request)
    return context


def enable_requested(owner: Backend) -> None:
    """Enable the virtual GPUs that were requested, before a framework is used."""
    if owner in virtual_counts or owner in _without:
        return
    with _lock:
        if owner in virtual_counts or owner in _without:
            return
        request = asked()
        if request.number and owner.load_unprepared("virtual").has("enable"):
            _enable(owner, request)
        else:
            _without.add(owner)


def leave_out(framework: str) -> None:
    """Give the framework no virtual GPUs: it cannot have them, and its tests are told so."""
    _without.add(framework)


def _enable(owner: Backend, request: Request) -> None:
    request, copy_bus = visible_devices.seen(request), bus.requested()
    virtual = owner.load_unprepared("virtual")
    hidden_by = request.stand_in and virtual.has("hides_gpus") and virtual.hides_gpus()
    if hidden_by and not children.has_warned("HIDDEN"):
        print(f"xdevice: {hidden_by} hides the virtual GPUs from {owner}", file=sys.stderr)
    if hidden_by or not request.number:
        _without.add(owner)  # the program has hidden all of them
        return
    if request.races and not virtual.has("find_races"):
        raise NotSupportedError(
            f"{RACES!r} cannot be met under {owner}, whose programs order no streams; leave it out"
        )
    fits_process.check(owner)
    virtual.enable(request)
    if request.races:
        virtual.find_races()
    virtual_counts[owner] = request.number
    fits_process.begin(owner)
    if request.stand_in and not children.has_warned("STAND_IN"):
        words = "virtual GPUs stand in for CUDA's; they compute"
        if request.number == 1:
            words = "virtual GPU stands in for CUDA's; it computes"
        print(f"{request.number} {words} on the CPU", file=sys.stderr)
    owner.forget_devices()
    if copy_bus is not None:
        bus.attach(owner, copy_bus)


def _report(owner: Backend, error: XDeviceError) -> None:
    """Print why a framework is refused virtual GPUs at its import; end the process if it needs them.

    If it is not known which framework the program needs, the import fails instead: a program that
    handles an ImportError can do without that framework.
    """
    is_refusal = isinstance(error, (NotSupportedError, VirtualDeviceError))
    required = asked().required if is_refusal else ()
    if owner in required or "all" in required:
        print(f"xdevice: error: {error}", file=sys.stderr)
        if owner in required:
            raise RefusedExit(2) from None
        raise RefusedImportError(str(error), owner) from None
    print(f"xdevice: {error}; {owner} goes on without virtual GPUs", file=sys.stderr)


def apply_environment() -> None:
    global _request
    connect()
    _request = None
    try:
        request = asked()
    except ArgumentError as error:
        print(f"xdevice: {error}", file=sys.stderr)  # using a framework raises it
        return
    if request.number:
        fits_process.join(request)
        children.propagate(request)
        at_import.watch(enable_requested)


def why_none(owner: Backend) -> str:
    capability = owner.load_unprepared("virtual")
    if not asked().number or capability.has("enable"):
        return ""
    return f"{owner} has no virtual GPUs: {capability.why_not('enable')}"


def name_of(owner: Backend, device: Device) -> str:
    copy_bus = bus.attached.get(owner)
    if copy_bus is None:
        return f"virtual GPU {device.index}"
    return f"virtual GPU {device.index}, with a bus of {copy_bus}"


def stream(owner: Backend, device: Device) -> Stream | None:
    if owner in bus.attached and is_virtual(owner, device):
        return bus.BusStream(device)
    return None
