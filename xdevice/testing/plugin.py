"""The pytest plugin: frameworks and devices to test on, and what tests need.

It imports no framework until a test asks for one. A project may define its own
fixtures ``backend`` and ``device``: those here only return ``xdevice_backend``
and ``xdevice_device``, which have the parameters.
"""

import argparse
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple, NoReturn

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
    """Request virtual GPUs before any conftest.py can use a framework.

    Child processes get them, too.
    """
    request: str | None = early_config.known_args_namespace.xdevice_virtual_gpus
    if request is not None:
        environment = pytest.MonkeyPatch()
        environment.setenv(ENV, request)
        early_config.add_cleanup(environment.undo)
        if are_asked_for():
            provider().ask_by_pytest()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; raise an error if a named framework is missing."""
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
    """Run a test for each selected framework, or for each of its devices.

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
    """Deselect tests that this run does not need.

    These are the tests of other frameworks, and the promises that do not apply
    or are waived.
    """
    selected = [
        item for item in items if _is_selected(item) and _is_promised(item) and not _is_waived(item)
    ]
    if len(selected) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(selected)))
        items[:] = selected


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: Any, config: pytest.Config
) -> Generator[None, None, None]:
    """Print the waived promises, and what was skipped without a compiler."""
    yield
    for line in [
        *config.stash.get(_waived, {}),
        *without_plug_in.lines(config, terminalreporter.stats),
    ]:
        terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose framework has too few devices.

    It has no device on this machine, or fewer GPUs than a mark requires.
    """
    reason = why_unusable(_backend_of(item) or "")
    if reason:
        _skip_or_fail(item.config, reason)
    _check_mark(item, "gpu", default=1, real=True)
    _check_mark(item, "multi_device", default=2, real=False)


def _check_mark(item: pytest.Item, name: str, *, default: int, real: bool) -> None:
    mark = item.get_closest_marker(name)
    if mark is None or not _is_mark_of_plugin(item.config, name):
        return
    requested = mark.kwargs.get("n", default)
    if mark.args:
        requested = mark.args[0]
    number = as_integer(requested)
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
    """Choose a class's own framework, also for tests without the fixture."""
    name = _class_backend(item)
    if name is None:
        return (yield)
    with using(name):
        return (yield)


@pytest.fixture
def xdevice_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each selected framework, chosen while the test runs."""
    name = getattr(request, "param", None) or _only_backend(request) or choosing.backend()
    with using(name) as chosen:
        yield chosen


@pytest.fixture
def xdevice_device(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Device:
    """Each device of each selected framework."""
    if getattr(request, "param", None):
        return Device(request.param)
    # A unittest class has no parameters, or the framework could not list its
    # devices at collection: then the error is raised here.
    return devices()[0]


@pytest.fixture
def backend(xdevice_backend: Backend) -> Backend:
    """Each framework that --xdevice-backend selects, by name.

    It is chosen while the test runs.
    """
    return xdevice_backend


@pytest.fixture
def device(xdevice_device: Device) -> Device:
    """Each device of each framework that --xdevice-backend selects.

    The framework is chosen while the test runs.
    """
    return xdevice_device


@pytest.fixture
def two_gpus(xdevice_backend: Backend, request: pytest.FixtureRequest) -> tuple[Device, Device]:
    """Two GPUs, real or virtual, of each selected framework.

    Without them the test is skipped, or fails with --xdevice-require.
    """
    _check_gpus(request.config, 2, real=False)
    return gpu(0), gpu(1)


def _tested_backends(config: pytest.Config) -> list[str]:
    """The selected frameworks.

    If one has no device, each file that needs a framework reports an error.
    """
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
    name: str | None = _parameters(item).get("xdevice_backend")
    if name is None:
        return _class_backend(item)
    return name


def _parameters(item: pytest.Item) -> dict[str, Any]:
    """The values of the test's parameters by name; empty if it has none."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    parameters: dict[str, Any] = callspec.params
    return parameters


