"""``--xdevice-reference``: each test's results compared with those under another framework.

A test's results are the values that it gives to `assert_close` as ``actual``,
and those that it gives to the fixture `record_result`, in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol  # not public; plugins that repeat tests use it

from xdevice.framework.registry import available
from xdevice.testing.closeness import Recorded, assert_recorded, recording, snapshot
from xdevice.testing.examples import draws_examples
from xdevice.testing.frameworks import backends_of
from xdevice.testing.items import is_mark_of_plugin, params_of

MARKS = {
    "no_reference": (
        "no_reference(reason=None): --xdevice-reference does not compare the test's results, "
        "which are random or differ by framework"
    ),
}


class _Reference(NamedTuple):
    """What a test did under the reference framework; empty strings where it ran well."""

    results: list[Recorded]
    failure: str = ""
    skipped: str = ""


_results = pytest.StashKey[list[Recorded]]()
_twin = pytest.StashKey[pytest.Item]()  # the same test under the reference framework
_reference = pytest.StashKey[_Reference]()
_latest = pytest.StashKey[dict[pytest.Item, _Reference]]()  # of the test function that runs


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-reference",
        metavar="NAME",
        help="run each test under this framework, too, and compare its results: the values that "
        "it gives to assert_close and to the fixture record_result",
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKS.values():
        config.addinivalue_line("markers", line)
    name = config.getoption("--xdevice-reference")
    if name is not None and name not in available():
        installed = ", ".join(available()) or "none"
        raise pytest.UsageError(
            f"--xdevice-reference={name}: {name} is not installed; installed are {installed}"
        )


@pytest.fixture
def record_result(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """A function that takes a result of the test, which --xdevice-reference compares."""
    results = request.node.stash.setdefault(_results, [])

    def record(result: Any) -> None:
        results.append(snapshot(result))

    return record


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: Any) -> Generator[None, Any, Any]:
    """Give each test its twin: the same test under the reference framework.

    Twins are collected only if that framework is tested itself.
    """
    made = yield
    name: str | None = collector.config.getoption("--xdevice-reference")
    if name is None or not isinstance(made, list):
        return made
    twins: dict[object, pytest.Item] = {}
    for item in made:
        if _backend(item) == name and not _is_compiled(item):
            twins.setdefault(_key(item), item)
    for item in made:
        if _backend(item) not in ("", name) and _key(item) in twins and not _is_exempt(item):
            item.stash[_twin] = twins[_key(item)]
    is_tested = name in backends_of(collector.config)
    return [item for item in made if is_tested or _backend(item) != name]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Run the test under the reference framework first, unless its results are known."""
    twin = item.stash.get(_twin, None)
    if twin is None:
        return
    latest = item.config.stash.setdefault(_latest, {})
    if twin not in latest:
        if not any(_name(twin) == _name(other) for other in latest):
            latest.clear()
        latest[twin] = _run(twin, item)
    item.stash[_reference] = latest[twin]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Collect the results of the test, and compare them."""
    __tracebackhide__ = True
    if item.config.getoption("--xdevice-reference") is None:
        return (yield)
    results = item.stash.setdefault(_results, [])
    with recording(results):
        outcome = yield
    reference = item.stash.get(_reference, None)
    if reference is not None:
        name = item.config.getoption("--xdevice-reference")
        item.user_properties.append(("xdevice_reference", _compare(results, reference, name)))
    return outcome


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How many tests were compared, and why others were not."""
    name = config.getoption("--xdevice-reference")
    if name is None:
        return
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    outcomes = Counter[str]()
    for report in reports:
        outcomes.update(
            value for key, value in report.user_properties if key == "xdevice_reference"
        )
    compared = outcomes.pop(_COMPARED, 0)
    others = [f"{number} not: {reason}" for reason, number in outcomes.items()]
    line = "; ".join([f"{compared} tests compared with {name}", *others])
    terminalreporter.line(f"xdevice: {line}")


_COMPARED = "compared"


def _backend(item: Any) -> str:
    if not isinstance(item, pytest.Item):
        return ""
    return params_of(item).get("xdevice_backend") or ""


def _is_compiled(item: pytest.Item) -> bool:
    return bool(params_of(item).get("xdevice_compiled"))


def _is_exempt(item: pytest.Item) -> bool:
    if draws_examples(item):  # it has others under each framework
        return True
    marks = any(item.iter_markers("no_reference"))
    return marks and is_mark_of_plugin(item.config, "no_reference", MARKS)


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _key(item: pytest.Item) -> object:
    """What a test and its twin have in common: all parameters that are not the framework's."""
    # By identity: a value may be an array, and pytest's own indices count all tests.
    own = sorted(
        (key, id(value)) for key, value in params_of(item).items() if not key.startswith("xdevice_")
    )
    return _name(item), params_of(item).get("xdevice_dtype"), tuple(own)


def _run(twin: pytest.Item, item: pytest.Item) -> _Reference:
    """Run the test under the reference framework; nothing of it is reported."""
    twin.stash[_results] = []
    failure = skipped = ""
    for report in runtestprotocol(twin, log=False, nextitem=item):
        if report.failed:
            failure = failure or str(getattr(report.longrepr, "reprcrash", report.longrepr))
        elif report.skipped:
            skipped = "the test is skipped, or expected to fail, under the reference"
    return _Reference(twin.stash[_results], failure, skipped)


def _compare(results: list[Recorded], reference: _Reference, name: str) -> str:
    """Fail the test if its results differ; whether they were compared, or why not."""
    __tracebackhide__ = True
    if reference.failure:
        pytest.fail(
            f"under the reference {name} the test fails: {reference.failure}", pytrace=False
        )
    if reference.skipped:
        return reference.skipped
    if len(results) != len(reference.results):
        counts = f"{len(results)} results, and {len(reference.results)} under {name}"
        pytest.fail(f"the test has {counts}; --xdevice-reference compares them", pytrace=False)
    if not results:
        return "no results; give them to assert_close or record_result"
    for number, (result, expected) in enumerate(zip(results, reference.results, strict=True), 1):
        details = _difference(result, expected)
        if details:
            problem = f"result {number} of {len(results)} differs from that under {name}"
            pytest.fail(f"{problem}:\n{details}", pytrace=False)
    return _COMPARED


def _difference(result: Recorded, expected: Recorded) -> str:
    """The lines that say what differs; the empty string if nothing does."""
    try:
        assert_recorded(result, expected)
    except AssertionError as error:
        return str(error).partition("\n")[2]
    return ""
