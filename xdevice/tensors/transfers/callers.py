"""Who makes a copy: the user's frames, without those of libraries and generated code."""

import ast
import linecache
import os
import re
import site
import sys
import sysconfig
from functools import cache
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import NamedTuple

from xdevice.tensors.transfers.syntax import Place, Span, is_allowed, loops

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BESIDE = os.path.dirname(_PACKAGE)
# in a checkout, parts of the package stand beside it
_OURS = _PACKAGE, os.path.join(_BESIDE, "backends"), os.path.join(_BESIDE, "virtual")
_PREFETCH = os.path.join(_PACKAGE, "parallel", "prefetch.py")
_STANDARD = (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_libraries = tuple(
    os.path.realpath(path) + os.sep
    for path in {*_STANDARD, *site.getsitepackages(), site.getusersitepackages(), *_OURS}
)
_GENERATED = re.compile(
    r"<(?!ipython-input|stdin)|.*[/\\](?:__autograph_generated_file|(?:site|dist)-packages[/\\])"
)
_MOST = 12  # frames: a program that is deeper is cut at its outer end
_MOST_SPOTS = 4096


class Spot(NamedTuple):
    """An instruction of the user's program."""

    place: Place
    called: str  # the function or method that it calls, ``tolist``, or ``[]``; empty where it is not known
    allowed: bool  # the line says so
    loops: tuple[
        tuple[str, int, int], ...
    ]  # file, first and last line of each loop around it, the innermost first


_spots: dict[
    tuple[int, int], tuple[CodeType, Spot]
] = {}  # not by the code itself, whose hash is slow


class Caller(NamedTuple):
    """A frame of the user's, where it is, and the frame that it called, if that is Python's."""

    frame: FrameType
    spot: Spot
    inner: FrameType | None


@cache  # once for each framework
def skip(*modules: ModuleType) -> None:
    """Take these modules, or packages, for a library's, wherever they are: a framework and its adapter."""
    global _libraries
    paths = [os.path.realpath(module.__file__) for module in modules if module.__file__]
    _libraries += tuple(
        os.path.dirname(path) + os.sep if path.endswith("__init__.py") else path for path in paths
    )
    is_users.cache_clear()


@cache
def is_users(file: str) -> bool:
    """Whether the file is the user's: no library's, none of ours, and not generated."""
    return not _GENERATED.match(file) and not os.path.realpath(file).startswith(_libraries)


def callers(frame: FrameType | None) -> list[Caller]:
    """The user's frames from this one outwards, the innermost first."""
    found: list[Caller] = []
    inner: FrameType | None = None
    while frame is not None and len(found) < _MOST:
        if is_users(frame.f_code.co_filename):
            found.append(Caller(frame, spot(frame), inner))
        inner, frame = frame, frame.f_back
    return found


def is_ahead(frame: FrameType | None) -> bool:
    """Whether `prefetch` is on the stack: what it takes from its source, and places, is ahead of the loop."""
    while frame is not None:
        if frame.f_code.co_filename == _PREFETCH:
            return True
        frame = frame.f_back
    return False


def calls_before(frame: FrameType | None) -> list[str]:
    """The names of the functions of libraries between this frame and the user's innermost, from inside; not ours."""
    names: list[str] = []
    while frame is not None and not is_users(frame.f_code.co_filename):
        if not frame.f_code.co_filename.startswith(_OURS):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


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
    return (
        None
        if line is None or end is None or left is None or right is None
        else ((line, left), (end, right))
    )


def _named_at(code: CodeType, span: Span | None) -> str:
    if span is None:
        return ""
    (line, left), (end, right) = span
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end]]
    if not lines:
        return ""
    lines[-1], lines[0] = (
        lines[-1][:right],
        lines[0][left:] if len(lines) > 1 else lines[0][left:right],
    )
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(call, ast.Subscript):
        return "[]"
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))
