"""What cells import, assign and read, what is not installed, and why a cell fails."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from xdevice.virtual.request import of_environment

NETWORK = re.compile(
    r"ProxyError|Max retries|Connection(?:Error|RefusedError)|URLError|URLSchemeUnknown"
    r"|offline mode|LocalEntryNotFound|couldn't connect to|Cannot download|Error downloading"
    r"|Failed to (?:download|connect)|[Uu]nable to resolve host|Could not resolve host"
    r"|URL fetch failure|Retry limit reached|Name or service not known"
    r"|Temporary failure in name resolution"
)
"""What an error says if a download has failed."""

_NO_GPU = re.compile(  # as of PyTorch 2.13, PaddlePaddle 3.3, MXNet 1.9 and JAX 0.10
    r"not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|\(InvalidArgument\) use wrong place|not implemented for GPU|Unknown backend: '(?:gpu|cuda)'"
)
"""What an error says on a machine without a GPU."""

_KNOWN = (
    (NETWORK, "it needs the network"),
    (
        re.compile("operator torchvision::.* does not exist"),
        "the installed torchvision was built for another PyTorch; install the one released with yours",
    ),
    (
        re.compile("IProgress not found"),
        "a progress bar needs 'ipywidgets'; pip install ipywidgets",
    ),
    (re.compile("^StdinNotImplementedError"), "nothing can be typed while a chapter runs"),
)
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
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\w+)|import[ \t]+([\w., \t]+))"
)
_COMMAND = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
"""A line of IPython's own: a magic or a command of the shell."""
_INSTALLS = re.compile(r"^\s*[%!].*\b(?:pip|conda|mamba|uv)\b.*\binstall\b", re.MULTILINE)

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_OWN_NAMES = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def parsed(code: str) -> ast.AST:
    """The cell's syntax; that of an empty one if it is not Python."""
    try:
        return ast.parse(_COMMAND.sub(r"\1pass", code))
    except SyntaxError:
        return ast.Module([], [])


def imported_by(code: str) -> list[str]:
    """The packages that a cell imports; ``from d2l import torch`` imports both."""
    names: list[str] = []
    for line in code.splitlines():
        statement = _IMPORT.match(line)
        if statement is None:
            continue
        if statement[1]:
            names += [statement[1].partition(".")[0], statement[2]]
        else:
            modules = statement[3].split(",")
            names += [re.split(r"[.\s]", module.strip())[0] for module in modules]
    return [name for name in dict.fromkeys(names) if name]


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


def explanations(
    codes: Sequence[str], errors: Sequence[str], printed: Sequence[str], folder: Path
) -> list[Explanation]:
    """Why each cell fails, as far as its error and the cells before it tell.

    The error of a cell that has not failed is empty. ``folder`` is the chapter's.
    """
    explained: list[Explanation] = []
    failed: dict[int, tuple[str, Explanation]] = {}
    offline = 0  # the last cell whose command could not download, by its own words
    for number, (code, error, text) in enumerate(zip(codes, errors, printed, strict=True), 1):
        explanation = Explanation()
        if error:
            explanation = _by_itself(error) or _by_others(error, failed, offline)
            explanation = explanation if explanation.words else _by_a_file(error, folder)
            failed[number] = (code, explanation)
        elif NETWORK.search(text):
            offline = number
        explained.append(explanation)
    return explained


def _by_itself(error: str) -> Explanation | None:
    """The explanation of an error that other cells have nothing to do with."""
    if module := _NO_MODULE.search(error):
        return Explanation(_missing_module(module[1]))
    if _NO_GPU.search(error) and not of_environment().number:
        return Explanation("it needs a GPU; xdevice chapter --gpus 2 gives it virtual ones")
    for known, words in _KNOWN:
        if known.search(error):
            return Explanation(words)
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


def _by_others(
    error: str, failed: Mapping[int, tuple[str, Explanation]], offline: int
) -> Explanation:
    """The explanation of an error by a cell that has failed before."""
    if offline and error.startswith("FileNotFoundError"):
        return Explanation(f"cell {offline} could not download; it needs the network", offline)
    name = NO_NAME.search(error)
    if name is None:
        return Explanation()
    for number, (code, explanation) in failed.items():
        if name[1] in assigned(code):
            words = f"cell {number}, which assigns {name[1]!r}, has failed"
            if explanation.cause:
                words += f", because of cell {explanation.cause}"
            return Explanation(words, explanation.cause or number)
    for number, (code, explanation) in failed.items():
        if module := _STAR.search(code):
            words = f"cell {number}, which imports all names of {module[1]!r}, has failed"
            return Explanation(words, explanation.cause or number)
    return Explanation()


def missing_packages(codes: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """What to install so that the cells can import what they do; ``folders`` have own packages.

    Imports inside ``try`` and functions do not count. A chapter that installs
    packages itself is taken to install what it needs.
    """
    if any(_INSTALLS.search(code) for code in codes):
        return []
    modules = [module for code in codes for module in _imported(parsed(code))]
    own_files = [path for module in modules for path in _files_of(module, folders)]
    for path in dict.fromkeys(own_files):
        modules += _imported(_parsed_file(path))
    names = {
        module.partition(".")[0] for module in modules if not module.startswith("google.colab")
    }
    return sorted(package_of(name) for name in names if not _is_found(name, folders))


def _imported(code: ast.AST) -> Iterator[str]:
    """The modules that the code imports whenever it runs; ``from a import b`` is ``a.b``."""
    for node in getattr(code, "body", ()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files_of(module: str, folders: Sequence[Path]) -> Iterator[Path]:
    """The files of the checkout that an import of the module runs."""
    names = module.split(".")
    for folder in folders:
        for length in range(1, len(names) + 1):
            place = folder.joinpath(*names[:length])
            candidates = (place / "__init__.py", place.with_suffix(".py"))
            yield from (path for path in candidates if path.is_file())


def _parsed_file(path: Path) -> ast.AST:
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ast.Module([], [])


def _is_found(name: str, folders: Sequence[Path]) -> bool:
    if name in sys.stdlib_module_names or name in sys.modules:
        return True
    if any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders):
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
