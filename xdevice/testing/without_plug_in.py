"""Frameworks whose virtual GPUs need a plug-in that this machine cannot have: they are tested without."""

from typing import Any

import pytest

from xdevice import NotSupportedError, XDeviceError, count, using
from xdevice.hardware.virtual import ENV, are_asked_for, provider

_refused = pytest.StashKey[dict[str, str]]()


def go_without(config: pytest.Config, names: list[str]) -> None:
    """Let those of the frameworks that cannot have the virtual GPUs asked for do without, if there is no compiler."""
    if _refused in config.stash:
        return
    asked = are_asked_for() and provider().cannot_compile()
    refused = {name: why for name in names if (why := _why_none(name))} if asked else {}
    config.stash[_refused] = refused
    for name in refused:
        provider().leave_out(name)
    if refused and len(refused) == len(names):  # so that child processes do without, too
        environment = pytest.MonkeyPatch()
        environment.setenv(ENV, "0")
        config.add_cleanup(environment.undo)


def refusal(config: pytest.Config, name: str) -> str | None:
    """Why the framework is tested without the virtual GPUs that were asked for; ``None`` if it has them."""
    return _of(config).get(name)


def header(config: pytest.Config) -> list[str]:
    return [f"{name} is tested without virtual GPUs" for name in _of(config)]


def lines(config: pytest.Config, stats: dict[str, list[Any]]) -> list[str]:
    """What the last lines of a run say: why a framework did without, and how many tests need a compiler."""
    said = [
        f"xdevice: {name} was tested without virtual GPUs: {why}"
        for name, why in _of(config).items()
    ]
    number = sum(
        "C++ compiler" in str(getattr(report, "longrepr", ""))
        for report in stats.get("skipped", ())
    )
    if number:
        plural = "s were" if number > 1 else " was"
        said.append(
            f"xdevice: {number} test{plural} skipped without a C++ compiler: {provider().how_to_compile()}"
        )
    return said


def _of(config: pytest.Config) -> dict[str, str]:
    return config.stash.get(_refused, {})


def _why_none(name: str) -> str | None:
    try:
        with using(name):
            count("gpu")
    except NotSupportedError as error:
        return str(error)
    except XDeviceError:  # which the tests will see
        return None
    return None
