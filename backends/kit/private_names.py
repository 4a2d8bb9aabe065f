"""A framework's private names: what needs each, and which are missing.

A framework does not promise to keep such a name.

An adapter lists them in ``names.txt`` beside its module ``private_names``, by
the *feature* that needs them. A name is checked when it is used. If the
framework has removed it, or changed its parameters, the feature is missing:
a call raises a `NotSupportedError` with the feature and the version that has
it. Virtual GPUs are refused only if a name is missing that is essential to
them. ``xdevice doctor`` lists what is missing in each installed framework.
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
from typing import Any, NamedTuple, NoReturn, TypeAlias

from xdevice.errors import NotSupportedError, VirtualDeviceError

Native: TypeAlias = Any
"""A framework's own function, class or module."""

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A name inside a framework."""

    path: str  # the module and the attribute: torch.nn:Module._apply
    feature: str  # what needs it
    # parameters that it must have, in this order and perhaps among others;
    # checked if its signature can be read
    parameters: tuple[str, ...] = ()
    # the adapter works without it, or adds it; the path may be a pattern:
    # torch._C:_*
    optional: bool = False
    essential: bool = False  # without it there are no virtual GPUs


class Missing(NamedTuple):
    """A feature that is missing."""

    feature: str
    reason: str  # which names were removed, or take other parameters
    essential: bool  # without it there are no virtual GPUs


class _Change(NamedTuple):
    """A private name that the installed version lacks or has changed."""

    name: PrivateName
    problem: str  # torch.nn.Module._apply is not there


_replaced: set[str] = set()  # paths that an adapter has replaced

Tried = str | Mapping[str, str]
"""The newest version that was tried and has all names.

