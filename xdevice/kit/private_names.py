"""Names that a framework does not promise to keep, what needs each, and what the installed version lacks.

An adapter lists them in ``names.txt`` beside its module ``private_names``, by what needs them: a *feature*. A name is
checked where it is used. Where it has gone, or takes other parameters, its feature is missing: what calls it raises a
`NotSupportedError`, which names the feature and the version that has it. Virtual GPUs are refused only without a name
that is essential to them. ``xdevice doctor`` tells what is missing of every framework that is installed.
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
    parameters: tuple[
        str, ...
    ] = ()  # what it must take, in this order and perhaps among others, if it tells that
    optional: bool = False  # without it the adapter does too, or puts it there; the path may be a pattern: torch._C:_*
    essential: bool = False  # without it there are no virtual GPUs


class Missing(NamedTuple):
    """A feature that is missing."""

    feature: str
    reason: str  # which names have gone, or take other parameters
    essential: bool  # without it there are no virtual GPUs


_replaced: set[str] = set()  # by path: these are the adapters' own now

Tried = str | Mapping[str, str]
"""The newest version that was tried and has all names; by version, the newest first, the Pythons that have wheels."""


def missing(names: Iterable[PrivateName]) -> list[str]:
    """What has changed, a line for each name that has gone or takes other parameters."""
    return [f"{said}, needed for {name.feature}" for name, said in _all_changed(names)]


def missing_features(names: Iterable[PrivateName]) -> list[Missing]:
    """The features that need a name that has gone or takes other parameters."""
    changed = _all_changed(names)
    found = list[Missing]()
    for feature in dict.fromkeys(name.feature for name, _ in changed):
        of_it = [(name, said) for name, said in changed if name.feature == feature]
        reasons = ", ".join(dict.fromkeys(said for _, said in of_it))
        found.append(Missing(feature, reasons, any(name.essential for name, _ in of_it)))
    return found


def hint(package: str, tried: Tried) -> str:
    """Which version has all names, and what to type for it if this Python has a wheel of it."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons = {tried: here} if isinstance(tried, str) else tried
    version = next((each for each in pythons if here in pythons[each].split()), None)
    if version is not None:
        return f"{version} has it: pip install {package}=={version}"
    newest = next(iter(pythons))
    return f"{newest} has it, under Python {' or '.join(pythons[newest].split())}"


