"""The frameworks that a run of pytest is for: those named, or all that have a device on this machine."""

from collections.abc import Sequence

import pytest

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
        given = config.getoption("--xdevice-backend") or "installed"
        config.stash[_asked] = _all(given) if given in ("all", "installed") else (_named(given), [])
    return config.stash[_asked]


def _named(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    _check_installed(given, names)
    return list(dict.fromkeys(names))


def _all(given: str) -> tuple[list[str], list[str]]:
    wanted = list(registered()) if given == "all" else available()
    missing = [name for name in wanted if is_optional(name) and not is_installed(name)]
    names = [name for name in wanted if name not in missing]
    _check_installed(given, names, may_be_none=given == "installed")
    idle = [name for name in names if not has_device(registered()[name])]
    out = [*map(_why_not, idle), *(f"{name}: not installed" for name in missing)]
    return [name for name in names if name not in idle], out


def _check_installed(given: str, names: Sequence[str], may_be_none: bool = False) -> None:
    unknown = [name for name in names if name not in registered()]
    missing = [name for name in names if name not in unknown and not is_installed(name)]
    if not unknown and not missing and (names or may_be_none):
        return
    wrong = [f"{name!r} is not a backend" for name in unknown] + [f"{name} is not installed" for name in missing]
    raise pytest.UsageError(
        f"--xdevice-backend={given}: {', '.join(wrong) or 'no framework is named'}; "
        f"installed are {', '.join(available()) or 'none'}"
    )


def _why_not(name: str) -> str:
    from xdevice.hardware.diagnosis import build_of, diagnose, facts_of  # reads the machine: only where none is there

    owner = registered()[name]
    problem, about = diagnose(facts_of(owner)), f"{name} {build_of(owner)['version']}".rstrip()
    return f"{about}: installed, not usable here: {problem.reason if problem else 'it has no device'}"
