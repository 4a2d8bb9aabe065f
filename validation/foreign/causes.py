"""Sort what came of tests by its cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Set
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
PAGES = ("use/virtual.md", "project/virtual.md")
CAUSES = {
    "passed": "passed",
    "cannot": "cannot",
    "CPU": "fail on the CPU too",
    "CUDA": "fail on GPUs too",
    "package": "lack a package",
    "download": "lack a download",
    "lost": "were not run",
    "ours": "ours",
}
ANYWHERE = "CPU", "CUDA", "package", "download"
"""Causes that are neither xdevice's nor this tool's."""
DOWNLOADS = re.compile(
    "couldn't connect to|offline mode|OfflineMode|Name or service not known|Temporary failure in name resolution"
    "|Max retries|URLError|hf_hub_download|NameResolutionError|CERTIFICATE_VERIFY_FAILED"
)
PACKAGES = re.compile(
    r"No module named '?([\w-]+)|could not import '([\w-]+)|pip install (?:-\S+ )*[`'\"]?([\w-]+)"
    r"|[`'\"]?([\w-]+)[`'\"]? (?:is|are|was) not installed|requires (?:the )?[`'\"]([\w-]+)[`'\"]"
)
"""What an error says where a package is missing: the name stands in one of the groups."""
HARDWARE = {"cuda", "cudnn", "nccl", "gpu", "gpus", "driver", "nvidia"}
"""What errors call not installed, and is no package."""
Results = dict[str, dict[str, str]]
Reasons = list[tuple[str, re.Pattern[str]]]
"""Words that tell a cause, and the expression that finds such a failure by the test's id or its error."""


def compiled(expressions: Mapping[str, str]) -> Reasons:
    return [(words, re.compile(expression)) for words, expression in expressions.items()]


def told_by(reasons: Reasons, failure: str) -> str:
    """The words of the first that fits, or nothing."""
    return next((words for words, error in reasons if error.search(failure)), "")


def reasons() -> Reasons:
    """What cannot be had on virtual GPUs, in words of the pages on virtual GPUs."""
    pages = " ".join(" ".join((DOCS / page).read_text() for page in PAGES).split())
    found = tomllib.loads((HERE / "cannot.toml").read_text())
    for words in found:
        if words not in pages:
            raise SystemExit(f"cannot.toml names {words!r}, which {PAGES} do not say")
    return compiled(found)


def missing_package(why: str) -> str:
    """The package that an error asks for and that is not here, or nothing."""
    names = (next(filter(None, groups)) for groups in PACKAGES.findall(why))
    missing = (name for name in names if name.lower() not in HARDWARE and not is_here(name))
    return next(missing, "").replace("-", "_")


def is_here(name: str) -> bool:
    """Whether a module or a distribution of the name is installed."""
    try:
        return find_spec(name.replace("-", "_")) is not None or bool(metadata.version(name))
    except (metadata.PackageNotFoundError, ValueError):
        return False


def sort_by_cause(found: Results, on_the_cpu: Set[str], on_gpus: Mapping[str, str]) -> Results:
    """The results, each with its cause, and what tells it: a package's name, or words of the pages or of the row."""
    known = {"cannot": reasons(), "CUDA": compiled(on_gpus)}
    for test, result in found.items():
        result["cause"] = result["outcome"]
        if result["outcome"] == "failed":
            result["cause"], result["told"] = cause(test, result["why"], test in on_the_cpu, known)
    return found


def cause(test: str, why: str, on_the_cpu: bool, known: Mapping[str, Reasons]) -> tuple[str, str]:
    """Why a test failed. One that lacks something here fails so on the CPU too, or is skipped there."""
    if package := missing_package(why):
        return "package", package
    if download := DOWNLOADS.search(why):
        return "download", download[0]
    for name, reasons in known.items():
        if told := told_by(reasons, f"{test} {why}"):
            return name, told
    return ("CPU", "") if on_the_cpu else ("ours", "")


def count(causes: Results) -> Counter[str]:
    return Counter(result["cause"] for result in causes.values())


def is_right(causes: Results) -> bool:
    """Whether some tests passed, and no failure is ours, and all that were to be run came to an end."""
    by = count(causes)
    return bool(by["passed"]) and not by["ours"] and not by["lost"]
