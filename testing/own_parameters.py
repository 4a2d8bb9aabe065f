"""The parameters that a project gives its tests, beside those of the plugin."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from xdevice.framework.adapters import registered
from xdevice.framework.installing import SHORT_NAMES
from xdevice.testing.items import params_of

_REPLACED_BY = {
    "xdevice_backend": "select frameworks with @pytest.mark.only_backends",
    "backend": "select frameworks with @pytest.mark.only_backends",
    "xp": "select frameworks with @pytest.mark.only_backends",
    **dict.fromkeys(("device", "native_device", "device_scope"), "parametrize xdevice_device"),
    "dtype": "parametrize xdevice_dtype",
    "compiled": "parametrize xdevice_compiled",
}
"""What to do instead of giving a fixture of the plugin an indirect parameter."""


def own_parameters(metafunc: pytest.Metafunc) -> set[str]:
    """The plugin's parameters that the test's marks, or the project's hooks, give.

    An error for a fixture that takes no parameter: pytest would pass it a
    parameter that it does not read.
    """
    found = _indirect_in_marks(metafunc) | _indirect_in_hooks(metafunc)
    for name in sorted(found):
        if name in _REPLACED_BY and _is_of_plugin(metafunc, name):
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid}: the fixture {name} takes no parameter; "
                f"{_REPLACED_BY[name]}"
            )
    return found


def leave_out_replaced(metafunc: pytest.Metafunc) -> None:
    """Leave out the fixtures of which a hook of the project's has given the values.

    pytest does so, too, but only after all hooks have run.
    """
    if metafunc._calls:  # not public
        metafunc.definition._fixtureinfo.prune_dependency_tree()  # not public


def names_another_framework(item: pytest.Item) -> bool:
    """Whether a parameter of the project's names another framework than that of the test.

    It is a parameter named ``backend`` or ``xp``: a name, or a module.
    """
    parameters = params_of(item)
    name = parameters.get("xdevice_backend")
    own = [_framework_of(parameters.get(each)) for each in ("backend", "xp")]
    return bool(name) and any(each not in (None, name) for each in own)


def _indirect_in_marks(metafunc: pytest.Metafunc) -> set[str]:
    found: set[str] = set()
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        if isinstance(names, str):
            names = list(map(str.strip, names.split(",")))
        indirect = mark.kwargs.get("indirect", mark.args[2:3] == (True,))
        found.update(names if indirect is True else indirect or ())
    return found


def _indirect_in_hooks(metafunc: pytest.Metafunc) -> set[str]:
    """What the project's ``pytest_generate_tests``, which have run, give to fixtures.

    A parameter that is not for a fixture has a definition of pytest's own.
    """
    calls: list[Any] = metafunc._calls  # not public
    return {name for call in calls for name in call.params if _module_of(metafunc, name) != _PYTEST}


_PYTEST = "_pytest.python"


def _is_of_plugin(metafunc: pytest.Metafunc, name: str) -> bool:
    return _module_of(metafunc, name).startswith("xdevice.testing.")


def _module_of(metafunc: pytest.Metafunc, name: str) -> str:
    definitions: Any = metafunc._arg2fixturedefs  # not public
    module: str = definitions[name][-1].func.__module__
    return module


def _framework_of(parameter: Any) -> str | None:
    """The framework that a parameter names, or whose module it is."""
    if isinstance(parameter, ModuleType):
        parameter = parameter.__name__.partition(".")[0]
    if not isinstance(parameter, str):
        return None
    name = SHORT_NAMES.get(parameter, parameter)
    return name if name in registered() else None
