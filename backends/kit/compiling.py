"""Compiling a function of anything by a compiler of functions of tensors."""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

Function: TypeAlias = Callable[..., Any]
Tensors: TypeAlias = list[Any]


class Trees(NamedTuple):
    """How a framework opens containers.

    ``flatten`` returns the leaves and the structure, from which ``rebuild``
    makes the container again.
    """

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    rebuild: Callable[[Any, Sequence[Any]], Any]
    is_tensor: Callable[[Any], bool]

    def split(self, tree: Any) -> tuple[Tensors, Function]:
        """The tensors in a tree, and the function that rebuilds the tree with other tensors."""
        leaves, structure = self.flatten(tree)
        are_tensors = [self.is_tensor(leaf) for leaf in leaves]
        others = [None if is_tensor else leaf for leaf, is_tensor in _pairs(leaves, are_tensors)]

        def rebuild(tensors: Sequence[Any]) -> Any:
            following = iter(tensors)
            found = [
                next(following) if is_one else leaf for leaf, is_one in _pairs(others, are_tensors)
            ]
            return self.rebuild(structure, found)

        return [leaf for leaf, is_tensor in _pairs(leaves, are_tensors) if is_tensor], rebuild


def over_tensors(
    fn: Function, compile_tensors: Callable[[Function], Function], trees: Trees
) -> Function:
    """The compiled function, for arguments and results that hold more than tensors.

    What is not a tensor is a constant of the compiled function: a number of
    Python, a string, a dtype. The function is compiled at each call.
    """

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors, with_tensors = trees.split((args, kwargs))
        rebuild_result: Function | None = None

        def traced(arguments: Tensors) -> Tensors:
            nonlocal rebuild_result
            call_args, call_kwargs = with_tensors(arguments)
            results, rebuild_result = trees.split(fn(*call_args, **call_kwargs))
            return results

        results = compile_tensors(traced)(tensors)
        assert rebuild_result is not None  # tracing has run the function
        return rebuild_result(results)

    return call


def _pairs(leaves: Sequence[Any], are_tensors: list[bool]) -> Iterator[tuple[Any, bool]]:
    return zip(leaves, are_tensors, strict=True)
