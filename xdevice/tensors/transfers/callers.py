"""Who makes a copy: the user's frames, without those of libraries and generated code."""

import ast
import linecache
import os
import re
import site
import sys
import sysconfig
from functools import cache, lru_cache
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = _PACKAGE, os.path.join(os.path.dirname(_PACKAGE), "backends")  # of a checkout
_libraries = tuple(
    os.path.realpath(path) + os.sep
    for path in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        *_OURS,
    }
)
_GENERATED = re.compile(r"<(?!ipython-input|stdin)|.*[/\\](?:__autograph_generated_file|(?:site|dist)-packages[/\\])")
_ALLOW = re.compile(r"#\s*xdevice:\s*allow\b")
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Span = tuple[tuple[int, int], tuple[int, int]]
"""A line and a column of it, in bytes, and those of the end."""
_MOST = 12  # frames: a program that is deeper is cut at its outer end

_MOST_SPOTS = 4096


class Place(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"

    @property
    def source(self) -> str:
        """The line's text; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


class Spot(NamedTuple):
    """An instruction of the user's program."""

    place: Place
    called: str  # the function or method that it calls, ``tolist``, or ``[]``; empty where it is not known
    allowed: bool  # the line says so
    loops: tuple[tuple[str, int, int], ...]  # file, first and last line of each loop around it, the innermost first


_users: dict[str, bool] = {}  # whether a file is the user's
_spots: dict[tuple[int, int], tuple[CodeType, Spot]] = {}  # not by the code itself, whose hash is slow


def shown(file: str) -> str:
    """A file as a person writes it: relative where it is below the working directory."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative


@cache  # once for each framework
def skip(*modules: ModuleType) -> None:
    """Take these modules, or packages, for a library's, wherever they are: a framework and its adapter."""
    global _libraries
    paths = [os.path.realpath(module.__file__) for module in modules if module.__file__]
    _libraries += tuple(os.path.dirname(path) + os.sep if path.endswith("__init__.py") else path for path in paths)
    _users.clear()


def is_users(file: str) -> bool:
    """Whether the file is the user's: no library's, none of ours, and not generated."""
    known = _users.get(file)
    if known is None:
        path = os.path.realpath(file)
        known = not _GENERATED.match(file) and not path.startswith(_libraries)
        _users[file] = known
    return known


class Caller(NamedTuple):
    """A frame of the user's, where it is, and the frame that it called, if that is Python's."""

    frame: FrameType
    spot: Spot
    inner: FrameType | None


def callers(frame: FrameType | None) -> list[Caller]:
    """The user's frames from this one outwards, the innermost first."""
    found: list[Caller] = []
    inner: FrameType | None = None
    while frame is not None and len(found) < _MOST:
        if is_users(frame.f_code.co_filename):
            found.append(Caller(frame, spot(frame), inner))
        inner, frame = frame, frame.f_back
    return found


def calls_before(frame: FrameType | None) -> list[str]:
    """The names of the functions of libraries between this frame and the user's innermost, from inside; not ours."""
    names: list[str] = []
    while frame is not None and not is_users(frame.f_code.co_filename):
        if not frame.f_code.co_filename.startswith(_OURS):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@lru_cache(maxsize=4096)
def is_allowed(place: Place) -> bool:
    """Whether the statement's line, or its last one, ends with ``# xdevice: allow``."""
    first, last = statement(place)
    return any(_ALLOW.search(linecache.getline(place.file, line)) for line in {first, place.line, last})


@lru_cache(maxsize=4096)
def statement(place: Place) -> tuple[int, int]:
    """The first and the last line of the statement with that line; of a loop or a block, those of its head."""
    found = [n for n in ast.walk(tree(place.file)) if isinstance(n, ast.stmt) and holds(n, place.line)]
    if not found:
        return place.line, place.line
    innermost = max(found, key=lambda n: (n.lineno, n.col_offset))
    body = getattr(innermost, "body", None)
    last = max(innermost.lineno, body[0].lineno - 1) if body else innermost.end_lineno
    return innermost.lineno, last or innermost.lineno


def holds(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


@lru_cache(maxsize=256)
def tree(file: str) -> ast.Module:
    """The file's syntax; an empty one where it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@lru_cache(maxsize=4096)
def loops(place: Place, at: Span | None = None) -> tuple[tuple[int, int], ...]:
    """The first and last lines of the loops around a line, within its function, the innermost first.

    A comprehension is around what is inside it: not around the call that it is an argument of.
    """
    return tuple(lines for lines in _around(place, _LOOPS, at) if lines[0] >= function(place)[0])


def function(place: Place) -> tuple[int, int]:
    """The lines of the innermost function around the line; of nothing, at the top of a file."""
    return next(iter(_around(place, _FUNCTIONS)), (0, 0))


def _around(
    place: Place, kinds: tuple[type[ast.stmt | ast.expr], ...], at: Span | None = None
) -> list[tuple[int, int]]:
    """The first and last lines of what is around a line, the innermost first."""
    found = [
        n
        for n in ast.walk(tree(place.file))
        if isinstance(n, kinds) and holds(n, place.line) and (at is None or isinstance(n, ast.stmt) or _contains(n, at))
    ]
    return sorted(((n.lineno, n.end_lineno or n.lineno) for n in found), reverse=True)


def _contains(node: ast.expr, span: Span) -> bool:
    first, last = span
    return (node.lineno, node.col_offset) <= first and last <= (node.end_lineno or 0, node.end_col_offset or 0)


def spot(frame: FrameType) -> Spot:
    code, instruction = frame.f_code, frame.f_lasti
    key = id(code), instruction
    known = _spots.get(key)
    if known is None:
        if len(_spots) > _MOST_SPOTS:
            _spots.clear()
        place = Place(code.co_filename, frame.f_lineno)
        span = _span(code, instruction)
        around = tuple((place.file, *lines) for lines in loops(place, span))
        found = Spot(place, _named_at(code, span), is_allowed(place), around)
        known = _spots[key] = code, found  # the code is kept, so that its id stays its own
    return known[1]


def _span(code: CodeType, instruction: int) -> Span | None:
    """Where an instruction begins and ends; nothing where Python does not know it, as before 3.11."""
    if sys.version_info < (3, 11):
        return None
    line, end, left, right = next(islice(code.co_positions(), instruction // 2, None))
    return None if line is None or end is None or left is None or right is None else ((line, left), (end, right))


def _named_at(code: CodeType, span: Span | None) -> str:
    if span is None:
        return ""
    (line, left), (end, right) = span
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end]]
    if not lines:
        return ""
    lines[-1], lines[0] = lines[-1][:right], lines[0][left:] if len(lines) > 1 else lines[0][left:right]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(call, ast.Subscript):
        return "[]"
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))
