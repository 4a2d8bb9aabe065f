"""Tests without virtual GPUs, where a plug-in cannot be compiled."""

from typing import Any

import pytest

from xdevice import NotSupportedError, XDeviceError, count, using
from xdevice.hardware.virtual import ENV
from xdevice.testing.virtual import are_requested

_refused = pytest.StashKey[dict[str, str]]()


def go_without(config: pytest.Config, names: list[str]) -> None:
    """Do without virtual GPUs of a plug-in that cannot be compiled."""
    if _refused in config.stash:
        return
    refused: dict[str, str] = {}
    if are_requested():
        from xdevice.virtual import plugins, request

        for name in names if plugins.compiler() is None else ():
            reason = _refusal_of(name)
            if reason:
                refused[name] = reason
                request.leave_out(name)
    config.stash[_refused] = refused
    if refused and len(refused) == len(names):
        # Child processes get no virtual GPUs, either.
        environment = pytest.MonkeyPatch()
        environment.setenv(ENV, "0")
        config.add_cleanup(environment.undo)


def refusal(config: pytest.Config, name: str) -> str | None:
    """Why the framework has no virtual GPUs; ``None`` if it has them."""
    return _refusals(config).get(name)


def header(config: pytest.Config) -> list[str]:
    return [f"{name} is tested without virtual GPUs" for name in _refusals(config)]


def lines(config: pytest.Config, stats: dict[str, list[Any]]) -> list[str]:
    """The last lines of a run.

    They name frameworks without virtual GPUs, and count the tests that need a
    compiler.
    """
    summary = [
        f"xdevice: {name} was tested without virtual GPUs: {reason}"
        for name, reason in _refusals(config).items()
    ]
    number = sum(
        "C++ compiler" in str(getattr(report, "longrepr", ""))
        for report in stats.get("skipped", ())
    )
    if number:
        tests = f"{number} tests were"
        if number == 1:
            tests = "1 test was"
        from xdevice.virtual import plugins

        advice = plugins.INSTALL
        summary.append(f"xdevice: {tests} skipped without a C++ compiler: {advice}")
    return summary


def _refusals(config: pytest.Config) -> dict[str, str]:
    return config.stash.get(_refused, {})


def _refusal_of(name: str) -> str | None:
    try:
        with using(name):
            count("gpu")
    except NotSupportedError as error:
        return str(error)
    except XDeviceError:  # the tests raise it again
        return None
    return None
