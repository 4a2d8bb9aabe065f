"""``skip=``: the parts of a tree that are left out, by the names or the paths of its argument."""

from collections.abc import Collection
from typing import Any

from xdevice.errors import in_one_line
from xdevice.tensors.trees.containers import Container, Node, Parts, SingleContainer, containers


class Skip:
    """The parts to leave out: those of a name in every container, and those at a path.

    In ``{"x": [{"mask": a}], "mask": b}``, ``mask`` names two parts, and ``['x'][0]['mask']`` one.
    A path is followed to the last container on it, and noted with that container: if the
    container appears again, the part is left out there, too. What is not in the tree is no error:
    a key may be absent in some batches.
    """

    def __init__(self, tree: Any, skip: Collection[str | int]) -> None:
        names: list[object] = [skip] if isinstance(skip, (int, str)) else list(skip or ())
        self._steps = frozenset(step for name in names for step in _steps_to(name))
        self._places: set[tuple[int, str]] = set()  # a container's id, and a step in it
        # by the id of a container: how it is opened, its parts, and the steps to them
        self._opened: dict[int, tuple[Container, Parts, list[str]]] = {}
        for name in names:
            self._follow(f"{name}", tree)
            self._follow(f".{name}", tree)  # `x.y` is the attribute `.x` of the tree's root

    def _follow(self, path: str, node: Node) -> None:
        """Note what is left of a path in each container on it: in the last one, it is a step."""
        self._places.add((id(node), path))
        _, parts, steps = self._open(node)
        for step, part in zip(steps, parts, strict=True):
            if path.startswith(step):
                self._follow(path.removeprefix(step), part)

    def leaves_out(self, node: Node, step: str) -> bool:
        """Whether a part, or a static field, of the container is left out: ``.x``, ``[0]``."""
        return step in self._steps or (id(node), step) in self._places

    def rest_of(self, node: Node) -> Container:
        """How the container is opened without what is skipped."""
        container, parts, steps = self._open(node)
        skipped = [i for i, step in enumerate(steps) if self.leaves_out(node, step)]
        if not skipped:
            return container
        rest = [i for i in range(len(parts)) if i not in skipped]

        def rebuild(new_parts: Parts) -> Node:
            for i in skipped:
                new_parts.insert(i, parts[i])
            return container.rebuild(node, new_parts)

        rest_parts, rest_steps = [parts[i] for i in rest], [steps[i] for i in rest]
        return SingleContainer(rest_parts, rest_steps, rebuild, container.static(node))

    def _open(self, node: Node) -> tuple[Container, Parts, list[str]]:
        if id(node) not in self._opened:
            container = containers[type(node)].of(node)
            self._opened[id(node)] = container, container.parts(node), container.paths(node)
        return self._opened[id(node)]


def _steps_to(name: object) -> tuple[str, ...]:
    """The last steps of the paths to parts of that name: the text "0" is no number."""
    return f".{name}", f"[{in_one_line(repr(name))}]"
