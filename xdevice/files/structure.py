"""A tree's structure as JSON: containers, plain values, tensors' names."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypeAlias

from xdevice.errors import ArgumentTypeError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import known_of, tensor_owner

Tensor: TypeAlias = Any
Tree: TypeAlias = Any
Path: TypeAlias = tuple[str, ...]
JsonNode: TypeAlias = list[Any]
"""``[kind, contents]`` of a node of the tree."""

# Versions of the structure: a higher one was written by a later xdevice. Only the
# second has containers that appear again.
VERSIONS = (1, 2)

_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS: dict[str, Callable[..., Tree]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "list": list,
    "tuple": tuple,
}


class Structure:
    """The structure of a tree as JSON, and its tensors by name.

    Shared tensors have one name. A container that appears again is
    ``["again", number]``; containers are numbered in the order of their ends.
    """

    def __init__(self, tree: Tree) -> None:
        self.tensors: dict[str, tuple[Backend, Tensor]] = {}
        self._names: dict[int, str] = {}  # by the tensor's id
        self._parents: set[int] = set()  # the ids of the containers that are being walked
        self._numbers: dict[int, int] = {}  # of the containers that were walked, by id
        self._version = 1
        try:
            contents = self._node(tree, ())
        except RecursionError:
            raise ArgumentTypeError(
                f"this {type(tree).__name__} is nested too deeply; make it flatter"
            ) from None
        self.as_json = {"version": self._version, "tree": contents}
        if not self.tensors:
            raise ArgumentTypeError(
                f"there is no tensor in {shortened(tree)}; give a tree of tensors"
            )

    def _node(self, node: Tree, path: Path) -> JsonNode:
        owner = tensor_owner(node)
        if owner is not None:
            return ["tensor", self._name(node, owner, path)]
        if type(node) in _PLAIN:
            _check_length(node, path)
            return ["plain", node]
        if type(node) in _CONTAINERS.values():
            return self._container(node, path)
        hint = _alternative(node, is_model=known_of(type(node)).category == "model")
        raise ArgumentTypeError(f"a {type(node).__name__}{_at(path)} cannot be saved; {hint}")

    def _name(self, tensor: Tensor, owner: Backend, path: Path) -> str:
        """The tensor's name in the file.

        The path, and a number if another tensor has that name.
        """
        if id(tensor) in self._names:
            return self._names[id(tensor)]
        path_name = ".".join(path).encode("utf-8", "backslashreplace").decode() or "tensor"
        name = path_name
        numbers = count(2)
        while name in self.tensors or name == "__metadata__":  # keys may contain dots
            name = f"{path_name}#{next(numbers)}"
        self._names[id(tensor)] = name
        self.tensors[name] = owner, tensor
        return name

    def _container(self, container: Tree, path: Path) -> JsonNode:
        number = self._numbers.get(id(container))
        if number is not None:
            self._version = 2
            return ["again", number]
        contents = self._contents(container, path)
        if container:  # an empty tuple is always the same object
            self._numbers[id(container)] = len(self._numbers)
        return [type(container).__name__, contents]

    def _contents(self, container: Tree, path: Path) -> list[JsonNode]:
        if id(container) in self._parents:
            kind = type(container).__name__
            raise ArgumentTypeError(
                f"the {kind}{_at(path)} contains itself; a file cannot keep that"
            )
        self._parents.add(id(container))
        if isinstance(container, (list, tuple)):
            contents = [
                self._node(child, (*path, str(index))) for index, child in enumerate(container)
            ]
        else:
            for key in container:
                _check_key(key, path)
            contents = [
                [key, self._node(child, (*path, str(key)))] for key, child in container.items()
            ]
        self._parents.discard(id(container))
        return contents


def rebuild(structure: Any, tensors: dict[str, Tensor]) -> Tree:
    """The tree with this structure.

    `ValueError`: the structure is invalid, or does not contain one of the
    tensors.
    """
    version = structure.get("version") if isinstance(structure, dict) else None
    if version not in VERSIONS:
        raise ValueError(
            f"version {version!r} of the structure, where this xdevice knows {VERSIONS[-1]}"
        )
    builder = _Builder(tensors)
    tree = builder.build(structure["tree"])
    if builder.unused:
        raise ValueError(f"{min(builder.unused)!r} is not in the structure")
    return tree


class _Builder:
    """What builds a tree. It is no closure: one that calls itself would keep the tensors alive."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.unused = set(tensors)
        self.containers: list[Tree] = []  # those that are not empty

    def build(self, node: JsonNode) -> Tree:
        kind, contents = node
        if kind == "tensor":
            self.unused.discard(contents)
            return self.tensors[contents]
        if kind == "plain" and type(contents) in _PLAIN:
            return contents
        if kind in ("list", "tuple"):
            return self._container(kind, map(self.build, contents))
        if kind in ("dict", "OrderedDict"):
            return self._container(kind, ((key, self.build(child)) for key, child in contents))
        if kind == "again":
            if contents not in range(len(self.containers)):
                raise ValueError(f"no container {shortened(contents)} is known")
            return self.containers[contents]
        raise ValueError(f"no {shortened(kind)} is known")

    def _container(self, kind: str, contents: Iterable[Any]) -> Tree:
        container = _CONTAINERS[kind](contents)
        if container:
            self.containers.append(container)
        return container


def _alternative(node: object, is_model: bool) -> str:
    """What to save in place of an object that cannot be saved."""
    if is_model:
        for method in ("state_dict", "collect_params"):
            if hasattr(node, method):
                return f"save dict(its {method}())"
        return "save its variables, in a dict by their names"
    if hasattr(node, "_fields"):
        return "save its _asdict()"
    if hasattr(node, "__dataclass_fields__"):
        return "save vars() of it"
    for plain in (dict, list, tuple, bool, int, float, str):
        if isinstance(node, plain):
            return f"make it a plain {plain.__name__}"
    return "a file keeps tensors, numbers and strings, in dicts, lists and tuples"


def _check_key(key: object, path: Path) -> None:
    if type(key) not in _PLAIN:
        reason = f"the key {shortened(key)}{_at(path)} is neither a string nor a number"
        raise ArgumentTypeError(f"{reason}, so a file cannot keep it; write str(key)")
    _check_length(key, path)


def _check_length(value: object, path: Path) -> None:
    """Raise for an integer with more digits than Python reads or writes.

    By default it reads and writes 4300 digits.
    """
    if not isinstance(value, int):
        return
    try:
        str(value)
    except ValueError:
        raise ArgumentTypeError(
            f"{shortened(value)}{_at(path)} is too long for a file; write hex() of it"
        ) from None


def _at(path: Path) -> str:
    return f" at {'.'.join(path)}" if path else ""
