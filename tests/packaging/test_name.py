"""The distribution is `xdevice-tensors`: nothing in the project leads to `xdevice`, another project's package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).name

STRANGER = [
    re.compile(r"\bxdevice\["),  # an extra
    re.compile(r"pip3? (?:install|download|wheel)(?: -\S+)* ['\"]?xdevice(?![\w-])"),
    re.compile(r"(?:uv|pipx|poetry|conda) (?:pip )?(?:install|add) ['\"]?xdevice(?![\w-])"),
    re.compile(
        r"^(?: +(?:[\w,!-]+: *)?)?xdevice(?: *[<>=~!]=? *\d[^\n]*)?$", re.MULTILINE
    ),  # requirements, deps
    re.compile(r"dependencies = \[[^\]]*['\"]xdevice(?![\w-])"),
    re.compile(r"requires = \[[^\]]*['\"]xdevice(?![\w-])"),
]


def led_astray(text):
    return [found[0].strip() for pattern in STRANGER for found in pattern.finditer(text)]


def test_no_hint_page_or_requirement_names_the_other_package(project_files):
    names = [name for name in project_files if Path(name).name != HERE and (ROOT / name).is_file()]
    texts = ((name, (ROOT / name).read_bytes().decode(errors="replace")) for name in names)
    assert {name: led_astray(text) for name, text in texts if led_astray(text)} == {}


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs git, and a checkout"
)
@pytest.mark.parametrize(
    "folder", ["xdevice_tensors-0.1.0", "build", ".tox", "xdevice_tensors.egg-info"]
)
def test_what_another_environment_builds_in_the_tree_is_not_read(folder):
    """tox builds the source distribution in a folder of the checkout, and removes it while this may read."""
    command = ["git", "check-ignore", "-q", f"{folder}/README.md"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'xdevice[torch]'",
        "pip install -U xdevice",
        "pip install xdevice",
        "uv add xdevice",
        "deps =\n    pytest\n    xdevice\n",
        "deps =\n    torch: xdevice>=1\n",
        'dependencies = ["numpy", "xdevice"]',
    ],
)
def test_a_line_that_names_it_is_found(text):
    assert led_astray(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install xdevice-tensors",
        "pip install 'xdevice-tensors[cli]'",
        "    xdevice-tensors\n",
        "pip install '.[cli]'",
    ],
)
def test_a_line_that_names_ours_is_not(text):
    assert not led_astray(text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_the_extras_ask_for_our_own_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "xdevice-tensors"
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    ours = [one for one in asked if one.startswith("xdevice")]
    assert ours
    assert all(one.startswith("xdevice-tensors[") for one in ours)
