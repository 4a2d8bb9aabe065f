"""Modules of the package import what they need by name, never the whole package."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def whole_imports(text):
    """The lines with `import xdevice` or `import xdevice.…`, docstrings apart."""
    if not re.search(r"import\b.*\bxdevice", text):
        return []
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import))
    return [
        node.lineno
        for node in imports
        for alias in node.names
        if alias.name.partition(".")[0] == "xdevice"
    ]


def test_nothing_inside_the_package_imports_the_whole_of_it():
    packages = (ROOT / "xdevice", ROOT / "backends", ROOT / "virtual")
    files = {file for package in packages for file in package.rglob("*.py")}
    files.remove(ROOT / "virtual" / "at_start" / "sitecustomize.py")  # Python runs it by itself
    assert len(files) > 100
    found = {str(f.relative_to(ROOT)): whole_imports(f.read_text(encoding="utf-8")) for f in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code", ["import xdevice", "def f():\n    import xdevice.errors", "import os, xdevice as x"]
)
def test_such_a_line_is_found(code):
    assert whole_imports(code)


@pytest.mark.parametrize(
    "code", ["from xdevice import ones", "import xdevice_pages", '">>> import xdevice"']
)
def test_any_other_line_is_not(code):
    assert not whole_imports(code)
