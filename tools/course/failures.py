"""Why a cell fails, as far as its error and the other cells tell."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from xdevice.tools.course.chapters import Cell, parsed
from xdevice.tools.course.outcomes import Outcome

NETWORK = re.compile(
    r"ProxyError|Max retries|Connection(?:Error|RefusedError)|URLError|URLSchemeUnknown"
    r"|offline mode|LocalEntryNotFound|couldn't connect to|Cannot download|Error downloading"
    r"|Failed to (?:download|connect)|[Uu]nable to resolve host|Could not resolve host"
    r"|URL fetch failure|Retry limit reached|Name or service not known"
    r"|Temporary failure in name resolution"
)
"""What an error says if a download has failed."""

_NO_FILE = re.compile(
    r"FileNotFoundError: (?:\[Errno 2\] No such file or directory: '([^']+)'|(\S+) not found)"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# Packages that do not have the name of their import.
_PACKAGES = {
    "IPython": "ipython",
    "OpenGL": "PyOpenGL",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "hydra": "hydra-core",
    "mpl_toolkits": "matplotlib",
    "paddle": "paddlepaddle",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "umap": "umap-learn",
    "yaml": "PyYAML",
}
NO_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_STAR = re.compile(r"^\s*from[ \t]+([\w.]+)[ \t]+import[ \t]+\*", re.MULTILINE)

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_OWN_NAMES = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def assigned(code: str) -> set[str]:
    """The names that a cell assigns, defines or imports, without those in its functions and classes."""
    return set(_assigned(parsed(code)))


def loaded(code: str) -> set[str]:
    """The names that a cell reads, also in its functions and classes."""
    names = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}


def package_of(module: str) -> str:
    """What ``pip install`` calls the package with this module."""
    return _PACKAGES.get(module, module)


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, _DEFINITIONS):
        yield node.name
    elif not isinstance(node, _OWN_NAMES):
        for child in ast.iter_child_nodes(node):
            yield from _assigned(child)


class Explanation(NamedTuple):
    """Why a cell fails, in words, and the number of the earlier cell whose failure is the cause."""

    words: str = ""
    cause: int = 0


def with_reasons(cells: Sequence[Cell], outcomes: Sequence[Outcome], folder: Path) -> list[Outcome]:
    """The outcomes; those of cells that fail with a reason, if it is known.

    ``folder`` is the chapter's.
    """
    reasoned: list[Outcome] = []
    failed: dict[int, tuple[Cell, Outcome]] = {}
    offline = 0  # the last cell whose command could not download, by its own words
    for number, (cell, outcome) in enumerate(zip(cells, outcomes, strict=True), 1):
        if outcome.failed:
            why = _by_itself(outcome.error) or _by_others(outcome.error, failed, offline)
            if not why.words:
                why = _by_a_file(outcome.error, folder)
            reasoned.append(replace(outcome, reason=why.words, cause=why.cause))
            failed[number] = (cell, reasoned[-1])
            continue
        if NETWORK.search(outcome.text + outcome.log):
            offline = number
        reasoned.append(outcome)
    return reasoned


def _by_itself(error: str) -> Explanation | None:
    """The explanation of an error that other cells have nothing to do with."""
    if NETWORK.search(error):
        return Explanation("it needs the network")
    if module := _NO_MODULE.search(error):
        return Explanation(_missing_module(module[1]))
    if "operator torchvision::" in error and "does not exist" in error:
        words = "the installed torchvision was built for another PyTorch"
        return Explanation(f"{words}; install the one released with yours")
    if "IProgress not found" in error:
        return Explanation("a progress bar needs 'ipywidgets'; pip install ipywidgets")
    if error.startswith("StdinNotImplementedError"):
        return Explanation("nothing can be typed while a chapter runs")
    return None


def _by_a_file(error: str, folder: Path) -> Explanation:
    """The explanation of an error for want of a file, with the path in the chapter's folder."""
    missing = _NO_FILE.match(error)
    if missing is None:
        return Explanation()
    path = os.path.normpath(folder / (missing[1] or missing[2]))
    return Explanation(f"there is no {path!r}; put the file there")


def _missing_module(module: str) -> str:
    package, _, submodule = module.partition(".")
    if module.startswith("google.colab"):
        return "'google.colab' exists on Google Colab alone"
    if submodule:  # Python names a submodule only if it has found the package
        return f"the {package!r} that is used has no {module!r}; the chapter needs another version"
    command = f"pip install {package_of(package)}"
    return f"no {package!r} is installed or in the chapter's checkout; {command}"


def _by_others(error: str, failed: Mapping[int, tuple[Cell, Outcome]], offline: int) -> Explanation:
    """The explanation of an error by a cell that has failed before."""
    if offline and error.startswith("FileNotFoundError"):
        return Explanation(f"cell {offline} could not download; it needs the network", offline)
    name = NO_NAME.search(error)
    if name is None:
        return Explanation()
    for number, (cell, outcome) in failed.items():
        if name[1] in assigned(cell.code):
            words = f"cell {number}, which assigns {name[1]!r}, has failed"
            if outcome.cause:
                words += f", because of cell {outcome.cause}"
            return Explanation(words, outcome.cause or number)
    for number, (cell, outcome) in failed.items():
        if module := _STAR.search(cell.code):
            words = f"cell {number}, which imports all names of {module[1]!r}, has failed"
            return Explanation(words, outcome.cause or number)
    return Explanation()
