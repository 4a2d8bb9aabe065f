"""The marks ``skip_backends``, ``xfail_backends`` and ``only_backends``."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from xdevice import Device, XDeviceError, as_device, namespace, using
from xdevice.errors import did_you_mean
from xdevice.framework import choosing
from xdevice.framework.adapters import registered
from xdevice.framework.installing import SHORT_NAMES, framework_named
from xdevice.testing.items import backend_of, is_mark_of_plugin, params_of

_WHERE = "cpu_only=False, gpu_only=False, eager_only=False, np_only=False, exceptions=()"
MARKS = {
    "skip_backends": (
        f"skip_backends(*names, reason=None, {_WHERE}): the test is skipped under these "
        "frameworks; with cpu_only, gpu_only, eager_only or np_only, where it does not run on the "
        "CPU or a GPU, is compiled, or is not NumPy's, but for the frameworks in exceptions"
    ),
    "xfail_backends": (
        "xfail_backends(*names, reason=None, strict=None, raises=None, run=True, "
        f"{_WHERE}): as skip_backends, but the test is expected to fail there"
    ),
    "only_backends": (
        f"only_backends(*names, reason=None, {_WHERE}): the test runs under these frameworks "
        "only, and is skipped under others"
    ),
}
_CONDITIONS = ("cpu_only", "gpu_only", "eager_only", "np_only")
_OPTIONS = {*_CONDITIONS, "exceptions", "reason"}
_XFAIL_OPTIONS = {"strict", "raises", "run"}


class _Run(NamedTuple):
    """What a test runs under."""

    backend: str
    device: Device | None
    compiled: bool


def pytest_addoption(parser: pytest.Parser) -> None:
    other = "frameworks without an adapter that skip_backends and similar marks may name"
    parser.addini("xdevice_other_backends", other, type="args")
    lazy = "frameworks to which eager_only=True applies always, and not only in compiled tests"
    parser.addini("xdevice_lazy_backends", lazy, type="args")
    scoped = "frameworks under which the device of the fixture `device` is also the default device"
    parser.addini("xdevice_scoped_backends", scoped, type="args")


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKS.values():
        config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test, or expect it to fail, as its marks say of its framework and device."""
    for name in ("only_backends", "skip_backends"):
        for mark in _marks(item, name):
            reason = _reason(item, mark)
            if reason is not None:
                raise pytest.skip.Exception(reason, _use_item_location=True)
    for mark in _marks(item, "xfail_backends"):
        reason = _reason(item, mark)
        if reason is not None:
            options = {key: mark.kwargs[key] for key in _XFAIL_OPTIONS & set(mark.kwargs)}
            item.add_marker(pytest.mark.xfail(reason=reason, **options))


def _marks(item: pytest.Item, name: str) -> list[pytest.Mark]:
    marks = list(item.iter_markers(name))
    if marks and is_mark_of_plugin(item.config, name, MARKS):
        return marks
    return []


def _reason(item: pytest.Item, mark: pytest.Mark) -> str | None:
    """Why the mark applies to this run of the test; ``None`` if it does not.

    Bools among its names are conditions, as in ``skip_backends("jax", OLD)``.
    """
    names = _checked_names(mark, item.config)
    if not all(argument for argument in mark.args if isinstance(argument, bool)):
        return None
    run = _run_of(item)
    applies = _condition_that_fails(mark, run, item.config)
    if mark.name == "only_backends":
        if names and run.backend not in names:
            applies = f"not under {run.backend}"
    elif names and run.backend not in names:
        return None
    elif not _conditions_of(mark):
        applies = f"under {run.backend}"
    if applies is None:
        return None
    reason = mark.kwargs.get("reason")
    return f"{mark.name}: {applies}" if reason is None else str(reason)


def _run_of(item: pytest.Item) -> _Run:
    name = backend_of(item) or str(choosing.backend())
    values = params_of(item)
    device = values.get("xdevice_device")
    return _Run(name, as_device(device) if device else None, bool(values.get("xdevice_compiled")))


def _condition_that_fails(mark: pytest.Mark, run: _Run, config: pytest.Config) -> str | None:
    """The first condition of the mark that this run does not meet."""
    conditions = _conditions_of(mark)
    if run.backend in map(_framework, _as_tuple(mark.kwargs.get("exceptions", ()))):
        return None
    if "np_only" in conditions and run.backend != "numpy":
        return f"np_only, and this is {run.backend}"
    if "eager_only" in conditions and run.compiled:
        return "eager_only, and this is compiled"
    lazy_backends = map(_framework, config.getini("xdevice_lazy_backends"))
    if "eager_only" in conditions and run.backend in lazy_backends:
        return f"eager_only, and {run.backend} is lazy"
    for kind in ("cpu", "gpu"):
        if f"{kind}_only" in conditions:
            device = run.device or _default_device(run.backend)
            if device.kind != kind:
                return f"{kind}_only, and this is on {device}"
    return None


def _default_device(backend: str) -> Device:
    """Where the framework's new tensors go; the CPU if it makes none."""
    try:
        with using(backend):
            device: Device = namespace().__array_namespace_info__().default_device()
    except XDeviceError:
        return Device("cpu")
    return device


def _conditions_of(mark: pytest.Mark) -> list[str]:
    return [name for name in _CONDITIONS if mark.kwargs.get(name)]


def _checked_names(mark: pytest.Mark, config: pytest.Config) -> list[str]:
    """The frameworks that the mark names; the test fails for a mark with another argument."""
    options = _OPTIONS | (_XFAIL_OPTIONS if mark.name == "xfail_backends" else set())
    for option in sorted(set(mark.kwargs) - options):
        _fail(mark, f"there is no {option}=; there are {', '.join(sorted(options))}")
    exceptions = _as_tuple(mark.kwargs.get("exceptions", ()))
    names = [name for name in mark.args if not isinstance(name, bool)]
    known = {*registered(), *config.getini("xdevice_other_backends")}
    for name in (*names, *exceptions):
        if isinstance(name, (list, tuple, set)):
            one_by_one = ", ".join(map(repr, name))
            _fail(mark, f"{name!r} is not a name; write the names one by one: {one_by_one}")
        if not {name, _framework(name)} & known:
            _fail(mark, f"{name!r} is not a backend; {_hint(name)}")
    if not names and not _conditions_of(mark):
        _fail(mark, f"it names no framework; give names, or one of {', '.join(_CONDITIONS)}")
    return list(map(_framework, names))


def _hint(name: str) -> str:
    """What to write in place of a name that no framework has."""
    framework = framework_named(str(name))
    if framework in registered():
        return f"did you mean {framework!r}?"
    return did_you_mean(name, registered(), f"there are {', '.join(registered())}")


def _framework(name: str) -> str:
    """The framework of a name, which may be that of a namespace's module: jax of ``jax.numpy``."""
    package = str(name).partition(".")[0]
    return SHORT_NAMES.get(package, package)


def _fail(mark: pytest.Mark, problem: str) -> None:
    pytest.fail(f"@pytest.mark.{mark.name}: {problem}", pytrace=False)


def _as_tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
