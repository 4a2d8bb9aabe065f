"""A public name is in each place where it belongs."""

import importlib
import re
from pathlib import Path

import xdevice

ROOT = Path(__file__).parents[2]


def test_the_stub_has_those_of_their_modules():
    modules = {xdevice._MODULE_OF[name] for name in xdevice.__all__}
    names = {name for module in modules for name in importlib.import_module(module).__all__}
    missing = sorted(names - set(xdevice.__all__))
    assert not missing, f"import {', '.join(missing)} in xdevice/__init__.pyi"
    surplus = sorted(set(xdevice.__all__) - names)
    assert not surplus, f"add {', '.join(surplus)} to `__all__` of the module"


def test_the_reference_has_each():
    page = ROOT / "docs" / "reference" / "api.md"
    entries = set(
        re.findall(r"^::: xdevice\.(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    )
    errors = {name for name in xdevice.__all__ if hasattr(xdevice.errors, name)}
    names = set(xdevice.__all__) - errors
    missing = sorted(names - entries)
    assert not missing, f"add `::: xdevice.{missing[0]}` to docs/reference/api.md ({missing})"
    assert entries - names == {"distributed", "testing"}
