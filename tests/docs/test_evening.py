"""The list in docs/project/design.md: the calls of `to_device`, and the files in the order of their imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = re.compile(r"^\| \d+ \| `([^`]+)` \|", re.MULTILINE)
EXCEPTION = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
CALL = re.compile(r"^\d+\. `(\w+)` in `([^`]+)` (.*)$", re.MULTILINE)

# Calls `to_device` twice. Prints the functions of the checkout in the order of their first calls: in the first call of
# `to_device`, and in the second. A class is where its `__init__` is.
TRACE = """
    import sys
    from dataclasses import dataclass
    from pathlib import Path
    import torch

    @dataclass
    class Batch:
        x: torch.Tensor

    xdevice.virtual_gpus(2, force=True)
    batch = Batch(torch.ones(3))
    functions = {}

    def note(frame, event, argument):
        is_function = frame.f_code.co_flags & 1  # and not the body of a module or a class
        if event == "call" and is_function:
            name = frame.f_code.co_name
            if name == "__init__":
                name = type(frame.f_locals["self"]).__name__
            functions[name, frame.f_code.co_filename] = None

    for _ in range(2):
        functions.clear()
        sys.setprofile(note)
        moved = xdevice.to_device(batch, "gpu:1")
        sys.setprofile(None)
        assert xdevice.device_of(moved.x) == "gpu:1"
        for name, file in list(functions):
            print(name, Path(file).as_posix())
        print()
"""


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


def test_to_device_makes_the_listed_calls_in_this_order(run):
    calls = CALL.findall(reading_section())
    assert len(calls) > 10
    called_first, called_again = (part.splitlines() for part in run(TRACE).split("\n\n"))
    positions = [position_of(function, file, called_first) for function, file, _ in calls]
    assert None not in positions, [
        call for call in calls if position_of(*call[:2], called_first) is None
    ]
    assert positions == sorted(positions)
    for function, file, text in calls:
        is_called_again = position_of(function, file, called_again) is not None
        assert is_called_again != ("Once for each" in text), f"{function} in {file}"


def position_of(function: str, file: str, functions: list[str]) -> int | None:
    """Where the function is among those that were called; ``None`` if it was not."""
    for position, line in enumerate(functions):
        name, _, path = line.partition(" ")
        if name == function and path.endswith(f"/{file}"):
            return position
    return None


def reading_section() -> str:
    text = (ROOT / "docs/project/design.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Files to read in an evening")
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
