"""The files of a project, changed by small exact edits.

An edit names what it changes: a definition by its name, or lines by a few words in them. If the
words are not there, or are there more often than the edit expects, the edit stops with a line that
says so: the project has changed, and the edit has to be written again.
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent


class AnchorGone(SystemExit):
    """What an edit changes is no longer there."""


@dataclass
class Tree:
    """A copy of a project."""

    folder: Path
    originals: dict[str, str] = field(default_factory=dict)

    def file(self, path: str) -> File:
        return File(self, path)

    def files(self, pattern: str) -> list[File]:
        """The files that match, at least one."""
        paths = sorted(self.folder.glob(pattern))
        if not paths:
            raise AnchorGone(f"{pattern}: no file of the project matches")
        return [self.file(str(path.relative_to(self.folder))) for path in paths]

    def lines(self) -> dict[str, int]:
        """How many lines the edits removed and added, in how many files."""
        changes = [line for path in self.changed() for line in self.difference(path)[2:]]
        removed = sum(line.startswith("-") for line in changes)
        added = sum(line.startswith("+") for line in changes)
        return {"removed": removed, "added": added, "files": len(self.changed())}

    def changed(self) -> list[str]:
        return [path for path in self.originals if self.file(path).text != self.originals[path]]

    def difference(self, path: str) -> list[str]:
        before, after = self.originals[path].splitlines(), self.file(path).text.splitlines()
        return list(difflib.unified_diff(before, after, path, path, n=1, lineterm=""))


@dataclass(frozen=True)
class File:
    """One file of a tree."""

    tree: Tree
    path: str

    @property
    def text(self) -> str:
        try:
            return (self.tree.folder / self.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, text: str) -> None:
        """The new text, in a new file: the copy may be of hard links."""
        here = self.tree.folder / self.path
        self.tree.originals.setdefault(self.path, self.text)
        here.unlink(missing_ok=True)
        here.write_text(text, encoding="utf-8")

    def prepend(self, code: str) -> None:
        """Add code before everything but the docstring and imports from ``__future__``."""
        lines = self.text.splitlines(keepends=True)
        at = 0
        for node in ast.parse(self.text).body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            if not (is_docstring or is_future):
                break
            at = node.end_lineno or 0
        self.write("".join([*lines[:at], dedent(code).lstrip("\n"), *lines[at:]]))

    def append(self, code: str) -> None:
        self.write(f"{self.text.rstrip()}\n\n\n{dedent(code).strip()}\n".lstrip("\n"))

    def replace(self, pattern: str, new: str, *, times: int | None = 1) -> None:
        """Replace what the expression matches, as often as given; ``None``: at least once."""
        text, found = re.subn(pattern, new, self.text, flags=re.MULTILINE)
        if found == 0 or times not in (None, found):
            self._gone(f"{pattern!r} is there {found} times, expected {times or 'at least one'}")
        self.write(text)

    def replace_lines(self, first: str, last: str, code: str = "") -> None:
        """Replace the lines from the one that matches ``first`` to the next that matches ``last``.

        The code gets the indentation of the first line.
        """
        lines = self.text.splitlines(keepends=True)
        begins = [number for number, line in enumerate(lines) if re.search(first, line)]
        if len(begins) != 1:
            self._gone(f"{first!r} is in {len(begins)} lines, expected one")
        begin = begins[0]
        ends = [at for at in range(begin, len(lines)) if re.search(last, lines[at])]
        if not ends:
            self._gone(f"{last!r} is in no line after {first!r}")
        self._put(lines, begin, ends[0] + 1, code)

    def replace_definition(self, name: str, code: str = "") -> None:
        """Replace a function, class, or assignment, with its decorators; ``Class.method`` works.

        The code gets its indentation. Without code, the definition is removed.
        """
        node = self._find(name)
        decorators = getattr(node, "decorator_list", [])
        begin = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        lines = self.text.splitlines(keepends=True)
        end = node.end_lineno or node.lineno
        if not code:  # with the empty lines after it
            while end < len(lines) and not lines[end].strip():
                end += 1
        self._put(lines, begin, end, code)

    def remove(self, *names: str) -> None:
        for name in names:
            self.replace_definition(name)

    def add_fixture(self, fixture: str, pattern: str) -> None:
        """Give each test that contains what the expression matches a fixture."""
        lines = self.text.splitlines(keepends=True)
        tests = [
            node
            for node in ast.walk(ast.parse(self.text))
            if isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and re.search(pattern, "".join(lines[node.lineno : node.end_lineno]))
        ]
        if not tests:
            self._gone(f"no test contains {pattern!r}")
        for test in tests:
            head = lines[test.lineno - 1]
            first = re.search(r"\((self)?(\))?", head)
            assert first is not None
            comma_before, comma_after = (
                ", " * bool(first[1]),
                ", " * (not first[1] and not first[2]),
            )
            at = first.end(1) if first[1] else first.start() + 1
            lines[test.lineno - 1] = f"{head[:at]}{comma_before}{fixture}{comma_after}{head[at:]}"
        self.write("".join(lines))

    def delete(self) -> None:
        """Remove the file."""
        if not self.text:
            self._gone("the file is not there")
        self.tree.originals.setdefault(self.path, self.text)
        (self.tree.folder / self.path).unlink()

    def _put(self, lines: list[str], begin: int, end: int, code: str) -> None:
        indent = re.match(r"\s*", lines[begin])
        margin = indent.group().rstrip("\n") if indent else ""
        new = [
            f"{margin}{line}\n" if line else "\n" for line in dedent(code).strip("\n").splitlines()
        ]
        self.write("".join([*lines[:begin], *new, *lines[end:]]))

    def _find(self, name: str) -> ast.stmt:
        body: list[ast.stmt] = ast.parse(self.text).body
        node: ast.stmt | None = None
        for part in name.split("."):
            found = [
                node for top in body for node in _statements(top) if part in _names_bound_by(node)
            ]
            if len(found) != 1:
                self._gone(f"{name} is defined {len(found)} times, expected once")
            node = found[0]
            body = getattr(node, "body", [])
        assert node is not None
        return node

    def _gone(self, why: str) -> None:
        raise AnchorGone(f"{self.path}: {why}")


def _statements(node: ast.stmt) -> list[ast.stmt]:
    """The statement, and those in the branches of an ``if`` or ``try``."""
    if not isinstance(node, ast.If | ast.Try):
        return [node]
    inner = [*node.body, *node.orelse, *getattr(node, "finalbody", [])]
    inner += [line for handler in getattr(node, "handlers", []) for line in handler.body]
    return [node, *(found for line in inner for found in _statements(line))]


def _names_bound_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()
