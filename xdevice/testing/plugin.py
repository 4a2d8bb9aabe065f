"""The pytest plugin: the frameworks and devices to test on, and what a test needs.

It imports no framework until a test asks for one. A project may define its own
fixtures ``backend`` and ``device``: those here only return ``xdevice_backend``
and ``xdevice_device``, which have the parameters.
"""

import argparse
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from typing import Any, NoReturn

import pytest

from xdevice import (
    Device,
    NotSupportedError,
    XDeviceError,
    available,
    devices,
    gpu,
    properties,
    using,
)
from xdevice.device import as_integer
from xdevice.errors import did_you_mean
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend, registered
from xdevice.framework.installing import is_installed
from xdevice.hardware.virtual import ENV, are_asked_for, provider
from xdevice.testing import without_plug_in
from xdevice.testing.former_names import PRESENT_NAME
from xdevice.testing.frameworks import backends_of, left_out, why_unusable

pytest_plugins = ["xdevice.testing.transfers"]

_waived = pytest.StashKey[dict[str, None]]()  # lines for the summary, in order

pytest.register_assert_rewrite("xdevice.testing.contract")

MARKS = {
    "gpu": (
        "gpu(n=1): needs n real GPUs under the framework; without them the test is skipped, "
        "or fails with --xdevice-require"
    ),
    "multi_device": "multi_device(n=2): needs n GPUs, real or virtual; without them as gpu",
    "no_transfers": (
        "no_transfers(level='forbid', max_copies=0, max_bytes=None): the test copies nothing "
        "between devices ('forbid_implicit': nothing but explicit moves), or at most so many "
        "copies and bytes"
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-backend",
        metavar="NAMES",
        help="frameworks to test: A,B, all or installed (the default); a missing one is an error; "
        "all and installed leave out frameworks that have no device on this machine",
    )
    group.addoption(
        "--xdevice-virtual-gpus",
        metavar="N",
        type=_request,
        help=f"give every framework that can have them N virtual GPUs, as {ENV} does; 0: none; "
        "N:stand-in: they answer to the framework's own names for its GPUs; "
        "N:stand-in,lenient: they also compute what real GPUs refuse",
    )
    fails = "fail tests that need more GPUs than there are, instead of skipping them"
    group.addoption("--xdevice-require", action="store_true", help=fails)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Ask for virtual GPUs before any conftest.py can use a framework; subprocesses get them too."""
    request: str | None = early_config.known_args_namespace.xdevice_virtual_gpus
    if request is not None:
        environment = pytest.MonkeyPatch()
        environment.setenv(ENV, request)
        early_config.add_cleanup(environment.undo)
        if are_asked_for():
            provider().ask_by_pytest()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; raise an error if a framework that is named is missing."""
    for mark in MARKS.values():
        config.addinivalue_line("markers", mark)
    if config.getoption("--xdevice-backend") is not None:
        without_plug_in.go_without(config, backends_of(config))


def pytest_report_header(config: pytest.Config) -> str | None:
    """One line, if frameworks or devices were asked for."""
    names_frameworks = config.getoption("--xdevice-backend") is not None
    if not names_frameworks and config.getoption("--xdevice-virtual-gpus") is None:
        return None
    # `available` imports no framework.
    frameworks = backends_of(config) if names_frameworks else available()
    notes = [f"xdevice: {', '.join(frameworks)}"]
    if are_asked_for():
        notes.append(provider().described())
    if names_frameworks:
        notes += [*left_out(config), *without_plug_in.header(config)]
    return "; ".join(notes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each framework asked for, or for each device of each.

    A class that sets ``backend`` has its tests run for that framework alone.
    """
    if "xdevice_backend" not in metafunc.fixturenames:
        return
    class_backend = getattr(metafunc.cls, "backend", None)
    if isinstance(class_backend, str):
        names = [class_backend]
    else:
        names = _tested_backends(metafunc.config) or [""]  # the fixture raises the error
    if "xdevice_device" in metafunc.fixturenames:
        pairs = [(name, device) for name in names for device in _devices_of(name)]
        ids = ["-".join(filter(None, pair)) for pair in pairs]
        metafunc.parametrize(("xdevice_backend", "xdevice_device"), pairs, indirect=True, ids=ids)
    else:
        metafunc.parametrize("xdevice_backend", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other frameworks, and promises that do not apply or are waived."""
    selected = [
        item
        for item in items
        if _is_asked_for(item) and _is_promised(item) and not _is_waived(item)
    ]
    if len(selected) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(selected)))
        items[:] = selected


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: Any, config: pytest.Config
) -> Generator[None, None, None]:
    """Print which promises were waived, and why; and what was left out for want of a compiler."""
    yield
    for line in [
        *config.stash.get(_waived, {}),
        *without_plug_in.lines(config, terminalreporter.stats),
    ]:
        terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose framework has no device, or fewer GPUs than a mark needs."""
    reason = why_unusable(_backend_of(item) or "")
    if reason:
        _skip_or_fail(item.config, reason)
    _check_mark(item, "gpu", default=1, real=True)
    _check_mark(item, "multi_device", default=2, real=False)


def _check_mark(item: pytest.Item, name: str, *, default: int, real: bool) -> None:
    mark = item.get_closest_marker(name)
    if mark is None or not _is_ours(item.config, name):
        return
    number = as_integer(mark.args[0] if mark.args else mark.kwargs.get("n", default))
    if number is None or number < 1:
        argument = mark.args or mark.kwargs
        pytest.fail(
            f"@pytest.mark.{name}: {argument} is not a number of GPUs; give 1 or more",
            pytrace=False,
        )
    with using(_backend_of(item) or choosing.backend()):
        _check_gpus(item.config, number, real=real)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Choose a class's own framework, also for its tests that do not take the fixture."""
    name = _class_backend(item)
    with using(name) if name else nullcontext():
        return (yield)


