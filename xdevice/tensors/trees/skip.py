"""``skip=``: the parts of a tree that are left out, by the names or the paths of its argument."""

from collections.abc import Collection
from typing import Any

from xdevice.errors import in_one_line
from xdevice.tensors.trees.containers import Container, Node, Opened, Parts, containers


class Skip:
    """The parts to leave out: those of a name in every container, and those at a path.

    A path names a part of one container. If the container appears again, the part is left
    out there, too. What is not in the tree is no error: a key may be absent in some batches.
    """

    def __init__(self, tree: Any, skip: Collection[str | int]) -> None:
        names: list[object] = [skip] if isinstance(skip, (int, str)) else list(skip or ())
        self._steps = frozenset(step for name in names for step in _steps_to(name))
        self._parts: dict[int, tuple[Node, list[tuple[str, Any]]]] = {}
        self._places: set[tuple[int, str]] = set()  # a container's id, and a step in it
        for name in names:
            self._mark(tree, f"{name}")
            self._mark(tree, f".{name}")  # `x.y` is the attribute `.x` of the tree's root

    def _mark(self, node: Node, path: str) -> None:
        """Note for each container on the path what is left of it: at the last, that is a step."""
        self._places.add((id(node), path))
        for step, part in self._named_parts(node):
            if path.startswith(step):
                self._mark(part, path.removeprefix(step))

    def leaves_out(self, node: Node, step: str) -> bool:
        """Whether a part, or a static field, of the container is left out: ``.x``, ``[0]``."""
        return step in self._steps or (id(node), step) in self._places

    def without(self, node: Node) -> Opened:
        """How the container is opened without what is skipped."""
        parts: Parts = []
        skipped: dict[int, Any] = {}
        for i, (step, part) in enumerate(self._named_parts(node)):
            if self.leaves_out(node, step):
                skipped[i] = part
            else:
                parts.append(part)
        container = containers[type(node)]
        return _Rest(container, skipped) if skipped else container, node, parts

    def _named_parts(self, node: Node) -> list[tuple[str, Any]]:
        """The steps to the parts, and the parts, which a class may make anew at each opening."""
        if id(node) not in self._parts:
            container = containers[type(node)]
            named = list(zip(container.paths(node), container.parts(node), strict=True))
            self._parts[id(node)] = node, named
        return self._parts[id(node)][1]


class _Rest(Container):
    """A container without the parts that are skipped."""

    def __init__(self, container: Container, skipped: dict[int, Any]) -> None:
        super().__init__(container.cls, container.base)
        self.container = container
        self.skipped = skipped  # by their numbers among all parts

    def paths(self, node: Node) -> list[str]:
        paths = self.container.paths(node)
        return [path for i, path in enumerate(paths) if i not in self.skipped]

    def rebuild(self, node: Node, parts: Parts) -> Node:
        for i, part in self.skipped.items():
            parts.insert(i, part)
        return self.container.rebuild(node, parts)


def _steps_to(name: object) -> tuple[str, ...]:
    """The last steps of the paths to parts of that name; a key may be a number."""
    return f".{name}", f"[{name}]", f"[{in_one_line(repr(name))}]"
