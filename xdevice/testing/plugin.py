"""The pytest plugin: the frameworks and devices to test on, and what a test needs.

It imports no framework until a test asks for one. A project may define fixtures named ``backend`` and ``device``, which
here only return ``xdevice_backend`` and ``xdevice_device``, the ones that are parametrised.
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
from xdevice.framework.adapters import Backend, is_installed, registered
from xdevice.hardware.virtual import ENV, are_asked_for, provider
from xdevice.testing import without_plug_in
from xdevice.testing.frameworks import backends_of, left_out, why_unusable

pytest_plugins = ["xdevice.testing.transfers"]

_waived = pytest.StashKey[dict[str, None]]()  # lines for the summary, in order

pytest.register_assert_rewrite("xdevice.testing.contract")

MARKS = {
    "gpu": "gpu(n=1): needs n real GPUs under the framework; else it is skipped, or fails with --xdevice-require",
    "multi_device": "multi_device(n=2): needs n GPUs, real or virtual; else as gpu",
    "no_transfers": "no_transfers(level='forbid', max_copies=0, max_bytes=None): the test copies nothing between "
    "devices, with 'forbid_implicit' nothing that it does not ask for; or at most so many copies and bytes",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-backend",
        metavar="NAMES",
        help="frameworks to test: a,b or all or installed (the default); one that is missing is an error; "
        "all and installed leave out what has no device on this machine",
    )
    group.addoption(
        "--xdevice-virtual-gpus",
        metavar="N",
        type=_request,
        help=f"give every framework that can have them N virtual GPUs, as {ENV} does; 0: none; "
        f"N:stand-in: they also answer to the framework's own names for its GPUs; "
        f"N:stand-in,lenient: and compute what real GPUs refuse",
    )
    fails = "a test that needs more GPUs than there are fails, not skips"
    group.addoption("--xdevice-require", action="store_true", help=fails)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Ask for virtual GPUs before any conftest.py can use a framework; subprocesses get them too."""
    wanted: str | None = early_config.known_args_namespace.xdevice_virtual_gpus
    if wanted is not None:
        environment = pytest.MonkeyPatch()
        environment.setenv(ENV, wanted)
        early_config.add_cleanup(environment.undo)
        if are_asked_for():
            provider().ask_by_pytest()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; frameworks asked for by name must be there."""
    for mark in MARKS.values():
        config.addinivalue_line("markers", mark)
    if config.getoption("--xdevice-backend") is not None:
        without_plug_in.go_without(config, backends_of(config))


def pytest_report_header(config: pytest.Config) -> str | None:
    """One line, if frameworks or devices were asked for."""
    if all(
        config.getoption(f"--xdevice-{option}") is None for option in ("backend", "virtual-gpus")
    ):
        return None
    said = f"; {provider().described()}" if are_asked_for() else ""
    if config.getoption("--xdevice-backend") is None:
        return (
            f"xdevice: {', '.join(available())}{said}"  # none is imported until a test asks for one
        )
    others = [*left_out(config), *without_plug_in.header(config)]
    return "; ".join([f"xdevice: {', '.join(backends_of(config))}{said}", *others])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each framework asked for, or for each device of each; in a class with ``backend = "a"`` for a."""
    if "xdevice_backend" not in metafunc.fixturenames:
        return
    own = getattr(metafunc.cls, "backend", None)
    names = (
        [own] if isinstance(own, str) else _asked(metafunc.config) or [""]
    )  # none: the fixture says so
    if "xdevice_device" in metafunc.fixturenames:
        pairs = [(name, device) for name in names for device in _devices_of(name)]
        ids = ["-".join(filter(None, pair)) for pair in pairs]
        metafunc.parametrize(("xdevice_backend", "xdevice_device"), pairs, indirect=True, ids=ids)
    else:
        metafunc.parametrize("xdevice_backend", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out a class's own framework where others were asked for, and promises that need what it has not got."""
    kept = [
        item
        for item in items
        if _is_asked_for(item) and _is_promised(item) and not _is_waived(item)
    ]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: Any, config: pytest.Config
) -> Generator[None, None, None]:
    """Say last which promises were waived, and why; and what was left out without a compiler."""
    yield
    for line in [
        *config.stash.get(_waived, {}),
        *without_plug_in.lines(config, terminalreporter.stats),
    ]:
        terminalreporter.line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for a device of a class's own framework, and for the GPUs that a mark says are needed."""
    why = why_unusable(_backend_of(item) or "")
    if why:
        _lack(item.config, why)
    for mark, least, real in (("gpu", 1, True), ("multi_device", 2, False)):
        found = item.get_closest_marker(mark)
        if found is not None and _is_ours(item.config, mark):
            given = found.args or found.kwargs
            wanted = as_integer(found.args[0] if found.args else found.kwargs.get("n", least))
            if wanted is None or wanted < 1:
                pytest.fail(
                    f"@pytest.mark.{mark}: {given} is not a number of GPUs; give 1 or more",
                    pytrace=False,
                )
            with using(_backend_of(item) or choosing.backend()):
                _need(item.config, wanted, real=real)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Choose a class's own framework, also for those of its tests that do not take the fixture."""
    own = _own_backend(item)
    with using(own) if own else nullcontext():
        return (yield)


