"""The pytest plugin: frameworks and devices to test on, and what tests need.

It imports no framework until a test asks for one.
"""

import argparse
from collections.abc import Generator
from typing import Any

import pytest

from xdevice import XDeviceError, available, using
from xdevice.errors import did_you_mean
from xdevice.framework import choosing
from xdevice.hardware.virtual import ENV
from xdevice.integers import as_integer
from xdevice.testing import (
    compiled,
    default_device,
    examples,
    exclusions,
    fixtures,
    marks,
    own_names,
    reference,
    transfers,
    virtual,
    without_plug_in,
)
from xdevice.testing.determinism import ENVIRONMENT
from xdevice.testing.frameworks import backends_of, left_out, why_unusable
from xdevice.testing.gpus import check_gpus
from xdevice.testing.items import (
    backend_of,
    class_backend,
    is_mark_of_plugin,
    params_of,
    skip_or_fail,
)
from xdevice.testing.own_parameters import names_another_framework
from xdevice.testing.parameters import add_options, check_options

PARTS = compiled, default_device, examples, exclusions, fixtures, marks, reference, transfers

_waived = pytest.StashKey[dict[str, None]]()  # lines for the summary, in order

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


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    for module in PARTS:  # for each of `pytest_plugins` pytest would read every entry point anew
        pluginmanager.register(module, module.__name__)
    pytest.register_assert_rewrite("xdevice.testing.contract")  # by each run of this process
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-backend",
        metavar="NAMES",
        help="frameworks to test: A,B, all or installed (the default); a missing one is an error; "
        "all and installed leave out frameworks that have no device on this machine, and those "
        "that xdevice_backends in pytest's configuration leaves out",
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
    deterministic = "run tests that take a framework within xdevice.testing.deterministic()"
    group.addoption("--xdevice-deterministic", action="store_true", help=deterministic)
    served = "frameworks that the project serves; --xdevice-backend selects among them"
    parser.addini("xdevice_backends", served, type="args")
    add_options(group)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set up the environment before any conftest.py can use a framework.

    Virtual GPUs are requested, for child processes too.
    """
    environment = pytest.MonkeyPatch()
    early_config.add_cleanup(environment.undo)
    options = early_config.known_args_namespace
    if options.xdevice_deterministic:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
    if options.xdevice_virtual_gpus is not None:
        environment.setenv(ENV, options.xdevice_virtual_gpus)
        virtual.make_requested()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; raise an error if a named framework is missing."""
    for mark in MARKS.values():
        config.addinivalue_line("markers", mark)
    check_options(config)
    if config.getoption("--xdevice-backend") is not None:
        without_plug_in.go_without(config, backends_of(config))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What was asked for, and the project's own fixtures, which replace those of the plugin."""
    return [*filter(None, [_requested(config)]), *own_names.lines(config)]


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """The project's own fixtures in test files, and in folders read while collecting."""
    return own_names.lines(config, items)


def _requested(config: pytest.Config) -> str | None:
    """One line, if frameworks or devices were asked for."""
    names_frameworks = config.getoption("--xdevice-backend") is not None
    if not names_frameworks and config.getoption("--xdevice-virtual-gpus") is None:
        return None
    # `available` imports no framework.
    frameworks = backends_of(config) if names_frameworks else available()
    notes = [f"xdevice: {', '.join(frameworks)}"]
    requested = virtual.requested()
    if requested:
        notes.append(requested)
    if names_frameworks:
        notes += [*left_out(config), *without_plug_in.header(config)]
    return "; ".join(notes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that this run does not need.

    These are the tests of other frameworks, those that a parameter of the
    project's gives to another framework, and the promises that do not apply or
    are waived.
    """
    selected = [
        item
        for item in items
        if _is_selected(item)
        and not names_another_framework(item)
        and _is_promised(item)
        and not _is_waived(item)
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
    reason = why_unusable(backend_of(item) or "")
    if reason:
        skip_or_fail(item.config, reason)
    _check_mark(item, "gpu", default=1, real=True)
    _check_mark(item, "multi_device", default=2, real=False)


def _check_mark(item: pytest.Item, name: str, *, default: int, real: bool) -> None:
    mark = item.get_closest_marker(name)
    if mark is None or not is_mark_of_plugin(item.config, name, MARKS):
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
    with using(backend_of(item) or choosing.backend()):
        check_gpus(item.config, number, real=real)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Choose a class's own framework, also for tests without the fixture."""
    name = class_backend(item)
    if name is None:
        return (yield)
    with using(name):
        return (yield)


def _request(text: str) -> str:
    try:
        virtual.check_request(text)
    except XDeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _is_selected(item: pytest.Item) -> bool:
    """Whether --xdevice-backend selects the framework of the test."""
    name = backend_of(item)
    if not name or item.config.getoption("--xdevice-backend") is None:
        return True
    return name in backends_of(item.config)


def _is_promised(item: pytest.Item) -> bool:
    """Whether a promise of the contract suite applies to the framework.

    Always true of other tests.
    """
    applies = getattr(getattr(item, "cls", None), "xdevice_promised", None)
    name = backend_of(item)
    parameters = params_of(item)
    if not applies or not name or not parameters:
        return True
    return bool(applies(name, getattr(item, "function", None), parameters))


def _is_waived(item: pytest.Item) -> bool:
    """Whether the class waives the promise; the summary prints the reason."""
    cls: Any = getattr(item, "cls", None)
    waived: dict[str, str] = getattr(cls, "waived", None) or {}
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
