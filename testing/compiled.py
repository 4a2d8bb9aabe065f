"""The mark ``compiled``, and the options for tests under the frameworks' compilers."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

import pytest

from xdevice.testing.compilers import Compile, Function, as_it_is, requested_compilers
from xdevice.testing.items import is_mark_of_plugin

MARKS = {
    "compiled": (
        "compiled(*functions): the test runs twice, and the second time these functions are "
        "compiled by the framework: names in the test's module, or dotted names"
    ),
}
_MODES = ("too", "only", "no")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-compiled",
        choices=_MODES,
        default="too",
        help="tests with the fixture or the mark `compiled` run also with compiled functions "
        "(too, the default), only with them, or not with them (no)",
    )
    group.addoption(
        "--xdevice-compiler",
        metavar="LIST",
        default="",
        help="the compilers of such tests: torch=inductor,tensorflow=xla; by default "
        "torch=aot_eager, which needs no C++ compiler, tensorflow=function, paddle=sot",
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKS.values():
        config.addinivalue_line("markers", line)
    requested_compilers(config)


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    """Give marked tests the fixture that compiles their functions."""
    is_test = getattr(collector, "istestfunction", None)
    if is_test is None or not is_test(obj, name):
        return
    marks = [*getattr(obj, "pytestmark", ()), *collector.iter_markers()]
    if not any(mark.name == "compiled" for mark in marks):
        return
    if is_mark_of_plugin(collector.config, "compiled", MARKS):
        pytest.mark.usefixtures("xdevice_compiled_functions")(obj)


@pytest.fixture
def xdevice_compiled_functions(
    request: pytest.FixtureRequest, xdevice_compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the functions that the marks name by compiled ones, where the test uses them."""
    marks = list(request.node.iter_markers("compiled"))
    if not all(mark.args for mark in marks):  # also where nothing is compiled, as under NumPy
        _fail("it names no function; give @pytest.mark.compiled('softmax') or dotted names")
    if xdevice_compiled is as_it_is:
        return
    for mark in marks:
        for name in mark.args:
            fn = _function(name, request.module)
            replacement = xdevice_compiled(fn)
            for owner, attribute in _uses(name, fn, request.module):
                monkeypatch.setattr(owner, attribute, replacement)


def _function(name: Any, module: ModuleType) -> Function:
    """The function of a name in the test's module, or of a dotted name."""
    fn: Any = name
    if isinstance(name, str):
        fn = getattr(module, name, None)
        if fn is None:
            try:
                fn = _resolved(name)
            except (ImportError, AttributeError, ValueError):
                _fail(f"{name!r} is not in {module.__name__}, and not a dotted name of a function")
    if not callable(fn):
        _fail(f"{name!r} is {fn!r}, which is not a function")
    function: Function = fn
    return function


def _uses(name: Any, fn: Function, module: ModuleType) -> Iterator[tuple[Any, str]]:
    """Where a test finds the function: in its module, in modules there, and at its dotted name."""
    modules = [value for value in vars(module).values() if isinstance(value, ModuleType)]
    for place in (module, *modules):
        for attribute, value in list(vars(place).items()):
            if value is fn:
                yield place, attribute
    if isinstance(name, str) and "." in name:
        parent, _, attribute = name.rpartition(".")
        yield pkgutil.resolve_name(parent), attribute


def _resolved(name: str) -> Any:
    """The object of a dotted name.

    A package may have a function and a module of the same name; then it is the
    function, as after an import from the package.
    """
    parent, _, attribute = name.rpartition(".")
    if parent:
        found = getattr(pkgutil.resolve_name(parent), attribute, None)
        if found is not None:
            return found
    return pkgutil.resolve_name(name)


def _fail(problem: str) -> NoReturn:
    pytest.fail(f"@pytest.mark.compiled: {problem}", pytrace=False)