@pytest.fixture
def xdevice_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each framework asked for, chosen while the test runs."""
    with using(
        getattr(request, "param", None) or _the_one(request) or choosing.backend()
    ) as chosen:
        yield chosen


@pytest.fixture
def xdevice_device(request: pytest.FixtureRequest, xdevice_backend: Backend) -> Device:
    """Each device of each framework asked for."""
    if getattr(request, "param", None):
        return Device(request.param)
    # a unittest class has no parameters, or it could not be asked at collection: then the error belongs to this test
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
    """Two GPUs, real or virtual, of each framework asked for; else a skip, or with --xdevice-require a failure."""
    _need(request.config, 2, real=False)
    return gpu(0), gpu(1)


def _asked(config: pytest.Config) -> list[str]:
    """The frameworks asked for; one without a device is an error of the file that needs it."""
    names = backends_of(config)
    without_plug_in.go_without(config, names)
    for why in filter(None, map(why_unusable, names)):
        raise pytest.Collector.CollectError(why)
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
    """The framework for which this test runs, if the plugin has said so."""
    callspec = getattr(item, "callspec", None)
    named: str | None = callspec.params.get("xdevice_backend") if callspec else None
    return _own_backend(item) if named is None else named


def _own_backend(item: pytest.Item) -> str | None:
    """The framework that a class names for its tests, if one of them does not come with the fixture's parameter."""
    own = getattr(getattr(item, "cls", None), "backend", None)
    takes = "xdevice_backend" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec")
    return (
        own
        if isinstance(own, str) and not takes and own in registered() and is_installed(own)
        else None
    )


def _the_one(request: pytest.FixtureRequest) -> str | None:
    """The framework of a test that cannot have parameters: one of unittest's classes."""
    own = getattr(request.cls, "backend", None)
    if isinstance(own, str):
        return own
    asked = (
        backends_of(request.config)
        if request.config.getoption("--xdevice-backend") is not None
        else []
    )
    if len(asked) > 1:
        pytest.fail(
            f"a unittest class runs under one framework, and {', '.join(asked)} are asked for; "
            f"run pytest for each of them, or set backend = {asked[0]!r} in the class",
            pytrace=False,
        )
    return asked[0] if asked else None


def _is_ours(config: pytest.Config, mark: str) -> bool:
    """Whether the mark is the plugin's: another plugin or project may register one of that name."""
    lines: list[str] = config.getini("markers")
    return [line for line in lines if line.partition(":")[0].partition("(")[0].strip() == mark] == [
        MARKS[mark]
    ]


def _is_asked_for(item: pytest.Item) -> bool:
    name = _backend_of(item)
    return (
        not name
        or item.config.getoption("--xdevice-backend") is None
        or name in backends_of(item.config)
    )


def _is_promised(item: pytest.Item) -> bool:
    promised = getattr(
        getattr(item, "cls", None), "xdevice_promised", None
    )  # a part of the contract suite
    name, callspec = _backend_of(item), getattr(item, "callspec", None)
    return not (promised and name and callspec) or promised(
        name, getattr(item, "function", None), callspec.params
    )


def _is_waived(item: pytest.Item) -> bool:
    """Whether the class waives the promise; then the summary says so."""
    cls: Any = getattr(item, "cls", None)
    waived: dict[str, str] = getattr(cls, "waived", None) or {}
    for unknown in [name for name in waived if not hasattr(cls, name)]:
        promises = [name for name in dir(cls) if name.startswith("test_")]
        hint = did_you_mean(unknown, promises, "a promise is a test of the class", least=0.8)
        raise pytest.UsageError(
            f"{cls.__name__}.waived names {unknown}, which is not a promise; {hint}"
        )
    name = getattr(item, "originalname", item.name)
    if name in waived:
        item.config.stash.setdefault(_waived, {})[
            f"xdevice: {cls.__name__} waives {name}: {waived[name]}"
        ] = None
    return name in waived


def _need(config: pytest.Config, wanted: int, *, real: bool) -> None:
    """Skip or fail the test unless the chosen framework has as many GPUs."""
    there = devices("gpu")
    virtual = bool(there) and properties(there[0])["virtual"]
    if wanted <= (0 if real and virtual else len(there)):
        return
    seen = f"{len(there)} {'virtual' if virtual else 'real'}" if there else "none"
    what = f"needs {wanted} {'real ' if real else ''}GPU{'s' if wanted > 1 else ''}, {choosing.backend()} sees {seen}"
    if real:
        why = (
            "virtual GPUs do not count" if virtual else "xdevice doctor says why a GPU is not seen"
        )
        _lack(config, f"{what}; {why}")
    why_none = without_plug_in.refusal(config, choosing.backend())
    if why_none:
        _lack(config, f"{what}; {why_none}")
    hiding = "CUDA_VISIBLE_DEVICES= " if there and not virtual else ""
    try:
        _ = choosing.backend().virtual.enable
    except NotSupportedError as error:
        _lack(config, f"{what}; {error}")
    _lack(config, f"{what}; {hiding}pytest --xdevice-virtual-gpus={wanted} gives it virtual ones")


def _lack(config: pytest.Config, what: str) -> NoReturn:
    """Skip the test, or fail it with --xdevice-require."""
    if config.getoption("--xdevice-require"):
        pytest.fail(what, pytrace=False)
    raise pytest.skip.Exception(what, _use_item_location=True)  # as pytest does for its own marks