class PrivateNames:
    """The private names of one framework, read from ``names.txt`` beside the module of that ``__file__``.

    A line in brackets names the lists that have the rows below it. A row is an owner, its names, perhaps their
    parameters in parentheses, two dashes and the feature; it goes on in lines that are indented, and a word in braces
    stands for one of ``words``. Its first character says what follows where one of its names has gone:

    - ``!``: virtual GPUs are refused;
    - ``?``: nothing, for the adapter does without, or puts the name there;
    - none: the feature is missing, and nothing that it needs is replaced.

    A row that begins with ``>`` has the feature's entrances, which need not be private: they raise where it is missing.
    """

    def __init__(
        self, home: str, framework: str, package: str, last_tried: Tried, **words: str
    ) -> None:
        self._framework, self._package, self._last_tried = framework, package, last_tried
        self._lists = defaultdict[str, list[PrivateName]](list)
        self._entrances = defaultdict[str, list[str]](list)  # by feature
        self._complete: set[str] = set()  # features of which nothing is missing
        text = (
            Path(home)
            .with_name("names.txt")
            .read_text(encoding="utf-8")
            .replace("\n    ", " ")
            .format(**words)
        )
        lists = list[str]()
        for row in text.splitlines():
            if row.startswith("["):
                lists = row.strip("[]").split()
            elif row and not row.startswith("#"):
                self._read(row, lists)
        self._all = self.of()
        self._by_path = {
            name.path: name for name in reversed(self._all)
        }  # of several features, the first

    def _read(self, row: str, lists: Iterable[str]) -> None:
        mark = row[0] if row[0] in "!?>" else ""
        paths, _, feature = row.removeprefix(mark).partition(" -- ")
        paths, _, parameters = paths.partition("(")
        owner, *names = paths.split()
        wanted = tuple(re.findall(r"\w+", parameters))
        made = [
            PrivateName(owner + name, feature, wanted, mark == "?", mark == "!")
            for name in names or [""]
        ]
        if mark == ">":
            self._entrances[feature] += [name.path for name in made]
        else:
            for name in lists:
                self._lists[name] += made

    def of(self, *lists: str) -> list[PrivateName]:
        """The names of these lists, or of all."""
        return [*dict.fromkeys(name for each in lists or self._lists for name in self._lists[each])]

    def check(self, *lists: str, imported_only: bool = False) -> None:
        """Refuse virtual GPUs without an essential name of these lists, and close the entrances of what is missing.

        With ``imported_only``, a module that is not imported yet is left for `replace` and `value` to look at.
        """
        names = self.of(*lists)
        for name in names:
            if name.essential and (said := _changed(name, imported_only)):
                what = f"virtual GPUs do not work under {self._installed()}, where {said}, needed for {name.feature}"
                raise VirtualDeviceError(f"{what}; {self._hint()}")
        for feature in dict.fromkeys(name.feature for name in names):
            self._is_missing(feature, imported_only)

    def require(self, feature: str) -> None:
        """Raise if a name that the feature needs has gone, or takes other parameters."""
        if feature not in self._complete:
            said = self._said(feature)
            if said:
                raise self._error(feature, said)
            self._complete.add(feature)

    def has(self, feature: str) -> bool:
        """Whether all that the feature needs is there, as far as imported; else its entrances raise from now on."""
        return not self._is_missing(feature, imported_only=True)

    def value(self, path: str) -> Any:
        """What the framework has under that name; where it has gone, a function that raises."""
        name = self._listed(path)
        said = _changed(name, imported_only=False)
        return self._refusal(name.feature, said) if said else getattr(*resolved(path))

    def module(self, name: str) -> Any:
        """The framework's module; where it has gone, an object that raises when an attribute is asked for."""
        try:
            return import_module(name)
        except ImportError:
            feature = next(each.feature for each in self._all if each.path.startswith(f"{name}:"))
            return _Gone(self._error(feature, f"{name} is not there"))

    def optional(self, *paths: str, otherwise: Any = None) -> Any:
        """What the framework has under the first of these names that is there."""
        for name in map(self._listed, paths):
            try:
                return getattr(*resolved(name.path))
            except (ImportError, AttributeError):
                continue
        return otherwise

    def replace(self, path: str, value: Any) -> None:
        """Put the value in the place of the framework's own, unless the feature that needs it is missing."""
        if not self._is_missing(self._listed(path).feature, imported_only=True):
            _put(path, value)

    def in_place_of(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function to take the place of the framework's own, its first argument, with one frame between."""

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
        """The same wherever a module of the framework refers to its own."""
        if self._is_missing(self._listed(path).feature, imported_only=True):
            return
        own, root = getattr(*resolved(path)), path.partition(".")[0]
        for module in [
            module
            for name, module in sys.modules.items()
            if name.partition(".")[0] == root and module
        ]:
            for name in [name for name, each in vars(module).items() if each is own]:
                setattr(module, name, value)
        _put(path, value)

    def _listed(self, path: str) -> PrivateName:
        patterns = (name for name in self._all if name.optional and fnmatchcase(path, name.path))
        found = self._by_path.get(path) or next(patterns, None)
        if found is None:
            raise LookupError(f"{path} is private, and names.txt does not list it")
        return found

    def _is_missing(self, feature: str, imported_only: bool) -> bool:
        said = self._said(feature, imported_only)
        for path in self._entrances[feature] if said else ():
            if path not in _replaced and _problem(PrivateName(path, feature)) is None:
                _put(path, self._refusal(feature, said, getattr(*resolved(path))))
        return bool(said)

    def _said(self, feature: str, imported_only: bool = False) -> str:
        """What has changed of that which the feature needs, and is not essential; nothing if it is complete."""
        needed = [name for name in self._all if name.feature == feature]
        if not needed:
            raise LookupError(f"names.txt lists nothing for {feature!r}")
        return next(filter(None, (_changed(name, imported_only) for name in needed)), "")

    def _refusal(self, feature: str, said: str, own: Any = None) -> Any:
        """What stands in the place of a function, or a class, of a feature that is missing."""

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise self._error(feature, said)

        return type(own.__name__, (), {"__new__": refuse}) if isinstance(own, type) else refuse

    def _error(self, feature: str, said: str) -> NotSupportedError:
        return NotSupportedError(
            f"{feature}: not supported under {self._installed()}, where {said}; {self._hint()}"
        )

    def _installed(self) -> str:
        return f"{self._framework} {sys.modules[self._framework].__version__}"

    def _hint(self) -> str:
        return hint(self._package, self._last_tried)


class _Gone:
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


def _all_changed(names: Iterable[PrivateName]) -> list[tuple[PrivateName, str]]:
    """The names that have gone, or take other parameters, each with what has changed."""
    looked_at = [(name, _changed(name, imported_only=False)) for name in names]
    return [(name, said) for name, said in looked_at if said]


def _changed(name: PrivateName, imported_only: bool) -> str:
    """What has changed: that the name has gone, or what it takes; nothing if it has not."""
    is_left = name.path in _replaced or (
        imported_only and name.path.partition(":")[0] not in sys.modules
    )
    said = None if is_left else _problem(name)
    return f"{name.path.replace(':', '.')} {said}" if said else ""


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
