"""The project's own fixtures, which replace those of the plugin; they are named once."""

from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType

import pytest

FIXTURES = (
    *("backend", "xp", "device", "dtype", "two_gpus", "transfers"),
    *("native_device", "device_scope", "parameters_on_device"),
    *("assert_close", "compiled", "deterministic", "record_result"),
)
"""The plugin's fixtures that a project may have itself."""

_named = pytest.StashKey[set[ModuleType]]()  # the files whose fixtures are named already


def lines(config: pytest.Config, items: Iterable[pytest.Item] = ()) -> list[str]:
    """A line with the project's own fixtures, of files that were read since the last.

    They are in conftest files and in the files of the tests. pytest reads the
    conftest files of folders within the tested ones later, as it collects their
    tests.
    """
    named = config.stash.setdefault(_named, set())
    conftests = [
        module
        for file, module in config.pluginmanager.list_name_plugin()
        if isinstance(module, ModuleType) and file.endswith("conftest.py")
    ]
    tests = [item.module for item in items if isinstance(item, pytest.Function)]
    places: list[str] = []
    for module in dict.fromkeys([*conftests, *tests]):
        own = [name for name in FIXTURES if name in set(_fixtures_in(module))]
        if own and module not in named:
            shown = str(module.__file__).removeprefix(f"{config.rootpath}/")
            places.append(f"{', '.join(own)} ({shown})")
        named.add(module)
    if not places:
        return []
    return [f"xdevice: the project's own fixtures replace xdevice's: {'; '.join(places)}"]


def _fixtures_in(module: ModuleType) -> Iterator[str]:
    """The names of a module's fixtures."""
    for name, obj in list(vars(module).items()):
        is_definition = type(obj).__name__ == "FixtureFunctionDefinition"  # since pytest 8.4
        if is_definition or isinstance(obj, FunctionType):
            attribute = "_fixture_function_marker" if is_definition else "_pytestfixturefunction"
            marker = getattr(obj, attribute, None)
            if marker is not None:
                yield str(marker.name or name)