@pytest.fixture
def xdevice_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each framework asked for, chosen while the test runs."""
    name = getattr(request, "param", None) or _only_backend(request) or choosing.backend()
    with using(name) as chosen:
        yield chosen


@pytest.fixture
def xdevice_device(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Device:
    """Each device of each framework asked for."""
    if getattr(request, "param", None):
        return Device(request.param)
    # A unittest class has no parameters, or the framework could not list its
    # devices at collection: then the error is raised here.
    return devices()[0]


@pytest.fixture
def backend(xdevice_backend: Backend) -> Backend:
    """Each framework asked for with --xdevice-backend, by name; chosen while the test runs."""
    return xdevice_backend


@pytest.fixture
def device(xdevice_device: Device) -> Device:
    """Each device of each framework asked for with --xdevice-backend; chosen while the test runs."""
    return xdevice_device


@pytest.fixture
def two_gpus(xdevice_backend: Backend, request: pytest.FixtureRequest) -> tuple[Device, Device]:
    """Two GPUs, real or virtual, of each framework asked for.

    Without them the test is skipped, or fails with --xdevice-require.
    """
    _check_gpus(request.config, 2, real=False)
    return gpu(0), gpu(1)


def _tested_backends(config: pytest.Config) -> list[str]:
    """The frameworks asked for; one without a device is an error of the file that needs it."""
    names = backends_of(config)
    without_plug_in.go_without(config, names)
    for name in names:
        reason = why_unusable(name)
        if reason:
            raise pytest.Collector.CollectError(reason)
    return names


def _request(text: str) -> str:
    try:
        provider().check_request(text)
    except XDeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _devices_of(name: str) -> list[str]:
    try:
        with using(name):
            return [str(device) for device in devices()]
    except XDeviceError:
        return [""]


def _backend_of(item: pytest.Item) -> str | None:
    """The framework that this test runs under, if the plugin has chosen it."""
    callspec = getattr(item, "callspec", None)
    name: str | None = callspec.params.get("xdevice_backend") if callspec else None
    return _class_backend(item) if name is None else name


def _class_backend(item: pytest.Item) -> str | None:
    """The framework that a class sets for its tests, unless the test has the fixture's parameter."""
    name = getattr(getattr(item, "cls", None), "backend", None)
    if not isinstance(name, str):
        return None
    if "xdevice_backend" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
        return None
    return name if name in registered() and is_installed(name) else None


