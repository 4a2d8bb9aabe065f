"""The structure of a tree as JSON: its containers, and the name of the tensor at each place.

Loading returns exactly what was saved: a container, key or leaf that JSON cannot represent is an error.
"""

from collections import OrderedDict
from itertools import chain, count
from typing import Any

from xdevice.errors import ArgumentTypeError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import owned_by

VERSION = 1  # of this format; a file with a higher one was written by a later xdevice
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "list": list, "tuple": tuple}


class Outline:
    """The structure of a tree, and its tensors by name; a shared tensor has one name."""

    def __init__(self, tree: Any) -> None:
        self.tensors: dict[str, tuple[Backend, Any]] = {}
        self._names: dict[int, str] = {}  # by the tensor's id
        self._open: set[int] = set()  # the containers that are being walked, by id
        try:
            self.words = {"version": VERSION, "tree": self._of(tree, ())}
        except RecursionError:
            raise ArgumentTypeError(f"this {type(tree).__name__} is nested too deeply; make it flatter") from None
        if not self.tensors:
            raise ArgumentTypeError(f"there is no tensor in {shortened(tree)}; give a tree of tensors")

    def _of(self, node: Any, path: tuple[str, ...]) -> list[Any]:
        """``[kind, contents]`` of the node."""
        owned = owned_by(node)
        if owned is not None and owned.is_tensor:
            if id(node) not in self._names:
                self._names[id(node)] = name = self._unused(".".join(path) or "tensor")
                self.tensors[name] = owned.backend, node
            return ["tensor", self._names[id(node)]]
        if type(node) in _PLAIN:
            _check_length(node, path)
            return ["plain", node]
        if type(node) not in _CONTAINERS.values():
            instead = _instead(node, is_model=owned is not None)
            raise ArgumentTypeError(f"a {type(node).__name__}{_at(path)} cannot be saved; {instead}")
        if id(node) in self._open:
            raise ArgumentTypeError(f"the {type(node).__name__}{_at(path)} contains itself; a file cannot keep that")
        self._open.add(id(node))
        contents = self._contents(node, path)
        self._open.discard(id(node))
        return [type(node).__name__, contents]

    def _contents(self, node: Any, path: tuple[str, ...]) -> list[Any]:
        if isinstance(node, (list, tuple)):
            return [self._of(child, (*path, str(i))) for i, child in enumerate(node)]
        for key in node:
            if type(key) not in _PLAIN:
                what = f"the key {shortened(key)}{_at(path)}"
                hint = "so a file cannot keep it; write str(key)"
                raise ArgumentTypeError(f"{what} is neither a string nor a number, {hint}")
            _check_length(key, path)
        return [[key, self._of(child, (*path, str(key)))] for key, child in node.items()]

    def _unused(self, path: str) -> str:
        """The path, numbered if it is taken: keys may contain dots."""
        wanted = path.encode("utf-8", "backslashreplace").decode()
        names = chain([wanted], (f"{wanted}#{number}" for number in count(2)))
        return next(name for name in names if name not in self.tensors and name != "__metadata__")


def rebuilt(words: Any, tensors: dict[str, Any]) -> Any:
    """The tree with this structure; ``ValueError`` if it is invalid, or leaves out one of the tensors."""
    version = words.get("version") if isinstance(words, dict) else None
    if version != VERSION:
        raise ValueError(f"version {version!r} of the structure, where this xdevice knows {VERSION}")
    left = set(tensors)

    def built(node: Any) -> Any:
        kind, contents = node
        if kind == "tensor":
            left.discard(contents)
            return tensors[contents]
        if kind == "plain" and type(contents) in _PLAIN:
            return contents
        if kind in ("list", "tuple"):
            return _CONTAINERS[kind](map(built, contents))
        if kind in ("dict", "OrderedDict"):
            return _CONTAINERS[kind]((key, built(child)) for key, child in contents)
        raise ValueError(f"no {shortened(kind)} is known")

    tree = built(words["tree"])
    if left:
        raise ValueError(f"{min(left)!r} is not in the structure")
    return tree


def _instead(node: Any, is_model: bool) -> str:
    """What to save in its place."""
    if is_model:
        known = next((word for word in ("state_dict", "collect_params") if hasattr(node, word)), None)
        return f"save dict(its {known}())" if known else "save its variables, in a dict by their names"
    if hasattr(node, "_fields"):
        return "save its _asdict()"
    if hasattr(node, "__dataclass_fields__"):
        return "save vars() of it"
    for plain in (dict, list, tuple, bool, int, float, str):
        if isinstance(node, plain):
            return f"make it a plain {plain.__name__}"
    return "a file keeps tensors, numbers and strings, in dicts, lists and tuples"


def _check_length(node: Any, path: tuple[str, ...]) -> None:
    """An error for an integer with more digits than Python writes, or reads: 4300 unless it is told otherwise."""
    try:
        str(node) if isinstance(node, int) else None
    except ValueError:
        raise ArgumentTypeError(f"{shortened(node)}{_at(path)} is too long for a file; write hex() of it") from None


def _at(path: tuple[str, ...]) -> str:
    return f" at {'.'.join(path)}" if path else ""
