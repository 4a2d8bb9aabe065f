"""Names that a framework does not promise to keep, what needs each, and what the installed version lacks.

An adapter lists them in ``names.txt`` beside its module ``private_names``, by
the *feature* that needs them. A name is checked when it is used. If the
framework has removed it, or changed its parameters, the feature is missing:
what calls it raises a `NotSupportedError` with the feature and the version
that has it. Virtual GPUs are refused only if a name is missing that is
essential to them. ``xdevice doctor`` lists what is missing in each framework
that is installed.
"""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, NoReturn

from xdevice.errors import NotSupportedError, VirtualDeviceError


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A name inside a framework."""

    path: str  # the module and the attribute: torch.nn:Module._apply
    feature: str  # what needs it
    # what it must take, in this order and perhaps among others, if its
    # signature can be read
    parameters: tuple[str, ...] = ()
    # the adapter does without it, or adds it; the path may be a pattern:
    # torch._C:_*
    optional: bool = False
    essential: bool = False  # without it there are no virtual GPUs


class Missing(NamedTuple):
    """A feature that is missing."""

    feature: str
    reason: str  # which names were removed, or take other parameters
    essential: bool  # without it there are no virtual GPUs


_replaced: set[str] = set()  # the paths where the adapters' own functions stand

Tried = str | Mapping[str, str]
"""The newest version that was tried and has all names, or such versions, the newest first, with their Pythons."""


def missing(names: Iterable[PrivateName]) -> list[str]:
    """A line for each name that was removed, or takes other parameters."""
    return [f"{change}, needed for {name.feature}" for name, change in _changes(names)]


def missing_features(names: Iterable[PrivateName]) -> list[Missing]:
    """The features that need a name that was removed, or takes other parameters."""
    changes_of: dict[str, list[tuple[PrivateName, str]]] = defaultdict(list)
    for name, change in _changes(names):
        changes_of[name.feature].append((name, change))
    return [
        Missing(
            feature,
            reason=", ".join(dict.fromkeys(change for _, change in changes)),
            essential=any(name.essential for name, _ in changes),
        )
        for feature, changes in changes_of.items()
    ]


def hint(package: str, tried: Tried) -> str:
    """Which version has all names, and what to type for it if this Python has a wheel of it."""
    this_python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if isinstance(tried, str):
        return f"{tried} has it: pip install {package}=={tried}"
    for version, pythons in tried.items():
        if this_python in pythons.split():
            return f"{version} has it: pip install {package}=={version}"
    newest, pythons = next(iter(tried.items()))
    return f"{newest} has it, under Python {' or '.join(pythons.split())}"


class PrivateNames:
    """The private names of one framework, read from ``names.txt`` beside the module of that ``__file__``.

    A line in brackets names the lists that have the rows below it. A row is an
    owner, its names, their parameters in parentheses if they matter, two
    dashes and the feature. Indented lines continue a row, and a word in braces
    stands for one of ``words``. The first character of a row says what happens
    if one of its names is missing:

    - ``!``: virtual GPUs are refused;
    - ``?``: nothing, since the adapter does without the name, or adds it;
    - none: the feature is missing, and nothing that it needs is replaced.

    A row that begins with ``>`` has the feature's entrances: public functions,
    too, which raise if it is missing.
    """

    def __init__(
        self, home: str, framework: str, package: str, last_tried: Tried, **words: str
    ) -> None:
        self._framework, self._package, self._last_tried = framework, package, last_tried
        self._lists = defaultdict[str, list[PrivateName]](list)
        self._entrances = defaultdict[str, list[str]](list)  # by feature
        self._complete: set[str] = set()  # features of which nothing is missing
        text = Path(home).with_name("names.txt").read_text(encoding="utf-8")
        text = text.replace("\n    ", " ").format(**words)
        lists = list[str]()
        for row in text.splitlines():
            if row.startswith("["):
                lists = row.strip("[]").split()
            elif row and not row.startswith("#"):
                self._read(row, lists)
        self._all = self.of()
        # a name that several features need is found by the first of them
        self._by_path = {name.path: name for name in reversed(self._all)}

    def _read(self, row: str, lists: Iterable[str]) -> None:
        mark = row[0] if row[0] in "!?>" else ""
        paths, _, feature = row.removeprefix(mark).partition(" -- ")
        paths, _, signature = paths.partition("(")
        owner, *attributes = paths.split()
        parameters = tuple(re.findall(r"\w+", signature))
        names = [
            PrivateName(
                owner + attribute,
                feature,
                parameters,
                optional=mark == "?",
                essential=mark == "!",
            )
            for attribute in attributes or [""]
        ]
        if mark == ">":
            self._entrances[feature] += [name.path for name in names]
        else:
            for each in lists:
                self._lists[each] += names

    def of(self, *lists: str) -> list[PrivateName]:
        """The names of these lists, or of all."""
        return [*dict.fromkeys(name for each in lists or self._lists for name in self._lists[each])]

    def check(self, *lists: str, imported_only: bool = False) -> None:
        """Refuse virtual GPUs if an essential name of these lists is missing; the entrances of other features raise.

        With ``imported_only``, names of modules that are not imported yet are
        left to `replace` and `value`.
        """
        names = self.of(*lists)
        for name in names:
            change = _change(name, imported_only) if name.essential else ""
            if change:
                reason = f"virtual GPUs do not work under {self._installed()}, where {change}"
                raise VirtualDeviceError(f"{reason}, needed for {name.feature}; {self._hint()}")
        for feature in dict.fromkeys(name.feature for name in names):
            self._is_missing(feature, imported_only)

    def require(self, feature: str) -> None:
        """Raise an error if a name that the feature needs was removed, or takes other parameters."""
        if feature not in self._complete:
            change = self._first_change(feature)
            if change:
                raise self._error(feature, change)
            self._complete.add(feature)

    def has(self, feature: str) -> bool:
        """Whether all that the feature needs is there, as far as it is imported; else its entrances raise."""
        return not self._is_missing(feature, imported_only=True)

    def value(self, path: str) -> Any:
        """What the framework has under that name.

        A function that raises, if the name is missing.
        """
        name = self._listed(path)
        change = _change(name, imported_only=False)
        return self._refusal(name.feature, change) if change else getattr(*resolved(path))

    def module(self, name: str) -> Any:
        """The framework's module.

        If it is missing, an object whose attributes raise.
        """
        try:
            return import_module(name)
        except ImportError:
            feature = next(each.feature for each in self._all if each.path.startswith(f"{name}:"))
            return _MissingModule(self._error(feature, f"{name} is not there"))

    def optional(self, *paths: str, otherwise: Any = None) -> Any:
        """What the framework has under the first of these names that is there."""
        for name in map(self._listed, paths):
            try:
                return getattr(*resolved(name.path))
            except (ImportError, AttributeError):
                continue
        return otherwise

    def replace(self, path: str, value: Any) -> None:
        """Replace the framework's own by the value, unless the feature that needs it is missing."""
        if not self._is_missing(self._listed(path).feature, imported_only=True):
            _put(path, value)

    def in_place_of(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator of a function that replaces the framework's own, and is given that as its first argument.

        One frame stands between the caller and the function.
        """

        def put(function: Callable[..., Any]) -> Callable[..., Any]:
            if self._is_missing(self._listed(path).feature, imported_only=True):
                return function
            own = getattr(*resolved(path))

            @wraps(own)
            def call(*args: Any, **kwargs: Any) -> Any:
                return function(own, *args, **kwargs)

            self.replace(path, call)
            return call

        return put

    def replace_everywhere(self, path: str, value: Any) -> None:
        """The same for each module of the framework that refers to its own."""
        if self._is_missing(self._listed(path).feature, imported_only=True):
            return
        own = getattr(*resolved(path))
        root = path.partition(".")[0]
        for module_name, module in list(sys.modules.items()):
            if module is None or module_name.partition(".")[0] != root:
                continue
            for name in [name for name, each in vars(module).items() if each is own]:
                setattr(module, name, value)
        _put(path, value)

    def _listed(self, path: str) -> PrivateName:
        if path in self._by_path:
            return self._by_path[path]
        for name in self._all:
            if name.optional and fnmatchcase(path, name.path):
                return name
        raise LookupError(f"{path} is private, and names.txt does not list it")

    def _is_missing(self, feature: str, imported_only: bool) -> bool:
        """Whether the feature lacks a name.

        Its entrances raise then, from now on.
        """
        change = self._first_change(feature, imported_only)
        if not change:
            return False
        for path in self._entrances[feature]:
            if path not in _replaced and _problem(PrivateName(path, feature)) is None:
                _put(path, self._refusal(feature, change, getattr(*resolved(path))))
        return True

    def _first_change(self, feature: str, imported_only: bool = False) -> str:
        """What has changed in the first changed name that the feature needs.

        Empty if none has changed.
        """
        names = [name for name in self._all if name.feature == feature]
        if not names:
            raise LookupError(f"names.txt lists nothing for {feature!r}")
        changes = (_change(name, imported_only) for name in names)
        return next(filter(None, changes), "")

    def _refusal(self, feature: str, change: str, own: Any = None) -> Any:
        """What replaces a function, or a class, of a feature that is missing."""

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise self._error(feature, change)

        if isinstance(own, type):
            return type(own.__name__, (), {"__new__": refuse})
        return refuse

    def _error(self, feature: str, change: str) -> NotSupportedError:
        return NotSupportedError(
            f"{feature}: not supported under {self._installed()}, where {change}; {self._hint()}"
        )

    def _installed(self) -> str:
        return f"{self._framework} {sys.modules[self._framework].__version__}"

    def _hint(self) -> str:
        return hint(self._package, self._last_tried)


class _MissingModule:
    """A module that is not there."""

    def __init__(self, error: NotSupportedError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python asks for these
            raise AttributeError(name)
        raise self._error


def _put(path: str, value: Any) -> None:
    owner, attribute = resolved(path)
    setattr(owner, attribute, value)
    _replaced.add(path)


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Generator[None]:
    """A block in which the owner's attribute is replaced by what ``make`` makes of it.

    What another has put over it meanwhile stays.
    """
    original = vars(owner)[name]
    replacement = make(original)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner)[name] is replacement:
            setattr(owner, name, original)


def resolved(path: str) -> tuple[Any, str]:
    """The object that has the attribute, and the attribute's name."""
    module, _, attributes = path.partition(":")
    parents, _, name = attributes.rpartition(".")
    return resolve_name(f"{module}:{parents}"), name


def _changes(names: Iterable[PrivateName]) -> list[tuple[PrivateName, str]]:
    """The names that were removed, or take other parameters, each with what has changed."""
    changes = [(name, _change(name, imported_only=False)) for name in names]
    return [(name, change) for name, change in changes if change]


def _change(name: PrivateName, imported_only: bool) -> str:
    """What has changed: that the name was removed, or which parameters it takes; empty if nothing has changed."""
    if name.path in _replaced:
        return ""
    if imported_only and name.path.partition(":")[0] not in sys.modules:
        return ""
    problem = _problem(name)
    return f"{name.path.replace(':', '.')} {problem}" if problem else ""


def _problem(name: PrivateName) -> str | None:
    try:
        owner, attribute = resolved(name.path)
        value = getattr(owner, attribute)
    except (ImportError, AttributeError):
        return None if name.optional else "is not there"
    try:
        parameters = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return None  # not callable, or compiled
    if tuple(each for each in parameters if each in name.parameters) == name.parameters:
        return None
    return f"takes ({', '.join(parameters)}), not ({', '.join(name.parameters)})"