def _only_backend(request: pytest.FixtureRequest) -> str | None:
    """The framework of a test that cannot have parameters: one of unittest's classes."""
    name = getattr(request.cls, "backend", None)
    if isinstance(name, str):
        return name
    if request.config.getoption("--xdevice-backend") is None:
        return None
    names = backends_of(request.config)
    if len(names) > 1:
        pytest.fail(
            f"a unittest class runs under one framework, and {', '.join(names)} are asked for; "
            f"run pytest for each of them, or set backend = {names[0]!r} in the class",
            pytrace=False,
        )
    return names[0] if names else None


def _is_ours(config: pytest.Config, mark: str) -> bool:
    """Whether the mark is the plugin's: another plugin may register one of that name."""
    lines: list[str] = config.getini("markers")
    registered_lines = [line for line in lines if _mark_name(line) == mark]
    return registered_lines == [MARKS[mark]]


def _mark_name(line: str) -> str:
    return line.partition(":")[0].partition("(")[0].strip()


def _is_asked_for(item: pytest.Item) -> bool:
    name = _backend_of(item)
    if not name or item.config.getoption("--xdevice-backend") is None:
        return True
    return name in backends_of(item.config)


def _is_promised(item: pytest.Item) -> bool:
    """Whether a promise of the contract suite applies to the framework; true of other tests."""
    applies = getattr(getattr(item, "cls", None), "xdevice_promised", None)
    name, callspec = _backend_of(item), getattr(item, "callspec", None)
    if not applies or not name or not callspec:
        return True
    return bool(applies(name, getattr(item, "function", None), callspec.params))


def _is_waived(item: pytest.Item) -> bool:
    """Whether the class waives the promise. The summary then prints the reason."""
    cls: Any = getattr(item, "cls", None)
    named: dict[str, str] = getattr(cls, "waived", None) or {}
    waived = {PRESENT_NAME.get(name, name): reason for name, reason in named.items()}
    for unknown in [name for name in waived if not hasattr(cls, name)]:
        promises = [name for name in dir(cls) if name.startswith("test_")]
        hint = did_you_mean(unknown, promises, "a promise is a test of the class", least=0.8)
        raise pytest.UsageError(
            f"{cls.__name__}.waived names {unknown}, which is not a promise; {hint}"
        )
    name = getattr(item, "originalname", item.name)
    if name not in waived:
        return False
    line = f"xdevice: {cls.__name__} waives {name}: {waived[name]}"
    item.config.stash.setdefault(_waived, {})[line] = None
    return True


def _check_gpus(config: pytest.Config, number: int, *, real: bool) -> None:
    """Skip or fail the test unless the chosen framework has so many GPUs."""
    gpus = devices("gpu")
    virtual = bool(gpus) and properties(gpus[0])["virtual"]
    usable = 0 if real and virtual else len(gpus)
    if number <= usable:
        return
    kind = "virtual" if virtual else "real"
    available_gpus = f"{len(gpus)} {kind}" if gpus else "none"
    plural = "s" if number > 1 else ""
    real_gpu = "real GPU" if real else "GPU"
    reason = f"needs {number} {real_gpu}{plural}, {choosing.backend()} sees {available_gpus}"
    hint = _hint_for_real(virtual) if real else _hint_for_virtual(config, number, gpus, virtual)
    _skip_or_fail(config, f"{reason}; {hint}")


def _hint_for_real(virtual: bool) -> str:
    return "virtual GPUs do not count" if virtual else "xdevice doctor says why a GPU is not seen"


def _hint_for_virtual(config: pytest.Config, number: int, gpus: list[Device], virtual: bool) -> str:
    """How the framework gets so many virtual GPUs, or why it cannot have them."""
    refusal = without_plug_in.refusal(config, choosing.backend())
    if refusal:
        return refusal
    try:
        _ = choosing.backend().virtual.enable
    except NotSupportedError as error:
        return str(error)
    hiding = "CUDA_VISIBLE_DEVICES= " if gpus and not virtual else ""
    return f"{hiding}pytest --xdevice-virtual-gpus={number} gives it virtual ones"


def _skip_or_fail(config: pytest.Config, reason: str) -> NoReturn:
    """Skip the test, or fail it with --xdevice-require."""
    if config.getoption("--xdevice-require"):
        pytest.fail(reason, pytrace=False)
    raise pytest.skip.Exception(reason, _use_item_location=True)  # as pytest does for its own marks
