"""Tests of hypothesis, which call a test once for each example."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator
from typing import Any

import pytest

_CONSTANT = {
    *("backend", "xp", "device", "native_device", "device_scope", "dtype", "two_gpus"),
    *("compiled", "assert_close", "deterministic"),
    *("xdevice_backend", "xdevice_device", "xdevice_dtype", "xdevice_compiled"),
}
"""The plugin's fixtures that are the same for all examples of a test."""
_SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps a test's settings: not public; its own plugin sets them in this way."""


def draws_examples(item: pytest.Item) -> bool:
    """Whether hypothesis calls the test, with an example each time."""
    hypothesis: Any = sys.modules.get("hypothesis")
    test = getattr(item, "obj", None)
    return hypothesis is not None and test is not None and hypothesis.is_hypothesis_test(test)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test of hypothesis the settings that a framework needs.

    The plugin's fixtures are the same for all examples, and the health check
    of fixtures of a function's scope refuses them; it stays as it is if the test
    also takes such a fixture of the project. The usual deadline, 200 ms, is too
    short for a first call, in which a framework compiles.
    """
    if not draws_examples(item) or "xdevice_backend" not in getattr(item, "fixturenames", ()):
        return
    from hypothesis import HealthCheck, settings

    test = _test_of(item)
    own = getattr(test, _SETTINGS, None)
    if own is None:
        return
    if not _changing_fixtures(item):
        suppressed = {*own.suppress_health_check, HealthCheck.function_scoped_fixture}
        own = settings(own, suppress_health_check=suppressed)
    if own.deadline == settings.get_profile("default").deadline:
        own = settings(own, deadline=None)
    setattr(test, _SETTINGS, own)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse a project's fixture beside ``@given``, as hypothesis would.

    hypothesis names the first fixture of the test, which can be one of the
    plugin's constants.
    """
    if draws_examples(item) and "xdevice_backend" in getattr(item, "fixturenames", ()):
        from hypothesis import HealthCheck

        changing = _changing_fixtures(item)
        own = getattr(_test_of(item), _SETTINGS, None)
        check = HealthCheck.function_scoped_fixture
        if changing and own is not None and check not in own.suppress_health_check:
            pytest.fail(_REFUSAL.format(item.nodeid, changing[0]), pytrace=False)
    return (yield)


_REFUSAL = (
    "{!r} uses a function-scoped fixture {!r}, which is the same for all examples that hypothesis "
    "gives the test; create its value in the test, or allow it with "
    "@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])"
)


def _test_of(item: pytest.Item) -> Any:
    test: Any = getattr(item, "obj", None)
    return getattr(test, "__func__", test)


def _changing_fixtures(item: Any) -> list[str]:
    """The fixtures of a function's scope among the arguments that are not constants."""
    arguments = inspect.signature(item.function).parameters
    definitions = item._fixtureinfo.name2fixturedefs  # not public
    fixtures = [definitions[name][-1] for name in arguments if name in definitions]
    changing = [each for each in fixtures if each.scope == "function" and not _is_constant(each)]
    return [each.argname for each in changing]


def _is_constant(fixture: Any) -> bool:
    return fixture.argname in _CONSTANT and fixture.func.__module__.startswith("xdevice.testing.")
