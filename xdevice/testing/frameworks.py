"""The frameworks that a run of pytest is for: those named, or all that have a device on this machine."""

import pytest

from xdevice.errors import did_you_mean
from xdevice.framework.adapters import available, has_device, is_installed, is_optional, registered

_asked = pytest.StashKey[tuple[list[str], list[str]]]()


def backends_of(config: pytest.Config) -> list[str]:
    """The names of the frameworks asked for; `pytest.UsageError` if one of them is not there."""
    return _found(config)[0]


def left_out(config: pytest.Config) -> list[str]:
    """What to say of each framework that ``all`` or ``installed`` does not stand for on this machine."""
    return _found(config)[1]


def why_unusable(name: str) -> str | None:
    """What to say of a framework that has no device on this machine; ``None`` of every other."""
    if name not in registered() or not is_installed(name) or has_device(registered()[name]):
        return None
    return f"{_why_not(name)}; xdevice doctor says more"


def _found(config: pytest.Config) -> tuple[list[str], list[str]]:
    if _asked not in config.stash:
        config.stash[_asked] = _named(config.getoption("--xdevice-backend") or "installed")
    return config.stash[_asked]


def _named(given: str) -> tuple[list[str], list[str]]:
    """The frameworks of the option's value, and what to say of those that it leaves out."""
    several = {"all": list(registered()), "installed": available()}.get(given)
    wanted = (
        dict.fromkeys(filter(None, map(str.strip, given.split(","))))
        if several is None
        else several
    )
    missing = [name for name in several or () if is_optional(name) and not is_installed(name)]
    names = [name for name in wanted if name not in missing]
    wrong = [
        f"{name!r} is not a backend{_meant(name)}" for name in names if name not in registered()
    ]
    wrong += [
        f"{name} is not installed"
        for name in names
        if name in registered() and not is_installed(name)
    ]
    if wrong or not (names or given == "installed"):
        raise pytest.UsageError(
            f"--xdevice-backend={given}: {', '.join(wrong) or 'no framework is named'}; "
            f"installed are {', '.join(available()) or 'none'}"
        )
    idle = [name for name in several or () if name in names and not has_device(registered()[name])]
    out = [*map(_why_not, idle), *(f"{name}: not installed" for name in missing)]
    return [name for name in names if name not in idle], out


def _meant(name: str) -> str:
    hint = did_you_mean(name, registered(), "").rstrip("?")
    return f" ({hint})" if hint else ""


def _why_not(name: str) -> str:
    from xdevice.hardware.diagnosis import (
        build_of,
        diagnose,
        facts_of,
    )  # reads the machine: only where none is there

    owner = registered()[name]
    problem, about = diagnose(facts_of(owner)), f"{name} {build_of(owner)['version']}".rstrip()
    return (
        f"{about}: installed, not usable here: {problem.reason if problem else 'it has no device'}"
    )
