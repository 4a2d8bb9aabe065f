"""``all_reduce``: several devices' tensors added up, on each of them."""

from __future__ import annotations

from xdevice.buckets import in_order, reduced
from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, NotSupportedError
from xdevice.gradients import differentiating
from xdevice.hardware import shortened
from xdevice.placement import owned_by
from xdevice.replicas import Replicas, check_alike
from xdevice.tree import leaves, named_leaves, with_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from xdevice.buckets import Column

OPERATIONS = ("sum", "mean", "max", "min")

PASSING = (type(None), str)  # leaves that may stand in a tree beside its tensors


def all_reduce(tensors: Sequence[Any], op: str = "sum") -> list[Any]:
    """The tensors reduced, on each device that they are on: new ones, in the order in which they were given.

    Instead of tensors there may be trees alike, which travel as one vector per device and dtype. Of no two
    results the memory is shared, also where two are on one device. Nothing that was given is changed. Gradients
    do not flow through: reduce gradients, outside the function that is differentiated.

    Parameters
    ----------
    tensors
        A list of tensors, or of trees of them, one for each device; `Replicas` give `Replicas`. ``None`` and
        strings in a tree pass through.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.

    >>> import numpy, xdevice
    >>> xdevice.all_reduce([numpy.array([1.0, 2.0]), numpy.array([3.0, 4.0])], op="mean")
    [array([2., 3.]), array([2., 3.])]

    Raises
    ------
    ArgumentError
        No such operation; no tensors; trees of different structure, shapes, dtypes or frameworks.
    ArgumentTypeError
        Booleans, or a mean of integers.
    NotATensorError
        A leaf is a number or any other object, or there is no tensor at all.
    NotSupportedError
        Inside `value_and_grad`.
    """
    check_operation(op)
    trees = _checked_trees(tensors)
    if differentiating():
        raise NotSupportedError("all_reduce has no gradient; call it outside value_and_grad, on the gradients")
    columns = _columns(trees, op)
    # what appears twice in every tree is reduced once, and shared in the results
    distinct = {tuple(map(id, column)): column for column in columns if not isinstance(column[0], PASSING)}
    weights = [1 / len(trees)] * len(trees) if op == "mean" else None
    buckets = reduced(list(distinct.values()), "sum" if op == "mean" else op, weights)
    results = []
    for i, tree in enumerate(trees):
        new = dict(zip(distinct, in_order(buckets, i), strict=True))
        results.append(with_leaves(tree, [new.get(tuple(map(id, column)), column[i]) for column in columns]))
    return Replicas(results) if isinstance(tensors, Replicas) else results


def not_reducible(kind: str, op: str) -> str:
    """What speaks against reducing numbers of that kind; nothing if it is empty."""
    if kind not in tuple("fiuc"):
        return "booleans and such are no numbers; convert them to integers first"
    if kind == "c" and op in ("max", "min"):
        return "complex numbers have no order; reduce their parts"
    return "a mean of integers is none; convert them to floating point first" if op == "mean" and kind in "iu" else ""


def check_operation(op: Any, known: tuple[str, ...] = OPERATIONS) -> None:
    """An error if there is no such operation."""
    if op in known:
        return
    from difflib import get_close_matches

    close = get_close_matches(str(op).lower(), known, 1, 0.5)
    there = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, known))}"
    raise ArgumentError(f"no operation {shortened(op)}; {there}")


def _checked_trees(tensors: Any) -> list[Any]:
    if owned_by(tensors) is not None or not isinstance(tensors, (list, tuple)):
        raise ArgumentTypeError(
            f"all_reduce was given an object of type {type(tensors).__name__}; "
            "give a list, with one tensor or tree of them for each device"
        )
    if not tensors:
        raise ArgumentError("all_reduce was given an empty list; give one tensor, or tree of them, for each device")
    return list(tensors)


def _columns(trees: list[Any], op: str) -> list[Column]:
    """Leaf by leaf, what the trees have there, if they are alike and can be reduced."""
    check_alike(trees)
    columns: list[Column] = list(zip(*[leaves(tree) or [tree] for tree in trees], strict=True))
    for n, column in enumerate(columns):
        sorts = list(map(_sort, column))
        for i, sort in enumerate(sorts):
            if sort != sorts[0]:
                raise ArgumentError(
                    f"all_reduce was given {_said(column[0])}{_at(n, trees)} in tree 0, and {_said(column[i])} in "
                    f"tree {i}; give trees of the same shapes, dtypes and framework"
                )
        if not isinstance(column[0], PASSING):
            _check_reducible(column[0], op, n, trees)
    if all(isinstance(column[0], PASSING) for column in columns):
        raise NotATensorError(f"there is no tensor to reduce in {shortened(trees)}; give tensors, or trees of them")
    return columns


def _check_reducible(leaf: Any, op: str, n: int, trees: list[Any]) -> None:
    owned = owned_by(leaf)
    if owned is None or owned[1] != "tensor":
        raise NotATensorError(
            f"all_reduce was given an object of type {type(leaf).__name__}{_at(n, trees)}; give tensors"
        )
    why_not = not_reducible(owned[0].collectives.kind(leaf), op)
    if why_not:
        raise ArgumentTypeError(f"all_reduce({op!r}) of {leaf.dtype}{_at(n, trees)}: {why_not}")


def _sort(leaf: Any) -> tuple[Any, ...]:
    """What must be equal in leaves that are reduced together."""
    owned = owned_by(leaf)
    return (owned[0], leaf.dtype, *leaf.shape) if owned and owned[1] == "tensor" else (type(leaf),)


def _said(leaf: Any) -> str:
    sort = _sort(leaf)
    if len(sort) == 1:
        return f"an object of type {type(leaf).__name__}"
    return f"a tensor of {sort[0]}, {sort[1]} and shape {sort[2:]}"


def _at(n: int, trees: list[Any]) -> str:
    path = [path for path, _ in named_leaves(trees[0])][n]
    return f" at {path}" if path else ""
