"""Tests of hypothesis, which call a test once for each example."""

from __future__ import annotations

import inspect
import sys
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

    test: Any = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    own = getattr(test, _SETTINGS, None)
    if own is None:
        return
    if _takes_only_constants(item):
        suppressed = {*own.suppress_health_check, HealthCheck.function_scoped_fixture}
        own = settings(own, suppress_health_check=suppressed)
    if own.deadline == settings.get_profile("default").deadline:
        own = settings(own, deadline=None)
    setattr(test, _SETTINGS, own)


def _takes_only_constants(item: Any) -> bool:
    """Whether all fixtures of a function's scope among the arguments are constants."""
    arguments = inspect.signature(item.function).parameters
    definitions = item._fixtureinfo.name2fixturedefs  # not public
    fixtures = [definitions[name][-1] for name in arguments if name in definitions]
    return all(fixture.scope != "function" or _is_constant(fixture) for fixture in fixtures)


def _is_constant(fixture: Any) -> bool:
    return fixture.argname in _CONSTANT and fixture.func.__module__.startswith("xdevice.testing.")
