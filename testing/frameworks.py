"""The frameworks to test: the named ones, or all that have a device."""

from typing import NamedTuple

import pytest

from xdevice.errors import did_you_mean
from xdevice.framework.adapters import registered
from xdevice.framework.choosing import has_device
from xdevice.framework.installing import SHORT_NAMES, is_installed
from xdevice.framework.registry import available, is_optional


class _Selection(NamedTuple):
    """What --xdevice-backend selects on this machine."""

    names: list[str]
    notes: list[str]  # one for each framework that is left out


_selection = pytest.StashKey[_Selection]()


def backends_of(config: pytest.Config) -> list[str]:
    """The names of the frameworks to test.

    `pytest.UsageError` if one of them is missing.
    """
    return _selected(config).names


def left_out(config: pytest.Config) -> list[str]:
    """A note on each framework that ``all`` or ``installed`` leaves out."""
    return _selected(config).notes


def names_in_ini(config: pytest.Config, option: str) -> list[str]:
    """The frameworks that an option of pytest's configuration names.

    `pytest.UsageError` for a word that is not a framework.
    """
    words: list[str] = config.getini(option)
    names = [SHORT_NAMES.get(word, word) for word in words]
    for name in names:
        if name not in registered():
            hint = did_you_mean(name, registered(), f"there are {', '.join(registered())}")
            raise pytest.UsageError(
                f"{option} = {' '.join(words)}: {name!r} is not a backend; {hint}"
            )
    return names


def why_unusable(name: str) -> str | None:
    """Why an installed framework has no device; ``None`` if it has one."""
    if name not in registered() or not is_installed(name) or has_device(registered()[name]):
        return None
    return f"{_note(name)}; xdevice doctor says more"


def _selected(config: pytest.Config) -> _Selection:
    if _selection not in config.stash:
        value = config.getoption("--xdevice-backend") or "installed"
        served = names_in_ini(config, "xdevice_backends") or list(registered())
        config.stash[_selection] = _select(value, served)
    return config.stash[_selection]


def _select(value: str, served: list[str]) -> _Selection:
    if value == "all":
        return _with_device(value, served)
    if value == "installed":
        return _with_device(value, [name for name in available() if name in served])
    return _named(value)


def _with_device(value: str, candidates: list[str]) -> _Selection:
    """The candidates that have a device.

    An optional framework that is not installed is left out.
    """
    missing = [name for name in candidates if is_optional(name) and not is_installed(name)]
    names = [name for name in candidates if name not in missing]
    _check(value, names)
    unusable = [name for name in names if not has_device(registered()[name])]
    notes = [_note(name) for name in unusable]
    notes += [f"{name}: not installed" for name in missing]
    return _Selection([name for name in names if name not in unusable], notes)


def _named(value: str) -> _Selection:
    words = filter(None, map(str.strip, value.split(",")))
    names = list(dict.fromkeys(SHORT_NAMES.get(word, word) for word in words))
    if not names:
        raise _usage_error(value, "no framework is named")
    _check(value, names)
    return _Selection(names, [])


def _check(value: str, names: list[str]) -> None:
    unknown = [name for name in names if name not in registered()]
    problems = [f"{name!r} is not a backend{_suggestion(name)}" for name in unknown]
    for name in names:
        if name in registered() and not is_installed(name):
            problems.append(f"{name} is not installed")
    if problems:
        raise _usage_error(value, ", ".join(problems))


def _usage_error(value: str, problem: str) -> pytest.UsageError:
    installed = ", ".join(available()) or "none"
    return pytest.UsageError(f"--xdevice-backend={value}: {problem}; installed are {installed}")


def _suggestion(name: str) -> str:
    hint = did_you_mean(name, registered(), "").rstrip("?")
    if not hint:
        return ""
    return f" ({hint})"


def _note(name: str) -> str:
    """Why the framework is installed, and not usable here."""
    from xdevice.hardware.diagnosis import build_of, diagnose, facts_of  # it reads the machine

    owner = registered()[name]
    problem = diagnose(facts_of(owner))
    reason = "it has no device"
    if problem:
        reason = problem.reason
    version = f"{name} {build_of(owner)['version']}".rstrip()
    return f"{version}: installed, not usable here: {reason}"
