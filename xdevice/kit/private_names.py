"""Names that a framework does not promise to keep, and whether the installed version still has them.

Each adapter that replaces such names, or relies on them, has them in its module ``private_names`` as ``NAMES``,
beside ``LAST_TRIED``, the last version of the framework with which its tests have passed. The adapter calls `check`
before it replaces anything; ``xdevice doctor`` calls `missing` for every framework that is installed.
"""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from xdevice.errors import VirtualDeviceError


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A name inside a framework."""

    path: str  # the module and the attribute: torch.nn:Module._apply
    reason: str  # what it is needed for
    parameters: tuple[str, ...] = ()  # what it must take, in this order and perhaps among others, if it tells that
    optional: bool = False  # without it the adapter does too, or puts it there; the path may be a pattern: torch._C:_*


def listed(home: str, **words: str) -> dict[str, list[PrivateName]]:
    """The names in ``names.txt`` beside the module of this ``__file__``, by list.

    A line in brackets names the lists that have the rows below it. A row is an owner, its names, perhaps their
    parameters in parentheses, two dashes and the reason; it begins with a question mark where the names are optional,
    and goes on in lines that are indented. A word in braces stands for one of ``words``.
    """
    found, lists = defaultdict[str, list[PrivateName]](list), list[str]()
    text = Path(home).with_name("names.txt").read_text(encoding="utf-8").replace("\n    ", " ")
    for row in text.format(**words).splitlines():
        if row.startswith("["):
            lists = row.strip("[]").split()
        elif row and not row.startswith("#"):
            paths, _, reason = row.partition(" -- ")
            paths, _, parameters = paths.partition("(")
            owner, *names = paths.removeprefix("?").split()
            wanted = tuple(re.findall(r"\w+", parameters))
            rows = [PrivateName(owner + name, reason, wanted, row.startswith("?")) for name in names or [""]]
            for name in lists:
                found[name] += rows
    return found


_replaced: set[str] = set()  # by path: these are the adapters' own now


def missing(names: Iterable[PrivateName], *, imported_only: bool = False) -> list[str]:
    """What has changed, a line for each name that has gone or takes other parameters; of all or imported modules."""
    asked = [name for name in names if not imported_only or name.path.partition(":")[0] in sys.modules]
    problems = [(name, _problem(name)) for name in asked if name.path not in _replaced]
    return [f"{name.path.replace(':', '.')} {said}, needed for {name.reason}" for name, said in problems if said]


def check(
    names: Iterable[PrivateName], framework: str, version: str, last_tried: str, *, imported_only: bool = True
) -> None:
    """Raise if a name has gone or takes other parameters, by default one in a module that is imported."""
    problems = missing(names, imported_only=imported_only)
    if problems:
        more = f" (and {len(problems) - 1} more: xdevice doctor)" if len(problems) > 1 else ""
        what = f"virtual GPUs do not work under {framework} {version}: {problems[0]}{more}"
        raise VirtualDeviceError(f"{what}; the last version tried is {last_tried}")


def replace(names: Iterable[PrivateName], path: str, value: Any) -> None:
    """Put the value in the place of the framework's own, if its path is one of the names'."""
    if not any(path == name.path or (name.optional and fnmatchcase(path, name.path)) for name in names):
        raise LookupError(f"{path} is replaced, and private_names.py does not list it")
    owner, attribute = resolved(path)
    setattr(owner, attribute, value)
    _replaced.add(path)


def in_place_of(names: Iterable[PrivateName], path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function to take the place of the framework's own, its first argument, with one frame between."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        own = getattr(*resolved(path))

        @wraps(own)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(own, *args, **kwargs)

        replace(names, path, call)
        return call

    return put


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Generator[None]:
    """A block in which the owner's attribute is what ``make`` makes of it; what others put over that stays."""
    before = vars(owner)[name]
    ours = make(before)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        if vars(owner)[name] is ours:
            setattr(owner, name, before)


def resolved(path: str) -> tuple[Any, str]:
    """The object that has the attribute, and the attribute's name."""
    module, _, attributes = path.partition(":")
    parents, _, name = attributes.rpartition(".")
    return resolve_name(f"{module}:{parents}"), name


def _problem(name: PrivateName) -> str | None:
    try:
        owner, attribute = resolved(name.path)
        value = getattr(owner, attribute)
    except (ImportError, AttributeError):
        return None if name.optional else "is not there"
    try:
        there = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return None  # not callable, or compiled
    is_right = tuple(each for each in there if each in name.parameters) == name.parameters
    return None if is_right else f"takes ({', '.join(there)}), not ({', '.join(name.parameters)})"
