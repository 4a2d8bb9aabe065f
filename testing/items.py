"""Collected tests: the framework and the parameters that the plugin has given them."""

from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from xdevice.framework.adapters import registered
from xdevice.framework.installing import is_installed


def backend_of(item: pytest.Item) -> str | None:
    """The framework that this test runs under, if the plugin has chosen it."""
    name: str | None = params_of(item).get("xdevice_backend")
    if name is None:
        return class_backend(item)
    return name


def params_of(item: pytest.Item) -> dict[str, Any]:
    """The values of the test's parameters by name; empty if it has none."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    parameters: dict[str, Any] = callspec.params
    return parameters


def class_backend(item: pytest.Item) -> str | None:
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


def is_mark_of_plugin(config: pytest.Config, mark: str, marks: Mapping[str, str]) -> bool:
    """Whether the mark is this plugin's, not another's of that name.

    ``marks`` are the plugin's, each with the line that registers it.
    """
    lines: list[str] = config.getini("markers")
    registered_lines = [line for line in lines if _mark_name(line) == mark]
    return registered_lines == [marks[mark]]


def _mark_name(line: str) -> str:
    return line.partition(":")[0].partition("(")[0].strip()


def skip_or_fail(config: pytest.Config, reason: str) -> NoReturn:
    """Skip the test, or fail it with --xdevice-require."""
    if config.getoption("--xdevice-require"):
        pytest.fail(reason, pytrace=False)
    raise pytest.skip.Exception(reason, _use_item_location=True)  # as pytest does for its own marks