A mapping has several such versions, the newest first, each with its Pythons.
"""


def missing(names: Iterable[PrivateName]) -> list[str]:
    """A line for each name that was removed, or takes other parameters."""
    return [f"{change.problem}, needed for {change.name.feature}" for change in _changes(names)]


def missing_features(names: Iterable[PrivateName]) -> list[Missing]:
    """The features that need a removed or changed name."""
    changes_of = defaultdict[str, list[_Change]](list)  # by feature
    for change in _changes(names):
        changes_of[change.name.feature].append(change)
    features = []
    for feature, changes in changes_of.items():
        problems = dict.fromkeys(change.problem for change in changes)
        is_essential = any(change.name.essential for change in changes)
        features.append(Missing(feature, ", ".join(problems), is_essential))
    return features


def hint(package: str, versions: Tried) -> str:
    """Which version has all names, and how to install it.

    A version without a wheel for this Python cannot be installed.
    """
    this_python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if isinstance(versions, str):
        return f"{versions} has it: pip install {package}=={versions}"
    for version, pythons in versions.items():
        if this_python in pythons.split():
            return f"{version} has it: pip install {package}=={version}"
    newest, pythons = next(iter(versions.items()))
    return f"{newest} has it, under Python {' or '.join(pythons.split())}"


class PrivateNames:
    """The private names of one framework, as ``names.txt`` lists them.

    The file is beside the module whose ``__file__`` is ``home``.

    A line in brackets names the lists that have the rows below it. A row is an
    owner, its names, their parameters in parentheses if they matter, two
    dashes and the feature. Indented lines continue a row, and a word in braces
    stands for one of ``words``. The first character of a row says what happens
    if one of its names is missing:

    - ``!``: virtual GPUs are refused;
    - ``?``: nothing, since the adapter works without the name, or adds it;
    - none: the feature is missing, and nothing that it needs is replaced.

    A row that begins with ``>`` has the feature's entrances: public functions,
    too, which raise if it is missing.
    """

    def __init__(
        self, home: str, framework: str, package: str, last_tried: Tried, **words: str
    ) -> None:
        self._framework = framework
        self._package = package
        self._last_tried = last_tried
        self._lists = defaultdict[str, list[PrivateName]](list)
        self._entrances = defaultdict[str, list[str]](list)  # by feature
        self._complete: set[str] = set()  # features that have all names
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
        mark = ""
        if row[0] in "!?>":
            mark = row[0]
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
            for list_name in lists:
                self._lists[list_name] += names

    def of(self, *lists: str) -> list[PrivateName]:
        """The names of these lists, or of all."""
        names: dict[PrivateName, None] = {}  # each once, in order
        for list_name in lists or self._lists:
            names.update(dict.fromkeys(self._lists[list_name]))
        return list(names)

    def check(self, *lists: str, imported_only: bool = False) -> None:
        """Refuse virtual GPUs if an essential name of these lists is missing.

        If another name is missing, the entrances of its feature raise. With
        ``imported_only``, names of modules that are not imported yet are left
        to `replace` and `value`.
        """
        names = self.of(*lists)
        for name in names:
            if not name.essential:
                continue
            problem = _problem(name, imported_only)
            if problem:
                raise VirtualDeviceError(
                    f"virtual GPUs do not work under {self._installed()}, where {problem}, "
                    f"needed for {name.feature}; {self._hint()}"
                )
        for feature in dict.fromkeys(name.feature for name in names):
            self._is_missing(feature, imported_only)

    def require(self, feature: str) -> None:
        """Raise an error if a name that the feature needs is missing."""
        if feature in self._complete:
            return
        problem = self._first_problem(feature)
        if problem:
            raise self._error(feature, problem)
        self._complete.add(feature)

    def has(self, feature: str) -> bool:
        """Whether all imported names that the feature needs are there.

        If one is missing, the feature's entrances raise from now on.
        """
        return not self._is_missing(feature, imported_only=True)

    def value(self, path: str) -> Native:
        """What the framework has under that name.

        A function that raises, if the name is missing.
        """
        name = self._listed(path)
        problem = _problem(name, imported_only=False)
        if problem:
            return self._refusal(name.feature, problem)
        return getattr(*resolved(path))

    def module(self, name: str) -> Native:
        """The framework's module.

        If it is missing, an object whose attributes raise.
        """
        try:
            return import_module(name)
        except ImportError:
            names = [listed for listed in self._all if listed.path.startswith(f"{name}:")]
            error = self._error(names[0].feature, f"{name} is not there")
            return _MissingModule(error)

    def optional(self, *paths: str, otherwise: Native = None) -> Native:
        """What the framework has under the first name that exists."""
        for name in map(self._listed, paths):
            try:
                return getattr(*resolved(name.path))
            except (ImportError, AttributeError):
                continue
        return otherwise

    def replace(self, path: str, value: Native) -> None:
        """Replace the framework's own, unless the feature that needs it is missing."""
        if not self._is_missing(self._listed(path).feature, imported_only=True):
            _put(path, value)

    def in_place_of(self, path: str) -> Callable[[Function], Function]:
        """A decorator of a function that replaces the framework's own.

        The function gets the framework's own one as its first argument.

        One frame stands between the caller and the function.
        """

        def put(function: Function) -> Function:
            if self._is_missing(self._listed(path).feature, imported_only=True):
                return function
            original = getattr(*resolved(path))

            @wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                return function(original, *args, **kwargs)

            self.replace(path, call)
            return call

        return put

    def replace_everywhere(self, path: str, value: Native) -> None:
        """The same for each module of the framework that refers to its own."""
        if self._is_missing(self._listed(path).feature, imported_only=True):
            return
        original = getattr(*resolved(path))
        root = path.partition(".")[0]
        for module_name, module in list(sys.modules.items()):
            if module is None or module_name.partition(".")[0] != root:
                continue
            for name, attribute in list(vars(module).items()):
                if attribute is original:
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
        problem = self._first_problem(feature, imported_only)
        if not problem:
            return False
        for path in self._entrances[feature]:
            entrance = PrivateName(path, feature)
            if path not in _replaced and not _difference(entrance):
                original = getattr(*resolved(path))
                _put(path, self._refusal(feature, problem, original))
        return True

    def _first_problem(self, feature: str, imported_only: bool = False) -> str:
        """The first problem of a name that the feature needs; empty if none."""
        names = [name for name in self._all if name.feature == feature]
        if not names:
            raise LookupError(f"names.txt lists nothing for {feature!r}")
        problems = (_problem(name, imported_only) for name in names)
        return next(filter(None, problems), "")

    def _refusal(self, feature: str, problem: str, original: Native = None) -> Native:
        """The replacement of a function or class of a missing feature."""

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise self._error(feature, problem)

        if isinstance(original, type):
            return type(original.__name__, (), {"__new__": refuse})
        return refuse

    def _error(self, feature: str, problem: str) -> NotSupportedError:
        return NotSupportedError(
            f"{feature}: not supported under {self._installed()}, where {problem}; {self._hint()}"
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
        if name.startswith("__"):  # Python looks these up
            raise AttributeError(name)
        raise self._error


def _put(path: str, value: Native) -> None:
    owner, attribute = resolved(path)
    setattr(owner, attribute, value)
    _replaced.add(path)


@contextmanager
def replaced(owner: Native, name: str, make: Callable[[Native], Native]) -> Generator[None]:
    """A block in which ``make(attribute)`` replaces the owner's attribute.

    If another library replaces the attribute meanwhile, that one stays.
    """
    original = vars(owner)[name]
    replacement = make(original)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if vars(owner)[name] is replacement:
            setattr(owner, name, original)


def resolved(path: str) -> tuple[Native, str]:
    """The object that has the attribute, and the attribute's name."""
    module, _, attributes = path.partition(":")
    parents, _, name = attributes.rpartition(".")
    return resolve_name(f"{module}:{parents}"), name


def _changes(names: Iterable[PrivateName]) -> list[_Change]:
    """The names that were removed, or take other parameters."""
    changes = [_Change(name, _problem(name, imported_only=False)) for name in names]
    return [change for change in changes if change.problem]


def _problem(name: PrivateName, imported_only: bool) -> str:
    """How the name differs from the listed one, as a sentence.

    Empty if it does not.
    """
    if name.path in _replaced:
        return ""
    if imported_only and name.path.partition(":")[0] not in sys.modules:
        return ""
    difference = _difference(name)
    if not difference:
        return ""
    return f"{name.path.replace(':', '.')} {difference}"


def _difference(name: PrivateName) -> str:
    try:
        owner, attribute = resolved(name.path)
        value = getattr(owner, attribute)
    except (ImportError, AttributeError):
        return "" if name.optional else "is not there"
    try:
        parameters = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return ""  # not callable, or compiled
    common_parameters = tuple(p for p in parameters if p in name.parameters)
    if common_parameters == name.parameters:
        return ""
    return f"takes ({', '.join(parameters)}), not ({', '.join(name.parameters)})"
