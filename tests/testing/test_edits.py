"""An adapter that comes with xdevice is five edits: all five are made for every adapter."""

import re
from pathlib import Path

import pytest

from xdevice.contract import CAPABILITIES, PROVIDED
from xdevice.framework.registry import ORDER, entry_points_of

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted(
    folder.name for folder in (ROOT / "backends").iterdir() if (folder / "hardware.py").is_file()
)


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def names(file, pattern):
    """The names of adapters in the part of a file that the pattern finds."""
    (part,) = re.findall(pattern, text(file), re.MULTILINE | re.DOTALL)
    return {name for name in ADAPTERS if re.search(rf"(?<![\w.-]){name}(?![\w-])", part)}


EVERYWHERE = names("tox.ini", r"^env_list = ([^\n]*)")
"""Those tested on every change: the others have an environment in tox-weekly.ini."""

CONTRACT = text("tests/typing/contract.py")


@pytest.mark.parametrize(
    ("file", "pattern", "named"),
    [
        ("pyproject.toml", r'^\[project\.entry-points\."xdevice\.backends"\]\n(.*?)\n\n', ADAPTERS),
        ("pyproject.toml", r"^\[project\.optional-dependencies\]\n(.*?)\n\n", ADAPTERS),
        (".github/workflows/tests.yml", r"environment: \[(.*?)\]", EVERYWHERE),
    ],
    ids=["entry point", "extra", "workflow"],
)
def test_each_folder_is_named_where_it_must(file, pattern, named):
    assert names(file, pattern) == set(named)


def test_each_framework_with_a_rank_is_tested_on_every_change():
    assert set(ORDER) <= EVERYWHERE < set(ADAPTERS)


def test_the_others_have_an_environment():
    own = set(re.findall(r"^\[testenv:(\w+)\]$", text("tox-weekly.ini"), re.MULTILINE))
    weekly = names("tox-weekly.ini", r"^env_list =\n(.*?)\nskip_missing")
    assert set(ADAPTERS) - set(ORDER) <= own | weekly


def test_each_adapter_has_its_own_calls_for_the_contract():
    assert sorted(file.stem for file in (ROOT / "tests" / "native").glob("*.py")) == ADAPTERS


def provides(name, capability):
    """Whether the capability's module defines one of its functions."""
    module = module_of(name, capability)
    functions = "|".join(CAPABILITIES[capability])
    return defines(module, rf"((def|class) ({functions})\b|({functions}) = )")


def module_of(name, home):
    """The path of the adapter's module, or of the module provided for it, without a suffix."""
    provided = entry_points_of(PROVIDED[home]).get(name) if home in PROVIDED else None
    if provided is None:
        return ROOT / "backends" / name / home
    return ROOT / provided.removeprefix("xdevice.").replace(".", "/")


def defines(module, pattern):
    files = (module.with_suffix(".py"), module / "__init__.py")
    sources = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return any(re.search(f"^{pattern}", source, re.MULTILINE) for source in sources)


def test_each_capability_is_typed():
    whole = re.findall(r"^(\w+): list\[contract\.\w+\] = \[(.*?)\]", CONTRACT, re.M | re.S)
    by_function = re.findall(r"Like\(given\.(\w+)\.\w+\)\.check\((.*?)\)", CONTRACT, re.S)
    typed = {
        (name, capability)
        for capability, text in [*whole, *by_function]
        for name in re.findall(rf"\b({'|'.join(ADAPTERS)})_\w+", text)
    }
    assert typed == {
        (name, capability)
        for name in ADAPTERS
        for capability in CAPABILITIES
        if provides(name, capability)
    }
