"""The user's frames that make a copy, without those of libraries and generated code."""

import ast
import linecache
import os
import re
import site
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import NamedTuple

from xdevice.transfers.syntax import Place, Span, called_name, is_allowed, loops

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# in a checkout, these are beside the package
_BESIDE = [
    os.path.join(os.path.dirname(_PACKAGE), folder)
    for folder in ("backends", "virtual", "testing", "tools")
]
_OUR_FOLDERS = (_PACKAGE, *_BESIDE)
_PREFETCH = os.path.join(_PACKAGE, "parallel", "prefetch.py")
_PYTHON_FOLDERS = [
    sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")
]
_LIBRARY_FOLDERS = {
    *_PYTHON_FOLDERS,
    *site.getsitepackages(),
    site.getusersitepackages(),
    *_OUR_FOLDERS,
}
_frameworks: tuple[str, ...] = ()  # folders of frameworks and their adapters, see `skip`
_library_prefixes = tuple(os.path.realpath(folder) + os.sep for folder in _LIBRARY_FOLDERS)
_GENERATED = re.compile(
    r"<(?!ipython-input|stdin)|.*[/\\](?:__autograph_generated_file|(?:site|dist)-packages[/\\])"
)
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\](\w+)")
# Programs call these as they call the framework itself.
_BESIDE_FRAMEWORKS = ("jaxlib", "keras", "numpy")
_MAX_FRAMES = 12  # a deeper program is cut at its outer end
_MAX_SPOTS = 4096


class Loop(NamedTuple):
    """The lines of a loop in the user's program."""

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """An instruction of the user's program.

    A frame's spot at its last copy is its trace function, see `turns`.
    """

    instruction: int
    """Its offset in the code object."""
    place: Place
    called: str
    """The function or method that it calls, ``tolist``, or ``[]``; empty where it is not known."""
    allowed: bool
    """Whether a comment in the line allows copies."""
    loops: tuple[Loop, ...]
    """The loops around it, the innermost first."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """A debugger that started after the last copy calls this, once."""
        frame.f_trace = None


class Caller(NamedTuple):
    """A frame of the user's, where it is, and the frame that it called, if that is Python's."""

    frame: FrameType
    spot: Spot
    inner: FrameType | None


# By the id of a code object and the instruction: hashing the code itself is
# slow. The value keeps the code object, so that no other one gets its id.
_spots: dict[tuple[int, int], tuple[CodeType, Spot]] = {}


@cache  # once for each framework
def skip(*modules: ModuleType) -> None:
    """Take these modules or packages, a framework and its adapter, for libraries."""
    global _frameworks, _library_prefixes
    for module in modules:
        if not module.__file__:
            continue
        path = os.path.realpath(module.__file__)
        if path.endswith("__init__.py"):
            path = os.path.dirname(path) + os.sep
        _frameworks += (path,)
        _library_prefixes += (path,)
    is_users.cache_clear()
    _is_librarys.cache_clear()


@cache
def is_users(file: str) -> bool:
    """Whether the file is the user's: not a library's, not ours, and not generated."""
    return not _GENERATED.match(file) and not os.path.realpath(file).startswith(_library_prefixes)


def callers(frame: FrameType | None) -> list[Caller]:
    """The user's frames from this one outwards, the innermost first."""
    user_frames: list[Caller] = []
    inner: FrameType | None = None
    while frame is not None and len(user_frames) < _MAX_FRAMES:
        if is_users(frame.f_code.co_filename):
            user_frames.append(Caller(frame, spot(frame), inner))
        inner, frame = frame, frame.f_back
    return user_frames


def is_prefetching(frame: FrameType | None) -> bool:
    """Whether `prefetch` is on the stack: it reads and places batches ahead of the loop."""
    while frame is not None:
        if frame.f_code.co_filename == _PREFETCH:
            return True
        frame = frame.f_back
    return False


def library_calls(frame: FrameType | None) -> list[str]:
    """The functions of libraries between this frame and the user's innermost one, by name.

    The innermost is first. xdevice's own functions are left out.
    """
    names: list[str] = []
    while frame is not None and not is_users(frame.f_code.co_filename):
        if not frame.f_code.co_filename.startswith(_OUR_FOLDERS):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def library_place(frame: FrameType | None) -> Place | None:
    """The innermost line of an installed library that the user's innermost line called, if any.

    The framework, and xdevice, are none.
    """
    while frame is not None and not is_users(frame.f_code.co_filename):
        if _is_librarys(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


@cache
def _is_librarys(file: str) -> bool:
    installed = _INSTALLED.match(file)
    if installed is None or installed[1] in _BESIDE_FRAMEWORKS:
        return False
    return not os.path.realpath(file).startswith((*_frameworks, *_OUR_FOLDERS))


def spot(frame: FrameType) -> Spot:
    """The instruction at which the frame is."""
    code, instruction = frame.f_code, frame.f_lasti
    key = id(code), instruction
    cached = _spots.get(key)
    if cached is not None:
        return cached[1]
    if len(_spots) > _MAX_SPOTS:
        _spots.clear()
    place = Place(code.co_filename, frame.f_lineno)
    span = _span(code, instruction)
    spot_loops = tuple(Loop(place.file, *lines) for lines in loops(place, span))
    called = _called_name(code, span)
    new_spot = Spot(instruction, place, called, is_allowed(place), spot_loops)
    _spots[key] = code, new_spot
    return new_spot


def _span(code: CodeType, instruction: int) -> Span | None:
    """Where an instruction begins and ends; None where Python does not know, as before 3.11."""
    if sys.version_info < (3, 11):
        return None
    line, end_line, column, end_column = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column), (end_line, end_column)


def _called_name(code: CodeType, span: Span | None) -> str:
    if span is None:
        return ""
    (line, column), (end_line, end_column) = span
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end_line]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        expression = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(expression, ast.Subscript):
        return "[]"
    if isinstance(expression, ast.Call):
        return called_name(expression)
    return ""
