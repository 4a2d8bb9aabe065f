"""How easy the source is on the eye: a table with one row for each room. A mirror, not a gate.

``python tests/mirror.py`` measures each folder of the five buildings;
``python tests/mirror.py tools/cli`` measures each file of a folder, and ``--names`` lists its
vague names with their lines. The row "models" is the range of seven libraries that read well:
anyio, einops, array-api-compat, narwhals, httpx, pluggy and keyring.

Docstrings and comments count, because a reader reads them too; blank lines have no width.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILDINGS = {"core": "xdevice"} | {
    name: name for name in ("backends", "virtual", "testing", "tools")
}
MODELS = ("models", "", "35-45", "0-3", "2-9", "0-23", "0-0.1")
HEADER = ("", "lines", "chars/line", "over 100 %", "if-else/1000", "Any/1000", "vague %")

# A name says what a thing is. These say that it was found, that it is here, or whose it is.
VAGUE_WORDS = """
    found made given known wanted asked told said says kept owned taken shown begun held heard
    looked look sent got done tried meant used there here where what why which who whole one it
    own ours theirs mine others each both every before after
"""
VAGUE_NAMES = frozenset(VAGUE_WORDS.split())


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @cached_property
    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse("\n".join(self.lines))))

    @cached_property
    def names(self) -> list[tuple[int, str]]:
        """The line and the name of each parameter, and of each variable or attribute assigned."""
        return [pair for node in self.nodes if (pair := assigned_name(node)) is not None]

    @cached_property
    def vague_names(self) -> list[tuple[int, str]]:
        return [(line, name) for line, name in self.names if name.strip("_") in VAGUE_NAMES]


def assigned_name(node: ast.AST) -> tuple[int, str] | None:
    match node:
        case ast.arg(arg=name, lineno=line):
            return line, name
        case ast.Name(id=name, ctx=ast.Store(), lineno=line):
            return line, name
        case ast.Attribute(attr=name, ctx=ast.Store(), lineno=line):
            return line, name
    return None


def row(title: str, sources: list[Source]) -> tuple[str, ...]:
    """The figures of some files, each in its column."""
    lines = [line for source in sources for line in source.lines]
    widths = [len(line) for line in lines if line.strip()]
    nodes = [node for source in sources for node in source.nodes]
    conditionals = sum(isinstance(node, ast.IfExp) for node in nodes)
    anys = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    names = sum(len(source.names) for source in sources)
    vague_names = sum(len(source.vague_names) for source in sources)
    return (
        title,
        str(len(lines)),
        ratio(sum(widths), len(widths)),
        ratio(100 * sum(width > 100 for width in widths), len(widths)),
        ratio(1000 * conditionals, len(lines)),
        ratio(1000 * anys, len(lines)),
        ratio(100 * vague_names, names),
    )


def ratio(part: float, total: int) -> str:
    return f"{part / total:.1f}" if total else "-"


def sources_in(folder: Path) -> list[Source]:
    return [Source(path) for path in sorted(folder.rglob("*.py"))]


def rows_of_building(title: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """A row for the whole, one for the files outside every folder, and one for each folder."""
    yield row(title, sources_in(folder))
    loose_files = [Source(path) for path in sorted(folder.glob("*.py"))]
    if loose_files:
        yield row(f"  {folder.name}/*.py", loose_files)
    for room in sorted(folder.iterdir()):
        if sources := sources_in(room):
            yield row(f"  {folder.name}/{room.name}", sources)


def rows_of_folder(folder: Path) -> Iterator[tuple[str, ...]]:
    sources = sources_in(folder)
    yield row(folder.name, sources)
    for source in sources:
        yield row(f"  {source.path.relative_to(folder)}", [source])


def print_table(rows: Iterable[tuple[str, ...]]) -> None:
    for title, *figures in rows:
        print(f"{title:34}" + "".join(f"{figure:>13}" for figure in figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, help="measure each file of these folders")
    parser.add_argument("--names", action="store_true", help="list their vague names")
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.folders]
    print_table([HEADER, MODELS])
    for folder in folders:
        print_table(rows_of_folder(folder))
    if not folders:
        for title, name in BUILDINGS.items():
            if (ROOT / name).is_dir():
                print_table(rows_of_building(title, ROOT / name))
    if options.names:
        for source in (source for folder in folders for source in sources_in(folder)):
            for line, name in source.vague_names:
                print(f"{source.path}:{line}: {name}")


if __name__ == "__main__":
    main()
