"""The reading list of CONTRIBUTING.md: each file imports only files above it, or stated exceptions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = re.compile(r"^\| \d+ \| `([^`]+)` \|", re.MULTILINE)
EXCEPTION = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_each_listed_file_imports_only_files_above_it_and_the_stated_exceptions():
    section = reading_section()
    listed = LISTED.findall(section)
    exceptions = set(EXCEPTION.findall(section))
    assert len(listed) > 10
    used_exceptions = set()
    readable: set[str] = set()
    problems = []
    for entry in listed:
        files = modules_of(entry)
        readable |= set(files)
        for file in files:
            for imported in sorted(set(imports_of(file)) - readable):
                if imported in exceptions:
                    used_exceptions.add(imported)
                else:
                    problems.append(f"{file} imports {imported}, which is not listed above it")
    assert problems == []
    assert used_exceptions == exceptions, "an exception is listed that no file imports"


def reading_section() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Reading the core")
    return rest.partition("\n## ")[0]


def modules_of(entry: str) -> list[str]:
    """The modules of an entry of the list, which is a file or a folder."""
    path = ROOT / entry
    assert path.exists(), f"{entry} does not exist"
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return [file.relative_to(ROOT).as_posix() for file in files]


def imports_of(file: str) -> Iterator[str]:
    """The modules of xdevice that a module imports, also inside functions; not for annotations only."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file} has a relative import"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if file_of(name) else node.module for name in submodules]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "xdevice":
                yield file_of(name) or name


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module, without the blocks for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from statements_of(child)


def file_of(module: str) -> str | None:
    path = module.replace("xdevice.backends", "backends", 1).replace(".", "/")
    for candidate in (f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / candidate).exists():
            return candidate
    return None
