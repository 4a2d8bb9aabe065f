"""What a line of the program says about the copies that it makes: which object is moved, and whether it is new."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from xdevice.tensors.transfers.callers import Place, function, holds, loops, statement, tree

_METHODS = {"to", "cuda", "gpu", "to_device", "as_in_context", "as_in_ctx", "copyto"}
"""Methods that move their object."""
_FUNCTIONS = {"to_device", "device_put", "to_tensor", "convert_to_tensor", "tensor", "as_tensor", "asarray"}
"""Functions that move or convert their first argument."""
_TRAINERS = {"fit", "evaluate", "predict", "train_on_batch", "train_batch", "eval_batch"}
"""Methods in which a library runs the loop."""
_FACTORIES = {
    *("zeros", "ones", "empty", "full", "eye", "arange", "linspace", "zeros_like", "ones_like", "full_like"),
    *("rand", "randn", "randint", "randperm", "normal", "uniform", "rand_like", "randn_like"),
}
"""What makes a tensor of no data: it can be made anywhere."""


def factory(place: Place) -> str:
    """The factory whose result the line moves at once, ``torch.zeros`` in ``torch.zeros(3).cuda()``; else empty."""
    for value in _moved(place):
        if isinstance(value, ast.Call) and _name(value.func) in _FACTORIES:
            return ast.unparse(value.func)
    return ""


def trains(place: Place) -> bool:
    """Whether the line leaves the loop to a library: ``model.fit(x, y)``."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINERS
        for each in _statements(place)
        for node in ast.walk(each)
    )


def builds(place: Place) -> bool:
    """Whether the line moves what a class makes, a layer say: ``Linear(3, 4).to(device)``."""
    names = [_name(value.func) for value in _moved(place) if isinstance(value, ast.Call)]
    return any(name[:1].isupper() and not name.endswith(("Tensor", "Variable")) for name in names)


def moves(place: Place) -> bool:
    """Whether a call in the line moves something."""
    return any(True for _ in _moved(place))


@lru_cache(maxsize=1024)
def unchanged(place: Place) -> str:
    """What the line moves although the loop around it does not bind it; empty if there is none, or it is not known.

    In a function without a loop it is an attribute, or a name that the function does not bind.
    """
    around = loops(place)
    first, last = around[0] if around else function(place)
    bound = set(_bound(place.file, first, last))
    for value in _moved(place):
        calls = any(isinstance(node, ast.Call) for node in ast.walk(value))
        roots = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if not around and isinstance(value, ast.Attribute):
            roots.discard("self")
        if not calls and not isinstance(value, ast.Constant) and roots.isdisjoint(bound):
            return ast.unparse(value)
    return ""


def adds_up(place: Place) -> bool:
    """Whether the line is ``total += …``."""
    return any(isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) for node in _statements(place))


def decides(place: Place) -> bool:
    """Whether the line is the condition of an ``if``, a ``while`` or an ``assert``, and no more than that."""
    found = [node for node in _statements(place) if isinstance(node, (ast.If, ast.While, ast.Assert))]
    return any(isinstance(node, ast.Assert) or node.body[0].lineno > node.lineno for node in found)


def is_conditional(place: Place) -> bool:
    """Whether an ``if`` in the loop, or in the function, decides whether the line runs: not each turn need run it."""
    around = loops(place)
    first, _ = around[0] if around else function(place)
    return any(
        isinstance(node, ast.If)
        and first <= node.lineno <= (node.test.end_lineno or node.lineno) < place.line <= (node.end_lineno or 0)
        and function(Place(place.file, node.lineno)) == function(place)
        for node in ast.walk(tree(place.file))
    )


def follows_loop(place: Place) -> bool:
    """Whether a loop of the same function, and of the same turn of a loop around both, has ended before the line.

    A loop over parameters does not count: an update by hand is part of a step.
    """
    around, inside = loops(place), function(place)
    begins = around[0][0] if around else inside[0]
    return any(
        isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        and begins < node.lineno <= (node.end_lineno or node.lineno) < place.line
        and function(Place(place.file, node.lineno)) == inside
        and "param" not in ast.unparse(getattr(node, "iter", node)).lower()
        for node in ast.walk(tree(place.file))
    )


def _statements(place: Place) -> Iterator[ast.stmt]:
    first, _ = statement(place)
    return (n for n in ast.walk(tree(place.file)) if isinstance(n, ast.stmt) and n.lineno == first)


def _moved(place: Place) -> Iterator[ast.expr]:
    """The expressions that calls in the line move."""
    for node in ast.walk(tree(place.file)):
        if not isinstance(node, ast.Call) or not holds(node, place.line):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and not _is_module(node):
            yield node.func.value
        elif _name(node.func) in _FUNCTIONS and node.args:
            yield node.args[0]


def _is_module(call: ast.Call) -> bool:
    """Whether it is ``xdevice.to_device(x, d)``, a function, and not ``x.to_device(d)``."""
    return _name(call.func) in _FUNCTIONS and len(call.args) > 1


def _name(called: ast.expr) -> str:
    return getattr(called, "attr", getattr(called, "id", ""))


def _bound(file: str, first: int, last: int) -> Iterator[str]:
    """The names that lines bind or change: arguments, and what is in the target of an assignment."""
    for node in ast.walk(tree(file)):
        if not first <= getattr(node, "lineno", 0) <= last:
            continue
        if isinstance(node, ast.arg):
            yield node.arg
        if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield from (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