def _class_backend(item: pytest.Item) -> str | None:
    """The framework that a class sets for its tests.

    ``None`` if the test has the fixture's parameter.
    """
    name = getattr(getattr(item, "cls", None), "backend", None)
    if not isinstance(name, str):
        return None
    if "xdevice_backend" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
        return None
    if name not in registered() or not is_installed(name):
        return None
    return name


def _only_backend(request: pytest.FixtureRequest) -> str | None:
    """The framework of a test of a unittest class, which has no parameters."""
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
    return next(iter(names), None)


def _is_mark_of_plugin(config: pytest.Config, mark: str) -> bool:
    """Whether the mark is this plugin's, not another's of that name."""
    lines: list[str] = config.getini("markers")
    registered_lines = [line for line in lines if _mark_name(line) == mark]
    return registered_lines == [MARKS[mark]]


def _mark_name(line: str) -> str:
    return line.partition(":")[0].partition("(")[0].strip()


def _is_selected(item: pytest.Item) -> bool:
    """Whether --xdevice-backend selects the framework of the test."""
    name = _backend_of(item)
    if not name or item.config.getoption("--xdevice-backend") is None:
        return True
    return name in backends_of(item.config)


def _is_promised(item: pytest.Item) -> bool:
    """Whether a promise of the contract suite applies to the framework.

    Always true of other tests.
    """
    applies = getattr(getattr(item, "cls", None), "xdevice_promised", None)
    name = _backend_of(item)
    parameters = _parameters(item)
    if not applies or not name or not parameters:
        return True
    return bool(applies(name, getattr(item, "function", None), parameters))


def _is_waived(item: pytest.Item) -> bool:
    """Whether the class waives the promise; the summary prints the reason."""
    cls: Any = getattr(item, "cls", None)
    reasons: dict[str, str] = getattr(cls, "waived", None) or {}
    waived = {PRESENT_NAME.get(name, name): reason for name, reason in reasons.items()}
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


class _GPUs(NamedTuple):
    """The GPUs of the chosen framework, which are all real or all virtual."""

    number: int
    virtual: bool

    def __str__(self) -> str:
        if self.number == 0:
            return "none"
        if self.virtual:
            return f"{self.number} virtual"
        return f"{self.number} real"


def _gpus() -> _GPUs:
    gpus = devices("gpu")
    return _GPUs(len(gpus), bool(gpus) and properties(gpus[0])["virtual"])


def _check_gpus(config: pytest.Config, number: int, *, real: bool) -> None:
    """Skip or fail the test unless the chosen framework has that many GPUs."""
    gpus = _gpus()
    if gpus.number >= number and not (real and gpus.virtual):
        return
    if real:
        requirement = "real GPU"
        hint = _hint_for_real(gpus)
    else:
        requirement = "GPU"
        hint = _hint_for_virtual(config, number, gpus)
    if number > 1:
        requirement += "s"
    _skip_or_fail(config, f"needs {number} {requirement}, {choosing.backend()} sees {gpus}; {hint}")


def _hint_for_real(gpus: _GPUs) -> str:
    if gpus.virtual:
        return "virtual GPUs do not count"
    return "xdevice doctor says why a GPU is not seen"


def _hint_for_virtual(config: pytest.Config, number: int, gpus: _GPUs) -> str:
    """How the framework gets that many virtual GPUs, or why it cannot."""
    refusal = without_plug_in.refusal(config, choosing.backend())
    if refusal:
        return refusal
    try:
        _ = choosing.backend().virtual.enable
    except NotSupportedError as error:
        return str(error)
    command = f"pytest --xdevice-virtual-gpus={number}"
    if gpus.number and not gpus.virtual:
        command = f"CUDA_VISIBLE_DEVICES= {command}"
    return f"{command} gives it virtual ones"


def _skip_or_fail(config: pytest.Config, reason: str) -> NoReturn:
    """Skip the test, or fail it with --xdevice-require."""
    if config.getoption("--xdevice-require"):
        pytest.fail(reason, pytrace=False)
    raise pytest.skip.Exception(reason, _use_item_location=True)  # as pytest does for its own marks
