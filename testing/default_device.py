"""``--xdevice-default-device``: the default device of all tests, with fixtures or without."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from xdevice import Device, XDeviceError, as_device, scope, using
from xdevice.framework.adapters import imported
from xdevice.testing.frameworks import backends_of
from xdevice.testing.items import backend_of, skip_or_fail
from xdevice.testing.parameters import missing_device

_scopes = pytest.StashKey[ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-default-device",
        metavar="DEVICE",
        help="the default device of each framework in all tests, also in those that take no "
        "fixture: gpu:1; a test whose framework lacks it is skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    try:
        _requested(config)
    except XDeviceError as error:
        value = config.getoption("--xdevice-default-device")
        raise pytest.UsageError(f"--xdevice-default-device={value}: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Enter the device's scope before the fixtures are set up.

    It is not done in a fixture of its own: that would stand before each test of
    every project.
    """
    device = _requested(item.config)
    if device is None:
        return
    name = backend_of(item)
    with ExitStack() as scopes:
        for each in _frameworks(item.config, name):
            with using(each):
                problem = missing_device(device)
                if problem is None:
                    scopes.enter_context(scope(device))
                elif name:
                    skip_or_fail(item.config, problem)
        item.stash[_scopes] = scopes.pop_all()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Leave the scope after the fixtures are torn down."""
    if _scopes in item.stash:
        item.stash[_scopes].close()


def _requested(config: pytest.Config) -> Device | None:
    value = config.getoption("--xdevice-default-device")
    return None if value is None else as_device(value)


def _frameworks(config: pytest.Config, name: str | None) -> list[str]:
    """The test's framework; without one, the selected ones that are imported by now."""
    if name:
        return [name]
    return [each for each in backends_of(config) if each in map(str, imported())]
